#include "op/attention/share.h"

static struct vka_tensor *part_of(const struct vka_tensor *t, uint32_t axis, uint32_t first,
                                  uint32_t count, struct vka_tensor *part)
{
    if (!t)
        return NULL;
    *part = tensor_part(t, axis, first, count);
    return part;
}

/* The share of a mask, which may lack leading axes or broadcast along them. */
static struct vka_tensor *part_of_mask(struct vka_tensor *mask, const struct share *s,
                                       struct vka_tensor *part)
{
    uint32_t lead = mask ? VKA_MAX_RANK - mask->shape.rank : 0;
    if (!mask || s->axis < lead || mask->shape.size[s->axis - lead] == 1)
        return mask;
    uint32_t times = s->axis == 1 ? s->group : 1;
    return part_of(mask, s->axis - lead, s->first * times, s->count * times, part);
}

/* [batch] or [1]. */
static struct vka_tensor *part_of_batch(struct vka_tensor *t, const struct share *s,
                                        struct vka_tensor *part)
{
    return t && t->shape.size[0] > 1 ? part_of(t, 0, s->first, s->count, part) : t;
}

void share_options(const struct vka_attention_options *o, const struct share *s,
                   struct share_options *part)
{
    struct vka_attention_options *to = &part->options;
    uint32_t head = s->first * s->group, n_head = s->count * s->group;
    *to = *o;
    to->mask = part_of_mask(o->mask, s, &part->mask);
    if (s->axis == 0) {
        to->kv_length = part_of_batch(o->kv_length, s, &part->kv_length);
        to->query_offset = part_of_batch(o->query_offset, s, &part->query_offset);
        to->scores = part_of(o->scores, 0, s->first, s->count, &part->scores);
        to->dropout_batch += s->first;
    } else {
        to->scores = part_of(o->scores, 1, head, n_head, &part->scores);
        to->sink = part_of(o->sink, 0, head, n_head, &part->sink);
        to->alibi = part_of(o->alibi, 0, head, n_head, &part->alibi);
        to->dropout_head += head;
    }
}

int attention_axis_to_share(const struct vka_plan *plan, const struct attention *a,
                            const struct attention_inputs *in)
{
    uint64_t row = divide_up(a->head_dim > a->value_dim ? a->head_dim : a->value_dim, 4) * 16;
    uint64_t queries = (uint64_t)a->n_head * a->n_q, keys = (uint64_t)a->n_kv_head * a->n_kv;
    uint64_t bytes = a->batch * (queries > keys ? queries : keys) * row;
    if (in->cache || a->n_chunk_key || bytes <= plan->caps.properties.max_allocation)
        return -1;
    return a->batch > 1 ? 0 : a->n_kv_head > 1 ? 1 : -1;
}

static const struct vka_tensor *part_of_input(const struct vka_tensor *t, const struct share *s,
                                              struct vka_tensor *part)
{
    return part_of(t, s->axis, s->first, s->count, part);
}

void attention_take_share(const struct attention *a, const struct attention_inputs *in,
                          const struct share *s, struct attention_share *part)
{
    uint32_t times = s->axis == 1 ? s->group : 1;
    part->attention = *a;
    part->inputs = (struct attention_inputs){
        .new_k = part_of_input(in->new_k, s, &part->parts[0]),
        .new_v = part_of_input(in->new_v, s, &part->parts[1]),
        .past_k = part_of_input(in->past_k, s, &part->parts[2]),
        .past_v = part_of_input(in->past_v, s, &part->parts[3]),
        .present_k = part_of_input(in->present_k, s, &part->parts[4]),
        .present_v = part_of_input(in->present_v, s, &part->parts[5]),
    };
    share_options(a->options, s, &part->options);
    struct attention *b = &part->attention;
    b->options = &part->options.options;
    b->q = tensor_part(&a->q, s->axis, s->first * times, s->count * times);
    b->output = tensor_part(&a->output, s->axis, s->first * times, s->count * times);
    if (s->axis == 0) {
        b->batch = s->count;
    } else {
        b->n_kv_head = s->count;
        b->n_head = s->count * s->group;
    }
}
