/* Draws attention of any size: one or two sizes large, the others small. */
#include "large_draw.h"
#include "types.h"

#include <gpu/kernels.h>

#define MOST_KEYS (1u << 20)
#define MOST_SEQUENCES 40000
#define GROUP_WORK 100 /* multiplications that a workgroup without rows counts for */

/* CPU drivers compile attention_row for minutes where its loops over features are unrolled. */
static uint32_t rolled(const struct large_problem *p, uint32_t dim)
{
    static const uint16_t few[] = {1, 4, 6, 8, 16, 260, 323, 576};
    const struct kernel_set others =
        KERNEL_SET(KERNEL_attention_texel, KERNEL_attention_address, KERNEL_attention_feature);
    bool row = set_is_empty(set_minus(others, p->a.disabled_kernels)) &&
               !set_has(p->a.disabled_kernels, KERNEL_attention_row);
    return row ? few[dim / 8 % COUNT(few)] : dim;
}

static void draw_dims(struct large_problem *p, struct rng *rng)
{
    struct large_attention *a = &p->a;
    static const uint16_t pairs[][2] = {
        {8, 8},     {16, 16},   {32, 32},   {40, 40},   {48, 48},   {64, 64},
        {72, 72},   {80, 80},   {96, 96},   {112, 112}, {120, 120}, {128, 128},
        {132, 132}, {144, 144}, {160, 160}, {176, 176}, {192, 128}, {192, 192},
        {224, 224}, {256, 256}, {320, 320}, {384, 384}, {512, 512}, {576, 512},
    };
    const uint16_t *pair = pairs[rng_range(rng, 0, COUNT(pairs) - 1)];
    a->head_dim = pair[0];
    a->value_dim = pair[1];
    if (rng_chance(rng, 10)) {
        a->head_dim = problem_draw_size(rng, 576);
        a->value_dim = problem_draw_size(rng, 576);
    }
    a->head_dim = rolled(p, a->head_dim);
    a->value_dim = rolled(p, a->value_dim);
}

static double keys_of(const struct large_attention *a)
{
    return a->capacity ? a->capacity : (double)a->n_past + a->n_new;
}

static double scores_of(const struct large_attention *a)
{
    return (double)a->batch * a->n_kv_head * a->group * a->n_q * keys_of(a) *
           (a->runs > 1 ? a->runs : 1);
}

/* Multiplications; an element that is written or read counts as a few. */
static double work_of(const struct large_problem *p)
{
    const struct large_attention *a = &p->a;
    double heads = (double)a->batch * a->n_kv_head, dims = (double)a->head_dim + a->value_dim;
    double work = scores_of(a) * (dims + 16);
    work += heads * dims * 4 * (keys_of(a) + a->group * a->n_q);
    if (p->op == LARGE_LAYER)
        work += heads * dims * (keys_of(a) * a->key_dim + a->group * (double)a->n_q * a->query_dim);
    return work;
}

/* Bytes of the tensors, with the copy of a whole operand that a plan may make. */
static double bytes_of(const struct large_problem *p)
{
    const struct large_attention *a = &p->a;
    double heads = (double)a->batch * a->n_kv_head, dims = (double)a->head_dim + a->value_dim;
    double kv = (a->shared_kv ? 1 : heads) * keys_of(a) * dims, mask = a->mask_rank ? 1 : 0;
    double elements = heads * a->group * a->n_q * dims + kv * (a->has_present || a->n_past ? 2 : 1);
    for (uint32_t i = 0; i < a->mask_rank; i++)
        mask *= a->mask_shape[i];
    if (a->shared_kv)
        elements += heads * keys_of(a) * dims / 4;
    elements += mask + (a->scores_kind ? scores_of(a) : 0);
    if (p->op == LARGE_LAYER)
        elements += a->batch * (keys_of(a) * a->key_dim + (double)a->n_q * a->query_dim) +
                    a->n_kv_head * (double)a->group * dims * ((double)a->key_dim + a->query_dim);
    return 4 * elements;
}

static bool fits(const struct large_problem *p, const struct large_bounds *bounds)
{
    return work_of(p) <= bounds->work && bytes_of(p) <= bounds->bytes;
}

/* One size large or two, the others small; what does not fit is drawn with other features, or loses
 * length. */
