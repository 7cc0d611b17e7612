#!/bin/sh
# Installs what a Debian 12 or 13 lacks to build, run and test vkattn.
#
#   tools/setup.sh         compilers, libraries and a Vulkan driver
#   tools/setup.sh build   the same, then configures and builds into build/
#   tools/setup.sh use     the same without the tests: the library, the commands, and what makes an
#                          environment of Python
#   tools/setup.sh test    as build, with what the tests of the Python package need
#   tools/setup.sh tools   what `test` installs, and nothing is built
#   tools/setup.sh driver  the same, with Mesa's drivers even where another driver is installed
#   tools/setup.sh ci      the same, with what only .ci/run needs
#
# Looks for the tools, headers and libraries themselves: where all are there, it installs nothing
# and opens no connection. Asks nothing: packages come by apt-get, through sudo where the user is
# not root.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
cd "$root"
log=$(mktemp)
trap 'rm -f "$log"' EXIT

say() {
    echo "setup: $*"
}

# quietly COMMAND...: what it printed is shown only when it fails.
quietly() {
    if ! "$@" >"$log" 2>&1 </dev/null; then
        tail -n 60 "$log" >&2
        say "failed: $*" >&2
        exit 1
    fi
}

has_command() {
    command -v "$1"
}

has_c_header() {
    echo "#include <$1>" | ${CC:-cc} -E -x c -
}

has_cxx_header() {
    echo "#include <$1>" | ${CXX:-c++} -E -x c++ -
}

has_cmake() { # 3.25 or later, for the workflow preset
    cmake --version | awk 'NR == 1 { split($3, v, "."); ok = v[1] * 1000 + v[2] >= 3025 }
                           END { exit !ok }'
}

has_make() {
    command -v ninja || command -v make
}

# has_file FILE...: one of them exists (an unmatched pattern stands for itself and does not).
has_file() {
    for file in "$@"; do
        if [ -e "$file" ]; then
            return 0
        fi
    done
    return 1
}

# need PACKAGE CHECK...: adds PACKAGE to $missing where the command CHECK fails.
need() {
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}

# want PACKAGE CHECK...: the same for $wanted, without which things work, with tests skipped.
want() {
    package=$1
    shift
    "$@" >/dev/null 2>&1 || wanted="$wanted $package"
}

