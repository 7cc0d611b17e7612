#!/bin/sh
# Runs a program as as_gpu.sh does, on a GPU with products of float16 that are added to float32 sums by
# pairs, which tests/compile/mixed.py makes of what drivers know.
#
#   tests/devices/by_mixed.sh FOLDER VKATTN MODULES PROGRAM [ARGUMENT...]
#
# MODULES is the folder of the program's own modules. With $FLUSH the device takes subnormal float16 for 0.
set -eu

folder=$1
tool=$2
modules=$3
shift 3
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -B "$here/../compile/orders.py" "$modules"/*.spv "$work" # all modules, as they are
python3 -B "$here/../compile/mixed.py" ${FLUSH:+--flush} "$modules"/*.spv "$work"
export MODULES_FOLDER="$work" AS_GPU_MIXED=1
"$here/as_gpu.sh" "$folder" "$tool" "$@"