static void draw_sizes(struct large_problem *p, struct rng *rng, const struct large_bounds *bounds)
{
    struct large_attention *a = &p->a;
    const struct {
        uint32_t *size, most, small;
    } axes[] = {{&a->n_new, MOST_KEYS, 64},     {&a->n_new, MOST_KEYS, 64},
                {&a->n_new, MOST_KEYS, 64},     {&a->n_q, MOST_ROWS, 3},
                {&a->n_q, MOST_ROWS, 3},        {&a->batch, MOST_HEADS, 2},
                {&a->n_kv_head, MOST_HEADS, 2}, {&a->group, MOST_HEADS, 2}};
    for (size_t i = 2; i < COUNT(axes); i++)
        *axes[i].size = rng_range(rng, 1, axes[i].small);
    uint32_t n = rng_range(rng, 1, 2);
    uint32_t first = rng_chance(rng, 40) ? 0 : rng_range(rng, 0, COUNT(axes) - 1);
    uint32_t second = rng_range(rng, 0, COUNT(axes) - 1);
    *axes[first].size = problem_draw_size(rng, axes[first].most);
    if (n == 2)
        *axes[second].size = problem_draw_size(rng, axes[second].most);
    a->shared_kv = p->op == LARGE_ATTENTION && rng_chance(rng, 15);
    a->swapped = rng_chance(rng, 30);
    draw_dims(p, rng);
    for (int i = 0; i < 4 && !fits(p, bounds) && rng_chance(rng, 70); i++)
        draw_dims(p, rng);
    while (!fits(p, bounds)) {
        uint32_t *axis = axes[rng_range(rng, 0, COUNT(axes) - 1)].size;
        *axis = *axis > 8 ? *axis - (*axis + 3) / 4 : *axis > 1 ? *axis - 1 : 1;
    }
}

static void draw_types(struct large_attention *a, struct rng *rng)
{
    a->q = type_draw_float(rng);
    a->k = rng_chance(rng, 70) ? a->q : type_draw_float(rng);
    a->v = rng_chance(rng, 70) ? a->k : type_draw_float(rng);
    a->output = rng_chance(rng, 70) ? VKA_F32 : type_draw_float(rng);
}

static void draw_score(struct large_attention *a, struct rng *rng)
{
    static const float ranges[] = {1, 2, 4};
    a->kind = (enum large_kind)rng_range(rng, 0, LARGE_KIND_COUNT - 1);
    a->pattern = (enum large_pattern)rng_range(rng, 0, LARGE_PATTERN_COUNT - 1);
    a->range = ranges[rng_range(rng, 0, 2)];
    if (a->kind == LARGE_HOT)
        a->scale = 1;
    else if (rng_chance(rng, 60))
        a->scale = a->range / (float)a->head_dim;
    if (a->kind != LARGE_HOT && rng_chance(rng, 15))
        a->softcap = (float)rng_uniform(rng, 1, 20);
    a->sink = rng_chance(rng, 15);
    a->alibi = rng_chance(rng, 15);
}

static int32_t draw_window(struct rng *rng, uint32_t most)
{
    return rng_chance(rng, 25) ? -1 : (int32_t)problem_draw_size(rng, most) - 1;
}

static void draw_visibility(struct large_attention *a, struct rng *rng)
{
    uint32_t n_kv = (uint32_t)keys_of(a);
    a->causal = rng_chance(rng, 30);
    a->window = rng_chance(rng, 20);
    a->window_left = a->window ? draw_window(rng, n_kv) : 0;
    a->window_right = a->window ? draw_window(rng, n_kv) : 0;
    a->masked_row = (enum vka_masked_row)rng_range(rng, 0, VKA_MASKED_ROW_COUNT - 1);
}

/* Any rank and broadcast, as far as it fits; the last axis may end early. */
static void draw_mask(struct large_problem *p, struct rng *rng, const struct large_bounds *bounds)
{
    struct large_attention *a = &p->a;
    const uint32_t n_kv = a->n_past + a->n_new;
    const uint32_t full[4] = {a->batch, a->n_kv_head * a->group, a->n_q, n_kv};
    a->mask = rng_chance(rng, 50) ? VKA_BOOL : type_draw_float(rng);
    a->mask_rank = rng_range(rng, 1, 4);
    a->mask_ranges = rng_chance(rng, 50);
    for (uint32_t i = 0; i < a->mask_rank; i++)
        a->mask_shape[i] = rng_chance(rng, 35) ? 1 : full[4 - a->mask_rank + i];
    uint32_t *last = &a->mask_shape[a->mask_rank - 1];
    *last = rng_chance(rng, 5) ? 1 : n_kv;
    if (n_kv > 2 && rng_chance(rng, 25))
        *last = rng_range(rng, n_kv / 2 + 1, n_kv - 1);
    for (uint32_t i = 0; i + 1 < a->mask_rank && !fits(p, bounds); i++)
        a->mask_shape[i] = 1;
}

static void draw_returned(struct large_problem *p, struct rng *rng,
                          const struct large_bounds *bounds)
{
    struct large_attention *a = &p->a;
    a->scores_kind = (enum vka_scores)rng_range(rng, 1, VKA_SCORES_COUNT - 1);
    a->scores = type_draw_float(rng);
    /* weights below what float16 holds well */
    if (a->scores == VKA_F16 && a->scores_kind == VKA_SCORES_SOFTMAX && keys_of(a) > 512)
        a->scores = VKA_BF16;
    if (!fits(p, bounds))
        a->scores_kind = VKA_SCORES_NONE;
}

