#!/bin/sh
# Runs a program for arm64 by qemu, with the libraries and the CPU driver of a tree:
# build-arm64-tree, that tools/dev/arm64_tree.sh makes, or $VKATTN_ARM64_TREE, such as one with the newest
# driver, that `tools/dev/sid_tree.sh TREE arm64` makes.
#
#   tools/dev/arm64.sh PROGRAM [ARGUMENT]...
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
tree=${VKATTN_ARM64_TREE:-$root/build-arm64-tree}
for driver in "$tree"/usr/share/vulkan/icd.d/lvp_icd*.json; do :; done
exec qemu-aarch64 -L "$tree" -E VK_ICD_FILENAMES="$driver" -E VK_DRIVER_FILES="$driver" "$@"
