#!/bin/sh
# Runs a program on the CPU driver of a tree of tools/dev/sid_tree.sh, for which the rules choose other
# kernels than for Debian 12's or 13's.
#
#   tests/devices/newest_driver.sh [--or-own] PROGRAM [ARGUMENT...]
#
# The tree is $VKATTN_SID_TREE, of sid or of another suite, else build-sid. Where it is not there, exits
# with 77, or with --or-own runs the program on the machine's own driver.
set -eu

or_own=
if [ "${1-}" = --or-own ]; then
    or_own=yes
    shift
fi

tree=${VKATTN_SID_TREE:-$(dirname "$0")/../../build-sid}
for loader in "$tree"/usr/lib64/ld-linux-* "$tree"/usr/lib/ld-linux-*; do
    [ -e "$loader" ] && break
done
if [ ! -e "$loader" ]; then
    [ -z "$or_own" ] || exec "$@"
    echo "SKIPPED: there is no tree $tree; tools/dev/sid_tree.sh makes it"
    exit 77
fi
libraries=$(echo "$tree"/usr/lib/*-linux-gnu)
manifest=$(echo "$tree"/usr/share/vulkan/icd.d/lvp_icd*.json)
status=0
VK_ICD_FILENAMES=$manifest VK_DRIVER_FILES=$manifest \
    "$loader" --library-path "$libraries" "$@" || status=$?
if [ "$status" -eq 77 ]; then # with a tree there is nothing to skip
    echo "FAIL: nothing was checked on the driver of $tree"
    status=1
fi
exit "$status"
