#!/bin/sh
# test_failure.sh MPIEXEC PROGRAM TEST die|stall layer|positions|ring: of three ranks one fails, and two
# say so.
# SPDX-License-Identifier: MIT
set -u
folder=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
out=$(mktemp)
trap 'rm -f "$out"' EXIT
"$folder/launch.sh" "$1" 3 --survive "$2" "$3" "$4" "$5" >"$out" 2>&1
code=$?
cat "$out"
if grep -q '^SKIPPED' "$out"; then
    exit 77
fi
survivors=$(grep -c 'survivor' "$out")
if [ "$survivors" -ne 2 ]; then
    echo "$survivors survivors instead of 2; mpiexec gave $code"
    exit 1
fi
