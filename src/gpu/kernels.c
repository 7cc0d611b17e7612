#include "gpu/kernels.h"
#include "gpu/kernels_spv.h"
#include "params.h"

const struct kernel_info kernel_table[KERNEL_COUNT] = {
#define KERNEL(id, file, defines, buffers, needs) {#id, buffers, needs},
#include "kernels.def"
#undef KERNEL
};

const struct kernel_spv *const kernel_spv_table[KERNEL_COUNT] = {
#define KERNEL(id, file, defines, buffers, needs) &kernel_spv_##id,
#include "kernels.def"
#undef KERNEL
};

bool kernel_is_built(enum kernel kernel)
{
    return kernel_spv_table[kernel]->size != 0;
}

uint64_t kernels_not_built(void)
{
    uint64_t kernels = 0;
    for (int i = 0; i < KERNEL_COUNT; i++)
        if (!kernel_is_built((enum kernel)i))
            kernels |= 1ull << i;
    return kernels;
}

static const char *missing_matrices(unsigned needs, const struct caps *caps)
{
    const struct vka_device_properties *has = &caps->properties;
    if (needs & NEED_MATRIX_F16 && (!caps->matrices || !caps->matrix_f16.m))
        return "needs cooperative matrices of float16";
    if (needs & NEED_MATRIX_BF16 && (!caps->bfloat16_matrices || !caps->matrix_bf16.m))
        return "needs cooperative matrices of bfloat16";
    if (needs & (NEED_MATRIX_F16 | NEED_MATRIX_BF16) &&
        has->max_workgroup < COOP_SUBGROUPS * has->subgroup_size)
        return "needs workgroups of 8 subgroups";
    return NULL;
}

const char *kernel_missing(enum kernel kernel, const struct caps *caps)
{
    const struct vka_device_properties *has = &caps->properties;
    unsigned needs = kernel_table[kernel].needs;
    if (caps->disabled_kernels >> kernel & 1)
        return "is switched off";
    if (caps->unbuilt_kernels >> kernel & 1)
        return needs & NEED_MATRIX_BF16
                   ? "was not built: the shader compiler lacked GL_EXT_bfloat16"
                   : "was not built: the shader compiler lacked GL_KHR_cooperative_matrix";
    if (caps->failed_kernels >> kernel & 1)
        return "failed its check on this device";
    if (caps->wrong_kernels >> kernel & 1)
        return "failed its self-test on this device";
    if (kernel_table[kernel].buffers > caps->max_bindings)
        return "needs more storage buffers";
    if (needs & NEED_BALLOT && !has->subgroup_ballot)
        return "needs subgroup broadcasts in compute shaders";
    if (needs & NEED_ARITHMETIC && !has->subgroup_arithmetic)
        return "needs subgroup reductions in compute shaders";
    if (needs & NEED_SUBGROUP_8 && has->subgroup_size < 8)
        return "needs subgroups of 8";
    if (missing_matrices(needs, caps))
        return missing_matrices(needs, caps);
    if (needs & NEED_FULL_SUBGROUPS && !caps->subgroup_size_control)
        return "needs control of the subgroup size";
    if (needs & NEED_ADDRESS && !caps->device_address)
        return "needs buffer addresses on a CPU driver";
    if (needs & (NEED_TEXELS | NEED_KV_TEXELS) && has->type != VKA_DEVICE_CPU)
        return "needs texel buffers of a CPU driver";
    if (needs & NEED_INT64 && !caps->int64)
        return "needs 64-bit integers in shaders";
    return NULL;
}
