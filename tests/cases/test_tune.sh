#!/bin/sh
# vkattn tune and what its profile does to the other commands. Usage: test_tune.sh VKATTN. Exits 77
# where there is no usable Vulkan device. SPDX-License-Identifier: MIT
set -u
export LC_ALL=C

vkattn=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
cases=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
# A cache of ours that is empty; that of Mesa's compiler stays where it is.
export MESA_SHADER_CACHE_DIR="${MESA_SHADER_CACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}}"
export XDG_CACHE_HOME="$work/cache"
failures=0

# expect CODE PATTERN ARGUMENT... : PATTERN stands on stdout or stderr.
expect()
{
    code=$1 pattern=$2
    shift 2
    "$vkattn" "$@" >out 2>&1
    got=$?
    [ "$got" -eq "$code" ] && grep -q -e "$pattern" out && return
    failures=$((failures + 1))
    echo "FAILED: exit $got, expected $code and '$pattern': vkattn $*"
    sed 's/^/    /' out | head -n 8
}

"$vkattn" devices >out 2>&1
if [ $? -eq 3 ]; then
    echo 'test_tune: SKIPPED, NO VULKAN DEVICE'
    exit 77
fi
layer='--batch 1 --seq 4 --model-dim 16 --heads 2 --path unfused --repeat 1'
explain="bench layer $layer --explain"

# A result that could not be kept is not worked for.
expect 2 '--output: missing/v.txt: cannot create: No such file or directory' tune --output missing/v.txt
expect 2 '--output: .: not a regular file' tune --output .
if [ -d /proc/self ]; then
    export XDG_CACHE_HOME=/proc/self/none
    expect 2 '^vkattn tune: the cache folder: /proc/self/none/.*: cannot create' tune
    export XDG_CACHE_HOME="$work/cache"
fi

# What is kept is loaded by the next command, unless that is told not to.
expect 0 '^kept in .*/cache/vkattn/tuning-profile-' tune --quick
profile=$(find cache/vkattn -name 'tuning-profile-*')
[ "$(head -n 1 "$profile")" = 'vkattn-tuning-profile 1' ] && grep -q '^path attention/' "$profile" || {
    echo "FAILED: the profile of tune:"
    cat "$profile"
    failures=$((failures + 1))
}
expect 0 '^project qkv ' $explain --tuning-profile "$profile"
head -n 2 "$profile" >head.txt
{ cat head.txt; echo 'kernel matmul/* matmul_tile 0'; } >"$profile"
expect 0 '^scores .*matmul_tile .*; measured on this device' $explain
"$vkattn" $explain --tuning-profile none >out 2>&1
if grep -q 'measured on this device' out; then
    echo 'FAILED: --tuning-profile none takes one'
    failures=$((failures + 1))
fi
expect 0 '^1 passed, 0 failed' check "$cases/seeds/seed002_small.safetensors"

# A demoted kernel is named; what is malformed or of another device is left aside with a word.
{ cat head.txt; echo 'demote softmax_shared'; } >v.txt
expect 0 'softmax_shared .*failed its check on this device' devices --kernels --tuning-profile v.txt
{ cat head.txt; echo 'kernel matmul/* matmul_tile nine'; } >v.txt
bench="bench matmul --m 33 --n 48 --k 40 --repeat 1 --passes"
expect 0 'linear *matmul_tile ' $bench --kernel matmul_tile
expect 0 'linear *matmul_tile .*tile 16x16' $bench --kernel matmul_tile,2
expect 2 "--kernel: expected a kernel of products or attention .*got 'matmul_tle'" $bench --kernel matmul_tle
expect 2 "--kernel: expected .*got 'copy'" $bench --kernel copy
expect 2 "--kernel: expected .*got 'matmul_tile,8'" $bench --kernel matmul_tile,8
expect 2 "--kernel: expected .*got 'matmul_tile,'" $bench --kernel matmul_tile,
expect 2 '--kernel: attention_merge does not run on this device for this problem' \
    bench decode --batch 1 --heads 2 --kv-seq 1024 --head-dim 16 --repeat 1 --kernel attention_merge
expect 2 '--kernel: attention_tile does not run on this device for this problem' $bench --kernel attention_tile
expect 2 '--tuning-profile: .*malformed' $explain --tuning-profile v.txt
sed 2s/:/:1/ head.txt >v.txt
expect 2 '--tuning-profile: .*another device' $explain --tuning-profile v.txt
sed '1s/.*/vkattn-verdict 1/' head.txt >old.txt
expect 2 "--tuning-profile: .*a file of verdicts.*'vkattn tune' makes a new one" $explain --tuning-profile old.txt
expect 2 "unknown option '--verdict'" $explain --verdict old.txt
expect 2 '--tuning-profile: missing: cannot be read: No such file' $explain --tuning-profile missing
expect 2 '--tuning-profile: missing: cannot be read: No such file' devices --tuning-profile missing
mkfifo pipe
expect 2 '--tuning-profile: pipe: cannot be read: not a regular file' $explain --tuning-profile pipe
echo other >other.txt
expect 2 "--tuning-profile: other.txt: the tuning profile does not begin with 'vkattn-tuning-profile'" \
    $explain --tuning-profile other.txt
cp v.txt "$profile"
expect 0 "^device: .*another device.*'vkattn tune' makes a new one" $explain

echo "$failures failures"
[ "$failures" -eq 0 ]
