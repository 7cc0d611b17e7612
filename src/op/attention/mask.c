/* Slices of a problem, and flags and bindings of masks: shared by all kernels that mask. */
#include "op/attention/mask.h"
#include "core/mask.h"

#include <string.h>

struct head_slice head_slice_of(const struct head_slice *s, const struct slice *slice)
{
    const uint32_t *first = slice->first, *size = slice->size;
    return (struct head_slice){s->batch + first[0], size[0], s->head + first[1], size[1],
                               s->query + first[2], size[2]};
}

struct vka_tensor attention_slice(const struct vka_tensor *t, const struct head_slice *s)
{
    struct vka_tensor view = tensor_slice_along(t, 0, s->batch, s->n_batch);
    view = tensor_slice_along(&view, 1, s->head, s->n_head);
    return tensor_slice_along(&view, 2, s->query, s->n_query);
}

struct vka_tensor attention_slice_kv(const struct vka_tensor *t, const struct attention *a,
                                     const struct head_slice *s)
{
    uint32_t group = a->n_head / a->n_kv_head;
    bool all = a->paged || a->sequences;
    struct vka_tensor view = all ? *t : tensor_slice_along(t, 0, s->batch, s->n_batch);
    return tensor_slice_along(&view, 1, s->head / group, (s->n_head + group - 1) / group);
}

struct vka_tensor attention_mask(const struct attention *a, uint32_t *mask_n_kv)
{
    struct vka_tensor mask = *a->options->mask;
    const uint32_t full[4] = {a->batch, a->n_head, a->n_q, a->n_kv};
    struct shape shape = shape_rank4(&mask.shape);
    mask_broadcast(&mask.shape, full, shape.stride, mask_n_kv); /* checked before */
    memcpy(shape.size, full, sizeof full);
    shape.size[3] = *mask_n_kv;
    mask.shape = shape;
    return mask;
}

bool attention_log_sum(const struct attention *a, struct vka_tensor *log_sum)
{
    if (!a->options->log_sum_exp || !attention_is_last(a))
        return false;
    *log_sum = *a->options->log_sum_exp;
    log_sum->shape.rank = 4;
    log_sum->shape.size[3] = 1;
    log_sum->shape.stride[3] = 1;
    return true;
}

/* MASK_ flags of the options. */
static uint32_t mask_flags(const struct attention *a)
{
    const struct vka_attention_options *options = a->options;
    uint32_t flags = (uint32_t)options->masked_row << MASK_ROW_SHIFT |
                     (uint32_t)options->scores_kind << MASK_SCORES_SHIFT;
    if (options->causal)
        flags |= MASK_CAUSAL;
    if (options->window && options->window_left >= 0)
        flags |= MASK_WINDOW_LEFT;
    if (options->window && options->window_right >= 0)
        flags |= MASK_WINDOW_RIGHT;
    if (options->kv_length)
        flags |= MASK_LENGTH | (options->kv_length->shape.size[0] > 1 ? MASK_LENGTH_PER_BATCH : 0);
    if (options->query_offset)
        flags |=
            MASK_OFFSET | (options->query_offset->shape.size[0] > 1 ? MASK_OFFSET_PER_BATCH : 0);
    if (options->mask)
        flags |= MASK_TENSOR | (uint32_t)options->mask->dtype << MASK_TYPE_SHIFT;
    if (options->scores)
        flags |= (uint32_t)options->scores->dtype << MASK_SCORES_TYPE_SHIFT;
    if (options->sink)
        flags |= MASK_SINK;
    if (options->alibi)
        flags |= MASK_ALIBI;
    return flags;
}

bool attention_hides(const struct attention *a)
{
    const uint32_t plain = 7u << MASK_SCORES_SHIFT | 7u << MASK_SCORES_TYPE_SHIFT | MASK_SINK |
                           MASK_ALIBI | MASK_OFFSET | MASK_OFFSET_PER_BATCH | 3u << MASK_ROW_SHIFT;
    return mask_flags(a) & ~plain;
}

uint32_t attention_rebase(uint32_t offset, const struct vka_tensor *t, const struct head_slice *s)
{
    const uint64_t *stride = t->shape.stride;
    return (uint32_t)(offset - s->batch * stride[0] - s->head * stride[1] - s->query * stride[2]);
}

void attention_bind_mask(const struct vka_plan *plan, const struct attention *a,
                         const struct head_slice *s, struct pass *pass, uint32_t slot,
                         struct mask_params *m, uint32_t *sink_offset, uint32_t *alibi_offset)
{
    const struct vka_attention_options *options = a->options;
    *m = (struct mask_params){
        .flags = mask_flags(a),
        .n_kv = a->n_kv,
        .mask_n_kv = a->n_kv,
        .default_offset = (int32_t)a->n_past,
        .window_left = options->window_left,
        .window_right = options->window_right,
    };
    if (options->mask) {
        struct vka_tensor mask = attention_mask(a, &m->mask_n_kv);
        struct vka_tensor view = attention_slice(&mask, s);
        plan_bind(plan, pass, slot, &view, false, &m->mask_offset);
        m->mask_offset = attention_rebase(m->mask_offset, &mask, s);
        m->mask_batch = (uint32_t)mask.shape.stride[0];
        m->mask_head = (uint32_t)mask.shape.stride[1];
        m->mask_row = (uint32_t)mask.shape.stride[2];
        m->mask_col = (uint32_t)mask.shape.stride[3];
    }
    if (a->sequences) {
        const struct vka_tensor *state = &a->sequences->state;
        m->flags |= MASK_LENGTH_BESIDE;
        plan_bind(plan, pass, slot + 2, state, false, &m->length_offset);
        m->query_offset_offset = m->length_offset + (uint32_t)options->query_offset->shape.offset;
        m->length_offset += (uint32_t)options->kv_length->shape.offset;
    }
    if (options->kv_length && !a->sequences)
        plan_bind(plan, pass, slot + 1, options->kv_length, false, &m->length_offset);
    if (options->query_offset && !a->sequences)
        plan_bind(plan, pass, slot + 2, options->query_offset, false, &m->query_offset_offset);
    if (options->sink)
        plan_bind(plan, pass, slot + 3, options->sink, false, sink_offset);
    if (options->alibi)
        plan_bind(plan, pass, slot + 4, options->alibi, false, alibi_offset);
}

bool attention_rows_begin(const struct vka_tensor *t, uint32_t multiple)
{
    const struct shape *s = &t->shape;
    bool whole = s->offset % multiple == 0;
    for (int i = 0; i < 3; i++)
        whole &= s->size[i] == 1 || s->stride[i] % multiple == 0;
    return whole;
}

bool attention_rows_of(const struct vka_tensor *t, uint32_t multiple)
{
    return attention_rows_begin(t, multiple) && t->shape.size[3] % multiple == 0;
}
