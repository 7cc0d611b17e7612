#!/bin/sh
# Makes tests/fuzz/corpus/NAME.tar.gz again: what reaches all code that a fuzzer has reached, in as few
# and as small files as that takes. Each fuzzer runs first, from what is kept and what .ci/run has found
# here (build-fuzz/corpus).
#
#   tools/dev/fuzz_corpus.sh [SECONDS]     for each fuzzer, 120 by default
set -eu

cd -- "$(dirname -- "$0")/../.."
seconds=${1:-120}
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --parallel "$(nproc)" --target fuzz_safetensors fuzz_npy fuzz_gguf \
    fuzz_case fuzz_plan vkattn_stub >/dev/null
stub=$PWD/build-fuzz/tests/stub/stub.json # plan's devices
export VK_DRIVER_FILES="$stub" VK_ICD_FILENAMES="$stub" VKATTN_STUB=cpu,least,small,large
for name in safetensors npy gguf case plan; do
    found=build-fuzz/corpus/$name
    kept=build-fuzz/kept/$name
    mkdir -p "$found"
    rm -rf "$kept"
    mkdir -p "$kept"
    "build-fuzz/fuzz_$name" -max_total_time="$seconds" -max_len=4096 \
        -artifact_prefix=build-fuzz/ "$found" "tests/fuzz/corpus/$name" \
        "build-fuzz/tests/fuzz/corpus/$name" 2>"build-fuzz/$name.log"
    "build-fuzz/fuzz_$name" -merge=1 "$kept" "$found" \
        "tests/fuzz/corpus/$name" "build-fuzz/tests/fuzz/corpus/$name" 2>>"build-fuzz/$name.log"
    tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$kept" -cf - . |
        gzip -n9 >"tests/fuzz/corpus/$name.tar.gz"
    echo "$name: $(find "$kept" -type f | wc -l) files," \
        "$(wc -c <"tests/fuzz/corpus/$name.tar.gz") bytes"
done
