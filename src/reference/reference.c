/* Attention: visible keys, scores, softmax, dropout and the weighted sum, one query row after the
 * other. SPDX-License-Identifier: MIT */
#include <reference/reference.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Positions are clamped to +-this, so that j - p never overflows on a device. */
#define POSITION_LIMIT ((int64_t)1 << 30)

/* One query row: batch element b, head h, query i at position p; keys from `length` on are
 * hidden. */
struct row {
    size_t b, h, i;
    int64_t p, length;
    const double *q; /* [head_dim], normalised and rotated */
    const double *k; /* [n_kv][head_dim] of its key head, normalised and rotated */
    const double *v; /* [n_kv][value_dim] */
};

/* Keys and queries that are ready for the scores, and the working arrays of one row. */
struct work {
    double *q, *k;
    double *stage[VKA_SCORES_COUNT]; /* [n_kv] by kind; [NONE] unused */
    double *weight;                  /* [n_kv], after dropout */
    bool *visible;                   /* [n_kv] */
};

static int64_t clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* Element b of an array with one value for each batch element, or one for all. */
static int64_t per_batch(const int64_t *values, size_t count, size_t b)
{
    return values[count == 1 ? 0 : b];
}

double ref_scale(const struct ref_attention *a)
{
    bool meant = a->scale != 0 || a->given & VKA_GIVEN_SCALE;
    return meant ? a->scale : 1 / sqrt((double)a->head_dim);
}

double ref_epsilon(const struct ref_attention *a)
{
    bool meant = a->norm_epsilon != 0 || a->given & VKA_GIVEN_EPSILON;
    return meant ? a->norm_epsilon : 1e-6;
}

int64_t ref_first_position(const struct ref_attention *a, size_t b)
{
    if (!a->query_offset)
        return (int64_t)a->n_past;
    return clamp(per_batch(a->query_offset, a->query_offset_count, b), -POSITION_LIMIT,
                 POSITION_LIMIT);
}

static int64_t visible_length(const struct ref_attention *a, size_t b)
{
    if (!a->kv_length)
        return (int64_t)a->n_kv;
    return clamp(per_batch(a->kv_length, a->kv_length_count, b), 0, (int64_t)a->n_kv);
}

/* Finds the element of the mask for key j of a row. False if the mask's last axis ends before j. */
static bool mask_index(const struct ref_attention *a, const struct row *r, size_t j, size_t *index)
{
    const size_t full[4] = {r->b, r->h, r->i, j};
    *index = 0;
    for (size_t axis = 0; axis < a->mask_rank; axis++) {
        size_t length = a->mask_shape[axis];
        size_t at = length == 1 ? 0 : full[4 - a->mask_rank + axis];
        if (at >= length)
            return false;
        *index = *index * length + at;
    }
    return true;
}

/* Whether key j is visible to row r; *bias is what the float mask adds. */
static bool is_visible(const struct ref_attention *a, const struct row *r, size_t j, double *bias)
{
    int64_t key = (int64_t)j;
    *bias = 0;
    if (key >= r->length)
        return false;
    if (a->causal && key > r->p)
        return false;
    if (a->window && a->window_left >= 0 && r->p - key > a->window_left)
        return false;
    if (a->window && a->window_right >= 0 && key - r->p > a->window_right)
        return false;
    if (a->mask_rank == 0)
        return true;
    size_t index;
    if (!mask_index(a, r, j, &index))
        return false;
    if (a->bool_mask)
        return a->bool_mask[index] != 0;
    *bias = a->float_mask[index];
    return *bias > -INFINITY;
}

/* Computes RAW, SOFTCAP, BIAS and the visibility of every key. Returns whether any is visible. */
static bool score_row(const struct ref_attention *a, const struct row *r, struct work *w)
{
    double scale = ref_scale(a);
    bool any = false;
    for (size_t j = 0; j < a->n_kv; j++) {
        double dot = 0, bias;
        for (size_t d = 0; d < a->head_dim; d++)
            dot += r->q[d] * r->k[j * a->head_dim + d];
        double s = scale * dot;
        bool behind = (int64_t)j >= r->length;
        w->stage[VKA_SCORES_RAW][j] = behind ? -INFINITY : s;
        if (a->softcap > 0)
            s = a->softcap * tanh(s / a->softcap);
        w->stage[VKA_SCORES_SOFTCAP][j] = behind ? -INFINITY : s;
        w->visible[j] = is_visible(a, r, j, &bias);
        if (a->alibi)
            s -= a->alibi[r->h] * fabs((double)(r->p - (int64_t)j));
        w->stage[VKA_SCORES_BIAS][j] = w->visible[j] ? s + bias : -INFINITY;
        any |= w->visible[j];
    }
    return any;
}

