#!/bin/sh
# Unpacks Debian sid's shader compiler, Vulkan drivers and null devices into a folder. Nothing is
# installed, and root is not needed: programs of the folder run by its own loader and libraries.
#
#   tools/dev/sid_tree.sh TREE
#   tools/dev/sid_tree.sh TREE arm64     the drivers for arm64, with what PanVK's null device and the tests
#                                    need (tools/dev/arm64.sh), without Intel's; takes
#                                    aarch64-linux-gnu-gcc
#   tools/dev/sid_tree.sh TREE SUITE     the drivers of another suite, such as trixie, without null devices:
#                                    for tests/devices/newest_driver.sh
#
# tools/dev/prebuild_shaders.sh TREE takes the compiler from it, the ctest `figures` the drivers. Takes
# apt-get, dpkg-deb and the network: about 160 MB, and 400 MB on disk. A TREE of the same versions of
# packages, made by the same scripts, is left as it is. DEBIAN_MIRROR is an archive to take instead of the one that this machine takes.
#
# Intel's null device is in no package. It is built from Mesa's sources, of sid or of an older suite
# where the archive lacks those; see tests/compile/null_gpu/.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
usage="usage: tools/dev/sid_tree.sh TREE [arm64 | SUITE]"
tree=${1:?$usage}
architecture=
suite=sid
case ${2-sid} in
arm64) architecture=arm64 ;;
'' | *[!a-z-]* | -*)
    echo "sid_tree: expected arm64 or a suite of Debian, got '$2'" >&2
    exit 2
    ;;
*) suite=${2-sid} ;;
esac
if [ $# -gt 2 ]; then
    echo "$usage" >&2
    exit 2
fi
. "$root/tools/dev/archive.sh"

# tree_apt ARGUMENTS: own_apt of a machine of the architecture.
tree_apt() {
    own_apt ${architecture:+-o APT::Architecture="$architecture" -o APT::Architectures="$architecture"} \
        "$@"
}

packages="libvulkan1 mesa-vulkan-drivers"
[ "$suite" != sid ] || packages="glslang-tools spirv-tools $packages mesa-drm-shim \
${architecture:+libjansson4 libcmocka0}"

# The versions of all packages, and what else a tree is made by.
recipe() {
    # shellcheck disable=SC2086 # a list of words
    tree_apt install -y --no-install-recommends --print-uris $packages | cut -d ' ' -f 2-
    cat "$root/tools/dev/sid_tree.sh" "$root"/tests/compile/null_gpu/*
}

unpack_packages() {
    # shellcheck disable=SC2086
    quietly tree_apt install -y --no-install-recommends --download-only $packages
    # Its headers, for Intel's null device; what it depends on is not needed.
    [ "$suite" != sid ] || (cd "$work/cache/archives" && quietly tree_apt download libdrm-dev)
    rm -rf --one-file-system "$tree"
    mkdir -p "$tree"
    for package in "$work"/cache/archives/*.deb; do
        quietly dpkg-deb -x "$package" "$tree"
    done
}

# Names the suite whose sources of Mesa it took.
download_mesa() {
    for mesa_suite in sid testing stable; do
        if (cd "$work" && own_apt source --download-only --tar-only "mesa/$mesa_suite") \
            >"$work/log" 2>&1
        then
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

if [ -n "$architecture" ]; then
    need dpkg-deb aarch64-linux-gnu-gcc
elif [ "$suite" = sid ]; then
    need dpkg-deb tar xz "${CC:-cc}"
else
    need dpkg-deb
fi
if [ "$suite" = sid ]; then
    open_archive "deb @ sid main" "deb-src @ sid main" "deb-src @ testing main" \
        "deb-src @ stable main"
else
    open_archive "deb @ $suite main"
fi

quietly tree_apt update
hash=$(recipe | sha256sum)
if [ "$(cat "$tree/whole" 2>/dev/null)" = "$hash" ]; then
    echo "sid_tree: $tree is of the same packages"
    exit 0
fi
unpack_packages
if [ -n "$architecture" ]; then
    [ -e "$tree/lib" ] || ln -s usr/lib "$tree/lib" # where programs name their loader
    quietly aarch64-linux-gnu-gcc -O1 -shared -fPIC -o "$tree/libpanvk_null.so" \
        "$root/tests/compile/null_gpu/panvk.c"
    echo "$hash" >"$tree/whole"
    echo "sid_tree: $tree, $architecture"
    exit 0
fi
if [ "$suite" != sid ]; then
    echo "$hash" >"$tree/whole"
    echo "sid_tree: $tree, drivers of $suite"
    exit 0
fi
download_mesa
unpack_mesa
build_intel
echo "$hash" >"$tree/whole"
echo "sid_tree: $tree, Intel's null device from Mesa's sources in $mesa_suite"
