#!/bin/sh
# Runs a program as as_gpu.sh does, on a GPU with matrices of bfloat16, and none of float16, which
# tests/compile/bfloat16.py makes of what drivers know.
#
#   tests/devices/by_bfloat16.sh FOLDER VKATTN MODULES PROGRAM [ARGUMENT...]
#
# MODULES is the folder of the program's own modules.
set -eu

folder=$1
tool=$2
modules=$3
shift 3
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -B "$here/../compile/orders.py" "$modules"/*.spv "$work" # all modules, as they are
python3 -B "$here/../compile/bfloat16.py" "$modules"/*.spv "$work"
export MODULES_FOLDER="$work" AS_GPU_BFLOAT16=1
"$here/as_gpu.sh" "$folder" "$tool" "$@"
