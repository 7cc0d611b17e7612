#!/bin/sh
# Runs a program on the newest CPU driver (tests/devices/newest_driver.sh), which says that it is a discrete
# GPU of NVIDIA: the rules take its kernels, tiles and lanes, and groups of several subgroups.
#
#   tests/devices/as_gpu.sh FOLDER VKATTN PROGRAM [ARGUMENT...]
#
# FOLDER has the layers' manifests and libraries. With $MODULES_FOLDER the driver gets the modules of that
# folder for the program's own (modules.c). Exits with 77 where the driver is not there; fails where
# VKATTN, the tool, sees a CPU driver all the same.
set -eu

folder=$1
tool=$2
shift 2
newest=$(dirname "$0")/newest_driver.sh
export VK_ADD_LAYER_PATH="$folder" VK_INSTANCE_LAYERS=VK_LAYER_vkattn_as_gpu
status=0
devices=$("$newest" "$tool" devices --json) || status=$?
if [ "$status" -eq 77 ]; then
    echo "$devices"
    exit 77
fi
[ -z "${MODULES_FOLDER-}" ] || export VK_INSTANCE_LAYERS=VK_LAYER_vkattn_as_gpu:VK_LAYER_vkattn_modules
case $devices in
*'"type":"cpu"'*) ;;
*'"type":'*) exec "$newest" "$@" ;;
esac
echo "FAIL: the layer in $folder has no effect"
echo "$devices"
exit 1
