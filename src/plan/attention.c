/* Attention as an operation: sizes and checks, then norms, rotation, past and present. */
#include "plan/attention.h"
#include "plan/check.h"
#include "plan/rope.h"

#include <math.h>

void attention_option_inputs(const struct vka_attention_options *o,
                             const struct vka_tensor *inputs[OPTION_INPUTS])
{
    const struct vka_tensor *all[OPTION_INPUTS] = {
        o->mask, o->kv_length, o->query_offset, o->q_norm, o->k_norm, o->sink, o->alibi};
    for (size_t i = 0; i < OPTION_INPUTS; i++)
        inputs[i] = all[i];
}

/* The keys (or values) that attention reads: past and new ones put together where there is a past,
 * in `present` or in scratch; else `fresh` itself, copied to `present` where that is given. */
static enum vka_status join_past(struct vka_plan *plan, const struct vka_tensor *past,
                                 const struct vka_tensor *fresh, const struct vka_tensor *present,
                                 struct vka_tensor *joined)
{
    enum vka_status status = VKA_OK;
    const uint32_t n_past = past ? past->shape.size[2] : 0;
    const uint32_t *f = fresh->shape.size;
    *joined = *fresh;
    if (!past && !present)
        return VKA_OK;
    struct vka_tensor whole;
    if (present) {
        whole = *present;
    } else {
        const uint32_t size[4] = {f[0], f[1], n_past + f[2], f[3]};
        enum vka_dtype dtype = past->dtype == fresh->dtype ? past->dtype : VKA_F32;
        TRY(plan_scratch(plan, dtype, size, &whole));
    }
    if (past) {
        struct vka_tensor to = tensor_part(&whole, 2, 0, n_past);
        TRY(plan_copy(plan, "past", past, &to));
        *joined = whole;
    }
    struct vka_tensor to = tensor_part(&whole, 2, n_past, f[2]);
    TRY(plan_copy(plan, "present", fresh, &to));
fail:
    return status;
}

enum vka_status plan_attention(struct vka_plan *plan, struct attention *a,
                               const struct attention_inputs *in)
{
    enum vka_status status = VKA_OK;
    const struct vka_attention_options *o = a->options;
    struct vka_tensor fresh_k = *in->new_k;
    struct vka_tensor norm_q, norm_k, offsets;
    if (o->q_norm)
        norm_q = *o->q_norm;
    if (o->k_norm)
        norm_k = *o->k_norm;
    if (o->query_offset)
        offsets = *o->query_offset;
    if (o->rope.dim || o->q_norm)
        TRY(plan_rope(plan, "turn q", &o->rope, o->q_norm ? &norm_q : NULL, o->norm_epsilon,
                      o->query_offset ? &offsets : NULL, a->n_past, &a->q));
    if (o->rope.dim || o->k_norm)
        TRY(plan_rope(plan, "turn k", &o->rope, o->k_norm ? &norm_k : NULL, o->norm_epsilon, NULL,
                      a->n_past, &fresh_k));
    TRY(join_past(plan, in->past_k, &fresh_k, in->present_k, &a->k));
    TRY(join_past(plan, in->past_v, in->new_v, in->present_v, &a->v));
    if (o->scale == 0)
        a->scale = (float)(1 / sqrt((double)a->head_dim));
    else
        a->scale = o->scale;
    bool fused = plan->path == VKA_PATH_FUSED ||
                 (plan->path == VKA_PATH_AUTO && attention_can_fuse(plan, a));
    TRY(fused ? plan_attention_fused(plan, a) : plan_attention_unfused(plan, a));
fail:
    return status;
}

