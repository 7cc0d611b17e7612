#!/bin/sh
# How a layer, and attention by positions, scale over 1, 2 and 4 ranks of this host, one thread each
# on Mesa's CPU driver. Prints a table and the fitted models as Markdown; takes minutes.
# SPDX-License-Identifier: MIT
#
#     tools/vkattn-mpi/scaling.sh [BUILD_FOLDER]
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
build=${1:-$root/build}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# bench NAME OPTION...: rows of the table on standard output, sentences into $folder/models.
bench() {
    name=$1
    shift
    "$root/tests/mpi/launch.sh" mpirun 4 "$build/vkattn-mpi" bench --causal --repeat 3 "$@" \
        >"$folder/out"
    awk -v name="$name" '/^(strong|weak)/ {
        printf "| %s | %s | %d | %.1f | %.1f | %.1f | %.2f | %.2f | %.1f | %.0f %% |\n",
            name, $1, $2, $3, $4, $5, $6, $7, $8, $9
    }' "$folder/out"
    awk -v name="$name" '
        /^model:/ { sub(/^model: /, ""); printf "- %s: %s;", name, $0 }
        /worst error/ { sub(/^ */, ""); printf " %s. On devices of their own", $0 }
        / times one$/ { printf "%s %d ranks %s times one", sep, $1, $5; sep = "," }
        END { print "." }' "$folder/out" >>"$folder/models"
}

echo '| split | scaling | ranks | ms | compute | the rest | MiB/rank | speedup | predicted | error |'
echo '|---|---|---|---|---|---|---|---|---|---|'
bench heads --batch 4 --seq 512 --model-dim 512 --heads 8
bench batch --split batch --batch 4 --seq 512 --model-dim 512 --heads 8
bench positions --split sequence --batch 4 --seq 512 --model-dim 512 --heads 8
bench 'positions, 2 heads' --split sequence --batch 1 --seq 1024 --model-dim 64 --heads 2 --path fused
echo
cat "$folder/models"
