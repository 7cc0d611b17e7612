#!/bin/sh
# Unpacks this Debian's packages for arm64 into a folder: the C library, Mesa's Vulkan drivers, and
# the libraries and headers that a build takes. Nothing is installed, and root is not needed:
# programs run by qemu-aarch64 -L FOLDER (tools/arm64.sh).
#
#   tools/arm64_tree.sh FOLDER
#
# Takes apt-get, dpkg-deb and the network: about 100 MB, and 600 MB on disk. A folder that is whole is
# left as it is. DEBIAN_MIRROR is an archive to take instead of the one that this machine takes.
set -eu

tree=${1:?usage: tools/arm64_tree.sh FOLDER}
keys=/usr/share/keyrings/debian-archive-keyring.gpg
if [ -e "$tree/whole" ]; then
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "arm64_tree: $*" >&2
    exit 1
}

# quietly COMMAND...: what it printed is shown only when it fails.
quietly() {
    if ! "$@" >"$work/log" 2>&1 </dev/null; then
        tail -n 30 "$work/log" >&2
        fail "failed: $*"
    fi
}

# own_apt ARGUMENTS: apt-get of an arm64 machine that has no package yet.
own_apt() {
    apt-get -qq -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work/cache" \
        -o Dir::State::Status="$work/status" -o APT::Sandbox::User= -o APT::Architecture=arm64 \
        -o APT::Architectures=arm64 -o Acquire::Languages=none \
        -o Acquire::Check-Valid-Until=false -o Acquire::Retries=3 "$@"
}

for program in apt-get dpkg-deb; do
    command -v "$program" >/dev/null || fail "there is no $program"
done
mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' \
    'Created-By: Packages' | sed -n 's/^Debian //p' | head -n 1)}
[ -n "$mirror" ] || fail "apt-get knows no archive of Debian: set DEBIAN_MIRROR"
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")

mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
: >"$work/status"
echo "deb [signed-by=$keys] $mirror $suite main" >"$work/sources.list"
quietly own_apt update
quietly own_apt install -y --no-install-recommends --download-only libc6-dev libstdc++6 \
    mesa-vulkan-drivers libvulkan1 libvulkan-dev libvulkan-volk-dev libjansson-dev libcmocka-dev
rm -rf --one-file-system "$tree"
mkdir -p "$tree/usr/lib" "$tree/usr/bin" "$tree/usr/sbin"
for folder in lib bin sbin; do
    ln -s "usr/$folder" "$tree/$folder"
done
for package in "$work"/cache/archives/*.deb; do
    quietly dpkg-deb -x "$package" "$tree"
done
[ -e "$tree/lib/ld-linux-aarch64.so.1" ] || fail "there is no loader in $tree"
: >"$tree/whole"
echo "arm64_tree: $tree"
