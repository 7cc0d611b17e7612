/* What runs of plans do to the copy of a mixed cache, and how far the device is from it. */
#include "cache_mixed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <core/dtype.h>
#include <reference/blocks.h>
#include <reference/reference.h>
#include <reference/state.h>

#include "problems/compare.h"

#define MOST_DIM 256

/* ---- The copy --------------------------------------------------------------------------------- */

/* Rows of a sequence, [head][n][width], or back to those of `values`. */
static void move_rows(const struct mixed_step *step, const struct mixed_op *op, int which,
                      double *values, uint32_t b, uint32_t n, double *own, bool back)
{
    uint32_t heads, width;
    mixed_find_rows(op, which, &heads, &width);
    for (uint32_t h = 0; h < heads; h++)
        for (uint32_t i = 0; i < n; i++) {
            double *row = mixed_row(step, op, which, values, b, h, i);
            double *to = own + ((size_t)h * n + i) * width;
            memcpy(back ? row : to, back ? to : row, width * sizeof *row);
        }
}

static double *take_rows(const struct mixed_step *step, const struct mixed_op *op, int which,
                         uint32_t b, uint32_t n)
{
    uint32_t heads = 0, width = 0;
    if (op->io[which].view)
        mixed_find_rows(op, which, &heads, &width);
    double *own = calloc((size_t)heads * n * width + 1, sizeof *own);
    if (!own)
        abort();
    if (op->io[which].view && which != MIXED_OUT)
        move_rows(step, op, which, op->io[which].values, b, n, own, false);
    return own;
}

static void model_conv(const struct mixed *m, struct mixed_step *step, struct mixed_op *op,
                       uint32_t b)
{
    const struct mixed_layer *l = &m->sizes.layers[op->layer];
    const size_t count = mixed_count(&m->sizes, op->layer, 1);
    const struct ref_causal_conv c = {step->kept[b], l->channels, l->width, l->dilation,
                                      l->activation};
    double *past = m->contents[op->layer][1] + b * count;
    double *present = calloc(count + 1, sizeof *present);
    double *x = take_rows(step, op, MIXED_X, b, step->kept[b]);
    double *y = take_rows(step, op, MIXED_OUT, b, step->kept[b]);
    ref_causal_conv(&c, x, op->io[MIXED_WEIGHT].values, NULL, past, y, present);
    memcpy(past, present, count * sizeof *past);
    move_rows(step, op, MIXED_OUT, op->want, b, step->kept[b], y, true);
    free(present);
    free(x);
    free(y);
}

static void model_linear(const struct mixed *m, struct mixed_step *step, struct mixed_op *op,
                         uint32_t b)
{
    const struct mixed_layer *l = &m->sizes.layers[op->layer];
    const struct ref_linear r = {.n = step->kept[b],
                                 .n_head = l->n_head,
                                 .n_kv_head = l->n_kv_head,
                                 .n_state = l->n_state,
                                 .head_dim = l->head_dim,
                                 .value_dim = l->value_dim,
                                 .key_decay = l->key_decay && mixed_is_gated(l->rule),
                                 .shared_beta = l->shared_beta,
                                 .scale = 1 / sqrt(l->head_dim),
                                 .step_max = INFINITY};
    double *state = m->contents[op->layer][0] + b * mixed_count(&m->sizes, op->layer, 0);
    double *own[MIXED_IO];
    for (int i = 0; i < MIXED_IO; i++)
        own[i] = take_rows(step, op, i, b, step->kept[b]);
    ref_linear_attention(&r, own[MIXED_Q], own[MIXED_K], own[MIXED_V],
                         mixed_is_gated(l->rule) ? own[MIXED_DECAY] : NULL,
                         mixed_is_delta(l->rule) ? own[MIXED_BETA] : NULL, state, own[MIXED_OUT]);
    move_rows(step, op, MIXED_OUT, op->want, b, step->kept[b], own[MIXED_OUT], true);
    for (int i = 0; i < MIXED_IO; i++)
        free(own[i]);
}

/* Appends the kept rows of [n_kv_head][had][dim] to [n_kv_head][capacity][dim], as the type keeps them. */
static void append(const struct mixed *m, const struct mixed_step *step, const struct mixed_op *op,
                   uint32_t b, int which, const double *rows)
{
    const struct mixed_layer *l = &m->sizes.layers[op->layer];
    const uint32_t dim = which ? l->value_dim : l->head_dim;
    const enum vka_dtype dtype = which ? l->value_dtype : l->key_dtype;
    double *to = m->contents[op->layer][which] + b * mixed_count(&m->sizes, op->layer, which);
    for (uint32_t h = 0; h < l->n_kv_head; h++)
        for (uint32_t i = 0; i < step->kept[b]; i++) {
            const double *from = rows + ((size_t)h * step->had[b] + i) * dim;
            double *row = to + ((size_t)h * m->sizes.capacity + step->old[b] + i) * dim;
            float x[MOST_DIM] = {0};
            double y[MOST_DIM];
            for (uint32_t c = 0; c < dim; c++)
                x[c] = (float)from[c];
            if (dtype_is_scaled(dtype))
                ref_cache_row(dtype, 1, x, dim, y);
            for (uint32_t c = 0; c < dim; c++)
                row[c] = dtype_is_scaled(dtype) ? y[c] : operand_round(dtype, from[c]);
        }
}

