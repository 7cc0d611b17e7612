/* A step of packed sequences with a cache: each is cut out, its new keys are put behind its old ones,
 * and it is solved alone. SPDX-License-Identifier: MIT */
#include <reference/step.h>

#include <stdlib.h>
#include <string.h>

/* One sequence: rows first .. first + n - 1 of the packed ones. */
struct sequence {
    size_t index, first, n;
    double *q, *context, *log_sum; /* [n_head][n][...] */
    double *float_mask;            /* [n_head][n][mask_n_kv], either */
    uint8_t *bool_mask;
};

static int64_t clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* Normalises and rotates a row at a position, and keeps it. */
static void make_ready(const struct ref_step *s, int which, int64_t position, double *row)
{
    const struct ref_attention *a = &s->a;
    const double *const norms[] = {a->q_norm, a->k_norm, NULL};
    size_t dim = which == 2 ? a->value_dim : a->head_dim;
    if (norms[which])
        ref_rms_norm(row, 1, dim, norms[which], ref_epsilon(a));
    if (which != 2)
        ref_rope(row, 1, dim, &a->rope, position);
    if (s->keep)
        s->keep(s->user, which, row, dim);
}

/* Puts the first n new rows of a sequence behind those that it has. */
static void append(const struct ref_step *s, const struct sequence *p, size_t n)
{
    const struct ref_attention *a = &s->a;
    size_t old = (size_t)s->length[p->index];
    for (size_t h = 0; h < a->n_kv_head; h++)
        for (size_t i = 0; i < n; i++) {
            size_t to = (p->index * a->n_kv_head + h) * a->n_kv + old + i;
            size_t from = h * a->n_q + p->first + i;
            double *key = s->keys + to * a->head_dim, *value = s->values + to * a->value_dim;
            memcpy(key, a->k + from * a->head_dim, a->head_dim * sizeof *key);
            memcpy(value, a->v + from * a->value_dim, a->value_dim * sizeof *value);
            make_ready(s, 1, (int64_t)(old + i), key);
            make_ready(s, 2, (int64_t)(old + i), value);
        }
}

/* The mask of one sequence's rows, each axis of full size but the last. */
static void cut_mask(const struct ref_attention *a, const struct sequence *p, size_t width)
{
    for (size_t h = 0; h < a->n_head; h++)
        for (size_t i = 0; i < p->n; i++)
            for (size_t j = 0; j < width; j++) {
                const size_t at[4] = {0, h, p->first + i, j};
                size_t from = 0, to = (h * p->n + i) * width + j;
                for (size_t axis = 0; axis < a->mask_rank; axis++) {
                    size_t size = a->mask_shape[axis];
                    from = from * size + (size == 1 ? 0 : at[4 - a->mask_rank + axis]);
                }
                if (a->bool_mask)
                    p->bool_mask[to] = a->bool_mask[from];
                else
                    p->float_mask[to] = a->float_mask[from];
            }
}

static void sequence_destroy(struct sequence *p)
{
    free(p->q);
    free(p->context);
    free(p->log_sum);
    free(p->float_mask);
    free(p->bool_mask);
}

static bool sequence_create(const struct ref_attention *a, size_t width, struct sequence *p)
{
    size_t rows = a->n_head * p->n;
    p->q = calloc(rows * a->head_dim, sizeof *p->q);
    p->context = calloc(rows * a->value_dim, sizeof *p->context);
    p->log_sum = calloc(rows, sizeof *p->log_sum);
    p->float_mask = calloc(rows * width + 1, sizeof *p->float_mask);
    p->bool_mask = calloc(rows * width + 1, sizeof *p->bool_mask);
    return p->q && p->context && p->log_sum && p->float_mask && p->bool_mask;
}

/* Attention of one sequence's queries, whose first is at position `old`, over all that it has. */
static enum vka_status attend(const struct ref_step *s, const struct sequence *p, int64_t old,
                              size_t width)
{
    struct ref_attention one = s->a;
    const struct ref_attention *a = &s->a;
    int64_t length = s->length[p->index];
    size_t keys = p->index * a->n_kv_head * a->n_kv;
    one.batch = 1;
    one.n_q = p->n;
    one.n_past = a->n_kv; /* all keys are ready, and queries too */
    one.rope = (struct vka_rope){0};
    one.q_norm = one.k_norm = NULL;
    one.q = p->q;
    one.k = s->keys + keys * a->head_dim;
    one.v = s->values + keys * a->value_dim;
    one.kv_length = &length;
    one.query_offset = &old;
    one.kv_length_count = one.query_offset_count = 1;
    one.context = p->context;
    one.log_sum_exp = p->log_sum;
    if (a->mask_rank) {
        one.mask_rank = 4;
        memcpy(one.mask_shape, (const size_t[]){1, a->n_head, p->n, width}, 4 * sizeof(size_t));
        one.float_mask = a->float_mask ? p->float_mask : NULL;
        one.bool_mask = a->bool_mask ? p->bool_mask : NULL;
    }
    one.dropout_batch = p->index;
    return ref_attention(&one);
}

/* Cuts the sequence's queries and mask out, solves it, and puts its results back. */
static enum vka_status solve(const struct ref_step *s, struct sequence *p, int64_t old)
{
    const struct ref_attention *a = &s->a;
    size_t width = a->mask_rank ? a->mask_shape[a->mask_rank - 1] : 0;
    if (!sequence_create(a, width, p))
        return VKA_OUT_OF_HOST_MEMORY;
    for (size_t r = 0; r < a->n_head * p->n; r++) {
        size_t from = r / p->n * a->n_q + p->first + r % p->n;
        memcpy(p->q + r * a->head_dim, a->q + from * a->head_dim, a->head_dim * sizeof *p->q);
        make_ready(s, 0, old + (int64_t)(r % p->n), p->q + r * a->head_dim);
    }
    cut_mask(a, p, width);
    enum vka_status status = attend(s, p, old, width);
    for (size_t r = 0; status == VKA_OK && r < a->n_head * p->n; r++) {
        size_t to = r / p->n * a->n_q + p->first + r % p->n;
        memcpy(a->context + to * a->value_dim, p->context + r * a->value_dim,
               a->value_dim * sizeof *p->context);
        if (a->log_sum_exp)
            a->log_sum_exp[to] = p->log_sum[r];
    }
    return status;
}

enum vka_status ref_step(const struct ref_step *s, bool *full)
{
    const struct ref_attention *a = &s->a;
    enum vka_status status = VKA_OK;
    for (size_t i = 0; i < a->batch && status == VKA_OK; i++) {
        int64_t rows = (int64_t)a->n_q, first = clamp(s->start[i], 0, rows);
        struct sequence p = {.index = i, .first = (size_t)first};
        p.n = (size_t)(clamp(s->start[i + 1], first, rows) - first);
        int64_t old = s->length[i], n = (int64_t)p.n;
        n = s->n_append ? clamp(s->n_append[i], 0, n) : n;
        full[i] = s->refused[i] || old + n > (int64_t)a->n_kv;
        if (!full[i]) {
            append(s, &p, (size_t)n);
            s->length[i] += n;
        }
        if (p.n)
            status = solve(s, &p, old);
        sequence_destroy(&p);
    }
    return status;
}
