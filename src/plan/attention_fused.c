/* Fused attention: the whole of a row's softmax in registers, no buffer of scores. Which kernel, and
 * the operands as it wants them. */
#include "plan/attention_block.h"
#include "plan/attention_budget.h"
#include "plan/choose.h"

/* Whether rows begin at whole vec4. */
static bool begins_vec4(const struct vka_tensor *t)
{
    const struct shape *s = &t->shape;
    bool whole = s->offset % 4 == 0;
    for (int i = 0; i < 3; i++)
        whole &= s->size[i] == 1 || s->stride[i] % 4 == 0;
    return whole;
}

bool attention_rows_of_vec4(const struct vka_tensor *t)
{
    return begins_vec4(t) && t->shape.size[3] % 4 == 0;
}

void attention_choose(const struct vka_plan *plan, const struct attention *a,
                      struct attention_choice *choice)
{
    bool share = plan->whole_n_head != 0;
    uint32_t n_kv_head = share ? plan->whole_n_kv_head : a->n_kv_head;
    uint32_t n_head = share ? plan->whole_n_head : a->n_head;
    const struct attention_problem problem = {
        .batch = a->batch,
        .n_kv_head = n_kv_head,
        .n_row = (uint64_t)(plan->whole_n_q ? plan->whole_n_q : a->n_q) * (n_head / n_kv_head),
        .n_kv = a->n_kv,
        .head_dim = a->head_dim,
        .value_dim = a->value_dim,
        .q_type = a->q.dtype,
        .kv_type = a->k.dtype,
        .v_type = a->v.dtype,
        .o_type = a->output.dtype,
        .address = a->head_dim % 4 == 0 && a->value_dim % 4 == 0,
        .ragged = a->n_sequence > 0,
        .mask = a->options->mask,
    };
    choose_attention(&plan->device->caps, &problem, choice);
}

/* Whether one head fits a binding. */
static bool head_fits(const struct vka_plan *plan, const struct vka_tensor *t)
{
    struct vka_tensor one = tensor_part(t, 0, 0, 1);
    one = tensor_part(&one, 1, 0, 1);
    return plan_range(plan, &one) <= plan->device->caps.properties.max_buffer_range;
}

/* A tensor whose rows are contiguous and, of keys and values, not so far apart that a head passes a
 * binding: itself, or a copy in scratch. */
static enum vka_status with_contiguous_rows(struct vka_plan *plan, struct vka_tensor *t, bool whole)
{
    enum vka_status status = VKA_OK;
    struct vka_tensor copy;
    bool contiguous = t->shape.size[3] == 1 || t->shape.stride[3] == 1;
    bool close = t->shape.size[2] == 1 || t->shape.stride[2] == t->shape.size[3];
    if (contiguous && (!whole || close || head_fits(plan, t)))
        return VKA_OK;
    TRY(plan_scratch(plan, t->dtype, t->shape.size, &copy));
    TRY(plan_copy(plan, "pack", t, &copy));
    *t = copy;
fail:
    return status;
}

/* A tensor that can be read as texels, rows padded to whole vec4: itself, or a copy in scratch. */
static enum vka_status with_texels(struct vka_plan *plan, struct vka_tensor *t)
{
    enum vka_status status = VKA_OK;
    const uint32_t *size = t->shape.size;
    struct vka_tensor copy;
    if (t->dtype == VKA_F32 && begins_vec4(t) && plan_is_ours(plan, t))
        return VKA_OK;
    TRY(plan_scratch(plan, VKA_F32,
                     (const uint32_t[]){size[0], size[1], size[2], (size[3] + 3) / 4 * 4}, &copy));
    copy.shape.size[3] = size[3];
    TRY(plan_copy(plan, "pack", t, &copy));
    *t = copy;
fail:
    return status;
}

/* A tensor that can be read by address: itself, or a copy in scratch. What the kernel is must not
 * depend on where operands lie, as another one gives other bits. */
static enum vka_status with_address(struct vka_plan *plan, struct vka_tensor *t)
{
    enum vka_status status = VKA_OK;
    struct vka_tensor copy;
    if (attention_rows_of_vec4(t) && plan_is_ours(plan, t))
        return VKA_OK;
    TRY(plan_scratch(plan, t->dtype, t->shape.size, &copy));
    TRY(plan_copy(plan, "pack", t, &copy));
    *t = copy;
fail:
    return status;
}

bool attention_fuses(const struct vka_plan *plan, const struct attention *a)
{
    struct attention_choice choice;
    if (plan->path != VKA_PATH_AUTO)
        return plan->path == VKA_PATH_FUSED;
    attention_choose(plan, a, &choice);
    return a->n_sequence || a->n_block || (choice.usable && choice.preferred);
}

enum vka_status plan_attention_fused(struct vka_plan *plan, const struct attention *a)
{
    enum vka_status status = VKA_OK;
    struct attention_choice choice;
    struct attention b = *a;
    attention_choose(plan, a, &choice);
    if (!choice.usable)
        return log_error(&plan->device->log, VKA_UNSUPPORTED,
                         "no fused attention here: the kernel %s %s",
                         kernel_table[choice.kernel].name, choice.reason);
    TRY(with_contiguous_rows(plan, &b.q, false));
    TRY(with_contiguous_rows(plan, &b.k, !a->paged));
    TRY(with_contiguous_rows(plan, &b.v, !a->paged));
    if (choice.kernel == KERNEL_attention_texel) {
        TRY(with_texels(plan, &b.k));
        TRY(with_texels(plan, &b.v));
    }
    if (choice.kernel == KERNEL_attention_address) {
        TRY(with_address(plan, &b.q));
        TRY(with_address(plan, &b.k));
        TRY(with_address(plan, &b.v));
    }
    bool scattered =
        attention_is_last(a) && b.output.shape.size[3] != 1 && b.output.shape.stride[3] != 1;
    if (scattered)
        TRY(plan_scratch(plan, a->output.dtype, a->output.shape.size, &b.output));
    TRY(attention_add_slices(plan, &b, &choice));
    if (scattered)
        TRY(plan_copy(plan, "unpack", &b.output, &a->output));
    if (a->options->scores)
        TRY(plan_attention_scores(plan, a));
fail:
    return status;
}
