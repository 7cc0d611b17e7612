/* Layers with quantised weights and quantised caches, drawn at random. The whole prompt in a dense
 * cache is compared with a layer of the decoded weights; pages, steps, sequences that wait, one
 * sequence alone and a fork give its bits. What a cache does not hold was NaN before. */
#include "problem_data.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "patience.h"
#include "core/dtype.h"
#include "cache_soil.h"
#include "operand.h"
#include "quantised.h"
#include "types.h"

enum { MOST_BATCH = 3, N_WEIGHT = 4, MOST_HEAD = 4 };

struct sizes {
    uint32_t n_head, n_kv_head, head_dim, value_dim, width; /* width: of inputs and outputs */
};

struct quantised {
    struct vka_device *device;
    struct problem p;            /* n_q tokens of each sequence */
    struct problem_data options; /* their tensors */
    float key_scales[MOST_HEAD], value_scales[MOST_HEAD];
    void *blocks[N_WEIGHT], *plain[N_WEIGHT]; /* plain: decoded, of the inputs' type */
    float *bias;                              /* of queries, or NULL */
    double *x;                                /* [batch][n_q][width], rounded to the inputs' type */
};

/* One way to have all tokens of some sequences in a cache. */
struct way {
    const char *name;
    uint32_t first, n_batch, page_size, step; /* first: the first sequence, of the problem's */
    bool waits;                               /* sequences take turns in keeping their tokens */
    bool fork; /* two sequences, of which the second copies the first after half of its tokens */
};

static void *take(size_t count, size_t size)
{
    void *p = calloc(count ? count : 1, size);
    if (!p)
        abort();
    return p;
}

static void draw_sizes(struct rng *rng, struct problem *p)
{
    static const struct sizes large[] = {{4, 2, 64, 64, 256}, {8, 2, 32, 32, 512}};
    static const struct sizes small[] = {{2, 1, 48, 16, 64}, {4, 2, 40, 24, 96}, {4, 4, 16, 8, 32}};
    uint32_t values;
    vka_dtype_block(p->weight, &values, NULL);
    const struct sizes *s = values > 32 || rng_chance(rng, 40) ? &large[rng_range(rng, 0, 1)]
                                                               : &small[rng_range(rng, 0, 2)];
    p->n_kv_head = s->n_kv_head;
    p->group = s->n_head / s->n_kv_head;
    p->head_dim = s->head_dim;
    p->value_dim = s->value_dim;
    p->width = s->width;
}

static enum vka_dtype draw_cached(struct rng *rng)
{
    return type_draw(rng, type_is_cached);
}

void problem_quantised_draw(struct problem *p, uint64_t seed)
{
    struct rng rng = {seed};
    *p = (struct problem){.seed = seed, .way = WAY_LAYER};
    p->weight = type_draw(&rng, dtype_is_block);
    draw_sizes(&rng, p);
    p->q = p->k = p->v = p->output = rng_chance(&rng, 70) ? VKA_F32 : VKA_F16;
    p->cached_k = draw_cached(&rng);
    p->cached_v = draw_cached(&rng);
    p->batch = rng_range(&rng, 1, MOST_BATCH);
    p->n_q = rng_chance(&rng, 80) ? rng_range(&rng, 2, 9)
             : rng_chance(&rng, 85)
                 ? rng_range(&rng, 17, 45)
                 : rng_range(&rng, 130, 300); /* more keys than a batch of them */
    p->n_new = p->n_q;
    p->capacity = p->n_q + rng_range(&rng, 0, 30);
    p->page_size = rng_chance(&rng, 50) ? 16 : 32;
    p->no_hadamard = p->head_dim % 16 || p->value_dim % 16 || rng_chance(&rng, 30);
    p->interleaved = rng_chance(&rng, 20);
    p->path = rng_chance(&rng, 70) ? VKA_PATH_FUSED : VKA_PATH_AUTO;
    problem_draw_options(p, &rng);
}

