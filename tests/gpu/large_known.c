#include "large_known.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HOT_FACTOR 16.0   /* of q and of k: the hot score is its square, the others are 0 */
#define STEPS 32          /* of the ramp in 16-bit types, so that sums with a term stay exact */
#define MOST_BIAS 6.0     /* of ALiBi: far from 0, float32 scores have few digits left */
#define FEATURE_FACTORS 4 /* and half as many terms */

void large_known_open(struct large_known *k, const struct large_attention *a, uint32_t n)
{
    bool levels = a->kind == LARGE_LEVELS;
    *k = (struct large_known){.a = a, .n = n};
    k->n_mask_class = a->mask_rank ? 3 : 1;
    k->n_slope_class = a->alibi ? 2 : 1;
    k->n_query_class = levels && !a->alibi && !a->mask_rank ? 2 : 1;
    k->n_key_class = levels && !a->mask_rank ? 2 : 1;
    k->mask_n = a->mask_rank ? a->mask_shape[a->mask_rank - 1] : n;
    k->slope = MOST_BIAS / ((double)n + a->n_q);
    k->scale = a->scale != 0 ? (double)a->scale : 1 / sqrt((double)a->head_dim);
}

void large_known_close(struct large_known *k)
{
    for (int i = 0; i < LARGE_TABLES; i++)
        for (int side = 0; side < 2; side++) {
            free(k->tables[i].sum[side]);
            free(k->tables[i].ramp[side]);
        }
}

/* ---- Functions of an index ------------------------------------------------------------------- */

static double ramp_at(const struct large_known *k, int64_t j)
{
    if (k->a->v == VKA_F32)
        return k->n > 1 ? (double)j / (k->n - 1) : 0;
    return (double)(j * STEPS / k->n) / STEPS;
}

double large_factor(uint32_t feature)
{
    static const double factors[FEATURE_FACTORS] = {1, -1, 0.5, -0.5};
    return factors[feature % FEATURE_FACTORS];
}

double large_term(uint32_t feature, uint32_t kv_head)
{
    return 2 + (feature / FEATURE_FACTORS + kv_head) % 2;
}

/* -1 .. 1 in sixteenths. */
static double level_at(const struct large_known *k, int64_t j, uint32_t class)
{
    double sign = class ? -1 : 1;
    switch (k->a->pattern) {
    case LARGE_RISE:
        return sign * ((double)(32 * j / k->n) - 16) / 16;
    case LARGE_STEP:
        return j < k->n / 3 ? sign : -sign;
    case LARGE_HASH:
    case LARGE_PATTERN_COUNT:
        break;
    }
    return ((double)(large_mix((uint32_t)j, class) % 33) - 16) / 16;
}

/* What q has in each feature, so that q . k is level * head_dim * this: a power of two, so that it
 * is exact. The default scale leaves sqrt(head_dim) to divide by. */
static double query_size(const struct large_attention *a)
{
    return a->scale != 0 ? 1 : exp2(-floor(log2(sqrt((double)a->head_dim))));
}

static double score_at(const struct large_known *k, int64_t j, uint32_t query_class,
                       uint32_t key_class)
{
    const struct large_attention *a = k->a;
    double s = 0;
    if (a->kind == LARGE_LEVELS)
        s = (query_class ? -1 : 1) * level_at(k, j, key_class) * a->head_dim * query_size(a) *
            k->scale;
    return s;
}

static double softcapped(const struct large_attention *a, double s)
{
    return a->softcap != 0 ? (double)a->softcap * tanh(s / (double)a->softcap) : s;
}

/* -Inf hides. */
static double mask_at(const struct large_known *k, int64_t j, uint32_t class)
{
    static const double biases[] = {0, -1, 1.5, -0.5};
    const struct large_attention *a = k->a;
    if (!a->mask_rank)
        return 0;
    if (k->mask_n == 1)
        j = 0;
    else if (j >= k->mask_n)
        return -INFINITY;
    uint32_t random = large_mix((uint32_t)j, class);
    bool hidden = a->mask_stretches ? (j / 1000 + class) % 3 == 1 : random % 4 == 0;
    return hidden ? -INFINITY : a->mask == VKA_BOOL ? 0 : biases[random >> 8 & 3];
}

