#include "op/attention/budget.h"
#include "kernel/attention.h"
#include "op/attention/choice.h"

#include <math.h>

double attention_score_work(const struct vka_attention_options *options)
{
    bool general = options->mask || options->softcap != 0 || options->alibi;
    double score = options->exact_softmax ? 8 * WORK_SCORE : WORK_SCORE;
    return score + (general ? WORK_GENERAL : 0) + (options->dropout != 0 ? WORK_DRAW : 0);
}

/* Keys that causal and window leave visible: p - left to p + right for the query at position p. */
struct band {
    bool known; /* p is n_past + query; else the device alone knows p */
    bool has_left, has_right;
    double left, right;
};

static struct band band_of(const struct attention *a)
{
    const struct vka_attention_options *options = a->options;
    bool uniform =
        options->masked_row == VKA_MASKED_UNIFORM && attention_hides(a); /* may read all values */
    struct band b = {.known = !options->query_offset && !a->n_sequence && !uniform};
    b.has_left = !uniform && options->window && options->window_left >= 0;
    b.has_right = !uniform && (options->causal || (options->window && options->window_right >= 0));
    b.left = options->window_left;
    b.right = options->causal ? 0 : options->window_right;
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

uint32_t attention_tiles(const struct attention *a, const struct head_slice *s)
{
    const struct attention_choice *c = &a->choice;
    uint64_t rows = (uint64_t)s->n_query * (a->n_head / a->n_kv_head);
    return (uint32_t)((rows + c->tile - 1) / c->tile) +
           a->n_sequence; /* each may end within a tile */
}

uint32_t attention_groups(const struct attention *a, const struct head_slice *s)
{
    const struct attention_choice *c = &a->choice;
    return s->n_head / (a->n_head / a->n_kv_head) * c->n_feature_tile;
}

void attention_set_tiles(const struct attention_cuts *cuts, uint32_t tile,
                         struct attention_params *p)
{
    p->tile_first = tile;
    p->tile_step = divide_up(cuts->n_tile, cuts->tiles);
    p->n_tile = divide_up(cuts->n_tile - tile, p->tile_step);
}

void attention_find_bounds(const struct attention *a, const struct head_slice *s,
                           uint32_t bounds[2])
{
    struct band b = band_of(a);
    double p = (double)a->n_past + s->query;
    bounds[0] = b.known && b.has_left ? (uint32_t)clamp(p - b.left, 0, a->n_kv) : 0;
    bounds[1] = a->n_kv;
    if (b.known && b.has_right)
        bounds[1] = (uint32_t)clamp(p + s->n_query + b.right, bounds[0], a->n_kv);
}

struct work attention_work(const struct attention *a, const struct head_slice *s, uint32_t tiles,
                           struct key_range range)
{
    const struct attention_choice *c = &a->choice;
    const struct attention_operands operands = attention_operands_of(a);
    struct band b = band_of(a);
    uint32_t group = a->n_head / a->n_kv_head, bounds[2], first = range.first, end = range.end;
    double split = c->n_split > 1 ? ceil((double)(end - first) / c->split_keys) : 1;
    double key = 2.0 * a->head_dim + 2.0 * a->value_dim / c->n_feature_tile +
                 attention_score_work(a->options);
    double row = WORK_MOVE * (a->head_dim + a->value_dim); /* q and the context in and out */
    double rows = (double)tiles * c->tile, keys = rows * (end - first); /* of one key head */
    if (a->sequences) { /* each tile may see all keys of its sequence */
        keys = rows * attention_count_keys(a, 0, 1, first, end);
    } else if (a->n_sequence) {
        /* Tiles of a long sequence are dealt out over passes: its own, and one of each other. */
        double passes = (double)attention_tiles(a, s) / tiles;
        double full = ((double)s->n_query * group / c->tile + 1) / passes + 1;
        keys = fmin(tiles, full) * c->tile * (end - first);
    } else {
        double there = (double)s->n_query * group;
        keys = attention_count_keys(a, s->query, s->n_query, first, end) * group * rows / there;
    }
    attention_find_bounds(a, s, bounds);
    double most = fmin(clamp(bounds[1], first, end) - clamp(bounds[0], first, end), end - first);
    if (b.has_left && b.has_right)
        most = fmin(most, b.left + b.right + 1 + divide_up(c->tile, group));
    if (c->n_split > 1)
        most = fmin(most, c->split_keys);
    double outer = (double)s->n_batch * s->n_head / group * c->n_feature_tile;
    return (struct work){
        .ops = outer * (keys * key + rows * row * split),
        .longest = c->tile * (most * key + row),
        .loops = tune_attention_loops(c, &operands, most),
    };
}
