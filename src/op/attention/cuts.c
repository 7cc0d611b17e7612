/* Cuts a slice into passes, along its keys and, in a ragged batch, its tiles; binds their keys. */
#include "kernel/attention.h"
#include "op/attention/map.h"
#include "op/attention/cuts.h"
#include "op/attention/records.h"
#include "op/cache/layers.h"

/* Whether a pass binds only the keys that it reads. It binds all where the device alone knows where
 * keys lie: in pages of a cache, and in a ragged batch. */
static bool binds_some_keys(const struct attention *a)
{
    return !a->paged && !a->n_sequence && !a->blocks;
}

/* The slice of k or v that a pass binds. k and v begin at key_first; those of a paged cache are
 * whole. */
static struct vka_tensor slice_of_kv(const struct vka_tensor *t, const struct attention *a,
                                     const struct head_slice *s, struct key_range keys)
{
    struct vka_tensor view = attention_slice_kv(t, a, s);
    return binds_some_keys(a)
               ? tensor_slice_along(&view, 2, keys.first - a->key_first, keys.end - keys.first)
               : view;
}

/* The slice of a mask that a pass binds; where the mask has none of these keys, one key that is not
 * read. */
static struct vka_tensor mask_view(const struct vka_tensor *mask, const struct head_slice *s,
                                   struct key_range *keys)
{
    struct vka_tensor view = attention_slice(mask, s);
    uint32_t n = mask->shape.size[3];
    keys->first = keys->first < n ? keys->first : n - 1;
    keys->end = keys->end < n ? keys->end : n;
    return tensor_slice_along(&view, 3, keys->first,
                              keys->end > keys->first ? keys->end - keys->first : 1);
}

/* Binds keys or values; of quantised rows the whole storage, as the scales lie at its end. */
static void bind_rows(const struct vka_plan *plan, struct pass *pass, uint32_t slot,
                      const struct vka_tensor *rows, const struct cached_rows *cached,
                      uint32_t *offset)
{
    if (!cached || !cached->scales) {
        plan_bind(plan, pass, slot, rows, false, offset);
        return;
    }
    const struct vka_tensor bytes = cache_bytes(cached);
    plan_bind(plan, pass, slot, &bytes, false, NULL);
    *offset = (uint32_t)(rows->shape.offset * cached->byte_values);
}

void attention_bind_keys(const struct vka_plan *plan, const struct attention *a,
                         const struct head_slice *s, struct key_range keys, struct pass *pass,
                         uint32_t mask_slot, struct attention_params *p)
{
    struct vka_tensor k = slice_of_kv(&a->k, a, s, keys), v = slice_of_kv(&a->v, a, s, keys);
    uint32_t mask_n_kv;
    bind_rows(plan, pass, 1, &k, a->blocks ? &a->blocks->k : NULL, &p->k_offset);
    bind_rows(plan, pass, 2, &v, a->blocks ? &a->blocks->v : NULL, &p->v_offset);
    if (!binds_some_keys(a))
        keys = (struct key_range){0, a->n_kv};
    else { /* kernels count all keys */
        p->k_offset -= keys.first * p->k_row;
        p->v_offset -= keys.first * p->v_row;
    }
    if (!a->options->mask)
        return;
    struct vka_tensor mask = attention_mask(a, &mask_n_kv), view = mask_view(&mask, s, &keys);
    plan_bind(plan, pass, mask_slot, &view, false, &p->mask.mask_offset);
    p->mask.mask_offset = attention_rebase(p->mask.mask_offset, &mask, s);
    p->mask.mask_offset -= keys.first * p->mask.mask_col;
}

static bool rows_fit(const struct vka_plan *plan, const struct vka_tensor *rows,
                     const struct cached_rows *cached)
{
    uint64_t range = cached && cached->scales ? rows->storage->bytes : plan_range(plan, rows);
    return range <= plan->caps.properties.max_buffer_range;
}

/* The keys that a pass over these keys binds. */
static struct key_range bound_keys(const struct attention *a, struct key_range keys)
{
    return binds_some_keys(a) ? keys : (struct key_range){0, a->n_kv};
}

/* Whether the mask of a pass over these keys fits a binding; true where there is none. */
static bool mask_fits(const struct vka_plan *plan, const struct attention *a,
                      const struct head_slice *s, struct key_range keys)
{
    if (!a->options->mask)
        return true;
    struct vka_tensor mask = attention_mask(a, &(uint32_t){0});
    keys = bound_keys(a, keys);
    mask = mask_view(&mask, s, &keys);
    return plan_range(plan, &mask) <= plan->caps.properties.max_buffer_range;
}

