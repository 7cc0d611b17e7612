#include "op/attention/budget.h"

#include <math.h>

double attention_score_work(const struct vka_attention_options *o)
{
    bool general = o->mask || o->softcap != 0 || o->alibi;
    return WORK_SCORE + (general ? WORK_GENERAL : 0) + (o->dropout != 0 ? WORK_DRAW : 0);
}

/* What positions leave visible: keys p - left to p + right of the query at p, where known. */
struct band {
    bool known; /* p is n_past + query; else the device alone knows it */
    bool has_left, has_right;
    double left, right;
};

static struct band band_of(const struct attention *a)
{
    const struct vka_attention_options *o = a->options;
    bool uniform =
        o->masked_row == VKA_MASKED_UNIFORM && attention_hides(a); /* may read all values */
    struct band b = {.known = !o->query_offset && !a->n_sequence && !uniform};
    b.has_left = !uniform && o->window && o->window_left >= 0;
    b.has_right = !uniform && (o->causal || (o->window && o->window_right >= 0));
    b.left = o->window_left;
    b.right = o->causal ? 0 : o->window_right;
    return b;
}

static double clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

/* Sum of clamp(x + i, 0, top) over i = 0, -1, -2, ... */
static double ramp(double x, double top)
{
    double rise = clamp(x, 0, top);
    return rise * (rise + 1) / 2 + (x > top ? (x - top) * top : 0);
}

/* Sum of clamp(x + i, low, high) over i = 0 .. n - 1. */
static double sum_clamped(double x, uint32_t n, double low, double high)
{
    return n * low + ramp(x + n - 1 - low, high - low) - ramp(x - 1 - low, high - low);
}

double attention_count_keys(const struct attention *a, uint32_t query, uint32_t n, uint32_t first,
                            uint32_t end)
{
    struct band b = band_of(a);
    double p = (double)a->n_past + query, all = (double)n * (end - first);
    if (!b.known) {
        double width = b.has_left && b.has_right ? b.left + b.right + 1 : INFINITY;
        return fmin(all, n * width);
    }
    double to = b.has_right ? sum_clamped(p + b.right + 1, n, first, end) : (double)n * end;
    double from = b.has_left ? sum_clamped(p - b.left, n, first, end) : (double)n * first;
    return to - from;
}

uint32_t attention_span_unit(const struct attention_choice *c)
{
    return tune_takes_tiles(c->kernel) ? c->keys : ATTENTION_BLOCK;
}

uint32_t attention_tiles(const struct attention *a, const struct slice *s)
{
    const struct attention_choice *c = &a->choice;
    uint64_t rows = (uint64_t)s->n_query * (a->n_head / a->n_kv_head);
    return (uint32_t)((rows + c->tile - 1) / c->tile) + a->n_sequence; /* each may end in a part */
}

uint32_t attention_groups(const struct attention *a, const struct slice *s)
{
    const struct attention_choice *c = &a->choice;
    return s->n_head / (a->n_head / a->n_kv_head) * c->n_chunk;
}

/* The keys that some query of a slice may see: bounds[0] .. bounds[1] - 1. */
static void find_bounds(const struct attention *a, const struct slice *s, uint32_t bounds[2])
{
    struct band b = band_of(a);
    double p = (double)a->n_past + s->query;
    bounds[0] = b.known && b.has_left ? (uint32_t)clamp(p - b.left, 0, a->n_kv) : 0;
    bounds[1] = a->n_kv;
    if (b.known && b.has_right)
        bounds[1] = (uint32_t)clamp(p + s->n_query + b.right, bounds[0], a->n_kv);
}

