#!/bin/sh
# Unpacks Debian sid's shader compiler, Vulkan drivers and null devices into a folder. Nothing is
# installed, and root is not needed: programs of the folder run by its own loader and libraries.
#
#   tools/sid_tree.sh TREE
#
# tools/prebuild_shaders.sh TREE takes the compiler from it, the ctest `figures` the drivers. Takes
# apt-get, dpkg-deb and the network: about 160 MB, and 400 MB on disk. TREE is made again if it
# exists. DEBIAN_MIRROR is an archive to take instead of the one that this machine takes.
#
# Intel's null device is in no package. It is built from Mesa's sources, of sid or of an older suite
# where the archive lacks those; see tests/compile/null_gpu/.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
tree=${1:?usage: tools/sid_tree.sh TREE}
keys=/usr/share/keyrings/debian-archive-keyring.gpg
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "sid_tree: $*" >&2
    exit 1
}

# The archive of this machine, which may be a mirror nearby.
find_mirror() {
    # shellcheck disable=SC2016 # apt-get fills these fields in
    mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' \
        'Created-By: Packages' | sed -n 's/^Debian //p' | head -n 1)}
    [ -n "$mirror" ] || fail "apt-get knows no archive of Debian: set DEBIAN_MIRROR"
}

# quietly COMMAND...: what it printed is shown only when it fails.
quietly() {
    if ! "$@" >"$work/log" 2>&1 </dev/null; then
        tail -n 30 "$work/log" >&2
        fail "failed: $*"
    fi
}

# own_apt ARGUMENTS: apt-get that knows sid, and no package as installed.
own_apt() {
    apt-get -qq -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work/cache" \
        -o Dir::State::Status="$work/status" -o APT::Sandbox::User= \
        -o Acquire::Languages=none -o Acquire::Check-Valid-Until=false -o Acquire::Retries=3 "$@"
}

unpack_packages() {
    quietly own_apt update
    quietly own_apt install -y --no-install-recommends --download-only glslang-tools spirv-tools \
        libvulkan1 mesa-vulkan-drivers mesa-drm-shim
    # Its headers; what it depends on is not needed.
    (cd "$work/cache/archives" && quietly own_apt download libdrm-dev)
    rm -rf --one-file-system "$tree"
    mkdir -p "$tree"
    for package in "$work"/cache/archives/*.deb; do
        quietly dpkg-deb -x "$package" "$tree"
    done
}

# Names the suite whose sources of Mesa it took.
download_mesa() {
    for suite in sid testing stable; do
        if (cd "$work" && own_apt source --download-only --tar-only "mesa/$suite") >"$work/log" 2>&1
        then
            mesa_suite=$suite
            return
        fi
        rm -f "$work"/mesa_*
    done
    tail -n 30 "$work/log" >&2
    fail "no sources of Mesa"
}

unpack_mesa() {
    mkdir "$work/mesa"
    tar -xf "$work"/mesa_*.orig.tar.* -C "$work/mesa" --strip-components=1 --wildcards \
        '*/include/*.h' '*/src/c11/*' '*/src/drm-shim/*' '*/src/util/*' \
        '*/src/intel/tools/intel_noop_drm_shim.c'
}

build_intel() {
    # What the shim includes of Mesa's Intel code: intel.c has the little that is used of it.
    for header in common/intel_gem dev/intel_device_info dev/intel_device_info_serialize; do
        mkdir -p "$work/empty/${header%/*}"
        : >"$work/empty/$header.h"
    done
    mesa=$work/mesa
    set --
    for name in anon_file hash_table os_misc ralloc rb_tree set simple_mtx u_call_once vma; do
        set -- "$@" "$mesa/src/util/$name.c"
    done
    quietly "${CC:-cc}" -std=gnu11 -O1 -w -shared -fPIC -o "$tree/libintel_null.so" \
        -DNDEBUG -D_GNU_SOURCE -DHAVE_PTHREAD -DHAVE_THRD_CREATE -DHAVE_STRUCT_TIMESPEC \
        -DHAVE_SECURE_GETENV -DHAVE_PROGRAM_INVOCATION_NAME -DHAVE_FUNC_ATTRIBUTE_PACKED \
        -DHAVE_MEMFD_CREATE -DHAVE___BUILTIN_FFS -DHAVE___BUILTIN_FFSLL -DHAVE___BUILTIN_CLZ \
        -DHAVE___BUILTIN_CLZLL -DHAVE___BUILTIN_POPCOUNT -DHAVE___BUILTIN_POPCOUNTLL \
        -DHAVE___BUILTIN_EXPECT -DHAVE___BUILTIN_UNREACHABLE -DMAJOR_IN_SYSMACROS \
        -DUTIL_ARCH_LITTLE_ENDIAN=1 -DUTIL_ARCH_BIG_ENDIAN=0 \
        -I"$work/empty" -I"$tree/usr/include" -I"$tree/usr/include/libdrm" \
        -I"$mesa/include" -I"$mesa/src" -I"$mesa/src/util" \
        "$root/tests/compile/null_gpu/intel.c" "$mesa/src/drm-shim/device.c" \
        "$mesa/src/drm-shim/drm_shim.c" "$@" -Wl,--wrap=drm_shim_bo_init -ldl -lpthread
}

for program in apt-get dpkg-deb tar xz "${CC:-cc}"; do
    command -v "$program" >/dev/null || fail "there is no $program"
done
[ -e "$keys" ] || fail "there is no $keys"
find_mirror
mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
: >"$work/status"
echo "deb [signed-by=$keys] $mirror sid main" >"$work/sources.list"
for suite in sid testing stable; do
    echo "deb-src [signed-by=$keys] $mirror $suite main" >>"$work/sources.list"
done

unpack_packages
download_mesa
unpack_mesa
build_intel
echo "sid_tree: $tree, Intel's null device from Mesa's sources in $mesa_suite"
