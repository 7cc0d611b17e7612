#!/bin/sh
# Aligned problems of float16 on a CPU driver that plays a GPU, with kernels that cannot store half a word
# (tests/compile/halves.py): what they store has to be whole words, without atomics.
#
#   tests/devices/whole_words.sh FOLDER VKATTN MODULES TEST_GPU
#
# MODULES is the folder of the program's own modules.
set -eu

folder=$1
tool=$2
modules=$3
program=$4
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -B "$here/../compile/halves.py" "$modules"/*.spv "$work"
export MODULES_FOLDER="$work"

# run HEAD_DIM OTHERS: a problem of heads of that size.
run() {
    "$here/as_gpu.sh" "$folder" "$tool" "$program" random --problem \
        "seed=1 q=f16 k=f16 v=f16 output=f16 past=f16 present=f16 n_kv_head=2 group=2 head_dim=$1 value_dim=$1 $2"
}

status=0
run 2 'batch=1 n_q=1 n_new=2' || status=$?
[ "$status" -ne 77 ] || exit 77
failed=$status
if run 3 'batch=1 n_q=1 n_new=2'; then
    echo "FAIL: heads of 3 features need half words, and none was missed"
    failed=1
fi
run 64 'batch=2 n_q=33 n_new=64 rope.dim=32 rope.base=100 q_norm k_norm' || failed=1
run 64 'batch=2 n_q=33 n_new=64 disabled_kernels=attention_coop2_f16,attention_coop_f16' || failed=1
run 64 'batch=1 n_q=1 n_past=2040 n_new=8 has_present' || failed=1
run 64 'batch=2 n_q=32 n_new=64 path=unfused exact' || failed=1
run 64 'batch=2 n_q=3 n_new=3 capacity=64 page_size=16 cached_k=f16 cached_v=f16' || failed=1
run 64 'batch=2 n_q=3 n_new=3 capacity=64 page_size=16 cached_k=f16 cached_v=f16 path=unfused' || failed=1
run 64 'batch=2 n_q=3 n_new=3 capacity=64 cached_k=q8_0 cached_v=q4_0' || failed=1
for kind in raw softcap bias softmax; do # more keys than the lanes of a row
    run 64 "batch=1 n_q=3 n_new=330 scores_kind=$kind scores=f16 softcap=5" || failed=1
done
"$here/as_gpu.sh" "$folder" "$tool" "$program" stored_words || failed=1
exit "$failed"
