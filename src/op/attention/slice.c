#include "op/attention/slice.h"

/* The slice of a tensor [batch][heads][...], whose leading axes may be absent or 1. times: its
 * heads for each key head. */
static struct vka_tensor *slice_of(const struct vka_tensor *t, const struct slice *slice,
                                   uint32_t times, struct vka_tensor *sliced)
{
    if (!t)
        return NULL;
    const uint32_t heads[2] = {1, times}, lead = VKA_MAX_RANK - t->shape.rank;
    *sliced = *t;
    for (uint32_t axis = lead; axis < 2; axis++)
        if (t->shape.size[axis - lead] > 1)
            *sliced = tensor_slice_along(sliced, axis - lead, slice->first[axis] * heads[axis],
                                         slice->size[axis] * heads[axis]);
    return sliced;
}

/* The slice of a tensor [n], or [1] for all. */
static struct vka_tensor *slice_of_row(const struct vka_tensor *t, uint32_t first, uint32_t count,
                                       struct vka_tensor *sliced)
{
    if (!t)
        return NULL;
    *sliced = t->shape.size[0] > 1 ? tensor_slice_along(t, 0, first, count) : *t;
    return sliced;
}

void attention_slice_options(const struct vka_attention_options *options, const struct slice *slice,
                             uint32_t group, struct sliced_options *sliced)
{
    struct vka_attention_options *to = &sliced->options;
    uint32_t batch = slice->first[0], n_batch = slice->size[0];
    uint32_t head = slice->first[1] * group, n_head = slice->size[1] * group;
    *to = *options;
    to->mask = slice_of(options->mask, slice, group, &sliced->mask);
    to->scores = slice_of(options->scores, slice, group, &sliced->scores);
    if (options->log_sum_exp) {
        sliced->log_sum_exp = tensor_slice_along(options->log_sum_exp, 0, batch, n_batch);
        sliced->log_sum_exp = tensor_slice_along(&sliced->log_sum_exp, 1, head, n_head);
        to->log_sum_exp = &sliced->log_sum_exp;
    }
    to->kv_length = slice_of_row(options->kv_length, batch, n_batch, &sliced->kv_length);
    to->query_offset = slice_of_row(options->query_offset, batch, n_batch, &sliced->query_offset);
    to->sink = slice_of_row(options->sink, head, n_head, &sliced->sink);
    to->alibi = slice_of_row(options->alibi, head, n_head, &sliced->alibi);
    to->dropout_batch += batch;
    to->dropout_head += head;
}

bool attention_slice_fits(const struct vka_plan *plan, const struct attention *a,
                          const struct attention_inputs *in, const struct slice *slice)
{
    uint64_t row = divide_up(a->head_dim > a->value_dim ? a->head_dim : a->value_dim, 4) * 16;
    uint64_t queries = (uint64_t)(a->n_head / a->n_kv_head) * a->n_q, keys = a->n_kv;
    uint64_t heads = (uint64_t)slice->size[0] * slice->size[1];
    uint64_t bytes = heads * (queries > keys ? queries : keys) * row;
    return in->use.cache || a->key_chunk || bytes <= plan->caps.properties.max_allocation;
}

void attention_take_slice(const struct attention *a, const struct attention_inputs *in,
                          const struct slice *slice, struct sliced_attention *sliced)
{
    uint32_t group = a->n_head / a->n_kv_head;
    struct attention *b = &sliced->attention;
    *b = *a;
    sliced->inputs = (struct attention_inputs){
        .new_k = slice_of(in->new_k, slice, 1, &sliced->tensors[0]),
        .new_v = slice_of(in->new_v, slice, 1, &sliced->tensors[1]),
        .past_k = slice_of(in->past_k, slice, 1, &sliced->tensors[2]),
        .past_v = slice_of(in->past_v, slice, 1, &sliced->tensors[3]),
        .present_k = slice_of(in->present_k, slice, 1, &sliced->tensors[4]),
        .present_v = slice_of(in->present_v, slice, 1, &sliced->tensors[5]),
        .use = in->use,
    };
    attention_slice_options(a->options, slice, group, &sliced->options);
    b->options = &sliced->options.options;
    slice_of(&a->q, slice, group, &b->q);
    slice_of(&a->output, slice, group, &b->output);
    b->batch = slice->size[0];
    b->n_kv_head = slice->size[1];
    b->n_head = b->n_kv_head * group;
}