/* A weight [out][in] whose values are about 1 / sqrt(in). */
static void make_weight(struct rng *rng, struct quantised *q, int which, uint32_t out, uint32_t in)
{
    uint32_t values, bytes;
    vka_dtype_block(q->p.weight, &values, &bytes);
    const size_t n_block = (size_t)out * in / values, size = vka_dtype_size(q->p.q);
    float *x = take((size_t)out * in, sizeof *x), most = 0;
    q->blocks[which] = take(n_block, bytes);
    q->plain[which] = take((size_t)out * in, size);
    for (size_t b = 0; b < n_block; b++)
        quantised_draw(rng, q->p.weight, values > 128 ? 0.001 : 0.1,
                       (uint8_t *)q->blocks[which] + b * bytes);
    if (vka_dtype_decode(q->p.weight, q->blocks[which], n_block, x) != VKA_OK)
        abort();
    for (size_t i = 0; i < (size_t)out * in; i++) {
        most = fmaxf(most, fabsf(x[i]));
        operand_encode(q->p.q, (double)x[i], (uint8_t *)q->plain[which] + i * size);
    }
    if (!(most > 0 && most < 1000))
        abort();
    free(x);
}

static void make(struct rng *rng, struct quantised *q)
{
    static const float scales[] = {1, 0.01f, 0.0625f, 0.003f};
    const struct problem *s = &q->p;
    for (int h = 0; h < MOST_HEAD; h++) {
        q->key_scales[h] = scales[rng_range(rng, 0, 3)];
        q->value_scales[h] = scales[rng_range(rng, 0, 3)];
    }
    make_weight(rng, q, 0, problem_n_head(s) * s->head_dim, q->p.width);
    make_weight(rng, q, 1, s->n_kv_head * s->head_dim, q->p.width);
    make_weight(rng, q, 2, s->n_kv_head * s->value_dim, q->p.width);
    make_weight(rng, q, 3, q->p.width, problem_n_head(s) * s->value_dim);
    if (rng_chance(rng, 50)) {
        q->bias = take((size_t)problem_n_head(s) * s->head_dim, sizeof *q->bias);
        for (uint32_t i = 0; i < problem_n_head(s) * s->head_dim; i++)
            q->bias[i] = (float)rng_range(rng, 0, 64) / 64; /* exact in float16 */
    }
    const size_t count = (size_t)q->p.batch * q->p.n_q * q->p.width;
    q->x = take(count, sizeof *q->x);
    for (size_t i = 0; i < count; i++)
        q->x[i] = operand_round(q->p.q, rng_uniform(rng, -1, 1));
}

static void destroy(struct quantised *q)
{
    for (int i = 0; i < N_WEIGHT; i++) {
        free(q->blocks[i]);
        free(q->plain[i]);
    }
    free(q->bias);
    free(q->x);
}

static enum vka_status create_layer(const struct quantised *q, bool quantised,
                                    struct vka_layer **layer)
{
    const struct problem *s = &q->p;
    void *const *w = quantised ? q->blocks : q->plain;
    const enum vka_dtype bias_type = quantised ? VKA_F32 : q->p.q;
    const uint32_t n_bias = problem_n_head(s) * s->head_dim;
    uint8_t *bias = q->bias ? take(n_bias, 4) : NULL;
    for (uint32_t i = 0; bias && i < n_bias; i++)
        operand_encode(bias_type, (double)q->bias[i], bias + i * vka_dtype_size(bias_type));
    enum vka_status status = vka_layer_create(
        q->device,
        VKA_INFO(vka_layer_info, .n_head = problem_n_head(s), .n_kv_head = s->n_kv_head,
                 .head_dim = s->head_dim, .value_dim = s->value_dim, .query_dim = q->p.width,
                 .output_dim = q->p.width, .interleaved = q->p.interleaved,
                 .dtype = quantised ? q->p.weight : q->p.q, .query = {w[0], bias},
                 .key = {w[1], NULL}, .value = {w[2], NULL}, .output = {w[3], NULL}),
        layer);
    free(bias);
    return status;
}

static enum vka_status create_cache(const struct quantised *q, const struct way *way,
                                    struct vka_cache **cache)
{
    const struct problem *s = &q->p;
    return vka_cache_create(
        q->device,
        VKA_INFO(vka_cache_info, .batch = way->n_batch, .n_kv_head = s->n_kv_head,
                 .head_dim = s->head_dim, .value_dim = s->value_dim, .capacity = q->p.capacity,
                 .key_dtype = q->p.cached_k, .value_dtype = q->p.cached_v,
                 .no_hadamard = q->p.no_hadamard, .page_size = way->page_size,
                 .key_scales = dtype_is_head_scaled(q->p.cached_k) ? q->key_scales : NULL,
                 .value_scales = dtype_is_head_scaled(q->p.cached_v) ? q->value_scales : NULL),
        cache);
}