float large_slope(const struct large_known *k, uint32_t head)
{
    return (float)(k->slope / (1 + head % k->n_slope_class));
}

float large_sink(const struct large_known *k, uint32_t head)
{
    return (float)(log((double)k->n) - 1 + head % 3);
}

/* ---- Classes --------------------------------------------------------------------------------- */

static uint32_t kv_head_of(const struct large_attention *a, const struct large_row *row)
{
    return a->shared_kv ? 0 : row->batch * a->n_kv_head + row->head / a->group;
}

/* The axes over which the mask is broadcast do not count. */
static uint32_t mask_class(const struct large_attention *a, const uint32_t at[3])
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i + 1 < a->mask_rank; i++) {
        uint32_t axis = 4 - a->mask_rank + i;
        sum += a->mask_shape[i] > 1 ? at[axis] % 3 : 0;
    }
    return sum % 3;
}

struct classes {
    uint32_t query, key, mask, slope;
};

static struct classes classes_of(const struct large_known *k, const struct large_row *row)
{
    const uint32_t at[3] = {row->batch, row->head, row->query};
    return (struct classes){
        row->query % k->n_query_class,
        kv_head_of(k->a, row) % k->n_key_class,
        k->n_mask_class > 1 ? mask_class(k->a, at) : 0,
        row->head % k->n_slope_class,
    };
}

/* ---- Prefix sums ----------------------------------------------------------------------------- */

/* What is added to the score without ALiBi; -Inf hides. */
static double logit_at(const struct large_known *k, int64_t j, const struct classes *c)
{
    return softcapped(k->a, score_at(k, j, c->query, c->key)) + mask_at(k, j, c->mask);
}

/* Distances are counted from the middle of the keys, which keeps the powers small. */
static double middle(const struct large_known *k)
{
    return 0.5 * k->n;
}

static void make_table(struct large_known *k, uint32_t index, const struct classes *c)
{
    double slope = k->a->alibi ? (double)large_slope(k, c->slope) : 0;
    for (int side = 0; side < (k->a->alibi ? 2 : 1); side++) {
        double *sum = malloc((k->n + 1) * sizeof *sum), *ramp = malloc((k->n + 1) * sizeof *ramp);
        long double s = 0, r = 0;
        k->tables[index].sum[side] = sum;
        k->tables[index].ramp[side] = ramp;
        if (!sum || !ramp) {
            k->no_memory = true;
            return;
        }
        for (int64_t j = 0; j <= k->n; j++) {
            sum[j] = (double)s;
            ramp[j] = (double)r;
            if (j == k->n)
                break;
            double bias = (side ? -slope : slope) * ((double)j - middle(k));
            double w = exp(logit_at(k, j, c) + bias);
            s += (long double)w;
            r += (long double)(w * ramp_at(k, j));
        }
    }
}

/* Adds keys from .. to - 1 of one side. */
static void add_range(const struct large_known *k, uint32_t index, int side, double factor,
                      int64_t from, int64_t to, struct large_softmax *s)
{
    if (from >= to)
        return;
    const double *sum = k->tables[index].sum[side], *ramp = k->tables[index].ramp[side];
    s->sum += factor * (sum[to] - sum[from]);
    s->ramp += factor * (ramp[to] - ramp[from]);
}

static int64_t clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

