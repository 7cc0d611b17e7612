/* Checks struct vka_attention_options against a problem's sizes. */
#include "core/dtype.h"
#include "core/mask.h"
#include "op/attention/attention.h"
#include "op/common/check.h"

#include <math.h>

static enum vka_status check_mask(struct vka_plan *plan, const char *caller,
                                  const struct attention *a)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    const struct vka_tensor *mask = a->options->mask;
    if (!mask)
        return VKA_OK;
    ENSURE(check_tensor(device, caller, "mask", mask, 0));
    ENSURE_ARG(mask->dtype == VKA_BOOL || dtype_is_float(mask->dtype),
               "%s: mask is %s, not bool or a float type", caller, vka_dtype_name(mask->dtype));
    const uint32_t full[4] = {a->batch, a->n_head, a->n_q, a->n_kv};
    uint64_t stride[4];
    uint32_t n_kv;
    const char *wrong = mask_broadcast(&mask->shape, full, stride, &n_kv);
    char text[SHAPE_TEXT];
    ENSURE_ARG(!wrong, "%s: mask %s does not broadcast to [%u, %u, %u, %u]: %s", caller,
               shape_text(&mask->shape, text), full[0], full[1], full[2], full[3], wrong);
    return VKA_OK;
}

enum vka_status attention_check_per_batch(struct vka_plan *plan, const char *caller,
                                          const char *name, const struct vka_tensor *tensor,
                                          uint32_t batch)
{
    struct log *log = &plan->device->log;
    if (!tensor)
        return VKA_OK;
    ENSURE(check_tensor(plan->device, caller, name, tensor, CHECK_I32));
    uint32_t n = tensor->shape.size[0];
    ENSURE_ARG(tensor->shape.rank == 1 && (n == 1 || n == batch),
               "%s: %s is neither [1] nor [%u], one value for each batch element", caller, name,
               batch);
    ENSURE_ARG(n == 1 || tensor->shape.stride[0] == 1, "%s: %s is not contiguous", caller, name);
    return VKA_OK;
}

static enum vka_status check_scores(struct vka_plan *plan, const char *caller,
                                    const struct attention *a)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    const struct vka_attention_options *o = a->options;
    ENSURE_ARG((unsigned)o->scores_kind < VKA_SCORES_COUNT, "%s: scores_kind %d is unknown", caller,
               (int)o->scores_kind);
    ENSURE_ARG(o->scores_kind == VKA_SCORES_NONE || o->scores,
               "%s: scores_kind is given, but scores is NULL", caller);
    ENSURE_ARG(o->scores_kind != VKA_SCORES_NONE || !o->scores,
               "%s: scores is given, but scores_kind is NONE", caller);
    if (!o->scores)
        return VKA_OK;
    ENSURE(check_tensor(device, caller, "scores", o->scores, CHECK_FLOAT | CHECK_WRITTEN));
    const uint32_t full[4] = {a->batch, a->n_head, a->n_q, a->n_kv};
    return check_shape(device, caller, "scores", o->scores, 4, full);
}

static enum vka_status check_log_sum(struct vka_plan *plan, const char *caller,
                                     const struct attention *a)
{
    const struct vka_tensor *t = a->options->log_sum_exp;
    if (!t)
        return VKA_OK;
    ENSURE(check_tensor(plan->device, caller, "log_sum_exp", t, CHECK_F32 | CHECK_WRITTEN));
    return check_shape(plan->device, caller, "log_sum_exp", t, 3,
                       (const uint32_t[]){a->batch, a->n_head, a->n_q});
}

/* Checks that positions, keys and their differences fit int32 (offsets are within 2^30), and that
 * rows of all batch elements and heads fit uint32, as kernels count them so. */
static enum vka_status check_sizes(struct vka_plan *plan, const char *caller,
                                   const struct attention *a)
{
    struct log *log = &plan->device->log;
    ENSURE_ARG(a->n_q < 1u << 30, "%s: %u queries, but there must be fewer than 2^30", caller,
               a->n_q);
    ENSURE_ARG(a->n_kv <= 1u << 30, "%s: %u keys exceed 2^30", caller, a->n_kv);
    ENSURE_ARG((uint64_t)a->batch * a->n_head <= INT32_MAX,
               "%s: batch %u times %u heads must be below 2^31", caller, a->batch, a->n_head);
    return VKA_OK;
}

