/* Gradients of attention: row after row in the form in which the chain rule gives them, from the
 * scores and weights of the forward. SPDX-License-Identifier: MIT */
#include <reference/attention_backward.h>
#include <reference/train.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What the forward gives, and the gradients of queries and keys as they enter the scores. */
struct work {
    struct ref_attention a;
    double *raw, *bias, *weight; /* [batch][n_head][n_q][n_kv] */
    double *log_sum;             /* [batch][n_head][n_q] */
    double *q, *dq;              /* [batch][n_head][n_q][head_dim] */
    double *k, *dk;              /* [batch][n_kv_head][n_kv][head_dim] */
    double *slope;               /* [n_kv], gradient of a row's weights */
    double *frequencies;         /* [rope.dim / 2], of the rotation back */
};

/* The element of the mask that key j of a row reads; the caller knows that the key is visible. */
static size_t mask_index(const struct ref_attention *a, const size_t at[4])
{
    size_t index = 0;
    for (size_t axis = 0; axis < a->mask_rank; axis++) {
        size_t length = a->mask_shape[axis];
        index = index * length + (length == 1 ? 0 : at[4 - a->mask_rank + axis]);
    }
    return index;
}

/* at: batch element, head, query, and room for a key. */
static void row_backward(struct work *w, size_t at[4], const double *dy,
                         const struct ref_attention_gradients *g)
{
    const struct ref_attention *a = &w->a;
    const size_t dim = a->head_dim, width = a->value_dim;
    const size_t row = (at[0] * a->n_head + at[1]) * a->n_q + at[2];
    const size_t head = at[0] * a->n_kv_head + at[1] / (a->n_head / a->n_kv_head);
    const double scale = ref_scale(a);
    const double *raw = w->raw + row * a->n_kv, *bias = w->bias + row * a->n_kv;
    const double *weight = w->weight + row * a->n_kv;
    const double log_sum = w->log_sum[row];
    bool any = false;
    double delta = 0;
    for (size_t j = 0; j < a->n_kv; j++)
        any |= !(bias[j] <= -INFINITY);
    for (size_t j = 0; j < a->n_kv; j++) {
        if (any ? bias[j] <= -INFINITY : weight[j] == 0) /* NaN and UNIFORM give weights */
            continue;
        const double kept = ref_dropout_factor(a, at[0], at[1], at[2], j);
        const double *v = a->v + (head * a->n_kv + j) * width;
        w->slope[j] = 0;
        for (size_t d = 0; d < width; d++) {
            w->slope[j] += kept * dy[row * width + d] * v[d];
            if (g->v)
                g->v[(head * a->n_kv + j) * width + d] += weight[j] * kept * dy[row * width + d];
        }
        delta += weight[j] * w->slope[j];
    }
    if (!any)
        return;
    if (g->sink)
        g->sink[at[1]] -= (a->sink[at[1]] == log_sum ? 1 : exp(a->sink[at[1]] - log_sum)) * delta;
    for (size_t j = 0; j < a->n_kv; j++) {
        if (bias[j] <= -INFINITY)
            continue;
        double ds = weight[j] * (w->slope[j] - delta);
        at[3] = j;
        if (g->mask)
            g->mask[mask_index(a, at)] += ds;
        const double t = a->softcap > 0 ? tanh(raw[j] / a->softcap) : 0;
        ds *= scale * (1 - t * t);
        for (size_t d = 0; d < dim; d++) {
            w->dq[row * dim + d] += ds * w->k[(head * a->n_kv + j) * dim + d];
            w->dk[(head * a->n_kv + j) * dim + d] += ds * w->q[row * dim + d];
        }
    }
}

/* Takes the gradient of rows [n][head_dim] back through the rotation and the norm, in place. x: the
 * rows before both. d_norm, which may be NULL, is added to. */
static void undo(const struct work *w, const double *x, double *dx, size_t n, int64_t first,
                 const double *norm, double *d_norm)
{
    const struct ref_attention *a = &w->a;
    struct vka_rope back = a->rope;
    back.base = 0;
    back.frequencies = w->frequencies;
    ref_rope(dx, n, a->head_dim, &back, first);
    if (!norm)
        return;
    double *dw = w->slope; /* has room for head_dim too */
    ref_norm_backward(x, dx, n, a->head_dim, VKA_RMS_NORM, norm, ref_epsilon(a), dx, dw, NULL);
    for (size_t d = 0; d_norm && d < a->head_dim; d++)
        d_norm[d] += dw[d];
}

