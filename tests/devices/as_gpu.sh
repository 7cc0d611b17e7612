#!/bin/sh
# Runs a program on the newest CPU driver (tests/devices/newest_driver.sh), which says that it is a discrete
# GPU of NVIDIA: the rules take its kernels, tiles and lanes, and groups of several subgroups.
#
#   tests/devices/as_gpu.sh FOLDER VKATTN PROGRAM [ARGUMENT...]
#
# FOLDER has the layers' manifests and libraries. With $MODULES_FOLDER the driver gets the modules of that
# folder for the program's own (modules.c). With $AS_PORTABILITY it is a GPU of Apple under
# VK_KHR_portability_subset instead, whose driver takes no module with a specialization constant. With
# $MAINTAINED, flexible or fixed, it has VK_EXT_cooperative_matrix_maintenance1 (maintained.c), with
# $AS_GPU_MIXED VK_VALVE_shader_mixed_float_dot_product, with $AS_GPU_BFLOAT16 VK_KHR_shader_bfloat16. With
# $VALIDATION_FOLDER, which has the manifest of Khronos' validation layer, that one stands below all others.
# Exits with 77 where the driver is not there; fails where VKATTN, the tool, sees a CPU driver all the same.
set -eu

folder=$1
tool=$2
shift 2
newest=$(dirname "$0")/newest_driver.sh
layer=VK_LAYER_vkattn_as_gpu
if [ -n "${AS_PORTABILITY-}" ]; then
    layer=VK_LAYER_vkattn_portability
    export AS_GPU_TYPE=1 AS_GPU_VENDOR=0x106b AS_GPU_BUFFERS=31 AS_GPU_SUBSET=1 MODULES_PLAIN=1
fi
[ -z "${AS_GPU_MIXED-}" ] || layer=VK_LAYER_vkattn_mixed
[ -z "${AS_GPU_BFLOAT16-}" ] || layer=VK_LAYER_vkattn_bfloat16
export VK_ADD_LAYER_PATH="$folder" VK_INSTANCE_LAYERS=$layer
status=0
devices=$("$newest" "$tool" devices --json) || status=$?
if [ "$status" -eq 77 ]; then
    echo "$devices"
    exit 77
fi
[ -z "${MODULES_FOLDER-}${MODULES_PLAIN-}" ] || layer=$layer:VK_LAYER_vkattn_modules
[ -z "${MAINTAINED-}" ] || layer=$layer:VK_LAYER_vkattn_maintained
if [ -n "${VALIDATION_FOLDER-}" ]; then
    VK_ADD_LAYER_PATH=$folder:$VALIDATION_FOLDER
    layer=$layer:VK_LAYER_KHRONOS_validation
fi
VK_INSTANCE_LAYERS=$layer
case $devices in
*'"type":"cpu"'*) ;;
*'"type":'*) exec "$newest" "$@" ;;
esac
echo "FAIL: the layer in $folder has no effect"
echo "$devices"
exit 1