static void draw_plain(struct large_problem *p, struct rng *rng, const struct large_bounds *bounds)
{
    struct large_attention *a = &p->a;
    if (a->n_new > 1 && rng_chance(rng, 20)) {
        a->n_past = rng_range(rng, 1, a->n_new - 1);
        a->n_new -= a->n_past;
        a->has_present = rng_chance(rng, 50);
    }
    a->lengths = rng_chance(rng, 25) ? PER_BATCH_EACH : PER_BATCH_NONE;
    a->offsets = rng_chance(rng, 20) ? PER_BATCH_EACH : PER_BATCH_NONE;
    a->nonfinite = rng_chance(rng, 10);
    if (rng_chance(rng, 30))
        draw_mask(p, rng, bounds);
    if (rng_chance(rng, 30))
        draw_returned(p, rng, bounds);
}

static void draw_rope(struct large_attention *a, struct rng *rng)
{
    static const float bases[] = {0, 10000, 500000, 2};
    a->kind = LARGE_MEAN;
    a->has_present = true;
    a->n_q = 1;
    a->shared_kv = false;
    a->mask_rank = 0;
    a->scores_kind = VKA_SCORES_NONE;
    a->alibi = a->sink = false;
    if (a->head_dim < 2)
        a->head_dim = 2;
    a->rope.dim = 2 * rng_range(rng, 1, a->head_dim / 2);
    a->rope.base = bases[rng_range(rng, 0, 3)];
    a->rope.interleaved = rng_chance(rng, 50);
}

static void draw_cache(struct large_attention *a, struct rng *rng)
{
    a->capacity = a->n_new;
    a->capacity = a->capacity < 8 ? 8 : a->capacity;
    a->runs = rng_range(rng, 1, 3);
    a->n_new = (a->capacity - 2) / a->runs;
    a->page_size = rng_chance(rng, 60) ? 16 * rng_range(rng, 1, 16) : 0;
    a->v = a->k;
}

static void draw_ragged(struct large_attention *a, struct rng *rng, double work)
{
    double heads = (double)a->n_kv_head * a->group;
    uint32_t rows = a->n_q < a->n_new ? a->n_q : a->n_new;
    a->n_sequence = problem_draw_size(rng, rng_chance(rng, 50) ? MOST_SEQUENCES : rows);
    while (a->n_sequence > 1 && heads * a->n_sequence * GROUP_WORK > work)
        a->n_sequence /= 2;
    a->batch = 1;
    if (a->masked_row == VKA_MASKED_UNIFORM)
        a->masked_row = VKA_MASKED_ZERO;
}

static void draw_layer(struct large_problem *p, struct rng *rng, const struct large_bounds *bounds)
{
    struct large_attention *a = &p->a;
    a->kind = LARGE_MEAN;
    a->shared_kv = false;
    a->alibi = a->sink = false;
    a->scale = a->softcap = 0;
    a->query_dim = problem_draw_size(rng, rng_chance(rng, 20) ? MOST_ROWS : 64);
    a->key_dim = problem_draw_size(rng, rng_chance(rng, 20) ? MOST_ROWS : 64);
    while (!fits(p, bounds) && a->query_dim + a->key_dim > 2) {
        a->query_dim = (a->query_dim + 1) / 2;
        a->key_dim = (a->key_dim + 1) / 2;
    }
}

void large_draw_attention(struct large_problem *p, struct rng *rng,
                          const struct large_bounds *bounds)
{
    struct large_attention *a = &p->a;
    draw_sizes(p, rng, bounds);
    if (p->op == LARGE_CACHE)
        draw_cache(a, rng);
    draw_types(a, rng);
    draw_score(a, rng);
    draw_visibility(a, rng);
    if (p->op == LARGE_CACHE)
        a->v = a->k;
    if (p->op == LARGE_ATTENTION || p->op == LARGE_ROPE)
        draw_plain(p, rng, bounds);
    if (p->op == LARGE_ROPE)
        draw_rope(a, rng);
    if (p->op == LARGE_RAGGED)
        draw_ragged(a, rng, bounds->work);
    if (p->op == LARGE_LAYER)
        draw_layer(p, rng, bounds);
    for (int c = 0; c < 2; c++)
        for (int d = 0; d < LARGE_HOT_KEYS; d++) {
            int64_t n = (int64_t)keys_of(a), near = 16384ll * rng_range(rng, 0, 64);
            uint32_t kind = rng_range(rng, 0, 3), small = rng_range(rng, 0, 5);
            a->hot[c][d] = kind == 0   ? (small < n ? n - 1 - small : 0)
                           : kind == 1 ? (near + small) % n
                                       : rng_range(rng, 0, (uint32_t)n - 1);
        }
}
