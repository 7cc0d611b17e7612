#include "cache_twin.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "patience.h"
#include "core/arith.h"
#include "core/dtype.h"
#include "problems/types.h"
#include "reference/reference.h"

#define MOST_DIM 256 /* a multiple of 32 */

enum { Q, K, V, O, S };

enum vka_dtype twin_draw_dtype(struct rng *rng)
{
    return type_draw(rng, type_is_cached);
}

static void *take(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    if (!p)
        abort();
    return p;
}

static size_t rows_of(const struct twin_sizes *s)
{
    return (size_t)s->batch * s->n_kv_head * s->capacity;
}

/* Some are so small that values saturate, some so large that they are subnormal. */
static float *draw_scales(const struct twin_sizes *s, uint32_t seed)
{
    static const float some[] = {1, 0.01f, 0.0033f, 0.0011f, 0.07f, 13, 0.5f};
    float *scales = take(s->n_kv_head, sizeof *scales);
    for (uint32_t h = 0; h < s->n_kv_head; h++)
        scales[h] = some[(s->capacity + 3 * h + seed) % (sizeof some / sizeof *some)];
    return scales;
}

static void must(const struct twin *t, enum vka_status status)
{
    if (status == VKA_OK)
        return;
    fprintf(stderr, "FAIL %s: %s\n", vka_status_name(status), vka_device_error(t->device));
    exit(1);
}

/* The mask of all positions. */
static bool open_mask(struct twin *t)
{
    const struct twin_sizes *s = &t->sizes;
    struct rng rng = {s->capacity * 7919ull + s->hidden};
    t->mask = take(s->capacity, 1);
    for (uint32_t j = 0; j < s->capacity; j++)
        t->mask[j] = !rng_chance(&rng, s->hidden);
    return !s->hidden ||
           (vka_tensor_create(t->device, VKA_BOOL, 1, &s->capacity, &t->mask_tensor) == VKA_OK &&
            vka_tensor_write(t->mask_tensor, t->mask, s->capacity) == VKA_OK);
}

void twin_recovered(struct twin *t)
{
    for (uint32_t b = 0; b < t->sizes.batch; b++)
        twin_truncate(t, b, 0);
    if (t->mask_tensor)
        must(t, vka_tensor_write(t->mask_tensor, t->mask, t->sizes.capacity));
}

bool twin_open(struct twin *t, struct vka_device *device, const struct twin_sizes *s)
{
    *t = (struct twin){.device = device, .sizes = *s};
    t->length = take(s->batch, sizeof *t->length);
    t->refused = take(s->batch, sizeof *t->refused);
    t->k = take(s->n_layer, sizeof *t->k);
    t->v = take(s->n_layer, sizeof *t->v);
    t->k_scales = draw_scales(s, 0);
    t->v_scales = draw_scales(s, 1);
    for (uint32_t i = 0; i < s->n_layer; i++) {
        t->k[i] = take(rows_of(s) * s->head_dim, sizeof **t->k);
        t->v[i] = take(rows_of(s) * s->value_dim, sizeof **t->v);
    }
    return open_mask(t) &&
           vka_cache_create(
               device,
               VKA_INFO(vka_cache_info, .batch = s->batch, .n_layer = s->n_layer,
                        .n_kv_head = s->n_kv_head, .head_dim = s->head_dim,
                        .value_dim = s->value_dim, .capacity = s->capacity,
                        .key_dtype = s->key_dtype, .value_dtype = s->value_dtype,
                        .key_scales = dtype_is_head_scaled(s->key_dtype) ? t->k_scales : NULL,
                        .value_scales = dtype_is_head_scaled(s->value_dtype) ? t->v_scales : NULL,
                        .no_hadamard = s->no_hadamard, .page_size = s->page_size,
                        .n_page = s->n_page),
               &t->cache) == VKA_OK;
}

void twin_close(struct twin *t)
{
    for (uint32_t i = 0; i < t->sizes.n_layer; i++) {
        free(t->k[i]);
        free(t->v[i]);
    }
    free(t->k);
    free(t->v);
    free(t->k_scales);
    free(t->v_scales);
    free(t->length);
    free(t->refused);
    free(t->mask);
    vka_tensor_destroy(&t->mask_tensor);
    vka_cache_destroy(&t->cache);
}

