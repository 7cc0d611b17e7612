/* Fused attention: the softmax of a row stays in registers, without a buffer of scores. Normalises
 * operands to what the kernel reads. */
#include "op/attention/budget.h"

/* Whether each head fits a binding. */
static bool head_fits(const struct vka_plan *plan, const struct vka_tensor *t)
{
    struct vka_tensor one = tensor_part(t, 0, 0, 1);
    one = tensor_part(&one, 1, 0, 1);
    return plan_range(plan, &one) <= plan->caps.properties.max_buffer_range;
}

/* Replaces *t by a copy in scratch unless its rows are contiguous. whole, of keys and values: also
 * where rows are so far apart that a head exceeds a binding. */
static enum vka_status with_contiguous_rows(struct vka_plan *plan, struct vka_tensor *t, bool whole)
{
    struct vka_tensor copy;
    bool contiguous = t->shape.size[3] == 1 || t->shape.stride[3] == 1;
    bool close = t->shape.size[2] == 1 || t->shape.stride[2] == t->shape.size[3];
    if (contiguous && (!whole || close || head_fits(plan, t)))
        return VKA_OK;
    ENSURE(plan_scratch(plan, t->dtype, t->shape.size, &copy));
    ENSURE(plan_copy(plan, "pack", t, &copy));
    *t = copy;
    return VKA_OK;
}

/* Replaces *t by a copy with rows padded to whole vec4 unless it can be read as texels. */
static enum vka_status with_texels(struct vka_plan *plan, struct vka_tensor *t)
{
    const uint32_t *size = t->shape.size;
    struct vka_tensor copy;
    if (t->dtype == VKA_F32 && attention_begins_vec4(t) && plan_is_ours(plan, t))
        return VKA_OK;
    ENSURE(plan_scratch(plan, VKA_F32,
                        (const uint32_t[]){size[0], size[1], size[2], (size[3] + 3) / 4 * 4},
                        &copy));
    copy.shape.size[3] = size[3];
    ENSURE(plan_copy(plan, "pack", t, &copy));
    *t = copy;
    return VKA_OK;
}

/* Replaces *t by a copy in scratch unless it can be read by address. A copy, not another kernel:
 * another one gives other bits, and bits must not depend on where operands lie. */
static enum vka_status with_address(struct vka_plan *plan, struct vka_tensor *t)
{
    struct vka_tensor copy;
    if (attention_rows_of_vec4(t) && plan_is_ours(plan, t))
        return VKA_OK;
    ENSURE(plan_scratch(plan, t->dtype, t->shape.size, &copy));
    ENSURE(plan_copy(plan, "pack", t, &copy));
    *t = copy;
    return VKA_OK;
}

enum vka_status plan_attention_fused(struct vka_plan *plan, const struct attention *a)
{
    enum kernel kernel = a->choice.kernel;
    struct attention b = *a;
    if (!a->choice.usable)
        return log_error(&plan->device->log, VKA_UNSUPPORTED,
                         "fused attention is not supported here: the kernel %s %s",
                         kernel_table[kernel].name, a->choice.reason);
    ENSURE(with_contiguous_rows(plan, &b.q, false));
    ENSURE(with_contiguous_rows(plan, &b.k, !a->paged));
    ENSURE(with_contiguous_rows(plan, &b.v, !a->paged));
    if (kernel == KERNEL_attention_texel) {
        ENSURE(with_texels(plan, &b.k));
        ENSURE(with_texels(plan, &b.v));
    }
    if (kernel_table[kernel].needs & NEED_ADDRESS) {
        ENSURE(with_address(plan, &b.q));
        ENSURE(with_address(plan, &b.k));
        ENSURE(with_address(plan, &b.v));
    }
    bool scattered =
        attention_is_last(a) && b.output.shape.size[3] != 1 && b.output.shape.stride[3] != 1;
    if (scattered)
        ENSURE(plan_scratch(plan, a->output.dtype, a->output.shape.size, &b.output));
    ENSURE(attention_add_slices(plan, &b));
    if (scattered)
        ENSURE(plan_copy(plan, "unpack", &b.output, &a->output));
    if (a->options->scores)
        ENSURE(plan_attention_scores(plan, a));
    return VKA_OK;
}