static void model_keys(const struct mixed *m, struct mixed_step *step, struct mixed_op *op,
                       uint32_t b)
{
    const struct mixed_sizes *s = &m->sizes;
    const struct mixed_layer *l = &s->layers[op->layer];
    double *q = take_rows(step, op, MIXED_Q, b, step->had[b]);
    double *k = take_rows(step, op, MIXED_K, b, step->had[b]);
    double *v = take_rows(step, op, MIXED_V, b, step->had[b]);
    double *y = take_rows(step, op, MIXED_OUT, b, step->had[b]);
    const int64_t length = step->old[b] + step->kept[b], old = step->old[b];
    append(m, step, op, b, 0, k);
    append(m, step, op, b, 1, v);
    const struct ref_attention a = {
        .batch = 1,
        .n_head = l->n_head,
        .n_kv_head = l->n_kv_head,
        .n_q = step->had[b],
        .n_kv = s->capacity,
        .head_dim = l->head_dim,
        .value_dim = l->value_dim,
        .q = q,
        .k = m->contents[op->layer][0] + b * mixed_count(s, op->layer, 0),
        .v = m->contents[op->layer][1] + b * mixed_count(s, op->layer, 1),
        .kv_length = &length,
        .kv_length_count = 1,
        .query_offset = &old,
        .query_offset_count = 1,
        .causal = true,
        .context = y};
    if (step->had[b] && ref_attention(&a) != VKA_OK)
        abort();
    move_rows(step, op, MIXED_OUT, op->want, b, step->had[b], y, true);
    free(q);
    free(k);
    free(v);
    free(y);
}

static void model_op(const struct mixed *m, struct mixed_step *step, struct mixed_op *op)
{
    uint32_t heads, width;
    mixed_find_rows(op, MIXED_OUT, &heads, &width);
    for (size_t i = 0; i < op->io[MIXED_OUT].count; i++)
        op->want[i] = NAN; /* rows of no sequence */
    for (uint32_t b = 0; b < m->sizes.batch; b++) {
        for (uint32_t h = 0; h < heads; h++)
            for (uint32_t i = 0; i < step->had[b]; i++)
                memset(mixed_row(step, op, MIXED_OUT, op->want, b, h, i), 0,
                       width * sizeof(double));
        if (op->kind == MIXED_KEYS)
            model_keys(m, step, op, b);
        else if (step->kept[b] && op->kind == MIXED_CONV)
            model_conv(m, step, op, b);
        else if (step->kept[b])
            model_linear(m, step, op, b);
    }
}

uint32_t mixed_model(struct mixed *m, struct mixed_plan *p)
{
    uint32_t full = 0;
    for (uint32_t i = 0; i < p->n_step; i++) {
        struct mixed_step *step = &p->steps[i];
        for (uint32_t b = 0; b < m->sizes.batch; b++) {
            step->old[b] = m->length[b];
            if (m->refused[b] || m->length[b] + step->kept[b] > m->sizes.capacity) {
                m->refused[b] = true;
                full |= 1u << b;
                step->kept[b] = 0;
            }
            m->length[b] += step->kept[b];
        }
        for (uint32_t j = 0; j < step->n_op; j++)
            model_op(m, step, &step->ops[j]);
    }
    return full;
}

/* ---- Comparison ------------------------------------------------------------------------------- */

/* The mean squared row of those that are not 0, as the rows behind lengths are. */
static double mean_row(const struct mixed_op *op, size_t rows, size_t width)
{
    double sum = 0;
    size_t n = 0;
    for (size_t i = 0; i < rows; i++) {
        const double before = sum;
        for (size_t j = i * width; j < (i + 1) * width && !isnan(op->want[i * width]); j++)
            sum += op->want[j] * op->want[j];
        n += sum > before;
    }
    return n ? sum / (double)n : 0;
}

/* The error of a row is over the mean row, as one whose terms cancel out has no relative error, or over
 * the row itself where that is larger: 16 bits are so exact. Rounded in the copy too, a value near the
 * middle of two of 16 bits would be a whole step off, not half a one. */
static bool compare_output(struct mixed_op *op, double *worst)
{
    struct operand *o = &op->io[MIXED_OUT];
    const double limit = compare_limit(o->dtype) * (o->dtype == VKA_F32 ? 10 : 1);
    const size_t width = o->size[o->rank - 1], rows = o->count / width;
    const double mean = mean_row(op, rows, width);
    double most = 0;
    bool ok = operand_read(o) == VKA_OK;
    if (operand_damage(o) != SIZE_MAX)
        return false;
    for (size_t i = 0; i < rows; i++) {
        double error = 0, size = 0;
        if (isnan(op->want[i * width]))
            continue;
        for (size_t j = i * width; j < (i + 1) * width; j++) {
            error += (o->values[j] - op->want[j]) * (o->values[j] - op->want[j]);
            size += op->want[j] * op->want[j];
        }
        ok &= size > 0 || error == 0 || width == 1;
        if (error != 0) /* over 0 it is infinite */
            error /= fmax(size, mean);
        most = !(error <= most) ? error : most;
    }
    if (ok && most <= limit) {
        *worst = fmax(*worst, most / limit);
        return true;
    }
    fprintf(stderr, "output of layer %u, kind %d, %s: error %.3g, above %.3g\n", op->layer,
            (int)op->kind, vka_dtype_name(o->dtype), most, limit);
    return false;
}

bool mixed_compare_outputs(const struct mixed *m, struct mixed_plan *p, double *worst)
{
    (void)m;
    bool ok = true;
    for (uint32_t i = 0; i < p->n_step; i++)
        for (uint32_t j = 0; j < p->steps[i].n_op; j++)
            ok &= compare_output(&p->steps[i].ops[j], worst);
    return ok;
}