static enum vka_status check_rope(struct vka_plan *plan, const char *caller,
                                  const struct attention *a)
{
    struct log *log = &plan->device->log;
    const struct vka_rope *r = &a->options->rope;
    ENSURE_ARG(r->dim % 2 == 0 && r->dim <= a->head_dim,
               "%s: rope.dim is %u, but must be even and at most head_dim %u", caller, r->dim,
               a->head_dim);
    ENSURE_ARG(r->base == 0 || (isfinite(r->base) && r->base > 0),
               "%s: rope.base is %g, not a positive number", caller, (double)r->base);
    ENSURE_ARG(!r->frequencies || (r->dim && r->base == 0),
               "%s: rope.frequencies is given with a base or without a dim", caller);
    for (uint32_t i = 0; r->frequencies && i < r->dim / 2; i++)
        ENSURE_ARG(fabs(r->frequencies[i]) <= 1, "%s: rope.frequencies[%u] is %g, not -1 to 1",
                   caller, i, r->frequencies[i]);
    ENSURE_ARG(isfinite(r->attention_factor) && r->attention_factor >= 0,
               "%s: rope.attention_factor is %g, not a positive number, or 0 for 1", caller,
               (double)r->attention_factor);
    return VKA_OK;
}

static enum vka_status check_numbers(struct vka_plan *plan, const char *caller,
                                     const struct attention *a)
{
    struct log *log = &plan->device->log;
    const struct vka_attention_options *o = a->options;
    ENSURE(check_given(plan->device, caller, o->given, VKA_GIVEN_SCALE | VKA_GIVEN_EPSILON));
    ENSURE_ARG(isfinite(o->scale), "%s: scale is %g, not a finite number", caller,
               (double)o->scale);
    ENSURE_ARG(isfinite(o->softcap) && o->softcap >= 0, "%s: softcap is %g, not a number from 0",
               caller, (double)o->softcap);
    ENSURE_ARG(o->dropout >= 0 && o->dropout < 1, "%s: dropout is %g, not from 0 to below 1",
               caller, (double)o->dropout);
    ENSURE_ARG(o->dropout_batch <= UINT16_MAX && o->dropout_head <= UINT16_MAX,
               "%s: dropout_batch is %u and dropout_head %u, not both up to 65535", caller,
               o->dropout_batch, o->dropout_head);
    ENSURE_ARG(isfinite(o->norm_epsilon) && o->norm_epsilon >= 0,
               "%s: norm_epsilon is %g, not a number from 0", caller, (double)o->norm_epsilon);
    ENSURE_ARG((unsigned)o->masked_row < VKA_MASKED_ROW_COUNT, "%s: masked_row %d is unknown",
               caller, (int)o->masked_row);
    if (o->window) {
        ENSURE_ARG(o->window_left >= -1, "%s: window_left is %d, less than -1", caller,
                   o->window_left);
        ENSURE_ARG(o->window_right >= -1, "%s: window_right is %d, less than -1", caller,
                   o->window_right);
    } else {
        ENSURE_ARG(o->window_left == 0 && o->window_right == 0,
                   "%s: window_left or window_right is given, but window is false", caller);
    }
    return VKA_OK;
}

float attention_scale(const struct vka_attention_options *o, uint32_t head_dim)
{
    return (float)or_default((double)o->scale, o->given, VKA_GIVEN_SCALE,
                             1 / sqrt((double)head_dim));
}

float attention_epsilon(const struct vka_attention_options *o)
{
    return (float)or_default((double)o->norm_epsilon, o->given, VKA_GIVEN_EPSILON, 1e-6);
}

enum vka_status attention_check_options(struct vka_plan *plan, const char *caller,
                                        struct attention *a)
{
    const struct vka_attention_options *o = a->options;
    uint32_t n = a->n_sequence ? a->n_sequence : a->batch;
    ENSURE(check_sizes(plan, caller, a));
    ENSURE(check_numbers(plan, caller, a));
    ENSURE(check_rope(plan, caller, a));
    ENSURE(check_mask(plan, caller, a));
    ENSURE(attention_check_per_batch(plan, caller, "kv_length", o->kv_length, n));
    ENSURE(attention_check_per_batch(plan, caller, "query_offset", o->query_offset, n));
    ENSURE(check_scores(plan, caller, a));
    ENSURE(check_log_sum(plan, caller, a));
    ENSURE(check_vector(plan->device, caller, "q_norm", o->q_norm, a->head_dim));
    ENSURE(check_vector(plan->device, caller, "k_norm", o->k_norm, a->head_dim));
    ENSURE(check_vector(plan->device, caller, "sink", o->sink, a->n_head));
    ENSURE(check_vector(plan->device, caller, "alibi", o->alibi, a->n_head));
    a->whole_n_head = plan->whole_n_head ? plan->whole_n_head : a->n_head;
    a->whole_n_kv_head = plan->whole_n_head ? plan->whole_n_kv_head : a->n_kv_head;
    a->whole_n_q = plan->whole_n_q ? plan->whole_n_q
                   : a->n_sequence ? divide_up(a->n_q, a->n_sequence)
                                   : a->n_q;
    return VKA_OK;
}
