#include "op/attention/share.h"

/* The share of a tensor [batch][heads][...], whose leading axes may be absent or 1. times: its
 * heads for each key head. */
static struct vka_tensor *part_of(const struct vka_tensor *t, const struct box *share,
                                  uint32_t times, struct vka_tensor *part)
{
    if (!t)
        return NULL;
    const uint32_t heads[2] = {1, times}, lead = VKA_MAX_RANK - t->shape.rank;
    *part = *t;
    for (uint32_t axis = lead; axis < 2; axis++)
        if (t->shape.size[axis - lead] > 1)
            *part = tensor_part(part, axis - lead, share->first[axis] * heads[axis],
                                share->size[axis] * heads[axis]);
    return part;
}

/* The share of a tensor [n], or [1] for all. */
static struct vka_tensor *part_of_row(const struct vka_tensor *t, uint32_t first, uint32_t count,
                                      struct vka_tensor *part)
{
    if (!t)
        return NULL;
    *part = t->shape.size[0] > 1 ? tensor_part(t, 0, first, count) : *t;
    return part;
}

void share_options(const struct vka_attention_options *o, const struct box *share, uint32_t group,
                   struct share_options *part)
{
    struct vka_attention_options *to = &part->options;
    uint32_t batch = share->first[0], n_batch = share->size[0];
    uint32_t head = share->first[1] * group, n_head = share->size[1] * group;
    *to = *o;
    to->mask = part_of(o->mask, share, group, &part->mask);
    to->scores = part_of(o->scores, share, group, &part->scores);
    if (o->log_sum_exp) {
        part->log_sum_exp = tensor_part(o->log_sum_exp, 0, batch, n_batch);
        part->log_sum_exp = tensor_part(&part->log_sum_exp, 1, head, n_head);
        to->log_sum_exp = &part->log_sum_exp;
    }
    to->kv_length = part_of_row(o->kv_length, batch, n_batch, &part->kv_length);
    to->query_offset = part_of_row(o->query_offset, batch, n_batch, &part->query_offset);
    to->sink = part_of_row(o->sink, head, n_head, &part->sink);
    to->alibi = part_of_row(o->alibi, head, n_head, &part->alibi);
    to->dropout_batch += batch;
    to->dropout_head += head;
}

bool attention_share_fits(const struct vka_plan *plan, const struct attention *a,
                          const struct attention_inputs *in, const struct box *share)
{
    uint64_t row = divide_up(a->head_dim > a->value_dim ? a->head_dim : a->value_dim, 4) * 16;
    uint64_t queries = (uint64_t)(a->n_head / a->n_kv_head) * a->n_q, keys = a->n_kv;
    uint64_t heads = (uint64_t)share->size[0] * share->size[1];
    uint64_t bytes = heads * (queries > keys ? queries : keys) * row;
    return in->use.cache || a->n_chunk_key || bytes <= plan->caps.properties.max_allocation;
}

void attention_take_share(const struct attention *a, const struct attention_inputs *in,
                          const struct box *share, struct attention_share *part)
{
    uint32_t group = a->n_head / a->n_kv_head;
    struct attention *b = &part->attention;
    *b = *a;
    part->inputs = (struct attention_inputs){
        .new_k = part_of(in->new_k, share, 1, &part->parts[0]),
        .new_v = part_of(in->new_v, share, 1, &part->parts[1]),
        .past_k = part_of(in->past_k, share, 1, &part->parts[2]),
        .past_v = part_of(in->past_v, share, 1, &part->parts[3]),
        .present_k = part_of(in->present_k, share, 1, &part->parts[4]),
        .present_v = part_of(in->present_v, share, 1, &part->parts[5]),
        .use = in->use,
    };
    share_options(a->options, share, group, &part->options);
    b->options = &part->options.options;
    part_of(&a->q, share, group, &b->q);
    part_of(&a->output, share, group, &b->output);
    b->batch = share->size[0];
    b->n_kv_head = share->size[1];
    b->n_head = b->n_kv_head * group;
}
