#!/bin/sh
# Runs a program as as_gpu.sh does, on a GPU with matrices of 16 x 16 x 16 and 64 KiB of shared memory,
# whose product is that of tests/compile/matrices.py: no other kernel by matrices runs there.
#
#   tests/devices/by_matrices.sh FOLDER VKATTN MODULES GLSLANG PROGRAM [ARGUMENT...]
#
# MODULES is the folder of the program's own modules.
set -eu

folder=$1
tool=$2
modules=$3
glslang=$4
shift 4
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -B "$here/../compile/orders.py" "$modules"/*.spv "$work" # all modules, as they are
python3 -B "$here/../compile/matrices.py" "$here/../../shaders" "$modules" "$glslang" "$work"
export MODULES_FOLDER="$work" AS_GPU_MATRICES=16 AS_GPU_SHARED=65536
"$here/as_gpu.sh" "$folder" "$tool" "$@"