/* Whether keys and values, and the mask, of a pass over these keys fit a binding. */
static bool keys_fit(const struct vka_plan *plan, const struct attention *a,
                     const struct head_slice *s, struct key_range keys, bool with_mask)
{
    struct key_range bound = bound_keys(a, keys);
    struct vka_tensor k = slice_of_kv(&a->k, a, s, bound), v = slice_of_kv(&a->v, a, s, bound);
    return rows_fit(plan, &k, a->blocks ? &a->blocks->k : NULL) &&
           rows_fit(plan, &v, a->blocks ? &a->blocks->v : NULL) &&
           (!with_mask || mask_fits(plan, a, s, keys));
}

uint32_t attention_span_multiple(const struct attention_choice *c)
{
    return tune_takes_tiles(c->kernel) ? c->keys : ATTENTION_BLOCK;
}

/* A slice as one pass: over all splits; or over the key chunk; or over the keys that some query of
 * the slice may see, rounded to whole steps, at least one. */
static struct attention_cuts whole_cuts(const struct attention *a, const struct head_slice *s)
{
    const struct attention_choice *c = &a->choice;
    uint32_t tiles = attention_tiles(a, s), bounds[2], multiple = attention_span_multiple(c);
    struct attention_cuts cuts = {tiles, tiles, c->n_split, 1, 0, c->split_keys};
    if (a->key_chunk)
        cuts.splits = 1;
    if (c->n_split > 1)
        return cuts;
    attention_find_bounds(a, s, bounds);
    uint32_t first = (bounds[0] < a->n_kv ? bounds[0] : a->n_kv - 1) / multiple;
    uint32_t end = divide_up(bounds[1], multiple);
    cuts.key = a->key_chunk ? a->key_first : first * multiple;
    cuts.keys = a->key_chunk ? a->key_chunk : (end > first ? end - first : 1) * multiple;
    return cuts;
}

struct key_range attention_chain_keys(const struct attention *a, const struct attention_cuts *cuts,
                                      uint32_t split)
{
    const struct attention_choice *c = &a->choice;
    uint64_t first = cuts->key, end = first + (uint64_t)cuts->n_span * cuts->keys;
    if (c->n_split > 1) {
        first = (uint64_t)split * c->split_keys;
        end = first + c->split_keys;
    } else if (a->key_chunk) {
        first = 0;
        end = a->n_kv;
    }
    return (struct key_range){saturate(first), saturate(least(end, a->n_kv))};
}

struct key_range attention_pass_keys(const struct attention *a, const struct attention_cuts *cuts,
                                     uint32_t split, uint32_t span)
{
    const struct attention_choice *c = &a->choice;
    struct key_range chain = attention_chain_keys(a, cuts, split);
    uint64_t first = c->n_split > 1 ? chain.first : cuts->key, end;
    if (c->n_split > 1 && cuts->n_span == 1) {
        end = least((split + (uint64_t)cuts->splits) * c->split_keys, a->n_kv);
    } else {
        first += (uint64_t)span * cuts->keys;
        end = least(first + cuts->keys, chain.end);
    }
    if (a->key_chunk) {
        first = first > a->key_first ? first : a->key_first;
        end = least(end, (uint64_t)a->key_first + a->key_chunk);
    }
    if (first >= end)
        return (struct key_range){0, 0};
    return (struct key_range){saturate(first), saturate(end)};
}

/* Halves the keys of a pass: fewer splits, else shorter spans. False where a span is one step. */
static bool halve_keys(const struct attention *a, struct attention_cuts *cuts)
{
    const struct attention_choice *c = &a->choice;
    uint32_t multiple = attention_span_multiple(c), steps = divide_up(cuts->keys, multiple);
    uint64_t chain = c->split_keys;
    if (cuts->splits > 1) {
        cuts->splits = divide_up(cuts->splits, 2);
        return true;
    }
    if (steps == 1)
        return false;
    if (c->n_split == 1)
        chain = a->key_chunk ? a->key_chunk
                             : least((uint64_t)cuts->n_span * cuts->keys, a->n_kv - cuts->key);
    cuts->keys = divide_up(steps, 2) * multiple;
    cuts->n_span = divide_up((uint32_t)chain, cuts->keys);
    return true;
}

/* What each pass of a cut has to fit. */
struct demand {
    bool all;  /* the budget with all workgroups; else with the longest alone */
    bool keys; /* a binding with keys and values */
    bool mask; /* where keys is set: a binding with the mask */
};