static bool open_layer(const struct twin *t, uint32_t n_new, struct operand io[TWIN_IO],
                       struct rng *rng)
{
    const struct twin_sizes *s = &t->sizes;
    const uint32_t size[TWIN_IO][4] = {{s->batch, s->n_kv_head * s->group, n_new, s->head_dim},
                                       {s->batch, s->n_kv_head, n_new, s->head_dim},
                                       {s->batch, s->n_kv_head, n_new, s->value_dim},
                                       {s->batch, s->n_kv_head * s->group, n_new, s->value_dim},
                                       {s->batch, s->n_kv_head * s->group, n_new, s->capacity}};
    bool random = rng_chance(rng, 30);
    for (int i = 0; i < (s->scores_kind ? TWIN_IO : S); i++) {
        struct layout layout = random ? layout_random(rng, 4) : layout_dense();
        const enum vka_dtype dtype = i == S ? VKA_F32 : s->io_dtype;
        if (operand_create(t->device, dtype, 4, size[i], &layout, &io[i]) != VKA_OK)
            return false;
    }
    return true;
}

bool twin_plan_open(struct twin_plan *p, const struct twin *t, uint32_t n_new, bool n_append,
                    struct rng *rng)
{
    const struct twin_sizes *s = &t->sizes;
    bool ok = true;
    *p = (struct twin_plan){.n_new = n_new, .n_layer = s->n_layer};
    p->io = take(s->n_layer, sizeof *p->io);
    p->old = take(s->batch, sizeof *p->old);
    if (n_append)
        ok = vka_tensor_create(t->device, VKA_I32, 1, &s->batch, &p->n_append) == VKA_OK;
    ok = ok && vka_plan_create(t->device,
                               VKA_INFO(vka_plan_info, .path = s->path,
                                        .submit_budget = rng_chance(rng, 20) ? 1 : 0),
                               &p->plan) == VKA_OK;
    for (uint32_t i = 0; ok && i < s->n_layer; i++)
        ok =
            open_layer(t, n_new, p->io[i], rng) &&
            vka_plan_add_attention(
                p->plan,
                VKA_INFO(vka_attention_op, .q = p->io[i][Q].view, .k = p->io[i][K].view,
                         .v = p->io[i][V].view, .output = p->io[i][O].view, .cache = t->cache,
                         .cache_layer = i, .n_append = p->n_append, .options.causal = s->causal,
                         .options.window = s->window > 0, .options.window_left = s->window,
                         .options.window_right = s->window ? -1 : 0, .options.mask = t->mask_tensor,
                         .options.masked_row = s->masked_row, .options.scores_kind = s->scores_kind,
                         .options.scores = p->io[i][S].view)) == VKA_OK;
    return ok && vka_plan_finish(p->plan) == VKA_OK;
}

void twin_plan_close(struct twin_plan *p)
{
    const struct twin_plan none = {0};
    vka_plan_destroy(&p->plan);
    vka_tensor_destroy(&p->n_append);
    free(p->old);
    for (uint32_t i = 0; p->io && i < p->n_layer; i++)
        for (int j = Q; j < TWIN_IO; j++)
            operand_destroy(&p->io[i][j]);
    free(p->io);
    *p = none;
}

static void write_io(const struct twin *t, struct twin_plan *p, const int32_t *n_append)
{
    for (uint32_t i = 0; i < t->sizes.n_layer; i++)
        for (int j = Q; j <= V; j++)
            must(t, operand_write(&p->io[i][j]));
    if (p->n_append)
        must(t, vka_tensor_write(p->n_append, n_append, 4 * (size_t)t->sizes.batch));
}

void twin_poison(struct twin *t, struct twin_plan *p)
{
    const struct twin_sizes *s = &t->sizes;
    int32_t *n_append = take(s->batch, sizeof *n_append);
    for (uint32_t b = 0; b < s->batch; b++)
        n_append[b] = INT32_MAX; /* clamped */
    for (uint32_t i = 0; i < s->n_layer; i++)
        for (int j = Q; j <= V; j++)
            for (size_t e = 0; e < p->io[i][j].count; e++)
                p->io[i][j].values[e] = NAN;
    write_io(t, p, n_append);
    while (vka_plan_run(p->plan, PATIENCE) == VKA_OK)
        ;
    for (uint32_t b = 0; b < s->batch; b++)
        must(t, vka_cache_truncate(t->cache, b, 0));
    free(n_append);
}