/* Shapes of q, k, v, past, present and output, into *a. */
static enum vka_status check_shapes(struct vka_plan *plan, const char *caller,
                                    const struct vka_attention_op *op, struct attention *a)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    enum vka_status status = VKA_OK;
    const struct {
        const char *name;
        const struct vka_tensor *tensor;
        unsigned flags;
    } given[] = {
        {"q", op->q, CHECK_FLOAT},
        {"k", op->k, CHECK_FLOAT},
        {"v", op->v, CHECK_FLOAT},
        {"output", op->output, CHECK_FLOAT | CHECK_WRITTEN},
        {"past_key", op->past_key, CHECK_FLOAT},
        {"past_value", op->past_value, CHECK_FLOAT},
        {"present_key", op->present_key, CHECK_FLOAT | CHECK_WRITTEN},
        {"present_value", op->present_value, CHECK_FLOAT | CHECK_WRITTEN},
    };
    CHECK_ARG(!op->past_key == !op->past_value, "%s: past_key and past_value come together",
              caller);
    CHECK_ARG(!op->present_key == !op->present_value,
              "%s: present_key and present_value come together", caller);
    for (size_t i = 0; i < COUNTOF(given); i++) {
        if (i >= 4 && !given[i].tensor)
            continue;
        TRY(check_tensor(device, caller, given[i].name, given[i].tensor, given[i].flags));
        CHECK_ARG(given[i].tensor->shape.rank == 4, "%s: %s has rank %u, not 4", caller,
                  given[i].name, given[i].tensor->shape.rank);
    }
    const uint32_t *q = op->q->shape.size, *k = op->k->shape.size;
    a->batch = q[0];
    a->n_head = q[1];
    a->n_q = q[2];
    a->head_dim = q[3];
    a->n_kv_head = k[1];
    a->value_dim = op->v->shape.size[3];
    a->n_past = op->past_key ? op->past_key->shape.size[2] : 0;
    CHECK_ARG(a->n_head % a->n_kv_head == 0, "%s: q has %u heads, not a multiple of k's %u", caller,
              a->n_head, a->n_kv_head);
    CHECK_ARG((uint64_t)a->n_past + k[2] <= INT32_MAX, "%s: more than 2^31 keys", caller);
    a->n_kv = a->n_past + k[2];
    const uint32_t want[][4] = {
        {a->batch, a->n_head, a->n_q, a->head_dim},
        {a->batch, a->n_kv_head, k[2], a->head_dim},
        {a->batch, a->n_kv_head, k[2], a->value_dim},
        {a->batch, a->n_head, a->n_q, a->value_dim},
        {a->batch, a->n_kv_head, a->n_past, a->head_dim},
        {a->batch, a->n_kv_head, a->n_past, a->value_dim},
        {a->batch, a->n_kv_head, a->n_kv, a->head_dim},
        {a->batch, a->n_kv_head, a->n_kv, a->value_dim},
    };
    for (size_t i = 0; i < COUNTOF(given); i++)
        if (given[i].tensor)
            TRY(check_shape(device, caller, given[i].name, given[i].tensor, 4, want[i]));
fail:
    return status;
}

/* What is written may share no memory with what is read, nor with what else is written. */
static enum vka_status check_overlaps(struct vka_plan *plan, const char *caller,
                                      const struct vka_attention_op *op)
{
    enum vka_status status = VKA_OK;
    const struct vka_attention_options *o = &op->options;
    const struct vka_tensor *all[5 + OPTION_INPUTS + 3] = {op->q, op->k, op->v, op->past_key,
                                                           op->past_value};
    attention_option_inputs(o, all + 5);
    const struct {
        const char *name;
        const struct vka_tensor *tensor;
    } written[] = {{"output", op->output},
                   {"scores", o->scores},
                   {"present_key", op->present_key},
                   {"present_value", op->present_value}};
    size_t n = 5 + OPTION_INPUTS;
    for (size_t i = 0; i < COUNTOF(written); i++) {
        if (!written[i].tensor)
            continue;
        TRY(check_no_overlap(plan->device, caller, written[i].name, written[i].tensor, all, n));
        if (n < COUNTOF(all))
            all[n++] = written[i].tensor;
    }
fail:
    return status;
}

static enum vka_status add_attention(struct vka_plan *plan, const char *caller,
                                     const struct vka_attention_op *op)
{
    struct log *log = &plan->device->log;
    enum vka_status status = VKA_OK;
    CHECK_ARG(op, "%s: op is NULL", caller);
    CHECK_ARG(op->struct_size == sizeof *op, "%s: struct_size is %zu, not %zu", caller,
              op->struct_size, sizeof *op);
    struct attention a = {.options = &op->options};
    TRY(check_shapes(plan, caller, op, &a));
    TRY(attention_check_options(plan, caller, &a));
    TRY(check_overlaps(plan, caller, op));
    a.q = *op->q;
    a.output = *op->output;
    TRY(plan_attention(plan, &a,
                       &(struct attention_inputs){op->k, op->v, op->past_key, op->past_value,
                                                  op->present_key, op->present_value}));
fail:
    return status;
}

enum vka_status vka_plan_add_attention(struct vka_plan *plan, const struct vka_attention_op *op)
{
    struct plan_mark mark;
    enum vka_status status = plan_begin(plan, __func__, &mark);
    if (status != VKA_OK)
        return status;
    return plan_end(plan, mark, add_attention(plan, __func__, op));
}