struct large_softmax large_softmax_of(struct large_known *k, const struct large_row *row)
{
    const struct large_attention *a = k->a;
    struct large_softmax s = {.hot = -1};
    struct classes c = classes_of(k, row);
    uint32_t index =
        ((c.query * k->n_key_class + c.key) * k->n_mask_class + c.mask) * k->n_slope_class +
        c.slope;
    if (!k->tables[index].sum[0])
        make_table(k, index, &c);
    if (k->no_memory)
        return s;
    double slope = a->alibi ? (double)large_slope(k, row->head) : 0;
    double far = slope * ((double)row->position - middle(k));
    int64_t split = a->alibi ? clamp(row->position + 1, row->first, row->end) : row->end;
    add_range(k, index, 0, exp(-far), row->first, split, &s);
    if (a->alibi)
        add_range(k, index, 1, exp(far), split, row->end, &s);
    s.sees = s.sum > 0;
    if (a->kind == LARGE_HOT) {
        int64_t hot = a->hot[kv_head_of(a, row) % 2][row->query % LARGE_HOT_KEYS % a->head_dim];
        if (hot >= row->first && hot < row->end && mask_at(k, hot, c.mask) > (double)-INFINITY)
            s.hot = hot;
    }
    s.total = s.sum + (a->sink ? exp((double)large_sink(k, row->head)) : 0);
    if (s.hot >= 0) {
        s.total = 1;
        s.sum = 1;
        s.ramp = ramp_at(k, s.hot);
    } else if (s.sees) {
        s.sum /= s.total;
        s.ramp /= s.total;
    }
    return s;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

struct large_row large_row_at(const struct large_attention *a, uint32_t batch, uint32_t head,
                              uint32_t query, int64_t offset, int64_t length)
{
    int64_t p = offset + query, first = 0, end = length;
    if (a->causal)
        end = end < p + 1 ? end : p + 1;
    if (a->window && a->window_left >= 0)
        first = p - a->window_left > first ? p - a->window_left : first;
    if (a->window && a->window_right >= 0)
        end = p + a->window_right + 1 < end ? p + a->window_right + 1 : end;
    return (struct large_row){batch, head, query, p, first, end > first ? end : first};
}

/* A value as the tensor holds it. */
static double value_at(const struct large_known *k, int64_t j, uint32_t feature, uint32_t kv_head)
{
    return large_round(k->a->v,
                       large_factor(feature) * ramp_at(k, j) + large_term(feature, kv_head));
}

static double mean_ramp(struct large_known *k)
{
    long double sum = 0;
    if (k->mean == 0 && k->n > 1) {
        for (int64_t j = 0; j < k->n; j++)
            sum += (long double)ramp_at(k, j);
        k->mean = (double)(sum / k->n);
    }
    return k->mean;
}

bool large_context(struct large_known *k, const struct large_row *row, double *want)
{
    const struct large_attention *a = k->a;
    struct large_softmax s = large_softmax_of(k, row);
    uint32_t kv_head = kv_head_of(a, row);
    if (!s.sees && a->masked_row == VKA_MASKED_UNIFORM) {
        s.sum = 1;
        s.ramp = mean_ramp(k);
    }
    for (uint32_t c = 0; c < a->value_dim; c++)
        if (s.hot >= 0)
            want[c] = large_round(a->output, value_at(k, s.hot, c, kv_head));
        else if (!s.sees && a->masked_row == VKA_MASKED_NAN)
            want[c] = (double)NAN;
        else
            want[c] = large_factor(c) * s.ramp + large_term(c, kv_head) * s.sum;
    return s.hot >= 0 || (!s.sees && a->masked_row != VKA_MASKED_UNIFORM);
}

void large_scores(struct large_known *k, const struct large_row *row, double *want)
{
    const struct large_attention *a = k->a;
    struct large_softmax s = large_softmax_of(k, row);
    struct classes c = classes_of(k, row);
    double slope = a->alibi ? (double)large_slope(k, row->head) : 0;
    int64_t kv_head = kv_head_of(a, row);
    uint32_t feature = row->query % LARGE_HOT_KEYS % a->head_dim;
    for (int64_t j = 0; j < k->n; j++) {
        double x = score_at(k, j, c.query, c.key);
        if (a->kind == LARGE_HOT)
            x = j == a->hot[kv_head % 2][feature] ? HOT_FACTOR * HOT_FACTOR : 0;
        if (a->scores_kind > VKA_SCORES_RAW)
            x = softcapped(a, x);
        if (a->scores_kind > VKA_SCORES_SOFTCAP) {
            x += mask_at(k, j, c.mask) - slope * fabs((double)(row->position - j));
            x = j < row->first || j >= row->end ? (double)-INFINITY : x;
        }
        if (a->scores_kind == VKA_SCORES_SOFTMAX && s.sees)
            x = s.hot >= 0 ? j == s.hot : exp(x) / s.total;
        else if (a->scores_kind == VKA_SCORES_SOFTMAX)
            x = a->masked_row == VKA_MASKED_UNIFORM ? 1.0 / k->n
                : a->masked_row == VKA_MASKED_NAN   ? (double)NAN
                                                    : 0;
        want[j] = x;
    }
}

/* ---- Tensors --------------------------------------------------------------------------------- */

bool large_fill_q(const struct large_attention *a, struct large_tensor *t)
{
    if (!large_host(t))
        return false;
    const uint32_t D = a->head_dim, classes = a->alibi || a->mask_rank ? 1 : 2;
    const double size = a->kind == LARGE_LEVELS ? query_size(a) : 0;
    const uint32_t bits[2] = {large_encode(a->q, size), large_encode(a->q, -size)};
    const uint32_t hot = large_encode(a->q, HOT_FACTOR);
    for (uint64_t row = 0; row < t->count / D; row++) {
        uint32_t query = (uint32_t)(row % a->n_q), flip = query % classes;
        for (uint32_t d = 0; d < D; d++)
            large_store(t, row * D + d, bits[flip ^ (d % 3 == 1)]);
        if (a->kind == LARGE_HOT)
            large_store(t, row * D + query % LARGE_HOT_KEYS % D, hot);
    }
    return true;
}

/* The index of the key that row `row` of a tensor of n keys a head holds. */
static int64_t key_of(const struct large_known *k, uint64_t row, uint32_t first, uint32_t n)
{
    uint32_t more = k->first ? k->first[row / n / k->a->n_kv_head] : 0;
    return (int64_t)first + more + (int64_t)(row % n);
}

/* Noise that no score may show, as q is 0; where one key is hot, 0 besides. */
static void fill_key(const struct large_known *k, struct large_tensor *t, uint64_t at, int64_t j,
                     uint32_t kv_head)
{
    const struct large_attention *a = k->a;
    const uint32_t D = a->head_dim;
    double x = a->kind == LARGE_LEVELS ? level_at(k, j, kv_head % k->n_key_class)
               : a->kind == LARGE_MEAN ? level_at(k, j, 0)
                                       : 0;
    const uint32_t bits[2] = {large_encode(t->dtype, x), large_encode(t->dtype, -x)};
    for (uint32_t d = 0; d < D; d++)
        large_store(t, at + d, bits[d % 3 == 1]);
    if (a->kind != LARGE_HOT)
        return;
    for (uint32_t d = 0; d < LARGE_HOT_KEYS && d < D; d++)
        if (a->hot[kv_head % 2][d] == j)
            large_store(t, at + d, large_encode(t->dtype, HOT_FACTOR));
}

bool large_fill_k(const struct large_known *k, struct large_tensor *t, uint32_t first, uint32_t n)
{
    if (!large_host(t))
        return false;
    const uint32_t D = k->a->head_dim;
    for (uint64_t row = 0; row < t->count / D; row++)
        fill_key(k, t, row * D, key_of(k, row, first, n), (uint32_t)(row / n));
    return true;
}

bool large_fill_v(const struct large_known *k, struct large_tensor *t, uint32_t first, uint32_t n)
{
    if (!large_host(t))
        return false;
    const uint32_t D = k->a->value_dim, period = 2 * FEATURE_FACTORS;
    for (uint64_t row = 0; row < t->count / D; row++) {
        uint32_t bits[2 * FEATURE_FACTORS], kv_head = (uint32_t)(row / n);
        double ramp = ramp_at(k, key_of(k, row, first, n));
        for (uint32_t c = 0; c < period; c++)
            bits[c] = large_encode(t->dtype, large_factor(c) * ramp + large_term(c, kv_head));
        for (uint32_t c = 0; c < D; c++)
            large_store(t, row * D + c, bits[c % period]);
    }
    return true;
}

bool large_fill_mask(const struct large_known *k, struct large_tensor *t)
{
    const struct large_attention *a = k->a;
    uint32_t size[3] = {1, 1, 1};
    if (!large_host(t))
        return false;
    for (uint32_t i = 0; i + 1 < a->mask_rank; i++)
        size[4 - a->mask_rank + i] = a->mask_shape[i];
    for (uint64_t row = 0; row < t->count / k->mask_n; row++) {
        const uint32_t at[3] = {(uint32_t)(row / size[2] / size[1]),
                                (uint32_t)(row / size[2] % size[1]), (uint32_t)(row % size[2])};
        uint32_t class = mask_class(a, at);
        for (uint32_t j = 0; j < k->mask_n; j++) {
            double x = mask_at(k, j, class);
            x = a->mask == VKA_BOOL ? x == 0 : x;
            large_store(t, row * k->mask_n + j, large_encode(a->mask, x));
        }
    }
    return true;
}
