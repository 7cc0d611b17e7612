#include "gpu/caps.h"
#include "gpu/quirks.h"
#include "params/params.h"

/* NULL: none of it keeps the kernel from being used. */
static const char *missing_by_state(enum kernel kernel, const struct caps *caps)
{
    switch (caps->kernels[kernel]) {
    case KERNEL_DEMOTED:
        return "failed its check on this device";
    case KERNEL_WRONG:
        return caps->trusted ? NULL : "failed its self-test on this device";
    case KERNEL_UNTESTED:
    case KERNEL_TESTING:
    case KERNEL_RIGHT:
        break;
    }
    return NULL;
}

#define REDUCED_BF16 (NEED_MATRIX2_BF16 | NEED_MATRIX_EXT_BF16)
#define REDUCED_EXT (NEED_MATRIX_EXT_F16 | NEED_MATRIX_EXT_BF16)
#define REDUCED_F16 (NEED_MATRIX2_F16 | NEED_MATRIX_EXT_F16)

struct matrix_size caps_reduced_size(const struct caps *caps, unsigned needs, bool *flexible)
{
    const struct reduced_matrices *has =
        needs & REDUCED_EXT ? &caps->reduced_ext : &caps->reduced_nv;
    const bool bfloat16 = needs & REDUCED_BF16;
    struct matrix_size any = bfloat16 ? has->bf16 : has->f16;
    struct matrix_size one = bfloat16 ? caps->matrix_bf16 : caps->matrix_f16;
    *flexible = has->flexible && any.m;
    if (!caps->matrices || !has->usable || (bfloat16 && !caps->bfloat16_matrices))
        return (struct matrix_size){0};
    return *flexible ? any : one.n == one.k ? one : (struct matrix_size){0};
}

static const char *missing_reductions(unsigned needs)
{
    if (needs & REDUCED_EXT)
        return needs & REDUCED_BF16
                   ? "needs matrices of bfloat16 with VK_EXT_cooperative_matrix_maintenance1"
                   : "needs matrices of float16 with VK_EXT_cooperative_matrix_maintenance1";
    return needs & REDUCED_BF16 ? "needs cooperative matrices of bfloat16 with reductions"
                                : "needs cooperative matrices of float16 with reductions";
}

static const char *missing_matrices(unsigned needs, const struct caps *caps)
{
    const struct vka_device_properties *has = &caps->properties;
    if (needs & NEED_MATRIX_F16 && (!caps->matrices || !caps->matrix_f16.m))
        return "needs cooperative matrices of float16";
    if (needs & NEED_MATRIX_BF16 && (!caps->bfloat16_matrices || !caps->matrix_bf16.m))
        return "needs cooperative matrices of bfloat16";
    bool flexible;
    if (needs & (REDUCED_F16 | REDUCED_BF16) && !caps_reduced_size(caps, needs, &flexible).m)
        return missing_reductions(needs);
    if (needs & (NEED_MATRIX_F16 | NEED_MATRIX_BF16) &&
        has->max_workgroup < COOP_SUBGROUPS * has->subgroup_size)
        return "needs workgroups of 8 subgroups";
    return NULL;
}

const char *kernel_missing(enum kernel kernel, const struct caps *caps)
{
    const struct vka_device_properties *has = &caps->properties;
    unsigned needs = kernel_table[kernel].needs;
    if (set_has(caps->without, kernel))
        return "is switched off";
    if (caps->refused[kernel])
        return caps->refused[kernel];
    if (missing_by_state(kernel, caps))
        return missing_by_state(kernel, caps);
    if (kernel_table[kernel].buffers > caps->max_bindings)
        return "needs more storage buffers";
    if (needs & NEED_BALLOT && !has->subgroup_ballot)
        return "needs subgroup broadcasts in compute shaders";
    if (needs & (NEED_ARITHMETIC | NEED_REDUCTIONS) && !has->subgroup_arithmetic)
        return "needs subgroup reductions in compute shaders";
    if (needs & NEED_SHUFFLE && !caps->shuffle)
        return "needs subgroup shuffles in compute shaders";
    if (needs & NEED_SUBGROUP_8 && has->subgroup_size < 8)
        return "needs subgroups of 8";
    if (needs & NEED_EIGHT && has->subgroup_size != 8)
        return "needs subgroups of just 8";
    if (missing_matrices(needs, caps))
        return missing_matrices(needs, caps);
    if (needs & NEED_FULL_SUBGROUPS && !caps->subgroup_size_control)
        return "needs control of the subgroup size";
    if (needs & NEED_ADDRESS && !caps->device_address)
        return "needs buffer addresses on a CPU driver";
    if (needs & (NEED_TEXELS | NEED_KV_TEXELS) && has->type != VKA_DEVICE_CPU)
        return "needs texel buffers of a CPU driver";
    if (needs & NEED_FLOAT16 && !has->float16)
        return "needs float16 arithmetic in shaders";
    if (needs & NEED_DOT && !caps->dot)
        return "needs integer dot products in shaders";
    if (needs & NEED_MIXED_DOT && !caps->mixed_dot)
        return "needs dot products of float16 with float32 sums in shaders";
    if (needs & NEED_SCALARS && !quirk_has_scalars(has))
        return "needs a compiler that keeps uniform values scalar";
    if (needs & NEED_INT8 && !caps->int8)
        return "needs 8-bit integers in shaders and buffers";
    if (needs & NEED_INT64 && !caps->int64)
        return "needs 64-bit integers in shaders";
    return NULL;
}
