#include "op/attention/keys.h"

/* Pages of a paged cache lie anywhere, and the device alone knows where those of a sequence do. */
static bool can_cut(const struct attention *a)
{
    return !a->paged && !a->n_sequence;
}

/* The keys that rows of a pass see. */
static struct key_range keys_of(const struct attention *a, const struct attention_parts *parts,
                                uint32_t span, uint32_t piece)
{
    if (!can_cut(a))
        return (struct key_range){0, a->n_kv};
    return attention_pass_keys(a, parts, piece, span);
}

/* Of k or v, which begin at key_first, and may be the pool of a paged cache. */
static struct vka_tensor part_of_kv(const struct vka_tensor *t, const struct attention *a,
                                    const struct slice *s, struct key_range keys)
{
    struct vka_tensor part = attention_slice_kv(t, a, s);
    return can_cut(a) ? tensor_part(&part, 2, keys.first - a->key_first, keys.end - keys.first)
                      : part;
}

/* Of a mask, which may have fewer keys: then one that is not read. */
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
                         const struct slice *s, const struct attention_parts *parts, uint32_t span,
                         uint32_t piece, struct pass *pass, uint32_t mask_slot,
                         struct attention_params *p)
{
    struct key_range keys = keys_of(a, parts, span, piece);
    struct vka_tensor k = part_of_kv(&a->k, a, s, keys), v = part_of_kv(&a->v, a, s, keys);
    uint32_t mask_n_kv;
    plan_bind(plan, pass, 1, &k, false, &p->k_offset);
    plan_bind(plan, pass, 2, &v, false, &p->v_offset);
    if (can_cut(a)) { /* kernels count all keys */
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

/* Bytes of a binding for the pass: of k and v, or of the mask. */
static uint64_t kv_range(const struct vka_plan *plan, const struct attention *a,
                         const struct slice *s, struct key_range keys)
{
    struct vka_tensor k = part_of_kv(&a->k, a, s, keys), v = part_of_kv(&a->v, a, s, keys);
    uint64_t k_range = plan_range(plan, &k), v_range = plan_range(plan, &v);
    return k_range > v_range ? k_range : v_range;
}

static uint64_t mask_range(const struct vka_plan *plan, const struct attention *a,
                           const struct slice *s, struct key_range keys)
{
    uint32_t mask_n_kv;
    if (!a->options->mask)
        return 0;
    struct vka_tensor mask = attention_mask(a, &mask_n_kv);
    mask = part_of_mask(&mask, s, &keys);
    return plan_range(plan, &mask);
}

static bool fits(const struct vka_plan *plan, const struct attention *a, const struct slice *s,
                 const struct attention_parts *parts, bool with_mask)
{
    const struct attention_choice *c = &a->choice;
    uint64_t limit = plan->caps.properties.max_buffer_range;
    for (uint32_t i = 0; i < parts->n_span; i++)
        for (uint32_t j = 0; j < c->n_piece; j += parts->pieces) {
            struct key_range keys = keys_of(a, parts, i, j);
            if (keys.end && (kv_range(plan, a, s, keys) > limit ||
                             (with_mask && mask_range(plan, a, s, keys) > limit)))
                return false;
        }
    return true;
}

bool attention_keys_fit(const struct vka_plan *plan, const struct attention *a,
                        const struct slice *s, const struct attention_parts *parts)
{
    return fits(plan, a, s, parts, true);
}

void attention_cut_for_limits(const struct vka_plan *plan, const struct attention *a,
                              const struct slice *s, bool last, struct attention_parts *parts)
{
    bool one = s->n_batch == 1 && s->n_head == a->n_head / a->n_kv_head;
    if ((!one && !last) || !can_cut(a))
        return;
    while (!fits(plan, a, s, parts, last) && attention_halve_keys(a, parts))
        continue;
}