find_missing() {
    missing=
    wanted=
    need gcc has_c_header stdio.h
    need g++ has_cxx_header new
    need cmake has_cmake
    need ninja-build has_make
    need pkg-config has_command pkg-config
    need glslang-tools has_command glslangValidator
    need spirv-tools has_command spirv-val
    need libvulkan-dev has_c_header vulkan/vulkan.h
    need libvulkan-volk-dev has_c_header volk.h
    need libjansson-dev pkg-config --exists jansson
    need libcmocka-dev pkg-config --exists cmocka
    need mesa-vulkan-drivers has_file "${VK_DRIVER_FILES:-}" "${VK_ICD_FILENAMES:-}" \
         /etc/vulkan/icd.d/*.json /usr/local/share/vulkan/icd.d/*.json \
         /usr/share/vulkan/icd.d/*.json
    case $1 in
    driver)
        need mesa-vulkan-drivers has_file /usr/share/vulkan/icd.d/lvp_icd*.json
        ;;
    ci)
        need clang has_command clang
        need clang-format has_command clang-format
        need libclang-rt-dev has_file /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a
        need gcovr has_command gcovr
        need lintian has_command lintian
        need mandoc has_command mandoc
        need xz-utils has_command xz
        need unzip has_command unzip
        need vulkan-validationlayers \
             has_file /usr/share/vulkan/explicit_layer.d/*khronos_validation*.json
        need chromium-common has_file /usr/lib/chromium/vk_swiftshader_icd.json
        need chromium has_command chromium
        need libopenmpi-dev has_command mpicc
        need openmpi-bin has_command mpirun
        need gcc-mingw-w64-x86-64 has_command x86_64-w64-mingw32-gcc
        need g++-mingw-w64-x86-64 has_command x86_64-w64-mingw32-g++
        need wine has_command wine
        need wine64 has_command wineserver
        need xvfb has_command Xvfb
        need xauth has_command xauth
        need dpkg-dev has_command dpkg-source
        need gcc-aarch64-linux-gnu has_command aarch64-linux-gnu-gcc
        need libc6-dev-arm64-cross has_file /usr/aarch64-linux-gnu/lib/crti.o
        need gcc-arm-linux-gnueabihf has_command arm-linux-gnueabihf-gcc
        need libc6-dev-armhf-cross has_file /usr/arm-linux-gnueabihf/lib/crti.o
        need qemu-user has_command qemu-aarch64
        ;;
    esac
    case $1 in
    use)
        want python3-venv /usr/bin/python3 -c 'import ensurepip'
        ;;
    test | tools | ci)
        for module in numpy cffi pytest hatchling pip; do
            want "python3-$module" /usr/bin/python3 -c "import $module"
        done
        want python3-venv /usr/bin/python3 -c 'import ensurepip'
        ;;
    esac
    missing=${missing# }
    wanted=${wanted# }
}

# as_root COMMAND...: sudo must not ask for a password, as nobody may be there to give one.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

install_missing() {
    if [ -z "$missing" ] && ! { has_command apt-get && as_root true; } >/dev/null 2>&1; then
        return # it can do without the rest
    fi
    if ! has_command apt-get >/dev/null; then
        say "missing, by their Debian names: $missing" >&2
        say "there is no apt-get here: install them and run this again" >&2
        exit 1
    fi
    if ! as_root true 2>/dev/null; then
        say "missing: $missing" >&2
        say "not root, and no sudo without a password: as root, please run" >&2
        say "    apt-get install --no-install-recommends $missing" >&2
        exit 1
    fi
    say "installing $missing${missing:+${wanted:+ }}$wanted"
    # A source that is out of reach need not be the one that is wanted: let the install decide.
    as_root apt-get -qq update >"$log" 2>&1 </dev/null || cat "$log" >&2
    # shellcheck disable=SC2086 # a list of words
    quietly as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends \
            -o DPkg::Lock::Timeout=300 install $missing $wanted
}

# follow: reads what ninja or make prints, and says how far it is: in place on a terminal, elsewhere at
# each tenth.
follow() {
    told=-1
    while IFS= read -r line; do
        at=${line#\[}
        at=${at%%\]*}
        case $line in
        \[*[0-9]/[0-9]*\]*) percent=$((100 * ${at%/*} / ${at#*/})) ;;
        \[*[0-9]%\]*) percent=$((${at%\%})) ;;
        *) continue ;;
        esac
        if [ -t 1 ]; then
            printf '\rsetup: built %3d %%' "$percent"
        elif [ "$((percent / 10))" -gt "$told" ]; then
            told=$((percent / 10))
            say "built $percent %"
        fi
    done
    [ ! -t 1 ] || echo
}

# build [TARGET...]: without one, all.
build() {
    fresh=
    # A build folder that came along with a moved or copied tree knows the wrong paths.
    if [ -e build/CMakeCache.txt ] &&
       ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" build/CMakeCache.txt; then
        fresh=--fresh
    fi
    if [ -z "${CMAKE_GENERATOR:-}" ] && has_command ninja >/dev/null; then
        export CMAKE_GENERATOR=Ninja # for a new build folder; an old one keeps its own
    fi
    say "building into $root/build"
    quietly cmake $fresh --preset default
    { cmake --build --preset default --parallel "$(nproc)" ${1:+--target "$@"} 2>&1 </dev/null ||
        echo "BUILD FAILED"; } |
        tee "$log" | follow
    if grep -qx "BUILD FAILED" "$log"; then
        tail -n 60 "$log" >&2
        exit 1
    fi
}

mode=${1:-}
case $mode in
'' | build | use | test | tools | driver | ci) ;;
*)
    echo "usage: tools/setup.sh [build|use|test|tools|driver|ci]" >&2
    exit 2
    ;;
esac

find_missing "$mode"
if [ -n "$missing$wanted" ]; then
    install_missing
    find_missing "$mode"
    if [ -n "$missing" ]; then
        say "installed, and still not found: $missing" >&2
        exit 1
    fi
    if [ -n "$wanted" ]; then
        say "not found, and what needs them is left out: $wanted"
    fi
else
    say "nothing to install"
fi
case $mode in
build | test) build ;;
use) build vkattn_tool vkattn-mnist ;; # libvkattn.so is what they link
esac