/* A plan of one step of each sequence. */
struct step {
    struct vka_plan *plan;
    struct vka_tensor *in, *out, *n_append, *mask;
    uint32_t n;
    uint8_t *bytes; /* of in or out */
};

static void step_close(struct step *t)
{
    vka_plan_destroy(&t->plan);
    vka_tensor_destroy(&t->in);
    vka_tensor_destroy(&t->out);
    vka_tensor_destroy(&t->n_append);
    vka_tensor_destroy(&t->mask);
    free(t->bytes);
    *t = (struct step){0};
}

static enum vka_status step_open(const struct quantised *q, const struct way *way,
                                 struct vka_layer *layer, struct vka_cache *cache, uint32_t n,
                                 struct step *t)
{
    const uint32_t shape[] = {way->n_batch, n, q->p.width};
    struct vka_tensor *mask = q->options.operands[OPERAND_MASK].view;
    struct vka_attention_op op;
    enum vka_status status = VKA_OK;
    problem_op(&q->options, &op);
    if (mask && q->p.mask_rank == 4 && q->p.mask_shape[0] > 1) { /* those of its sequences */
        status = vka_tensor_slice(mask, 0, way->first, way->fork ? 1 : way->n_batch, &t->mask);
        op.options.mask = t->mask;
    }
    t->n = n;
    if (status == VKA_OK)
        status = vka_tensor_create(q->device, q->p.q, 3, shape, &t->in);
    if (status == VKA_OK)
        status = vka_tensor_create(q->device, q->p.q, 3, shape, &t->out);
    if (status == VKA_OK && (way->waits || way->fork))
        status = vka_tensor_create(q->device, VKA_I32, 1, &way->n_batch, &t->n_append);
    if (status == VKA_OK)
        status = vka_plan_create(
            q->device, VKA_INFO(vka_plan_info, .path = q->p.path, .whole_n_q = q->p.n_q), &t->plan);
    if (status == VKA_OK)
        status = vka_plan_add_layer(
            t->plan, VKA_INFO(vka_layer_op, .layer = layer, .query = t->in, .output = t->out,
                              .cache = cache, .n_append = t->n_append, .attention = op.options));
    if (status == VKA_OK)
        status = vka_plan_finish(t->plan);
    if (status == VKA_OK)
        t->bytes = take(vka_tensor_size(t->in), 1);
    return status;
}

/* Writes NaN to all cells that runs can reach, and empties the cache. */
static enum vka_status poison(const struct quantised *q, const struct way *way, struct step *t,
                              struct vka_cache *cache)
{
    const size_t size = vka_dtype_size(q->p.q);
    int32_t all[MOST_BATCH] = {0};
    for (size_t i = 0; i < vka_tensor_size(t->in) / size; i++)
        operand_encode(q->p.q, (double)NAN, t->bytes + i * size);
    for (uint32_t b = 0; b < way->n_batch; b++)
        all[b] = (int32_t)t->n;
    enum vka_status status = vka_tensor_write(t->in, t->bytes, vka_tensor_size(t->in));
    if (status == VKA_OK && t->n_append)
        status = vka_tensor_write(t->n_append, all, 4 * (size_t)way->n_batch);
    while (status == VKA_OK)
        status = vka_plan_run(t->plan, PATIENCE);
    status = status == VKA_INVALID ? VKA_OK : status; /* there is no more room */
    for (uint32_t b = 0; status == VKA_OK && b < way->n_batch; b++)
        status = vka_cache_truncate(cache, b, 0);
    return status;
}

/* How many tokens each sequence keeps of the next step. */
static void plan_keeps(const struct quantised *q, const struct way *way, const uint32_t *at,
                       uint32_t nth, bool forked, int32_t *keeps)
{
    for (uint32_t b = 0; b < way->n_batch; b++) {
        const uint32_t left = q->p.n_q - at[b];
        keeps[b] = (int32_t)(left < way->step ? left : way->step);
        if ((way->waits && (nth + b) % 3 == 0) || (way->fork && b == 1 && !forked))
            keeps[b] = 0;
    }
}

/* Runs a step: rows that are kept are read from x and written to out [n_batch][n_token][width];
 * others are NaN. */
