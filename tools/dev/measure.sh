#!/bin/sh
# Measures vkattn on one device and prints a section of results as Markdown: a table with the date,
# the driver and the command of every number. A quiet machine gives better ones; it takes minutes.
#
#   tools/dev/measure.sh [--vkattn build/vkattn] [--device N|NAME] [--peers FILE] [--output FILE]
#                    [--update docs/benchmarks.md] [--quick]
#
# --peers FILE   a table of other programs' times on the same shapes, put below as it is
# --output FILE  write the section there
# --update FILE  put it in FILE in the place of this device's section between the lines
#                <!-- results --> and <!-- /results -->; other devices' sections stay
# --quick        fewer runs of smaller shapes, to see that all works
#
# Cold is a first result with empty caches, the driver's own included; warm is the second start.
set -eu

vkattn=build/vkattn device= peers= output= update= quick=
while [ $# -gt 0 ]; do
    case $1 in
    --vkattn | --device | --peers | --output | --update)
        [ $# -gt 1 ] || { echo "measure: expected a value after $1" >&2; exit 2; }
        case $1 in
        --vkattn) vkattn=$2 ;;
        --device) device=$2 ;;
        --peers) peers=$2 ;;
        --output) output=$2 ;;
        --update) update=$2 ;;
        esac
        shift 2
        ;;
    --quick)
        quick=1
        shift
        ;;
    *)
        sed -n '2,/^set -eu/s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
    esac
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME="$work/cache" MESA_SHADER_CACHE_DIR="$work/mesa"
export __GL_SHADER_DISK_CACHE_PATH="$work/gl"
mkdir -p "$XDG_CACHE_HOME" "$MESA_SHADER_CACHE_DIR" "$__GL_SHADER_DISK_CACHE_PATH"

# field NAME: of the JSON object in $work/json.
field() {
    sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p; s/.*\"$1\":\([^\",}]*\).*/\1/p" "$work/json" |
        head -n 1
}

# bench ARGUMENT...: its JSON in $work/json; false, and why in $work/why, where it cannot.
bench() {
    set -- bench "$@" --json
    [ -z "$device" ] || set -- "$@" --device "$device"
    echo "measure: $*" >&2
    "$vkattn" "$@" >"$work/json" 2>"$work/why"
}

number() { # number X: three digits
    case $1 in
    '' | null) echo - ;;
    *) awk -v x="$1" 'BEGIN { f = x >= 100 ? "%.0f" : x >= 10 ? "%.1f" : x >= 1 ? "%.2f" : "%.3f"
                              printf f "\n", x }' ;;
    esac
}

# row WHAT ARGUMENT...: a line of the table.
row() {
    what=$1
    shift
    if bench "$@"; then
        echo "| $what | $(number "$(field median_ms)") | $(number "$(field min_ms)") |" \
            "$(number "$(field gflops)") | $(number "$(field gbps)") | \`vkattn bench $*\` |"
    else
        why=$(grep -v '^device: ' "$work/why" | tail -n 1 | sed 's/|/\//g')
        echo "| $what | - | - | - | - | \`vkattn bench $*\`: $why |"
    fi
}

table() {
    echo '| | median ms | least ms | GFLOP/s | GB/s | command |'
    echo '|---|---|---|---|---|---|'
}

