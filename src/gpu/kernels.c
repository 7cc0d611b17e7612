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

static const char *compiler_lacks(enum kernel kernel)
{
    return kernel_table[kernel].needs & NEED_MATRIX_BF16 ? "GL_EXT_bfloat16"
                                                         : "GL_KHR_cooperative_matrix";
}

const char *kernel_not_built(enum kernel kernel)
{
    return kernel_spv_table[kernel]->size ? NULL : compiler_lacks(kernel);
}

uint64_t kernels_not_built(void)
{
    uint64_t kernels = 0;
    for (int i = 0; i < KERNEL_COUNT; i++)
        if (kernel_not_built((enum kernel)i))
            kernels |= 1ull << i;
    return kernels;
}

static const char *missing_matrices(unsigned needs, const struct caps *caps)
{
    const struct vka_device_properties *has = &caps->properties;
    if (needs & NEED_MATRIX_F16 && (!caps->matrices || !caps->matrix_f16.m))
        return "cooperative matrices of float16";
    if (needs & NEED_MATRIX_BF16 && (!caps->bfloat16_matrices || !caps->matrix_bf16.m))
        return "cooperative matrices of bfloat16";
    if (needs & (NEED_MATRIX_F16 | NEED_MATRIX_BF16) &&
        has->max_workgroup < COOP_SUBGROUPS * has->subgroup_size)
        return "workgroups of 8 subgroups";
    return NULL;
}

const char *kernel_missing(enum kernel kernel, const struct caps *caps)
{
    const struct vka_device_properties *has = &caps->properties;
    unsigned needs = kernel_table[kernel].needs;
    if (caps->disabled_kernels >> kernel & 1)
        return "nothing, but it is switched off";
    if (caps->unbuilt_kernels >> kernel & 1)
        return compiler_lacks(kernel);
    if (caps->failed_kernels >> kernel & 1)
        return "right results: it failed its check on this device";
    if (caps->wrong_kernels >> kernel & 1)
        return "right results: it failed its self-test";
    if (kernel_table[kernel].buffers > caps->max_bindings)
        return "enough storage buffers a kernel";
    if (needs & NEED_BALLOT && !has->subgroup_ballot)
        return "subgroup broadcasts in compute shaders";
    if (needs & NEED_ARITHMETIC && !has->subgroup_arithmetic)
        return "subgroup reductions in compute shaders";
    if (needs & NEED_SUBGROUP_8 && has->subgroup_size < 8)
        return "subgroups of 8";
    if (missing_matrices(needs, caps))
        return missing_matrices(needs, caps);
    if (needs & NEED_FULL_SUBGROUPS && !caps->subgroup_size_control)
        return "control of the subgroup size";
    if (needs & NEED_ADDRESS && !caps->device_address)
        return "buffer addresses on a CPU driver";
    if (needs & (NEED_TEXELS | NEED_KV_TEXELS) && has->type != VKA_DEVICE_CPU)
        return "texel buffers of a CPU driver";
    if (needs & NEED_INT64 && !caps->int64)
        return "64-bit integers in shaders";
    return NULL;
}