static enum vka_status run_step(const struct quantised *q, const struct way *way, struct step *t,
                                struct vka_cache *cache, const uint32_t *at, const int32_t *keeps,
                                uint8_t *out)
{
    const size_t size = vka_dtype_size(q->p.q), row = q->p.width * size;
    for (uint32_t b = 0; b < way->n_batch; b++)
        for (uint32_t i = 0; i < t->n; i++)
            for (uint32_t j = 0; j < q->p.width; j++) {
                const size_t from = way->first + (way->fork ? 0 : b);
                const double x = (int32_t)i < keeps[b]
                                     ? q->x[(from * q->p.n_q + at[b] + i) * q->p.width + j]
                                     : (double)NAN;
                operand_encode(q->p.q, x, t->bytes + (b * t->n + i) * row + j * size);
            }
    enum vka_status status = vka_tensor_write(t->in, t->bytes, vka_tensor_size(t->in));
    if (status == VKA_OK && t->n_append)
        status = vka_tensor_write(t->n_append, keeps, 4 * (size_t)way->n_batch);
    if (status == VKA_OK) /* behind the lengths is other noise in each way and step */
        status = cache_soil(cache, (enum soil)((at[0] + way->first + way->step) % SOIL_COUNT));
    if (status == VKA_OK)
        status = vka_plan_run(t->plan, PATIENCE);
    if (status == VKA_OK)
        status = vka_tensor_read(t->out, t->bytes, vka_tensor_size(t->out));
    for (uint32_t b = 0; status == VKA_OK && b < way->n_batch; b++)
        memcpy(out + (b * q->p.n_q + at[b]) * row, t->bytes + b * t->n * row,
               (size_t)keeps[b] * row);
    return status;
}

static bool is_done(const struct quantised *q, const struct way *way, const uint32_t *at)
{
    for (uint32_t b = 0; b < way->n_batch; b++)
        if (at[b] < q->p.n_q)
            return false;
    return true;
}

/* Copies the first sequence to the second, once half of it is there. */
static enum vka_status fork_half(const struct quantised *q, struct vka_cache *cache, uint32_t *at,
                                 bool *forked, uint8_t *out)
{
    const size_t row = q->p.width * vka_dtype_size(q->p.q);
    if (*forked || 2 * at[0] < q->p.n_q)
        return VKA_OK;
    *forked = true;
    at[1] = at[0];
    memcpy(out + q->p.n_q * row, out, at[0] * row);
    return vka_cache_fork(cache, 0, 1);
}

/* The outputs [n_batch][n_token][width]; NULL where a call fails. */
static uint8_t *run(const struct quantised *q, const struct way *way, struct vka_layer *layer)
{
    struct vka_cache *cache = NULL;
    struct step t = {0};
    uint32_t at[MOST_BATCH] = {0};
    bool forked = false;
    uint8_t *out = take((size_t)way->n_batch * q->p.n_q * q->p.width, vka_dtype_size(q->p.q));
    enum vka_status status = create_cache(q, way, &cache);
    for (uint32_t nth = 0; status == VKA_OK && !is_done(q, way, at); nth++) {
        int32_t keeps[MOST_BATCH];
        plan_keeps(q, way, at, nth, forked, keeps);
        /* Without n_append all sequences keep the whole step, of which the last is shorter. */
        const uint32_t n = way->waits || way->fork ? way->step : (uint32_t)keeps[0];
        if (t.n != n) {
            step_close(&t);
            status = step_open(q, way, layer, cache, n, &t);
            if (status == VKA_OK && nth == 0)
                status = poison(q, way, &t, cache);
        }
        if (status == VKA_OK)
            status = run_step(q, way, &t, cache, at, keeps, out);
        for (uint32_t b = 0; b < way->n_batch; b++)
            at[b] += (uint32_t)keeps[b];
        if (status == VKA_OK && way->fork)
            status = fork_half(q, cache, at, &forked, out);
    }
    step_close(&t);
    vka_cache_destroy(&cache);
    if (status == VKA_OK)
        return out;
    free(out);
    return NULL;
}

static double difference(const struct quantised *q, const uint8_t *got, const uint8_t *want)
{
    const size_t rows = (size_t)q->p.batch * q->p.n_q, count = rows * q->p.width;
    const size_t size = vka_dtype_size(q->p.q);
    double *a = take(count, sizeof *a), *b = take(count, sizeof *b);
    for (size_t i = 0; i < count; i++) {
        a[i] = operand_decode(q->p.q, got + i * size);
        b[i] = operand_decode(q->p.q, want + i * size);
    }
    const double nmse = ref_row_nmse(a, b, rows, q->p.width, NULL);
    free(a);
    free(b);
    return nmse;
}

