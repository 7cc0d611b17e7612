#!/bin/sh
# Files that are malformed, through the command: exit code 2 and one line that names the file, no
# more. Usage: test_malformed.sh VKATTN FOLDER, of FOLDER/bad-*.safetensors and FOLDER/bad-*.npy.
# Needs no device: a file is read before one is looked for. SPDX-License-Identifier: MIT
set -eu
export LC_ALL=C VK_DRIVER_FILES=/none VK_ICD_FILENAMES=/none

vkattn=$1
seeds=$2
cases=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

layer=$cases/seeds/seed002_small.safetensors
n=0

# refused FILE ARGUMENT...
refused()
{
    file=$1
    shift
    code=0
    timeout 1800 "$vkattn" "$@" >"$work/out" 2>"$work/err" || code=$?
    n=$((n + 1))
    if [ "$code" -ne 2 ] || [ "$(wc -l <"$work/err")" -ne 1 ] || ! grep -qF "$file: " "$work/err"; then
        echo "FAILED: exit $code: vkattn $*"
        cat "$work/err"
        exit 1
    fi
}

for file in "$seeds"/bad-*.safetensors; do
    refused "$file" check "$file"
    refused "$file" run "$file" --query "$file" --output "$work/y.npy"
done
for file in "$seeds"/bad-*.npy; do
    refused "$file" check "$file"
    refused "$file" run "$layer" --query "$file" --output "$work/y.npy"
done
[ ! -e "$work/y.npy" ]
[ "$n" -ge 600 ]
echo "$n malformed files refused"
