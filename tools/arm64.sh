#!/bin/sh
# Runs a program for arm64 by qemu, with the libraries and the CPU driver of a tree that
# tools/arm64_tree.sh made: build-arm64-tree, or $VKATTN_ARM64_TREE.
#
#   tools/arm64.sh PROGRAM [ARGUMENT]...
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
tree=${VKATTN_ARM64_TREE:-$root/build-arm64-tree}
driver=$tree/usr/share/vulkan/icd.d/lvp_icd.aarch64.json
exec qemu-aarch64 -L "$tree" -E VK_ICD_FILENAMES="$driver" -E VK_DRIVER_FILES="$driver" "$@"
