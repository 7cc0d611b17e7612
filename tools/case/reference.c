/* Computes a case by the oracle: projections and layouts around ref_attention.
 * SPDX-License-Identifier: MIT */
#include "reference.h"

#include "numbers.h"

#include <stdlib.h>
#include <string.h>

#include <reference/reference.h>

/* All arrays as double, dense, in the order that the oracle takes; freed at the end. */
struct problem {
    double *q, *k, *v;            /* [batch][head][n][dim], past keys first */
    double *float_mask, *context; /* context [batch][n_head][n_q][value_dim] */
    int64_t *kv_length, *query_offset;
};

/* The place of an element: index = b * batch + h * head + s * sequence + d * feature. */
struct strides {
    size_t batch, head, sequence, feature;
};

static struct strides strides_bhsd(size_t heads, size_t n, size_t dim)
{
    return (struct strides){heads * n * dim, n * dim, dim, 1};
}

/* Heads folded into a row of [batch][n] or [n][batch] rows. */
static struct strides strides_rows(const struct case_file *c, size_t heads, size_t n, size_t dim,
                                   bool interleaved)
{
    size_t width = heads * dim;
    bool batch_first = c->config.layout != CASE_SBD;
    return (struct strides){.batch = batch_first ? n * width : width,
                            .sequence = batch_first ? width : c->batch * width,
                            .head = interleaved ? 1 : dim,
                            .feature = interleaved ? heads : 1};
}

/* Copies [batch][heads][n][dim] elements from one order to another. */
static void copy_heads(const struct case_file *c, size_t heads, size_t n, size_t dim,
                       const double *from, struct strides f, double *to, struct strides t)
{
    for (size_t b = 0; b < c->batch; b++)
        for (size_t h = 0; h < heads; h++)
            for (size_t s = 0; s < n; s++)
                for (size_t d = 0; d < dim; d++)
                    to[b * t.batch + h * t.head + s * t.sequence + d * t.feature] =
                        from[b * f.batch + h * f.head + s * f.sequence + d * f.feature];
}

/* x W^T + bias for every row of the input; NULL if memory ran out. */
static double *project(const struct vka_io_array *input, const struct case_linear *linear)
{
    size_t out = (size_t)linear->weight->shape[0], in = (size_t)linear->weight->shape[1];
    size_t rows = case_count(input) / in;
    double *x = case_doubles(input), *weight = case_doubles(linear->weight);
    double *bias = linear->bias ? case_doubles(linear->bias) : NULL;
    double *y = calloc(rows * out, sizeof *y);
    if (x && weight && y && (bias || !linear->bias)) {
        ref_linear(x, weight, bias, rows, in, out, false, y);
    } else {
        free(y);
        y = NULL;
    }
    free(x);
    free(weight);
    free(bias);
    return y;
}

/* Makes one of q, k and v: the elements of the past, then those of the input, projected in a
 * layer. */
static double *gather(const struct case_file *c, const struct vka_io_array *input,
                      const struct case_linear *linear, const struct vka_io_array *past,
                      size_t heads, size_t n, size_t dim)
{
    size_t n_past = past ? c->n_past : 0;
    struct strides to = strides_bhsd(heads, n_past + n, dim);
    struct strides from = c->config.layout == CASE_BHSD
                              ? strides_bhsd(heads, n, dim)
                              : strides_rows(c, heads, n, dim, c->config.interleaved);
    double *x = c->kind == CASE_LAYER ? project(input, linear) : case_doubles(input);
    double *before = past ? case_doubles(past) : NULL;
    double *out = calloc(c->batch * heads * (n_past + n) * dim, sizeof *out);
    if (x && out && (before || !past)) {
        if (past)
            copy_heads(c, heads, n_past, dim, before, strides_bhsd(heads, n_past, dim), out, to);
        copy_heads(c, heads, n, dim, x, from, out + n_past * dim, to);
    } else {
        free(out);
        out = NULL;
    }
    free(x);
    free(before);
    return out;
}

static int64_t *integers(const struct vka_io_array *array)
{
    int64_t *out = malloc(array->size);
    if (out)
        memcpy(out, array->data, array->size);
    return out;
}