/* Whether a way gives the bits of the whole, [batch][n_token][width]. */
static bool same(const struct quantised *q, const struct way *way, struct vka_layer *layer,
                 const uint8_t *whole, char *why)
{
    const size_t row = q->p.n_q * q->p.width * vka_dtype_size(q->p.q);
    uint8_t *got = run(q, way, layer);
    bool equal = got != NULL;
    for (uint32_t b = 0; got && b < way->n_batch; b++)
        equal &= !memcmp(got + b * row, whole + (way->first + (way->fork ? 0 : b)) * row, row);
    if (!equal)
        snprintf(why, WHY, "%s: %s", way->name, got ? "other bits" : vka_device_error(q->device));
    free(got);
    return equal;
}

/* A cached value that lies on a tie may fall to the other side of it, of float16 inputs more often. Of
 * a type of 3 bits that moves it by an eighth, and one of 96 features of the first row that is three
 * times as large as their mean is a tenth of the row's square: 1e-1 / 8^2. */
static bool has_coarse(enum vka_dtype cached)
{
    return dtype_is_scaled(cached) && cached != VKA_Q8_0;
}

static bool check(const struct quantised *q, struct rng *rng, struct worst *worst, char *why)
{
    const double limit = q->p.q == VKA_F16                                        ? 1e-2
                         : has_coarse(q->p.cached_k) || has_coarse(q->p.cached_v) ? 2e-3
                                                                                  : 1e-4;
    const uint32_t some = rng_range(rng, 1, q->p.n_q), one = rng_range(rng, 0, q->p.batch - 1);
    const struct way whole = {.name = "whole", .n_batch = q->p.batch, .step = q->p.n_q};
    const struct way ways[] = {
        {"pages", 0, q->p.batch, q->p.page_size, q->p.n_q, false, false},
        {"steps", 0, q->p.batch, 0, some, false, false},
        {"pages in steps", 0, q->p.batch, q->p.page_size, some, false, false},
        {"sequences that wait", 0, q->p.batch, q->p.page_size, some, true, false},
        {"one sequence", one, 1, 0, q->p.n_q, false, false},
        {"a fork", one, 2, rng_chance(rng, 50) ? q->p.page_size : 0, (q->p.n_q + 1) / 2, false,
         true},
    };
    struct vka_layer *layer = NULL, *plain = NULL;
    bool ok = create_layer(q, true, &layer) == VKA_OK && create_layer(q, false, &plain) == VKA_OK;
    uint8_t *got = ok ? run(q, &whole, layer) : NULL, *want = got ? run(q, &whole, plain) : NULL;
    ok = want != NULL;
    if (!ok)
        snprintf(why, WHY, "whole: %s", vka_device_error(q->device));
    const double nmse = ok ? difference(q, got, want) : 0;
    if (ok && !(nmse <= limit)) {
        snprintf(why, WHY, "row NMSE %.3g to decoded weights", nmse);
        ok = false;
    }
    if (worst)
        worst->nmse[q->p.q] = fmax(worst->nmse[q->p.q], nmse);
    for (size_t i = 0; ok && i < sizeof ways / sizeof *ways; i++)
        ok = same(q, &ways[i], layer, got, why);
    free(got);
    free(want);
    vka_layer_destroy(&layer);
    vka_layer_destroy(&plain);
    return ok;
}

/* Whether rows of weights are whole blocks: shrinking tries other sizes than are drawn. */
static bool has_blocks(const struct problem *p)
{
    uint32_t values;
    return vka_dtype_block(p->weight, &values, NULL) == VKA_OK && p->width % values == 0 &&
           problem_n_head(p) * p->value_dim % values == 0 && p->n_kv_head <= MOST_HEAD &&
           p->batch <= MOST_BATCH;
}

bool problem_quantised_check(struct vka_device *device, const struct problem *p,
                             struct worst *worst, struct problem_result *result)
{
    struct rng rng = {p->seed ^ 0x9a17};
    struct quantised q = {.device = device, .p = *p};
    if (!has_blocks(p)) {
        snprintf(result->why, WHY, "weights are no whole blocks");
        return false;
    }
    make(&rng, &q);
    bool ok = problem_data_create(device, &q.p, &q.options) == VKA_OK;
    if (!ok)
        snprintf(result->why, WHY, "options: %s", vka_device_error(device));
    ok = ok && check(&q, &rng, worst, result->why);
    problem_data_destroy(&q.options);
    destroy(&q);
    return ok;
}
