#include "op/attention/fused.h"

bool attention_binds_some_keys(const struct attention *a)
{
    return !a->paged && !a->n_sequence;
}

/* The part of k or v that a pass binds. k and v begin at key_first; those of a paged cache are
 * whole. */
static struct vka_tensor part_of_kv(const struct vka_tensor *t, const struct attention *a,
                                    const struct slice *s, struct key_range keys)
{
    struct vka_tensor part = attention_slice_kv(t, a, s);
    return attention_binds_some_keys(a)
               ? tensor_part(&part, 2, keys.first - a->key_first, keys.end - keys.first)
               : part;
}

/* The part of a mask that a pass binds; where the mask has none of these keys, one key that is not
 * read. */
static struct vka_tensor part_of_mask(const struct vka_tensor *mask, const struct slice *s,
                                      struct key_range *keys)
{
    struct vka_tensor part = attention_slice(mask, s);
    uint32_t n = mask->shape.size[3];
    keys->first = keys->first < n ? keys->first : n - 1;
    keys->end = keys->end < n ? keys->end : n;
    return tensor_part(&part, 3, keys->first,
                       keys->end > keys->first ? keys->end - keys->first : 1);
}

void attention_bind_keys(const struct vka_plan *plan, const struct attention *a,
                         const struct slice *s, struct key_range keys, struct pass *pass,
                         uint32_t mask_slot, struct attention_params *p)
{
    struct vka_tensor k = part_of_kv(&a->k, a, s, keys), v = part_of_kv(&a->v, a, s, keys);
    uint32_t mask_n_kv;
    plan_bind(plan, pass, 1, &k, false, &p->k_offset);
    plan_bind(plan, pass, 2, &v, false, &p->v_offset);
    if (!attention_binds_some_keys(a))
        keys = (struct key_range){0, a->n_kv};
    else { /* kernels count all keys */
        p->k_offset -= keys.first * p->k_row;
        p->v_offset -= keys.first * p->v_row;
    }
    if (!a->options->mask)
        return;
    struct vka_tensor mask = attention_mask(a, &mask_n_kv), part = part_of_mask(&mask, s, &keys);
    plan_bind(plan, pass, mask_slot, &part, false, &p->mask.mask_offset);
    p->mask.mask_offset = attention_rebase(p->mask.mask_offset, &mask, s);
    p->mask.mask_offset -= keys.first * p->mask.mask_col;
}

bool attention_keys_fit(const struct vka_plan *plan, const struct attention *a,
                        const struct slice *s, struct key_range keys, bool with_mask)
{
    uint64_t limit = plan->caps.properties.max_buffer_range;
    if (!attention_binds_some_keys(a))
        keys = (struct key_range){0, a->n_kv};
    struct vka_tensor k = part_of_kv(&a->k, a, s, keys), v = part_of_kv(&a->v, a, s, keys);
    bool fit = plan_range(plan, &k) <= limit && plan_range(plan, &v) <= limit;
    if (with_mask && a->options->mask) {
        struct vka_tensor mask = attention_mask(a, &(uint32_t){0});
        mask = part_of_mask(&mask, s, &keys);
        fit &= plan_range(plan, &mask) <= limit;
    }
    return fit;
}
