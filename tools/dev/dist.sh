#!/bin/sh
# Makes what a release consists of, from the commit that is checked out:
#
#   tools/dev/dist.sh [--debian-13 TREE] [--output FOLDER] [PART]...
#
# PART is one of these; without any, all that no option has to be given for:
#
#   source   vkattn-0.1.0.tar.gz, of which everything else is built and which pip builds too; ports/ in
#            it is an overlay port of vcpkg
#   linux    Debian 12's packages and the wheel for x86-64
#   arm64    the wheel for arm64
#   windows  the wheel, and a zip of the DLL, its import library, static libraries, headers, commands
#            and the package files of CMake
#   debian13 Debian 13's packages, made in TREE, which `debootstrap trixie TREE` left; as root
#
# Wheels for Linux take glibc 2.17 or later, by the compiler of PyPI's package ziglang.
#
# They lie in FOLDER, dist/ by default, with SHA256SUMS and what they consist of as SPDX. The same
# commit gives the same bytes in every folder, with the same compilers; dates are those of the commit.
# It takes Debian 12 and what tools/setup.sh ci installs. Nothing of it is tested here:
# tests/install/dist.sh does that.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
output=$root/dist
debian13=
parts=

fail() {
    echo "dist: $*" >&2
    exit 1
}

while [ $# -gt 0 ]; do
    case $1 in
    --debian-13)
        debian13=$(CDPATH='' cd -- "${2:?usage: tools/dev/dist.sh --debian-13 TREE}" && pwd)
        shift
        ;;
    --output)
        mkdir -p "${2:?usage: tools/dev/dist.sh --output FOLDER}"
        output=$(CDPATH='' cd -- "$2" && pwd)
        shift
        ;;
    source | linux | arm64 | windows | debian13) parts="$parts $1" ;;
    *) fail "there is no part '$1': source, linux, arm64, windows, debian13" ;;
    esac
    shift
done
[ -n "$parts" ] || parts="source linux arm64 windows ${debian13:+debian13}"
cd "$root"
git rev-parse --verify -q HEAD >/dev/null || fail "this is no checkout of git: there is no commit"
[ -z "$(git status --porcelain)" ] || echo "dist: what is not committed is left out" >&2

umask 022
export LC_ALL=C.UTF-8 TZ=UTC SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
version=$(git show HEAD:CMakeLists.txt | sed -n 's/^project(vkattn VERSION \([0-9.]*\) .*/\1/p')
name=vkattn-$version
work=$root/build-dist
source=$work/$name
if [ -z "${CMAKE_GENERATOR:-}" ] && command -v ninja >/dev/null; then
    export CMAKE_GENERATOR=Ninja
fi

# quietly COMMAND...: what it printed is shown only when it fails.
quietly() {
    "$@" >"$work/log" 2>&1 </dev/null || {
        tail -n 40 "$work/log" >&2
        fail "failed: $*"
    }
}

# Unpacked where nothing of an earlier time is left; times of files are the commit's, so that only
# what another commit changed is built again.
make_source() {
    mkdir -p "$work"
    rm -rf "$source"
    git -c tar.umask=0022 archive --format=tar --prefix="$name/" HEAD | tar -x -C "$work"
    PYTHONPATH=$source/python python3 -B -c "import source_build as s; s.build_sdist('$work')"
}

# configure FOLDER PRESET OPTION...: in $work/FOLDER. No folder of this machine gets into the files.
configure() {
    folder=$work/$1
    preset=$2
    shift 2
    quietly cmake -S "$source" --preset "$preset" -B "$folder" -DCMAKE_BUILD_TYPE=Release \
        -DVKATTN_BUILD_TESTS=OFF -DCMAKE_SKIP_RPATH=ON \
        "-DCMAKE_C_FLAGS=-ffile-prefix-map=$work=." "$@"
}

# build FOLDER
build() {
    quietly cmake --build "$work/$1" --parallel "$(nproc)"
}

