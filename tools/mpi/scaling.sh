#!/bin/sh
# How a layer, and attention by positions, scale over 1, 2 and 4 ranks of this host, one thread each
# on Mesa's CPU driver: what stands between the marks of the README. SPDX-License-Identifier: MIT
#
#     tools/mpi/scaling.sh [BUILD_FOLDER]
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
build=${1:-$root/build}
echo '```'
for split in heads batch sequence; do
    "$root/tests/mpi/launch.sh" mpirun 4 "$build/vkattn-mpi" bench --split "$split" --batch 4 \
        --seq 512 --model-dim 512 --heads 8 --causal --repeat 5
    [ "$split" = sequence ] || echo
done
echo '```'