static bool cuts_fit(const struct vka_plan *plan, const struct attention *a,
                     const struct head_slice *s, const struct attention_cuts *cuts,
                     struct demand demand)
{
    const struct attention_choice *c = &a->choice;
    for (uint32_t split = 0; split < c->n_split; split += cuts->splits)
        for (uint32_t span = 0; span < cuts->n_span; span++) {
            struct key_range keys = attention_pass_keys(a, cuts, split, span);
            if (!keys.end)
                continue;
            struct work work = attention_work(a, s, cuts->tiles, keys);
            if (!demand.all)
                work.ops = 0;
            if (!plan_fits(plan, c->kernel, &work) ||
                (demand.keys && !keys_fit(plan, a, s, keys, demand.mask)))
                return false;
        }
    return true;
}

/* Bytes of one of the two state tensors; 0 where there is one span. */
static uint64_t state_bytes(const struct attention *a, const struct head_slice *s,
                            const struct attention_cuts *cuts)
{
    const struct attention_choice *c = &a->choice;
    uint64_t groups = (uint64_t)s->n_batch * attention_groups(a, s) * cuts->tiles;
    return cuts->n_span == 1 ? 0 : groups * c->tile * attention_state_pitch(c) * 4;
}

static bool scratch_fits(const struct vka_plan *plan, const struct attention *a,
                         const struct head_slice *s, const struct attention_cuts *cuts)
{
    uint64_t limit = least(plan->workspace_limit, plan->caps.properties.max_buffer_range);
    return state_bytes(a, s, cuts) <= limit && attention_record_bytes(a, s, cuts) <= limit &&
           attention_merge_fits(plan, a, s, cuts);
}

/* Whether queries, output and log-sum-exp of a slice fit a binding. */
static bool operands_fit(const struct vka_plan *plan, const struct attention *a,
                         const struct head_slice *s)
{
    uint64_t limit = plan->caps.properties.max_buffer_range;
    struct vka_tensor q = attention_slice(&a->q, s), output = attention_slice(&a->output, s), sums;
    if (attention_log_sum(a, &sums)) {
        sums = attention_slice(&sums, s);
        if (plan_range(plan, &sums) > limit)
            return false;
    }
    return plan_range(plan, &q) <= limit && plan_range(plan, &output) <= limit;
}

static bool slice_fits(const struct vka_plan *plan, const struct attention *a,
                       const struct head_slice *s, const struct attention_cuts *cuts)
{
    const struct caps *caps = &plan->caps;
    uint64_t rows = (uint64_t)s->n_query * (a->n_head / a->n_kv_head);
    uint64_t groups = (uint64_t)attention_groups(a, s) * cuts->splits;
    return operands_fit(plan, a, s) && rows / a->choice.tile < caps->max_groups[0] &&
           groups <= caps->max_groups[1] && s->n_batch <= caps->max_groups[2] &&
           attention_map_fits(plan, a, s) && scratch_fits(plan, a, s, cuts);
}

bool attention_rows_fit(const struct vka_plan *plan, const struct attention *a,
                        const struct head_slice *s)
{
    struct attention_cuts cuts;
    attention_cut(plan, a, s, true, &cuts);
    if (!operands_fit(plan, a, s) ||
        attention_record_bytes(a, s, &cuts) > plan->caps.properties.max_buffer_range)
        return false;
    for (uint32_t split = 0; split < a->choice.n_split; split += cuts.splits)
        for (uint32_t span = 0; span < cuts.n_span; span++) {
            struct key_range keys = attention_pass_keys(a, &cuts, split, span);
            if (keys.end && !mask_fits(plan, a, s, keys))
                return false;
        }
    return true;
}

/* First cuts keys for what no smaller slice would help: the longest workgroup and, in a slice of
 * one key head, the binding of its keys. All else (the time of all workgroups, the mask's binding)
 * is left to smaller slices, and cut here only in the last. */
bool attention_cut(const struct vka_plan *plan, const struct attention *a,
                   const struct head_slice *s, bool last, struct attention_cuts *cuts)
{
    bool one = s->n_batch == 1 && s->n_head == a->n_head / a->n_kv_head;
    bool some = binds_some_keys(a);
    const struct demand alone = {false, some && (one || last), some && last};
    const struct demand whole = {true, some || !last, some || !last};
    *cuts = whole_cuts(a, s);
    while (!cuts_fit(plan, a, s, cuts, alone) && halve_keys(a, cuts))
        continue;
    if (!last)
        return cuts_fit(plan, a, s, cuts, whole) && slice_fits(plan, a, s, cuts);
    while (a->n_sequence && cuts->tiles > 1 &&
           !(cuts_fit(plan, a, s, cuts, (struct demand){true, false, false}) &&
             scratch_fits(plan, a, s, cuts)))
        cuts->tiles = divide_up(cuts->tiles, 2);
    while (!a->n_sequence && !cuts_fit(plan, a, s, cuts, whole) && halve_keys(a, cuts))
        continue;
    return true;
}