/* Softmax over the visible keys; weights of hidden keys are exactly 0. */
static void softmax_row(const struct ref_attention *a, const struct row *r, struct work *w)
{
    const double *s = w->stage[VKA_SCORES_BIAS];
    double *weight = w->stage[VKA_SCORES_SOFTMAX];
    double top = a->sink ? a->sink[r->h] : -INFINITY;
    for (size_t j = 0; j < a->n_kv; j++)
        top = s[j] > top ? s[j] : top; /* hidden ones are -inf */
    double sum = 0;
    if (a->sink) /* +inf makes all weights 0, -inf has no effect: scores of -inf alone give NaN */
        sum = a->sink[r->h] == INFINITY ? 1 : exp(a->sink[r->h] - top);
    for (size_t j = 0; j < a->n_kv; j++) {
        weight[j] = w->visible[j] ? exp(s[j] - top) : 0;
        sum += weight[j];
    }
    for (size_t j = 0; j < a->n_kv; j++)
        weight[j] = w->visible[j] ? weight[j] / sum : 0;
}

/* ln of the sum of e^score over the visible keys, and of the sink's e^sink: relative to the largest
 * one unless that is -inf, as all are then. */
static double log_sum_row(const struct ref_attention *a, const struct row *r, const struct work *w)
{
    const double *s = w->stage[VKA_SCORES_BIAS];
    double sink = a->sink ? a->sink[r->h] : -INFINITY, top = sink;
    for (size_t j = 0; j < a->n_kv; j++)
        top = s[j] > top ? s[j] : top; /* hidden ones are -inf */
    double from = top == -INFINITY ? 0 : top;
    double sum = sink == from ? 1 : exp(sink - from);
    for (size_t j = 0; j < a->n_kv; j++)
        sum += w->visible[j] ? exp(s[j] - from) : 0;
    return from + log(sum);
}

/* The weights of a fully masked row. Only UNIFORM reads hidden values: it averages those before the
 * length, as filling their scores with one large negative number would. */
static void masked_row(const struct ref_attention *a, const struct row *r, struct work *w)
{
    double weight = 0;
    switch (a->masked_row) {
    case VKA_MASKED_UNIFORM:
        weight = 1 / (double)r->length; /* not used where that is 0 */
        break;
    case VKA_MASKED_NAN:
        weight = NAN;
        break;
    case VKA_MASKED_ZERO:
    case VKA_MASKED_ROW_COUNT:
        break;
    }
    for (size_t j = 0; j < a->n_kv; j++) {
        bool before = (int64_t)j < r->length;
        w->stage[VKA_SCORES_SOFTMAX][j] = before ? weight : 0;
        w->visible[j] = before && a->masked_row != VKA_MASKED_ZERO;
    }
}

double ref_dropout_factor(const struct ref_attention *a, size_t b, size_t h, size_t i, size_t j)
{
    if (a->dropout <= 0)
        return 1;
    const uint32_t counter[4] = {(uint32_t)j, (uint32_t)i, (uint32_t)h,
                                 (uint32_t)(a->dropout_batch + b)};
    const uint32_t key[2] = {(uint32_t)a->dropout_seed, (uint32_t)(a->dropout_seed >> 32)};
    uint32_t word[4];
    ref_philox(counter, key, word);
    return ldexp((double)(word[0] >> 8), -24) >= a->dropout ? 1 / (1 - a->dropout) : 0;
}

/* The context of one row; reads only values of visible keys. nan: it is NaN whatever they are. A
 * dropped NaN weight stays NaN, so that dropout cannot hide a NaN score. */
static void context_row(const struct ref_attention *a, const struct row *r, struct work *w,
                        bool nan, double *context)
{
    for (size_t j = 0; j < a->n_kv; j++)
        w->weight[j] = w->stage[VKA_SCORES_SOFTMAX][j] * ref_dropout_factor(a, r->b, r->h, r->i, j);
    for (size_t d = 0; d < a->value_dim; d++) {
        context[d] = 0;
        for (size_t j = 0; j < a->n_kv; j++)
            if (w->visible[j])
                context[d] += w->weight[j] * r->v[j * a->value_dim + d];
        if (nan) /* also where the length is 0 */
            context[d] = NAN;
    }
}