# start WHAT ARGUMENT...: first results, cold and warm.
start() {
    what=$1
    shift
    rm -rf "$XDG_CACHE_HOME"/* "$MESA_SHADER_CACHE_DIR"/* "$__GL_SHADER_DISK_CACHE_PATH"/*
    bench "$@" || return 0
    cold=$(number "$(field first_ms)")
    bench "$@" || return 0
    echo "| $what | $cold | $(number "$(field first_ms)") | \`vkattn bench $*\` |"
}

cpu_rows() {
    table
    row 'layer, 1 x 128, width 512' layer --batch 1 --seq 128 --model-dim 512 --heads 8
    row 'layer, 8 x 128, width 768' layer --batch 8 --seq 128 --model-dim 768 --heads 12
    [ "$quick" ] || row 'layer, 1 x 512, width 512' layer --batch 1 --seq 512 --model-dim 512 --heads 8
    [ "$quick" ] || row 'layer, 1 x 1024, width 768, causal' \
        layer --batch 1 --seq 1024 --model-dim 768 --heads 12 --causal
    row 'layer, 1 x 16, width 64' layer --batch 1 --seq 16 --model-dim 64 --heads 8 --repeat 300
    row 'attention, 8 heads of 64, 512' attention --batch 1 --heads 8 --seq 512 --head-dim 64
    row 'the same, fused' attention --batch 1 --heads 8 --seq 512 --head-dim 64 --path fused
    row 'the same, fused, causal' \
        attention --batch 1 --heads 8 --seq 512 --head-dim 64 --path fused --causal
    row 'decode, 8 heads of 64, 4096 keys' \
        decode --batch 1 --heads 8 --kv-heads 8 --kv-seq 4096 --head-dim 64
    row 'product, 512 cubed' matmul --m 512 --n 512 --k 512
}

gpu_rows() {
    table
    n=8192
    [ -z "$quick" ] || n=1024
    for dtype in f16 bf16 f32; do
        row "product, $n cubed, $dtype" matmul --m $n --n $n --k $n --dtype $dtype
    done
    row 'product, 2048 cubed, f16' matmul --m 2048 --n 2048 --k 2048 --dtype f16
    for size in 64 128; do
        for mask in '' ' --causal'; do
            # shellcheck disable=SC2086 # an option or nothing
            row "attention, 16 heads of $size, $n, f16${mask:+, causal}" attention --batch 1 \
                --heads 16 --seq $n --head-dim $size --dtype f16 $mask
        done
    done
    row "attention, 16 heads of 128, $n, f32" \
        attention --batch 1 --heads 16 --seq $n --head-dim 128
    row 'decode, 32 heads of 128 (8 for keys), 32768 keys, f16' \
        decode --batch 4 --heads 32 --kv-heads 8 --kv-seq 32768 --head-dim 128 --dtype f16
    row 'layer, 4 x 2048, width 2048, f16' \
        layer --batch 4 --seq 2048 --model-dim 2048 --heads 16 --dtype f16
    row 'layer, 1 x 16, width 64' layer --batch 1 --seq 16 --model-dim 64 --heads 8 --repeat 300
}

sweep() {
    to=4096
    [ -z "$quick" ] || to=1024
    set -- bench sweep --lengths 256,$to --heads 1 --head-dim 64
    echo "measure: $*" >&2
    echo
    # shellcheck disable=SC2086 # an option and its value
    "$vkattn" "$@" ${device:+--device "$device"} 2>/dev/null |
        sed -n "s/^\([a-z]*\) *\(time grows .*\)/- \1: \2/p"
    echo
    echo "(\`vkattn $*\`)"
}

section() {
    bench layer --batch 1 --seq 16 --model-dim 64 --heads 8 || {
        cat "$work/why" >&2
        exit 3
    }
    name=$(field device)
    echo "### $name"
    echo
    echo "Driver $(field driver); $(date -u +%Y-%m-%d); vkattn $("$vkattn" version | cut -d ' ' -f 2)," \
        "$(nproc) processors of the host."
    echo
    if "$vkattn" devices --json ${device:+--device "$device"} 2>/dev/null | grep -F "\"name\":\"$name\"" |
        grep -q '"type":"cpu"'; then
        cpu_rows
    else
        gpu_rows
    fi
    echo
    echo '| first result | cold ms | warm ms | command |'
    echo '|---|---|---|---|'
    start 'layer, 1 x 128, width 512' layer --batch 1 --seq 128 --model-dim 512 --heads 8 --warm
    sweep
    if [ "$peers" ]; then
        printf '\nBeside other programs, in turn on the same machine:\n\n```\n'
        cat "$peers"
        printf '```\n'
    fi
}

section >"$work/section"
if [ "$update" ]; then
    grep -qx '<!-- results -->' "$update" && grep -qx '<!-- /results -->' "$update" || {
        echo "measure: expected the lines <!-- results --> and <!-- /results --> in $update" >&2
        exit 2
    }
    awk -v section="$work/section" '
        BEGIN { while ((getline line < section) > 0) { if (!title) title = line; text = text line "\n" } }
        $0 == "<!-- results -->" { print; inside = 1; printf "\n%s", text; next }
        $0 == "<!-- /results -->" { if (!blank) print ""; print; inside = 0; next }
        inside && /^### / { old = $0 == title }
        inside && old { next }
        inside { if ($0 == "" && blank) next; blank = $0 == "" }
        { print }' "$update" >"$work/updated"
    cat "$work/updated" >"$update"
fi
if [ "$output" ]; then
    cp "$work/section" "$output"
    echo "measure: written to $output" >&2
elif [ -z "$update" ]; then
    cat "$work/section"
fi
