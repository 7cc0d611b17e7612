#!/bin/sh
# module.sh SPIRV_VAL SPIRV_OPT TARGET MODULE: MODULE, for TARGET, is valid, and still is with the checks in it that
# GPU-assisted validation layers put around loads from storage buffers. SPIRV-Tools before 2024 can
# put them there as well; later ones leave that part out.
#
# Their pass splits the block of each load. Where that block begins a loop, what comes out is no
# longer valid, and drivers refuse it or crash: a condition must not load from a storage buffer.
set -eu

val=$1 opt=$2 target=$3 module=$4
work=$(mktemp)
trap 'rm -f "$work"' EXIT

"$val" --target-env "$target" "$module"
for checks in --inst-buff-oob-check --inst-buff-addr-check; do
    if text=$("$opt" "$checks" --target-env="$target" "$module" -o "$work" 2>&1); then
        "$val" --target-env "$target" "$work"
        echo "$checks: still valid"
    elif echo "$text" | grep -q "nknown flag"; then
        echo "$checks: not in this spirv-opt"
    else
        echo "$checks: $text"
        exit 1
    fi
done