# wheel FOLDER: of $work/FOLDER.
wheel() {
    rm -f "$work/$1"/*.whl
    quietly cmake --build "$work/$1" --parallel "$(nproc)" --target wheel
    install -m 644 "$work/$1"/*.whl "$output/"
}

# The kernels of the first system serve the others, those of VKATTN_SPIRV_FROM all.
kernels=${VKATTN_SPIRV_FROM:-}

# manylinux_wheel MACHINE
manylinux_wheel() {
    [ -x build-zig/bin/python ] || quietly python3 -m venv build-zig
    quietly build-zig/bin/pip install -q --disable-pip-version-check ziglang==0.17.1
    configure "wheel-$1" manylinux -DVKATTN_ZIG="$root/build-zig/bin/python" -DVKATTN_TARGET="$1-linux-gnu.2.28" \
        -DVKATTN_SPIRV_FROM="$kernels"
    wheel "wheel-$1"
    kernels=${kernels:-$work/wheel-$1/shaders}
}

make_linux() {
    configure linux package -DVKATTN_SPIRV_FROM="$kernels"
    build linux
    kernels=${kernels:-$work/linux/shaders}
    rm -rf "$work/deb"
    quietly cpack --config "$work/linux/CPackConfig.cmake" -B "$work/deb"
    mkdir -p "$output/debian-12"
    install -m 644 "$work"/deb/*.deb "$output/debian-12/"
    manylinux_wheel x86_64
}

make_arm64() {
    manylinux_wheel aarch64
}

# zip_folder FOLDER ZIP: sorted, with the commit's time and no more than modes of files.
zip_folder() {
    python3 - "$1" "$2" <<'PYTHON'
import os, sys, time, zipfile
folder, output = sys.argv[1:]
date = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
paths = sorted(os.path.join(at, file) for at, _, files in os.walk(folder) for file in files)
with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
    for path in paths:
        entry = zipfile.ZipInfo(os.path.relpath(path, os.path.dirname(folder)), date)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.create_system = 3  # Unix
        entry.external_attr = (os.stat(path).st_mode & 0xFFFF) << 16
        with open(path, "rb") as file:
            archive.writestr(entry, file.read())
PYTHON
}

make_windows() {
    quietly tools/dev/windows_libraries.sh build-windows-libraries
    configure windows windows -DVKATTN_SPIRV_FROM="$kernels" \
        -DVKATTN_WINDOWS_LIBRARIES="$root/build-windows-libraries" \
        "-DCMAKE_SHARED_LINKER_FLAGS=-Wl,--no-insert-timestamp" \
        "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--no-insert-timestamp"
    build windows
    wheel windows
    stage=$work/windows-zip/$name-windows-x86_64
    rm -rf "$work/windows-zip"
    quietly cmake --install "$work/windows" --prefix "$stage" --strip
    rm -rf "$stage/share"
    cp "$source/README.md" "$source/CHANGELOG.md" "$stage/"
    cp "$work/windows/copyright" "$stage/LICENSE"
    rm -f "$output/$name-windows-x86_64.zip"
    zip_folder "$stage" "$output/$name-windows-x86_64.zip"
}

# In a system of its own, with the compilers and libraries of that; tools/setup.sh installs them.
make_debian13() {
    [ -n "$debian13" ] || fail "debian13 takes --debian-13 TREE, as debootstrap trixie TREE leaves it"
    grep -q '^VERSION_CODENAME=trixie$' "$debian13/etc/os-release" ||
        fail "$debian13 is no tree of Debian 13"
    rm -rf "$debian13/build"
    mkdir "$debian13/build"
    cp -r "$source" "$debian13/build/vkattn"
    cp /etc/resolv.conf "$debian13/etc/resolv.conf"
    # shellcheck disable=SC2016 # the tree's shell expands it
    quietly chroot "$debian13" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC \
        SOURCE_DATE_EPOCH="$SOURCE_DATE_EPOCH" DEBIAN_FRONTEND=noninteractive sh -euc '
        umask 022
        cd /build/vkattn
        tools/setup.sh
        apt-get -qq -y --no-install-recommends install dpkg-dev file libopenmpi-dev
        cmake --preset package -G Ninja -DCMAKE_SKIP_RPATH=ON -DCMAKE_C_FLAGS=-ffile-prefix-map=/build=.
        cmake --build --preset package --parallel "$(nproc)"
        cpack --config build-package/CPackConfig.cmake -B /build/deb'
    mkdir -p "$output/debian-13"
    install -m 644 "$debian13"/build/deb/*.deb "$output/debian-13/"
    rm -rf "$debian13/build"
}

mkdir -p "$output"
make_source
for part in $parts; do
    echo "---- dist: $part"
    case $part in
    source) install -m 644 "$work/$name.tar.gz" "$output/" ;;
    *) "make_$part" ;;
    esac
done
python3 -B "$source/tools/dev/sbom.py" "$output" "$work" >"$work/sbom"
mv "$work/sbom" "$output/$name.spdx.json"
cd "$output"
sums=$(find . -type f ! -name SHA256SUMS | sed 's|^\./||' | sort | xargs sha256sum)
echo "$sums" >SHA256SUMS
cat SHA256SUMS
