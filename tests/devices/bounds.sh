#!/bin/sh
# Reads and writes of kernels past the end of a binding, which the GPU-assisted part of Khronos' validation
# layer finds; a driver for CPUs answers such a read with 0.
#
#   tests/devices/bounds.sh MANIFEST CANARY PROGRAM [ARGUMENT...]
#
# MANIFEST is that of Chromium's layer. CANARY, build/validation_canary, makes a mistake first that has to be
# reported. A PROGRAM that is a script, as_gpu.sh or by_matrices.sh, puts the layer below its own.
# Exits with 77 where there is no layer.
set -eu

manifest=$1
canary=$2
shift 2
if [ ! -e "$manifest" ]; then
    echo "SKIPPED: there is no $manifest: Chromium's validation layer is not installed"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for setting in debug_action=VK_DBG_LAYER_ACTION_LOG_MSG report_flags=error,warn log_filename=stdout \
    validate_core=false gpuav_enable=true gpuav_buffers_validation=false gpuav_buffer_address_oob=false \
    gpuav_post_process_descriptor_indexing=false gpuav_shader_sanitizer=false \
    gpuav_validate_trace_ray=false gpuav_mesh_shading=false \
    message_id_filter=VALIDATION-SETTINGS,WARNING-Setting-Limit-Adjusted,GPUAV-Compile-time-general-buffer,GPUAV-Compile-time-texel-buffer; do
    echo "khronos_validation.${setting%%=*} = ${setting#*=}"
done >"$work/vk_layer_settings.txt"
export VK_LAYER_SETTINGS_PATH="$work"
VALIDATION_FOLDER=$(dirname "$manifest")
VK_LAYER_PATH=$VALIDATION_FOLDER "$canary" past-binding >"$work/canary" 2>&1 || {
    echo "FAIL: a deliberate mistake is not reported"
    cat "$work/canary"
    exit 1
}
status=0
case $1 in
*.sh) VALIDATION_FOLDER=$VALIDATION_FOLDER "$@" >"$work/out" 2>&1 || status=$? ;;
*)
    VK_LAYER_PATH=$VALIDATION_FOLDER VK_INSTANCE_LAYERS=VK_LAYER_KHRONOS_validation "$@" \
        >"$work/out" 2>&1 || status=$?
    ;;
esac
if grep -qE '^(validation:|Validation [A-Z])' "$work/out"; then
    echo "FAIL: the layer reports"
    status=1
fi
head -n 40 "$work/out"
exit $status