static void clear(double *x, size_t n)
{
    if (x)
        memset(x, 0, n * sizeof *x);
}

/* The gradients of what was given, from those of what enters the scores. */
static void finish(struct work *w, const struct ref_attention_gradients *g)
{
    const struct ref_attention *a = &w->a;
    const size_t dim = a->head_dim, n_new = a->n_kv - a->n_past;
    clear(g->q_norm, dim);
    clear(g->k_norm, dim);
    for (size_t bh = 0; bh < a->batch * a->n_head; bh++)
        undo(w, a->q + bh * a->n_q * dim, w->dq + bh * a->n_q * dim, a->n_q,
             ref_first_position(a, bh / a->n_head), a->q_norm, g->q_norm);
    for (size_t bh = 0; bh < a->batch * a->n_kv_head; bh++) {
        const size_t at = (bh * a->n_kv + a->n_past) * dim;
        undo(w, a->k + at, w->dk + at, n_new, (int64_t)a->n_past, a->k_norm, g->k_norm);
    }
    if (g->q)
        memcpy(g->q, w->dq, a->batch * a->n_head * a->n_q * dim * sizeof *g->q);
    if (g->k)
        memcpy(g->k, w->dk, a->batch * a->n_kv_head * a->n_kv * dim * sizeof *g->k);
}

static enum vka_status work_create(const struct ref_attention *a, struct work *w)
{
    const size_t rows = a->batch * a->n_head * a->n_q, keys = a->batch * a->n_kv_head * a->n_kv;
    const size_t pairs = a->rope.dim / 2, dim = a->head_dim;
    const double base = a->rope.base != 0 ? (double)a->rope.base : 10000;
    struct {
        double **array;
        size_t n;
    } arrays[] = {
        {&w->raw, rows * a->n_kv},    {&w->bias, rows * a->n_kv}, {&w->weight, rows * a->n_kv},
        {&w->log_sum, rows},          {&w->q, rows * dim},        {&w->dq, rows * dim},
        {&w->k, keys * dim},          {&w->dk, keys * dim},       {&w->slope, a->n_kv + dim},
        {&w->frequencies, pairs + 1},
    };
    *w = (struct work){.a = *a};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        *arrays[i].array = calloc(arrays[i].n, sizeof(double));
        if (!*arrays[i].array)
            return VKA_OUT_OF_HOST_MEMORY;
    }
    for (size_t i = 0; i < pairs; i++)
        w->frequencies[i] = a->rope.frequencies ? -a->rope.frequencies[i]
                                                : -pow(base, -2 * (double)i / a->rope.dim);
    memset(w->a.scores, 0, sizeof w->a.scores);
    w->a.scores[VKA_SCORES_RAW] = w->raw;
    w->a.scores[VKA_SCORES_BIAS] = w->bias;
    w->a.scores[VKA_SCORES_SOFTMAX] = w->weight;
    w->a.log_sum_exp = w->log_sum;
    w->a.query = w->q;
    w->a.key = w->k;
    w->a.context = NULL;
    return VKA_OK;
}

static void work_destroy(struct work *w)
{
    double *const arrays[] = {w->raw, w->bias, w->weight, w->log_sum, w->q,
                              w->dq,  w->k,    w->dk,     w->slope,   w->frequencies};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        free(arrays[i]);
}

enum vka_status ref_attention_backward(const struct ref_attention *a, const double *dy,
                                       const struct ref_attention_gradients *g)
{
    struct work w;
    enum vka_status status = work_create(a, &w);
    if (status == VKA_OK)
        status = ref_attention(&w.a);
    if (status != VKA_OK)
        goto fail;
    size_t mask = 1;
    for (size_t axis = 0; axis < a->mask_rank; axis++)
        mask *= a->mask_shape[axis];
    clear(g->v, a->batch * a->n_kv_head * a->n_kv * a->value_dim);
    clear(g->sink, a->n_head);
    clear(g->mask, mask);
    for (size_t b = 0; b < a->batch; b++)
        for (size_t h = 0; h < a->n_head; h++)
            for (size_t i = 0; i < a->n_q; i++)
                row_backward(&w, (size_t[4]){b, h, i, 0}, dy, g);
    finish(&w, g);
fail:
    work_destroy(&w);
    return status;
}
