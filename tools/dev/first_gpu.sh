#!/bin/bash
# The first minutes of vkattn on a GPU that it has never met: what the driver says of itself, whether
# anything runs, whether each kernel is right, how fast, and then what else the promises rest on.
#
#   tools/dev/first_gpu.sh [SECONDS [FOLDER [DRIVER_FILE]]]
#
# SECONDS   the whole of it, 420 if not given; what there is no time for is named
# FOLDER    where the results go, as they come; ./first_gpu if not given
# DRIVER_FILE  the driver's manifest, where the loader does not find the one that is meant
#
# It takes the programs of the folder that tools/dev/bundle.sh made, if it lies in one, else those of
# build/ (or of $BUILD). Each step has a limit of its own, and one that fails or hangs stops no other.
# FOLDER/0_summary.txt has a line for each step; each line of the other files begins with the name of
# its step. In the environment:
#
# PARTS     some of "facts kernels times promises"
# ONLY      some steps alone: NAME,NAME...
# LIMIT     the most seconds of a step, where that is less than its own limit
# SIZE      the length of the problems that are timed, 8192 if not given
total=${1:-420} out=${2:-first_gpu}
here=$(cd -- "$(dirname -- "$0")" && pwd)
if [ -d "$here/bin" ]; then
    tool=$here/bin/vkattn tests=$here/tests cases=$here/cases
else
    root=$(cd -- "$here/../.." && pwd)
    build=${BUILD:-$root/build}
    tool=$build/vkattn tests=$build cases=$root/tests/cases
fi
[ -x "$tool" ] || {
    echo "first_gpu: there is no $tool; build vkattn with its tests first" >&2
    exit 2
}
case $total in
'' | *[!0-9]*)
    echo "first_gpu: expected seconds, got '$total'" >&2
    exit 2
    ;;
esac
mkdir -p "$out" || exit 2
out=$(cd -- "$out" && pwd)
[ -z "${3:-}" ] || export VK_DRIVER_FILES=$3 VK_ICD_FILENAMES=$3
caches=$(mktemp -d)
trap 'rm -rf "$caches"' EXIT
export XDG_CACHE_HOME=$caches MESA_SHADER_CACHE_DIR=$caches/mesa __GL_SHADER_DISK_CACHE_PATH=$caches/gl
mkdir -p "$caches/mesa" "$caches/gl"
jobs=$(nproc)
[ "$jobs" -le 12 ] || jobs=12
begin=$(date +%s)

left() { echo $((total - $(date +%s) + begin)); }
say() { printf '%4d s  %s\n' $(($(date +%s) - begin)) "$*" | tee -a "$out/0_summary.txt"; }

# step LIMIT FILE NAME COMMAND...: what it prints goes to the end of FILE, line by line, each with the
# name before it, so that steps may share a file; a line of what became of it goes to the summary. COMMAND
# finds NAME in $STEP.
step() {
    local limit=$1 file=$out/$2 name=$3 code verdict start
    shift 3
    [ -z "$ONLY" ] || [[ ,$ONLY, == *,$name,* ]] || return 0
    [ "$(left)" -gt 3 ] || { say "no time  $name"; return 0; }
    [ "$limit" -lt "${LIMIT:-$limit}" ] || limit=${LIMIT:-$limit}
    [ "$limit" -lt "$(left)" ] || limit=$(left)
    start=$(date +%s)
    echo "$name: ===== $*" >>"$file"
    STEP=$name timeout -s KILL "$limit" stdbuf -oL "$@" 2>&1 | sed -u "s|^|$name: |" >>"$file"
    code=${PIPESTATUS[0]}
    case $code in
    0) verdict=passed ;;
    77) verdict=skipped ;;
    137) verdict="NO END" ;;
    *) verdict="FAILED $code" ;;
    esac
    say "$verdict  $name ($(($(date +%s) - start)) s)" \
        "$(grep "^$name: ." "$file" | tail -n 1 | cut -d : -f 2- | cut -c 1-120)"
}

# several LIMIT FILE: a step for each line of the input, NAME COMMAND..., some at a time. Not for times.
several() {
    xargs -P "$jobs" -I{} bash -c "step $1 $2 {}"
}
export -f left say step
export total begin out ONLY

# Without a device there is nothing to try: what the loader says of it is the result.
facts() {
    "$tool" devices >/dev/null 2>&1 || {
        VK_LOADER_DEBUG=error,warn,driver step 20 1_facts.txt no_device "$tool" devices
        say "the end: no device"
        exit 3
    }
    ! command -v nvidia-smi >/dev/null || step 20 1_facts.txt smi nvidia-smi
    step 20 1_facts.txt devices "$tool" devices
    step 20 1_facts.txt devices_json "$tool" devices --json
    step 40 1_facts.txt first_f32 "$tool" bench matmul --m 512 --n 512 --k 512 --repeat 3 --passes
    step 30 1_facts.txt first_layer "$tool" bench layer --batch 1 --seq 128 --model-dim 512 \
        --heads 8 --dtype f16 --repeat 3 --passes
}