struct work attention_work(const struct attention *a, const struct slice *s, uint32_t tiles,
                           struct key_range range)
{
    const struct attention_choice *c = &a->choice;
    struct band b = band_of(a);
    uint32_t group = a->n_head / a->n_kv_head, bounds[2], first = range.first, end = range.end;
    double piece = c->n_piece > 1 ? ceil((double)(end - first) / c->piece_keys) : 1;
    double key =
        2.0 * a->head_dim + 2.0 * a->value_dim / c->n_chunk + attention_score_work(a->options);
    double row = WORK_MOVE * (a->head_dim + a->value_dim); /* q and the context in and out */
    double rows = (double)tiles * c->tile, keys = rows * (end - first); /* of one key head */
    if (a->n_sequence) {
        /* Every so many-th tile: of a long sequence no more than its share, and one of each. */
        double passes = (double)attention_tiles(a, s) / tiles;
        double full = ((double)s->n_query * group / c->tile + 1) / passes + 1;
        keys = fmin(tiles, full) * c->tile * (end - first);
    } else {
        double there = (double)s->n_query * group;
        keys = attention_count_keys(a, s->query, s->n_query, first, end) * group * rows / there;
    }
    find_bounds(a, s, bounds);
    double most = fmin(clamp(bounds[1], first, end) - clamp(bounds[0], first, end), end - first);
    if (b.has_left && b.has_right)
        most = fmin(most, b.left + b.right + 1 + divide_up(c->tile, group));
    if (c->n_piece > 1)
        most = fmin(most, c->piece_keys);
    double outer = (double)s->n_batch * s->n_head / group * c->n_chunk;
    return (struct work){
        .ops = outer * (keys * key + rows * row * piece),
        .longest = c->tile * (most * key + row),
        .loops = attention_count_loops(a, most),
    };
}

uint32_t attention_state_pitch(const struct attention_choice *c)
{
    uint32_t lanes = 2; /* no lanes share a row: one sum, and whether a key was seen */
    if (c->kernel == KERNEL_attention_tile)
        lanes = c->lanes;
    else if (tune_is_coop(c->kernel))
        lanes = c->lanes / ATTENTION_COOP_SUBGROUPS / c->size.m;
    return STATE_PITCH(c->value4, lanes);
}

/* One span of each chain: whole pieces, or the keys that some query of the slice may see, in whole
 * steps, at least one. */
static void see_keys(const struct attention *a, const struct slice *s,
                     struct attention_parts *parts)
{
    const struct attention_choice *c = &a->choice;
    uint32_t bounds[2], unit = attention_span_unit(c);
    parts->n_span = 1;
    parts->keys = c->piece_keys;
    if (c->n_piece > 1)
        return;
    find_bounds(a, s, bounds);
    uint32_t first = (bounds[0] < a->n_kv ? bounds[0] : a->n_kv - 1) / unit;
    uint32_t end = divide_up(bounds[1], unit);
    parts->key = first * unit;
    parts->keys = (end > first ? end - first : 1) * unit;
}

struct key_range attention_chain_keys(const struct attention *a,
                                      const struct attention_parts *parts, uint32_t piece)
{
    const struct attention_choice *c = &a->choice;
    if (c->n_piece > 1)
        return (struct key_range){piece * c->piece_keys,
                                  saturate(least((piece + 1ull) * c->piece_keys, a->n_kv))};
    if (a->n_chunk_key)
        return (struct key_range){0, a->n_kv};
    return (struct key_range){
        parts->key, saturate(least(parts->key + (uint64_t)parts->n_span * parts->keys, a->n_kv))};
}

struct key_range attention_pass_keys(const struct attention *a, const struct attention_parts *parts,
                                     uint32_t piece, uint32_t span)
{
    const struct attention_choice *c = &a->choice;
    struct key_range r = attention_chain_keys(a, parts, piece);
    uint64_t first = c->n_piece > 1 ? r.first : parts->key;
    if (c->n_piece > 1 && parts->n_span == 1) {
        r.end = saturate(least((piece + (uint64_t)parts->pieces) * c->piece_keys, a->n_kv));
    } else {
        first += (uint64_t)span * parts->keys;
        r.end = saturate(least(first + parts->keys, r.end));
    }
    if (a->n_chunk_key) {
        first = first > a->key_first ? first : a->key_first;
        r.end = saturate(least(r.end, (uint64_t)a->key_first + a->n_chunk_key));
    }
    if (first >= r.end)
        return (struct key_range){0, 0};
    r.first = (uint32_t)first;
    return r;
}

/* Keys of a span as given, and as many spans as the longest chain has. */
static void set_spans(const struct attention *a, uint32_t keys, struct attention_parts *parts)
{
    const struct attention_choice *c = &a->choice;
    uint32_t all = c->piece_keys;
    if (c->n_piece == 1)
        all = a->n_chunk_key
                  ? a->n_chunk_key
                  : saturate(least((uint64_t)parts->n_span * parts->keys, a->n_kv - parts->key));
    parts->keys = keys;
    parts->n_span = divide_up(all, keys);
}

