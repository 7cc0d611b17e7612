#include "large_known.h"

#include <math.h>
#include <stdlib.h>

#define MOST_BIAS 6.0 /* of ALiBi: far from 0, float32 scores have few digits left */

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

/* ---- Classes --------------------------------------------------------------------------------- */

static uint32_t kv_head_of(const struct large_attention *a, const struct large_row *row)
{
    return a->shared_kv ? 0 : row->batch * a->n_kv_head + row->head / a->group;
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
        k->n_mask_class > 1 ? large_mask_class(k->a, at) : 0,
        row->head % k->n_slope_class,
    };
}

/* ---- Scores -------------------------------------------------------------------------------- */

static double score_at(const struct large_known *k, int64_t j, uint32_t query_class,
                       uint32_t key_class)
{
    const struct large_attention *a = k->a;
    double s = 0;
    if (a->kind == LARGE_LEVELS)
        s = (query_class ? -1 : 1) * large_level(k, j, key_class) * a->head_dim *
            large_query_size(a) * k->scale;
    return s;
}

static double softcapped(const struct large_attention *a, double s)
{
    return a->softcap != 0 ? (double)a->softcap * tanh(s / (double)a->softcap) : s;
}

/* ---- Prefix sums ----------------------------------------------------------------------------- */

/* What is added to the score without ALiBi; -Inf hides. */
static double logit_at(const struct large_known *k, int64_t j, const struct classes *c)
{
    return softcapped(k->a, score_at(k, j, c->query, c->key)) + large_mask(k, j, c->mask);
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
            r += (long double)(w * large_ramp(k, j));
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
        if (hot >= row->first && hot < row->end && large_mask(k, hot, c.mask) > (double)-INFINITY)
            s.hot = hot;
    }
    s.total = s.sum + (a->sink ? exp((double)large_sink(k, row->head)) : 0);
    if (s.hot >= 0) {
        s.total = 1;
        s.sum = 1;
        s.ramp = large_ramp(k, s.hot);
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
    return (struct large_row){
        batch, head, query, p, first, end > first ? end : first, length > 0 ? length : 0};
}

/* A value as the tensor holds it. */
static double value_at(const struct large_known *k, int64_t j, uint32_t feature, uint32_t kv_head)
{
    return large_round(k->a->v,
                       large_factor(feature) * large_ramp(k, j) + large_term(feature, kv_head));
}

static double mean_ramp(struct large_known *k, int64_t n)
{
    long double sum = 0;
    if (k->n_mean != n) {
        for (int64_t j = 0; j < n; j++)
            sum += (long double)large_ramp(k, j);
        k->mean = n ? (double)(sum / n) : 0;
        k->n_mean = n;
    }
    return k->mean;
}

bool large_context(struct large_known *k, const struct large_row *row, double *want)
{
    const struct large_attention *a = k->a;
    struct large_softmax s = large_softmax_of(k, row);
    uint32_t kv_head = kv_head_of(a, row);
    if (!s.sees && a->masked_row == VKA_MASKED_UNIFORM) {
        s.sum = row->length > 0;
        s.ramp = mean_ramp(k, row->length);
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
            x = j == a->hot[kv_head % 2][feature] ? LARGE_HOT_FACTOR * LARGE_HOT_FACTOR : 0;
        if (a->scores_kind > VKA_SCORES_RAW)
            x = softcapped(a, x);
        if (a->scores_kind > VKA_SCORES_SOFTCAP) {
            x += large_mask(k, j, c.mask) - slope * fabs((double)(row->position - j));
            x = j < row->first || j >= row->end ? (double)-INFINITY : x;
        }
        if (a->scores_kind == VKA_SCORES_SOFTMAX && s.sees)
            x = s.hot >= 0 ? j == s.hot : exp(x) / s.total;
        else if (a->scores_kind == VKA_SCORES_SOFTMAX)
            x = a->masked_row == VKA_MASKED_UNIFORM ? 1.0 / (double)row->length
                : a->masked_row == VKA_MASKED_NAN   ? (double)NAN
                                                    : 0;
        if (j >= row->length)
            x = a->scores_kind == VKA_SCORES_SOFTMAX ? 0 : (double)-INFINITY;
        want[j] = x;
    }
}