# Three cases of each row of kernels.def. Those that no driver here has ever run come first, in
# processes of their own; a kernel that the device lacks says so.
matrices="matmul_coop_bf16 attention_coop_bf16 attention_coop2_bf16 attention_backward_coop_bf16
          attention_coop2_f16 attention_coop2_ext_bf16 attention_coop2_ext_f16
          matmul_coop_f16 attention_coop_f16 attention_backward_coop_f16
          attention_decode"
kernels() {
    {
        for kernel in $matrices; do
            echo "$kernel $tests/check_kernels --seed 1 --few --kernel $kernel"
        done
    } | several 60 2_kernels.txt
    for part in $(seq "$jobs"); do
        echo "kernels_$part $tests/check_kernels --seed 1 --few --slice $part/$jobs"
    done | several 110 2_kernels.txt
}

bench() { # bench NAME ARGUMENT...
    local name=$1
    shift
    step 25 3_times.txt "$name" "$tool" bench "$@" --warm --passes
}

# Alone on the device. PyTorch's times are of the same minutes and the same card. Whole models need
# transformers and cffi besides.
times() {
    local n=${SIZE:-8192} variant kernel type head
    ! command -v python3 >/dev/null || [ ! -e "$here/torch_times.py" ] ||
        step 90 3_times.txt torch python3 "$here/torch_times.py" "$n"
    for type in f16 bf16 f32; do
        bench "product_$type" matmul --m "$n" --n "$n" --k "$n" --dtype $type --explain
    done
    for variant in 1 2 3 4 5 6 7; do
        bench "product_f16_variant_$variant" matmul --m "$n" --n "$n" --k "$n" --dtype f16 \
            --kernel matmul_coop_f16,$variant
    done
    for head in 128 64; do
        for kernel in attention_coop_f16 attention_coop_f16,1 attention_coop2_f16 attention_coop2_f16,1; do
            bench "attention_${head}_$kernel" attention --batch 1 --heads 16 --seq "$n" \
                --head-dim $head --dtype f16 --kernel "$kernel"
        done
        bench "attention_${head}" attention --batch 1 --heads 16 --seq "$n" --head-dim $head \
            --dtype f16 --explain
        bench "causal_$head" attention --batch 1 --heads 16 --seq "$n" --head-dim $head --dtype f16 --causal
    done
    bench decode decode --batch 4 --heads 32 --kv-heads 8 --kv-seq $((4 * n)) --head-dim 128 --dtype f16
    bench decode_1 decode --batch 1 --heads 32 --kv-heads 8 --kv-seq 4096 --head-dim 128 --dtype f16
    bench decode_q8 decode --batch 1 --heads 32 --kv-heads 8 --kv-seq 4096 --head-dim 128 --dtype f16 --kv q8_0
    bench layer_f16 layer --batch 4 --seq $((n / 4)) --model-dim 2048 --heads 16 --dtype f16
    bench row_f16 linear --rows 1 --n 4096 --k 4096 --weights f16 --dtype f16
    bench row_q4 linear --rows 1 --n 4096 --k 4096 --weights q4_0 --dtype f16
    bench row_q6 linear --rows 1 --n 4096 --k 4096 --weights q6_K --dtype f16
    bench rows_q4 linear --rows 512 --n 4096 --k 4096 --weights q4_0 --dtype f16
    bench attention_f32 attention --batch 1 --heads 16 --seq "$n" --head-dim 128
    bench small_layer layer --batch 1 --seq 16 --model-dim 64 --heads 8 --repeat 300
    ! command -v python3 >/dev/null || [ ! -e "$here/torch_models.py" ] ||
        VKATTN_LIBRARY=$here/lib/libvkattn.so.0 PYTHONPATH=$here/python:$PYTHONPATH \
            step 90 3_times.txt models python3 -W ignore "$here/torch_models.py"
}

# What the promises rest on comes first.
first="row_bits layer invariance random backward layer_backward budget quantised extremes first"
promises() {
    {
        echo "cases $tool check $cases"
        for name in $first; do
            case $name in
            random) echo "random $tests/test_gpu random --seed 1 --count 100" ;;
            invariance) echo "invariance $tests/test_gpu invariance --seed 1 --count 20" ;;
            *) echo "$name $tests/test_gpu $name" ;;
            esac
        done
        echo "functions $tests/check_functions"
        "$tests/test_gpu" 2>&1 | sed -n 's/^  //p' | while read -r name; do
            case " $first case_bits soak " in
            *" $name "*) ;;
            *) echo "$name $tests/test_gpu $name" ;;
            esac
        done
        [ ! -x "$tests/test_generate" ] || echo "generate $tests/test_generate generate"
    } | several 120 4_promises.txt
}

say "$jobs of $(nproc) processors, $(getconf GNU_LIBC_VERSION 2>/dev/null)"
for part in ${PARTS:-facts kernels times promises}; do
    case $part in
    facts | kernels | times | promises) $part ;;
    *) say "there is no part $part" ;;
    esac
done
say "the end"