static void attend_row(const struct ref_attention *a, size_t b, size_t h, size_t i, struct work *w)
{
    size_t row = (b * a->n_head + h) * a->n_q + i;
    size_t keys = (b * a->n_kv_head + h / (a->n_head / a->n_kv_head)) * a->n_kv;
    struct row r = {
        .b = b,
        .h = h,
        .i = i,
        .p = ref_first_position(a, b) + (int64_t)i,
        .length = visible_length(a, b),
        .q = w->q + row * a->head_dim,
        .k = w->k + keys * a->head_dim,
        .v = a->v + keys * a->value_dim,
    };
    bool any = score_row(a, &r, w);
    if (a->log_sum_exp)
        a->log_sum_exp[row] = any ? log_sum_row(a, &r, w) : -INFINITY;
    if (any)
        softmax_row(a, &r, w);
    else
        masked_row(a, &r, w);
    for (int kind = VKA_SCORES_RAW; kind < VKA_SCORES_COUNT; kind++)
        if (a->scores[kind])
            memcpy(a->scores[kind] + row * a->n_kv, w->stage[kind], a->n_kv * sizeof(double));
    if (a->context)
        context_row(a, &r, w, !any && a->masked_row == VKA_MASKED_NAN,
                    a->context + row * a->value_dim);
}

/* Copies queries and keys, normalises and rotates them; past keys are ready already. */
static void prepare(const struct ref_attention *a, struct work *w)
{
    size_t dim = a->head_dim, n_new = a->n_kv - a->n_past;
    memcpy(w->q, a->q, a->batch * a->n_head * a->n_q * dim * sizeof(double));
    memcpy(w->k, a->k, a->batch * a->n_kv_head * a->n_kv * dim * sizeof(double));
    for (size_t bh = 0; bh < a->batch * a->n_head; bh++) {
        double *q = w->q + bh * a->n_q * dim;
        if (a->q_norm)
            ref_rms_norm(q, a->n_q, dim, a->q_norm, ref_epsilon(a));
        ref_rope(q, a->n_q, dim, &a->rope, ref_first_position(a, bh / a->n_head));
    }
    for (size_t bh = 0; bh < a->batch * a->n_kv_head; bh++) {
        double *k = w->k + (bh * a->n_kv + a->n_past) * dim;
        if (a->k_norm)
            ref_rms_norm(k, n_new, dim, a->k_norm, ref_epsilon(a));
        ref_rope(k, n_new, dim, &a->rope, (int64_t)a->n_past);
    }
}

/* calloc checks the last product; the other products are sizes of arrays that exist. */
static enum vka_status work_create(const struct ref_attention *a, struct work *w)
{
    bool ok = true;
    w->q = calloc(a->batch * a->n_head * a->n_q * a->head_dim, sizeof(double));
    w->k = calloc(a->batch * a->n_kv_head * a->n_kv * a->head_dim, sizeof(double));
    w->weight = calloc(a->n_kv, sizeof(double));
    w->visible = calloc(a->n_kv, sizeof(bool));
    for (int kind = VKA_SCORES_RAW; kind < VKA_SCORES_COUNT; kind++) {
        w->stage[kind] = calloc(a->n_kv, sizeof(double));
        ok &= w->stage[kind] != NULL;
    }
    return ok && w->q && w->k && w->weight && w->visible ? VKA_OK : VKA_OUT_OF_HOST_MEMORY;
}

static void work_destroy(struct work *w)
{
    free(w->q);
    free(w->k);
    free(w->weight);
    free(w->visible);
    for (int kind = 0; kind < VKA_SCORES_COUNT; kind++)
        free(w->stage[kind]);
}

enum vka_status ref_attention(const struct ref_attention *a)
{
    struct work w = {0};
    enum vka_status status = work_create(a, &w);
    if (status != VKA_OK)
        goto fail;
    prepare(a, &w);
    for (size_t b = 0; b < a->batch; b++)
        for (size_t h = 0; h < a->n_head; h++)
            for (size_t i = 0; i < a->n_q; i++)
                attend_row(a, b, h, i, &w);
    if (a->key)
        memcpy(a->key, w.k, a->batch * a->n_kv_head * a->n_kv * a->head_dim * sizeof(double));
    if (a->query)
        memcpy(a->query, w.q, a->batch * a->n_head * a->n_q * a->head_dim * sizeof(double));
fail:
    work_destroy(&w);
    return status;
}