bool attention_halve_keys(const struct attention *a, struct attention_parts *parts)
{
    const struct attention_choice *c = &a->choice;
    uint32_t unit = attention_span_unit(c);
    if (parts->pieces == 1 && parts->keys <= unit)
        return false;
    if (parts->pieces > 1)
        parts->pieces = divide_up(parts->pieces, 2);
    else
        set_spans(a, divide_up(divide_up(parts->keys, unit), 2) * unit, parts);
    return true;
}

/* The work of a pass for the first span of a chain. */
static struct work span_work(const struct attention *a, const struct slice *s,
                             const struct attention_parts *parts)
{
    struct attention_parts one = *parts;
    one.pieces = 1;
    return attention_work(a, s, parts->tiles, attention_pass_keys(a, &one, 0, 0));
}

/* Spans so that the longest workgroup fits, or all of the pass. */
static void cut_spans(const struct vka_plan *plan, const struct attention *a, const struct slice *s,
                      bool all, struct attention_parts *parts)
{
    const struct attention_choice *c = &a->choice;
    uint32_t unit = attention_span_unit(c), n = divide_up(parts->keys, unit);
    struct work work = span_work(a, s, parts);
    if (!all)
        work.ops = 0;
    if (plan_fits(plan, c->kernel, &work))
        return;
    uint32_t time = budget_parts(plan_time(plan, c->kernel, &work), plan->budget, n);
    uint32_t loops = budget_parts(work.loops, budget_max_loops(&plan->caps), n);
    parts->pieces = 1;
    set_spans(a, divide_up(n, time > loops ? time : loops) * unit, parts);
    do {
        work = span_work(a, s, parts);
        work.ops = 0;
    } while (!plan_fits(plan, c->kernel, &work) && attention_halve_keys(a, parts));
}

/* The longest of the passes of a cut; infinite where a driver does not go so far. */
static double longest_time(const struct vka_plan *plan, const struct attention *a,
                           const struct slice *s, const struct attention_parts *parts)
{
    const struct attention_choice *c = &a->choice;
    double longest = 0, loops = budget_max_loops(&plan->caps);
    for (uint32_t piece = 0; piece < c->n_piece; piece += parts->pieces)
        for (uint32_t span = 0; span < parts->n_span; span++) {
            struct key_range keys = attention_pass_keys(a, parts, piece, span);
            if (!keys.end)
                continue;
            struct work work = attention_work(a, s, parts->tiles, keys);
            double time = plan_time(plan, c->kernel, &work);
            longest = fmax(longest, work.loops > loops ? INFINITY : time);
        }
    return longest;
}

static bool passes_fit(const struct vka_plan *plan, double time)
{
    return time <= plan->budget && isfinite(time);
}

bool attention_parts_fit(const struct vka_plan *plan, const struct attention *a,
                         const struct slice *s, const struct attention_parts *parts)
{
    return passes_fit(plan, longest_time(plan, a, s, parts));
}

/* Fewer tiles a pass, of a ragged batch, until the passes fit. */
static void cut_tiles(const struct vka_plan *plan, const struct attention *a, const struct slice *s,
                      struct attention_parts *parts, double time)
{
    uint32_t n = budget_parts(time, plan->budget, parts->n_tile);
    parts->tiles = divide_up(parts->n_tile, n);
    while (parts->tiles > 1 && !passes_fit(plan, longest_time(plan, a, s, parts)))
        parts->tiles = divide_up(parts->tiles, 2);
}

bool attention_cut(const struct vka_plan *plan, const struct attention *a, const struct slice *s,
                   bool last, struct attention_parts *parts)
{
    const struct attention_choice *c = &a->choice;
    uint32_t tiles = attention_tiles(a, s);
    *parts = (struct attention_parts){.tiles = tiles, .n_tile = tiles, .pieces = c->n_piece};
    see_keys(a, s, parts);
    if (passes_fit(plan, longest_time(plan, a, s, parts)))
        return true;
    cut_spans(plan, a, s, last && !a->n_sequence && c->n_piece == 1, parts);
    double time = longest_time(plan, a, s, parts);
    if (last && time > plan->budget && a->n_sequence)
        cut_tiles(plan, a, s, parts, time);
    else if (last && time > plan->budget)
        parts->pieces = divide_up(parts->pieces, budget_parts(time, plan->budget, parts->pieces));
    return last || passes_fit(plan, time);
}