static bool problem_create(const struct case_file *c, struct problem *p)
{
    const struct vka_io_array *key = c->key ? c->key : c->query;
    const struct vka_io_array *value = c->value ? c->value : c->query;
    bool float_mask = c->mask && c->mask->dtype != VKA_IO_BOOL;
    p->q = gather(c, c->query, &c->q_proj, NULL, c->n_head, c->n_q, c->head_dim);
    p->k = gather(c, key, &c->k_proj, c->past_key, c->n_kv_head, c->n_new, c->head_dim);
    p->v = gather(c, value, &c->v_proj, c->past_value, c->n_kv_head, c->n_new, c->value_dim);
    p->context = calloc((size_t)c->batch * c->n_head * c->n_q * c->value_dim, sizeof(double));
    p->float_mask = float_mask ? case_doubles(c->mask) : NULL;
    p->kv_length = c->kv_length ? integers(c->kv_length) : NULL;
    p->query_offset = c->query_offset ? integers(c->query_offset) : NULL;
    return p->q && p->k && p->v && p->context && (p->float_mask || !float_mask) &&
           (p->kv_length || !c->kv_length) && (p->query_offset || !c->query_offset);
}

static void problem_destroy(struct problem *p)
{
    free(p->q);
    free(p->k);
    free(p->v);
    free(p->context);
    free(p->float_mask);
    free(p->kv_length);
    free(p->query_offset);
}

static struct ref_attention describe(const struct case_file *c, const struct problem *p)
{
    const struct case_config *config = &c->config;
    struct ref_attention a = {
        .batch = c->batch,
        .n_head = c->n_head,
        .n_kv_head = c->n_kv_head,
        .n_q = c->n_q,
        .n_kv = c->n_kv,
        .head_dim = c->head_dim,
        .value_dim = c->value_dim,
        .q = p->q,
        .k = p->k,
        .v = p->v,
        .n_past = c->n_past,
        .mask_rank = c->mask ? c->mask->rank : 0,
        .float_mask = p->float_mask,
        .bool_mask = c->mask && !p->float_mask ? c->mask->data : NULL,
        .kv_length = p->kv_length,
        .kv_length_count = c->kv_length ? (size_t)c->kv_length->shape[0] : 0,
        .query_offset = p->query_offset,
        .query_offset_count = c->query_offset ? (size_t)c->query_offset->shape[0] : 0,
#define OPTION(kind, type, wide, name) .name = config->name,
#include "../../src/attention_options.def"
#undef OPTION
        .rope = config->rope,
        .context = p->context,
    };
    for (size_t axis = 0; axis < a.mask_rank; axis++)
        a.mask_shape[axis] = (size_t)c->mask->shape[axis];
    return a;
}

/* Writes the context in the layout of the case, after o_proj if there is one. */
static bool finish(const struct case_file *c, const struct problem *p, double *output)
{
    size_t width = (size_t)c->n_head * c->value_dim, rows = (size_t)c->batch * c->n_q;
    struct strides from = strides_bhsd(c->n_head, c->n_q, c->value_dim);
    struct strides to = c->config.layout == CASE_BHSD
                            ? from
                            : strides_rows(c, c->n_head, c->n_q, c->value_dim, false);
    if (!c->o_proj.weight) {
        copy_heads(c, c->n_head, c->n_q, c->value_dim, p->context, from, output, to);
        return true;
    }
    double *concatenated = calloc(rows * width, sizeof(double));
    double *weight = case_doubles(c->o_proj.weight);
    double *bias = c->o_proj.bias ? case_doubles(c->o_proj.bias) : NULL;
    bool ok = concatenated && weight && (bias || !c->o_proj.bias);
    if (ok) {
        copy_heads(c, c->n_head, c->n_q, c->value_dim, p->context, from, concatenated, to);
        ref_linear(concatenated, weight, bias, rows, width, c->output_dim, false, output);
    }
    free(concatenated);
    free(weight);
    free(bias);
    return ok;
}

enum vka_status case_reference(const struct case_file *c, double *output, double *scores,
                               double *present_key, double *present_value)
{
    enum vka_status status = VKA_OUT_OF_HOST_MEMORY;
    struct problem p = {0};
    if (!problem_create(c, &p))
        goto fail;
    struct ref_attention a = describe(c, &p);
    a.key = present_key;
    a.scores[c->config.scores != VKA_SCORES_NONE ? c->config.scores : VKA_SCORES_SOFTMAX] = scores;
    status = ref_attention(&a);
    if (status != VKA_OK)
        goto fail;
    if (present_value)
        memcpy(present_value, p.v,
               (size_t)c->batch * c->n_kv_head * c->n_kv * c->value_dim * sizeof(double));
    if (output && !finish(c, &p, output))
        status = VKA_OUT_OF_HOST_MEMORY;
fail:
    problem_destroy(&p);
    return status;
}