/* Features of a block that a Hadamard matrix multiplies; 0: none. */
static size_t hadamard_block(const struct twin_sizes *s, enum vka_dtype dtype, size_t dim)
{
    return dtype_has_hadamard(dtype) && !s->no_hadamard ? dim & (~dim + 1) : 0;
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

/* Replaces a row by what the cache keeps of it. scale: the head's. */
static void keep(const struct twin_sizes *s, enum vka_dtype dtype, float scale, double *row,
                 size_t dim)
{
    float x[MOST_DIM] = {0};
    double y[MOST_DIM];
    if (!dtype_is_scaled(dtype)) {
        for (size_t i = 0; i < dim; i++)
            row[i] = operand_round(dtype, row[i]);
        return;
    }
    if (hadamard_block(s, dtype, dim))
        hadamard(row, dim, hadamard_block(s, dtype, dim));
    for (size_t i = 0; i < dim; i++)
        x[i] = (float)row[i];
    ref_cache_row(dtype, scale, x, dim, y);
    memcpy(row, y, dim * sizeof *row);
}

/* Appends n rows of [batch][n_kv_head][n_new][dim] to a sequence of [batch][n_kv_head][capacity][dim],
 * as the type keeps them. */
static void append(const struct twin *t, const struct operand *from, enum vka_dtype dtype,
                   const float *scales, uint32_t b, uint32_t n, double *to)
{
    const struct twin_sizes *s = &t->sizes;
    size_t dim = from->size[3], n_new = from->size[2];
    for (size_t h = 0; h < s->n_kv_head; h++)
        for (size_t i = 0; i < n; i++) {
            double *row = to + ((b * s->n_kv_head + h) * s->capacity + t->length[b] + i) * dim;
            memcpy(row, from->values + ((b * s->n_kv_head + h) * n_new + i) * dim,
                   dim * sizeof *row);
            keep(s, dtype, scales[h], row, dim);
        }
}

/* Whether n more positions fit, in pages too: with pages of its own a sequence b has the pages from
 * b * count on, as far as the pool goes; a pool with too few pages is for caches that nothing
 * forks or truncates. */
static bool fits(const struct twin *t, uint32_t b, uint32_t n)
{
    const struct twin_sizes *s = &t->sizes;
    if (t->length[b] + n > s->capacity)
        return false;
    if (!s->n_page || n == 0)
        return true;
    uint32_t count = divide_up(s->capacity, s->page_size);
    return b * count + (t->length[b] + n - 1) / s->page_size < s->n_page;
}

bool twin_append(struct twin *t, struct twin_plan *p, struct rng *rng)
{
    const struct twin_sizes *s = &t->sizes;
    bool full = false;
    int32_t *n_append = take(s->batch, sizeof *n_append);
    for (uint32_t b = 0; b < s->batch; b++)
        n_append[b] =
            p->n_append ? (int32_t)rng_range(rng, 0, p->n_new + 2) - 1 : (int32_t)p->n_new;
    for (uint32_t i = 0; i < s->n_layer; i++)
        for (int j = Q; j <= V; j++)
            for (size_t e = 0; e < p->io[i][j].count; e++)
                p->io[i][j].values[e] = rng_uniform(rng, -1.5, 1.5);
    write_io(t, p, n_append);
    for (uint32_t b = 0; b < s->batch; b++) {
        int32_t clamped = n_append[b] < 0 ? 0 : n_append[b];
        uint32_t n = (uint32_t)clamped > p->n_new ? p->n_new : (uint32_t)clamped;
        p->old[b] = t->length[b];
        if (t->refused[b] || !fits(t, b, n)) {
            t->refused[b] = full = true;
            continue;
        }
        for (uint32_t i = 0; i < s->n_layer; i++) {
            append(t, &p->io[i][K], s->key_dtype, t->k_scales, b, n, t->k[i]);
            append(t, &p->io[i][V], s->value_dtype, t->v_scales, b, n, t->v[i]);
        }
        t->length[b] += n;
    }
    free(n_append);
    return full;
}

bool twin_lengths_match(const struct twin *t)
{
    for (uint32_t b = 0; b < t->sizes.batch; b++) {
        uint32_t length = 0;
        must(t, vka_cache_length(t->cache, b, &length));
        if (length != t->length[b]) {
            fprintf(stderr, "sequence %u has length %u, not %u\n", b, length, t->length[b]);
            return false;
        }
    }
    return true;
}

static double greater(double a, double b)
{
    return b > a || isnan(b) ? b : a;
}

double twin_compare(const struct twin *t, struct twin_plan *p)
{
    const struct twin_sizes *s = &t->sizes;
    size_t rows = (size_t)s->batch * s->n_kv_head * s->group * p->n_new;
    double *want = take(rows * s->value_dim, sizeof *want), worst = 0;
    /* scores of all layers are judged together: that of a row of one key may be near 0 */
    const size_t n_score = rows * s->capacity;
    double *scores = take(s->n_layer * n_score, sizeof *scores);
    double *got = take(s->n_layer * n_score, sizeof *got);
    double *q = take(rows * s->head_dim, sizeof *q);
    const size_t k_block = hadamard_block(s, s->key_dtype, s->head_dim);
    const size_t v_block = hadamard_block(s, s->value_dtype, s->value_dim);
    int64_t *length = take(s->batch, sizeof *length);
    for (uint32_t b = 0; b < s->batch; b++)
        length[b] = t->length[b];
    for (uint32_t i = 0; i < s->n_layer; i++) {
        memcpy(q, p->io[i][Q].values, rows * s->head_dim * sizeof *q);
        for (size_t r = 0; k_block && r < rows; r++)
            hadamard(q + r * s->head_dim, s->head_dim, k_block);
        struct ref_attention a = {.batch = s->batch,
                                  .n_head = s->n_kv_head * s->group,
                                  .n_kv_head = s->n_kv_head,
                                  .n_q = p->n_new,
                                  .n_kv = s->capacity,
                                  .head_dim = s->head_dim,
                                  .value_dim = s->value_dim,
                                  .q = q,
                                  .k = t->k[i],
                                  .v = t->v[i],
                                  .kv_length = length,
                                  .kv_length_count = s->batch,
                                  .query_offset = p->old,
                                  .query_offset_count = s->batch,
                                  .causal = s->causal,
                                  .window = s->window > 0,
                                  .window_left = s->window,
                                  .window_right = -1,
                                  .masked_row = s->masked_row,
                                  .mask_rank = s->hidden ? 1 : 0,
                                  .mask_shape = {s->capacity},
                                  .bool_mask = t->mask,
                                  .context = want};
        a.scores[s->scores_kind] = scores + i * n_score;
        must(t, ref_attention(&a));
        for (size_t r = 0; v_block && r < rows; r++)
            hadamard(want + r * s->value_dim, s->value_dim, v_block);
        for (size_t e = 0; e < rows * s->value_dim; e++)
            want[e] = operand_round(s->io_dtype, want[e]);
        must(t, operand_read(&p->io[i][O]));
        worst = greater(worst, ref_row_nmse(p->io[i][O].values, want, rows, s->value_dim, NULL));
        if (!s->scores_kind)
            continue;
        must(t, operand_read(&p->io[i][S]));
        memcpy(got + i * n_score, p->io[i][S].values, n_score * sizeof *got);
    }
    size_t row;
    if (s->scores_kind)
        worst = greater(worst, compare_rows(got, scores, s->n_layer * rows, s->capacity, &row));
    free(want);
    free(scores);
    free(got);
    free(q);
    free(length);
    return worst;
}

bool twin_soil(const struct twin *t, struct twin_plan *p, const void *before, char why[WHY])
{
    struct operand *outputs[COMPARE_MOST];
    size_t n = 0;
    for (uint32_t i = 0; i < p->n_layer; i++)
        for (int j = O; j < TWIN_IO; j++)
            if (p->io[i][j].view)
                outputs[n++] = &p->io[i][j];
    return cache_soil_compare(t->device, t->cache, before, p->plan, outputs, n, why);
}

void twin_truncate(struct twin *t, uint32_t sequence, uint32_t length)
{
    must(t, vka_cache_truncate(t->cache, sequence, length));
    t->length[sequence] = length;
    t->refused[sequence] = false;
}

void twin_fork(struct twin *t, uint32_t from, uint32_t to)
{
    const struct twin_sizes *s = &t->sizes;
    must(t, vka_cache_fork(t->cache, from, to));
    t->length[to] = t->length[from];
    t->refused[to] = false;
    size_t k = (size_t)s->n_kv_head * s->capacity * s->head_dim;
    size_t v = (size_t)s->n_kv_head * s->capacity * s->value_dim;
    for (uint32_t i = 0; i < s->n_layer; i++) {
        memcpy(t->k[i] + to * k, t->k[i] + from * k, k * sizeof **t->k);
        memcpy(t->v[i] + to * v, t->v[i] + from * v, v * sizeof **t->v);
    }
}
