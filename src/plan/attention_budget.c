#include "plan/attention_keys.h"

#include <math.h>

#define ROW_KERNEL_UNIT 8u /* keys of a step of the kernels without tiles: 4 or 8 */

bool attention_is_coop(enum kernel kernel)
{
    return kernel == KERNEL_attention_coop_f16 || kernel == KERNEL_attention_coop_bf16;
}

bool attention_takes_tiles(enum kernel kernel)
{
    return kernel == KERNEL_attention_tile || attention_is_coop(kernel);
}

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
    return attention_takes_tiles(c->kernel) ? c->keys : ROW_KERNEL_UNIT;
}

uint32_t attention_tiles(const struct attention *a, const struct attention_choice *c,
                         const struct slice *s)
{
    uint64_t rows = (uint64_t)s->n_query * (a->n_head / a->n_kv_head);
    return (uint32_t)((rows + c->tile - 1) / c->tile) + a->n_sequence; /* each may end in a part */
}

uint32_t attention_groups(const struct attention *a, const struct attention_choice *c,
                          const struct slice *s)
{
    uint32_t heads = s->n_head / (a->n_head / a->n_kv_head);
    return heads * (c->n_chunk ? c->n_chunk : 1);
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

struct work attention_work(const struct attention *a, const struct attention_choice *c,
                           const struct slice *s, uint32_t tiles, uint32_t first, uint32_t end)
{
    struct band b = band_of(a);
    uint32_t group = a->n_head / a->n_kv_head, bounds[2];
    uint32_t chunk = c->n_chunk ? c->n_chunk : 1, piece = c->n_piece ? c->n_piece : 1;
    double key = 2.0 * a->head_dim + 2.0 * a->value_dim / chunk + attention_score_work(a->options);
    double row = WORK_MOVE * (a->head_dim + a->value_dim); /* q and the context in and out */
    double rows = (double)tiles * c->tile, keys = rows * (end - first); /* of one key head */
    if (!a->n_sequence) {
        double there = (double)s->n_query * group;
        keys = attention_count_keys(a, s->query, s->n_query, first, end) * group * rows / there;
    }
    find_bounds(a, s, bounds);
    double most = fmin(clamp(bounds[1], first, end) - clamp(bounds[0], first, end), end - first);
    if (b.has_left && b.has_right)
        most = fmin(most, b.left + b.right + 1 + divide_up(c->tile, group));
    if (piece > 1)
        most = fmin(most, c->piece_keys);
    double outer = (double)s->n_batch * s->n_head / group * chunk;
    return (struct work){
        .ops = outer * (keys * key + rows * row * piece),
        .longest = c->tile * (most * key + row),
    };
}

uint32_t attention_state_pitch(const struct attention_choice *c)
{
    uint32_t lanes = 2; /* no lanes share a row: one sum, and whether a key was seen */
    if (c->kernel == KERNEL_attention_tile)
        lanes = c->lanes;
    else if (attention_is_coop(c->kernel))
        lanes = c->lanes / ATTENTION_COOP_SUBGROUPS / c->size.m;
    return STATE_PITCH(c->value4, lanes);
}

/* One span: the keys that some query of the slice may see, in whole steps, at least one. */
static void see_keys(const struct attention *a, const struct attention_choice *c,
                     const struct slice *s, struct attention_parts *parts)
{
    uint32_t bounds[2], unit = attention_span_unit(c);
    find_bounds(a, s, bounds);
    uint32_t first = (bounds[0] < a->n_kv ? bounds[0] : a->n_kv - 1) / unit;
    uint32_t end = divide_up(bounds[1], unit);
    parts->key = first * unit;
    parts->keys = (end > first ? end - first : 1) * unit;
    parts->n_span = 1;
}

uint32_t attention_span_end(const struct attention *a, const struct attention_parts *parts,
                            uint32_t span)
{
    uint32_t first = parts->key + span * parts->keys;
    uint32_t rest = (a->n_block ? a->key_first + a->n_block : a->n_kv) - first;
    return first + (rest < parts->keys ? rest : parts->keys);
}

struct work attention_span_work(const struct attention *a, const struct attention_choice *c,
                                const struct slice *s, const struct attention_parts *parts,
                                uint32_t span)
{
    uint32_t first = parts->key + span * parts->keys;
    return attention_work(a, c, s, parts->tiles, first, attention_span_end(a, parts, span));
}

/* Spans of the keys so that the longest workgroup fits, or all of the pass. */
static void cut_keys(const struct vka_plan *plan, const struct attention *a,
                     const struct attention_choice *c, const struct slice *s, bool all,
                     struct attention_parts *parts)
{
    uint32_t unit = attention_span_unit(c), n = parts->keys / unit;
    struct work work = attention_span_work(a, c, s, parts, 0);
    if (!all)
        work.ops = 0;
    uint32_t span = divide_up(n, budget_parts(plan_time(plan, c->kernel, &work), plan->budget, n));
    parts->keys = span * unit;
    parts->n_span = divide_up(n, span);
}

/* The longest of the passes of a cut, one a span. */
static double longest_time(const struct vka_plan *plan, const struct attention *a,
                           const struct attention_choice *c, const struct slice *s,
                           const struct attention_parts *parts)
{
    double longest = 0;
    for (uint32_t i = 0; i < parts->n_span; i++) {
        struct work work = attention_span_work(a, c, s, parts, i);
        longest = fmax(longest, plan_time(plan, c->kernel, &work));
    }
    return longest;
}

bool attention_cut(const struct vka_plan *plan, const struct attention *a,
                   const struct attention_choice *c, const struct slice *s, bool last,
                   struct attention_parts *parts)
{
    uint32_t tiles = attention_tiles(a, c, s), piece = c->n_piece ? c->n_piece : 1;
    *parts = (struct attention_parts){.tiles = tiles, .n_tile = tiles, .pieces = piece};
    see_keys(a, c, s, parts);
    double time = longest_time(plan, a, c, s, parts);
    if (time <= plan->budget)
        return true;
    if (piece > 1) { /* of some hundred keys each: no state need be kept */
        parts->pieces = divide_up(piece, budget_parts(time, plan->budget, piece));
        return last;
    }
    cut_keys(plan, a, c, s, last && !a->n_sequence, parts);
    time = longest_time(plan, a, c, s, parts);
    if (last && a->n_sequence)
        parts->tiles = divide_up(tiles, budget_parts(time, plan->budget, tiles));
    return last || time <= plan->budget;
}

void attention_cut_block(const struct vka_plan *plan, const struct attention *a,
                         const struct attention_choice *c, const struct slice *all,
                         struct attention_parts *parts)
{
    uint32_t tiles = attention_tiles(a, c, all), unit = attention_span_unit(c);
    *parts = (struct attention_parts){tiles, tiles, 1, 1, a->key_first, a->n_block};
    attention_cut_for_limits(plan, a, c, all, true, parts);
    while (parts->keys > unit && longest_time(plan, a, c, all, parts) > plan->budget) {
        parts->keys = divide_up(divide_up(parts->keys, unit), 2) * unit;
        parts->n_span = divide_up(a->n_block, parts->keys);
    }
}
