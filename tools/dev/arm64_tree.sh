#!/bin/sh
# Unpacks this Debian's packages for arm64 into a folder: the C library, Mesa's Vulkan drivers, the
# libraries and headers that a build takes, and a Python with what the wheel takes. Nothing is installed, and root is not needed:
# programs run by qemu-aarch64 -L FOLDER (tools/dev/arm64.sh).
#
#   tools/dev/arm64_tree.sh FOLDER
#
# Takes apt-get, dpkg-deb and the network: about 120 MB, and 700 MB on disk. A folder that has all of
# the packages is left as it is. DEBIAN_MIRROR is an archive to take instead of the one that this machine takes.
set -eu

tree=${1:?usage: tools/dev/arm64_tree.sh FOLDER}
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
packages="libc6-dev libstdc++6 mesa-vulkan-drivers libvulkan1 libvulkan-dev libvulkan-volk-dev \
libjansson-dev libcmocka-dev python3-numpy python3-cffi"
if [ "$(cat "$tree/whole" 2>/dev/null)" = "$packages" ]; then
    exit 0
fi
. "$root/tools/dev/archive.sh"

# arm64_apt ARGUMENTS: own_apt of an arm64 machine.
arm64_apt() {
    own_apt -o APT::Architecture=arm64 -o APT::Architectures=arm64 "$@"
}

need dpkg-deb
open_archive "deb @ $(. /etc/os-release && echo "$VERSION_CODENAME") main"
quietly arm64_apt update
# shellcheck disable=SC2086 # a list of words
quietly arm64_apt install -y --no-install-recommends --download-only $packages
rm -rf --one-file-system "$tree"
mkdir -p "$tree/usr/lib" "$tree/usr/bin" "$tree/usr/sbin"
for folder in lib bin sbin; do
    ln -s "usr/$folder" "$tree/$folder"
done
for package in "$work"/cache/archives/*.deb; do
    quietly dpkg-deb -x "$package" "$tree"
done
# Links from the machine's root lead out of the tree: without libm.so the linker takes libm.a, which
# lacks what the C library beside it does not show.
find "$tree/usr/lib" -type l -lname '/*' | while read -r link; do
    ln -sfnr "$tree$(readlink "$link")" "$link"
done
# Alternatives, which packages choose when they are installed.
for library in blas lapack; do
    ln -s "$library/lib$library.so.3" "$tree/usr/lib/aarch64-linux-gnu/"
done
[ -e "$tree/usr/lib/aarch64-linux-gnu/libm.so" ] || fail "there is no libm.so in $tree"
[ -e "$tree/lib/ld-linux-aarch64.so.1" ] || fail "there is no loader in $tree"
echo "$packages" >"$tree/whole"
echo "arm64_tree: $tree"
