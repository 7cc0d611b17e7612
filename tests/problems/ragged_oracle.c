/* Packed steps put to the oracle. */
#include <reference/step.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"
#include "ragged_run.h"

#define MOST_DIM 64u

/* Features of a block that a Hadamard matrix multiplies; 0: none. */
static size_t hadamard_block(const struct problem *p, bool value)
{
    size_t dim = value ? p->value_dim : p->head_dim;
    bool hadamard = dtype_has_hadamard(value ? p->cached_v : p->cached_k);
    return hadamard && !p->no_hadamard ? dim & (~dim + 1) : 0;
}

static void hadamard(double *row, size_t dim, size_t block)
{
    float x[MOST_DIM] = {0}, y[MOST_DIM];
    for (size_t i = 0; i < dim; i++)
        x[i] = (float)row[i];
    ref_hadamard(x, dim, block, y);
    for (size_t i = 0; i < dim; i++)
        row[i] = (double)y[i];
}

/* ref_step.keep: rows as the cache's types keep them. */
static void keep_row(const void *user, int which, double *row, size_t dim)
{
    const struct problem *p = user;
    const enum vka_dtype dtype = which == 1 ? p->cached_k : p->cached_v;
    float x[MOST_DIM] = {0};
    double y[MOST_DIM];
    if (hadamard_block(p, which == 2))
        hadamard(row, dim, hadamard_block(p, which == 2));
    if (which == 0)
        return;
    if (!dtype_is_scaled(dtype)) {
        for (size_t i = 0; i < dim; i++)
            row[i] = operand_round(dtype, row[i]);
        return;
    }
    for (size_t i = 0; i < dim; i++)
        x[i] = (float)row[i];
    ref_cache_row(dtype, 1, x, dim, y);
    memcpy(row, y, dim * sizeof *row);
}

/* Whether keys are rounded after float32 arithmetic, of the norm or the rotation: some are rounded
 * the other way in double. */
static bool rounds_keys(const struct problem *p)
{
    return (p->rope.dim || p->k_norm) && p->cached_k != VKA_F32;
}

/* Error that results may have. */
static double limit_of(const struct problem *p)
{
    double limit = compare_limit(p->output);
    double keys = !rounds_keys(p)           ? 0
                  : p->cached_k == VKA_F16  ? 1e-6
                  : p->cached_k == VKA_BF16 ? 1e-4
                  : p->cached_k == VKA_Q8_0 ? 1e-3
                                            : 2e-2;
    return limit > keys ? limit : keys;
}

/* Element i of an operand's rows, counted as its values are, lies in no sequence. */
bool ragged_outside(const struct run *r, const struct operand *o, size_t i)
{
    size_t width = o->rank == 4 ? o->size[3] : 1;
    int64_t row = (int64_t)(i / width % o->size[2]);
    return row < r->start[0] || row >= r->start[r->p->n_sequence];
}

/* Checks that rows outside all sequences hold their noise, and makes them 0 in both. */
static bool spare(const struct run *r, struct operand *o, double *want)
{
    size_t size = vka_dtype_size(o->dtype);
    for (size_t i = 0; i < o->count; i++) {
        uint64_t at = o->offset, rest = i;
        for (uint32_t axis = o->rank; axis-- > 0; rest /= o->size[axis])
            at += rest % o->size[axis] * o->stride[axis];
        if (!ragged_outside(r, o, i))
            continue;
        if (memcmp(o->got + at * size, o->image + at * size, size) != 0) {
            snprintf(r->why, WHY, "a row outside all sequences was written");
            return false;
        }
        o->values[i] = want[i] = 0;
    }
    return true;
}

static bool judge(struct run *r, uint32_t layer, double *context, double *log_sum)
{
    const struct problem *p = r->p;
    struct operand *o = r->packed.layers[layer].operands;
    const size_t block = hadamard_block(p, true), width = p->value_dim;
    char text[PROBLEM_TEXT];
    for (size_t i = 0; block && i < o[OPERAND_OUTPUT].count; i += width)
        hadamard(context + i, width, block);
    for (size_t i = 0; i < o[OPERAND_OUTPUT].count; i++)
        context[i] = operand_round(p->output, context[i]);
    double limit = limit_of(p);
    bool exact = !rounds_keys(p);
    if (!spare(r, &o[OPERAND_OUTPUT], context) ||
        !compare_values(&o[OPERAND_OUTPUT], context, limit, "output", problem_text(p, text),
                        exact ? r->worst : NULL, r->why))
        return false;
    if (!p->log_sum || !spare(r, &o[OPERAND_LOG_SUM], log_sum))
        return !p->log_sum;
    return !exact || compare_log_sums(&o[OPERAND_LOG_SUM], log_sum, VKA_F32, r->why);
}

/* Solves the step; the lengths are as before it, and after it at the end. */
bool ragged_ask(struct run *r, int64_t *length)
{
    const struct problem *p = r->p;
    const size_t rows = (size_t)problem_n_head(p) * p->n_q;
    double *context = ragged_take(rows * p->value_dim, sizeof *context);
    double *log_sum = ragged_take(rows, sizeof *log_sum);
    bool ok = true;
    for (uint32_t l = 0; l < p->n_layer && ok; l++) {
        struct question q;
        ok = ragged_done(r, problem_ask(&r->packed.layers[l], &q), "the oracle");
        struct ref_step step = {.a = q.ref,
                                .start = r->start,
                                .n_append = p->n_append ? r->keep : NULL,
                                .refused = r->refused,
                                .length = length,
                                .keys = r->keys[l],
                                .values = r->values[l],
                                .keep = keep_row,
                                .user = p};
        step.a.batch = p->n_sequence;
        step.a.n_kv = p->capacity;
        memcpy(length, r->length, p->n_sequence * sizeof *length);
        step.a.context = context;
        step.a.log_sum_exp = log_sum;
        ok = ok && ragged_done(r, ref_step(&step, r->full), "the oracle") &&
             judge(r, l, context, log_sum);
        question_destroy(&q);
    }
    free(context);
    free(log_sum);
    return ok;
}
