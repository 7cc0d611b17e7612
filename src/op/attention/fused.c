/* Fused attention: the softmax of a row stays in registers, without a buffer of scores. Normalises
 * operands to what the kernel reads. */
#include "op/attention/fused.h"
#include "op/cache/hadamard.h"

/* Whether each head fits a binding. */
static bool head_fits(const struct vka_plan *plan, const struct vka_tensor *t)
{
    struct vka_tensor one = tensor_part(t, 0, 0, 1);
    one = tensor_part(&one, 1, 0, 1);
    return plan_range(plan, &one) <= plan->caps.properties.max_buffer_range;
}

/* Replaces *t by a copy in scratch, with rows padded to multiples of `unit`. */
static enum vka_status pack(struct vka_plan *plan, enum vka_dtype dtype, uint32_t unit,
                            struct vka_tensor *t)
{
    const uint32_t *size = t->shape.size;
    const uint32_t padded[] = {size[0], size[1], size[2], divide_up(size[3], unit) * unit};
    struct vka_tensor copy;
    ENSURE(plan_scratch(plan, dtype, padded, &copy));
    copy.shape.size[3] = size[3];
    ENSURE(plan_copy(plan, "pack", t, &copy));
    *t = copy;
    return VKA_OK;
}

enum vka_status attention_join_rows(struct vka_plan *plan, struct vka_tensor *t, bool whole)
{
    bool contiguous = t->shape.size[3] == 1 || t->shape.stride[3] == 1;
    bool close = t->shape.size[2] == 1 || t->shape.stride[2] == t->shape.size[3];
    if (contiguous && (!whole || close || head_fits(plan, t)))
        return VKA_OK;
    return pack(plan, t->dtype, 1, t);
}

/* Makes rows readable as texels, which are whole vec4. */
static enum vka_status with_texels(struct vka_plan *plan, struct vka_tensor *t)
{
    if (t->dtype == VKA_F32 && attention_rows_begin(t, 4) && plan_is_ours(plan, t))
        return VKA_OK;
    return pack(plan, VKA_F32, 4, t);
}

/* Makes rows readable by address. By a copy, not another kernel: another one gives other bits, and
 * bits must not depend on where operands lie. */
static enum vka_status with_address(struct vka_plan *plan, struct vka_tensor *t)
{
    if (attention_rows_of(t, 4) && plan_is_ours(plan, t))
        return VKA_OK;
    return pack(plan, t->dtype, 1, t);
}

/* Tiles of a kernel that was chosen for other types than the operands' would give wrong results. */
static enum vka_status check_types(const struct vka_plan *plan, const struct attention *a)
{
    const struct attention_choice *c = &a->choice;
    const struct attention_operands o = attention_operands_of(a);
    if (c->q_type == o.q_type && c->k_type == o.k_type && c->v_type == o.v_type &&
        c->o_type == o.o_type)
        return VKA_OK;
    return log_error(&plan->device->log, VKA_INTERNAL,
                     "attention: the kernel %s was chosen for other types",
                     kernel_table[c->kernel].name);
}

enum vka_status plan_attention_fused(struct vka_plan *plan, const struct attention *a)
{
    enum kernel kernel = a->choice.kernel;
    struct attention b = *a;
    if (!a->choice.usable)
        return log_error(&plan->device->log, VKA_UNSUPPORTED,
                         "fused attention is not supported here: the kernel %s %s",
                         kernel_table[kernel].name, a->choice.reason);
    ENSURE(check_types(plan, a));
    ENSURE(attention_join_rows(plan, &b.q, false));
    ENSURE(attention_join_rows(plan, &b.k, !a->paged));
    ENSURE(attention_join_rows(plan, &b.v, !a->paged));
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
    if (scattered && a->n_sequence) /* leaves rows outside all sequences as they are */
        ENSURE(plan_hadamard(plan, "unpack", 1, a->q_start, &b.output, &a->output));
    else if (scattered)
        ENSURE(plan_copy(plan, "unpack", &b.output, &a->output));
    if (!a->options->scores)
        return VKA_OK;
    struct vka_attention_options scores_alone = *a->options;
    scores_alone.log_sum_exp = NULL;
    b = *a;
    b.options = &scores_alone;
    return plan_attention_unfused(plan, &b, false);
}
