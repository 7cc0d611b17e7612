/* Appends to a cache with rotation on the way: the bits of rotation and appending in passes of their
 * own, in caches and around what they hold. */
#include "patience.h"
#include "problems/cache_soil.h"
#include "check.h"

#include <op/cache/cache.h>
#include <op/cache/layers.h>
#include <op/common/copy.h>
#include <op/rotary/heads.h>
#include <op/cache/room.h>
#include <op/cache/append.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ROWS 16u
#define CAPACITY 24
#define RUNS 2 /* the second finds rows, and in some cases no room */

static const uint32_t dims[][2] = {
    /* head_dim, how many of them rotate */
    {2, 2}, {7, 6}, {7, 2}, {64, 64}, {80, 32}, {130, 130},
};

struct append_case {
    uint32_t batch, n_kv_head, group, n_new, head_dim, value_dim, page_size, n_page;
    bool packed, counted; /* rows are packed by q_start; n_append is given */
    enum vka_dtype key_type, value_type;
    struct vka_rope rope;
    struct operand q, k, v, n_append, q_start; /* view NULL: none */
    struct vka_cache *cache[2];                /* [0] by one pass, [1] by several */
    struct operand turned[2];                  /* rotated queries, float32 */
    struct vka_plan *plan[2];
};

static void print_case(const struct append_case *t, char text[CASE_TEXT])
{
    snprintf(
        text, CASE_TEXT,
        "batch %u%s, %u*%u heads, %u new%s, %u/%u, %u rotate%s, %s %s %s to %s %s, pages of %u",
        t->batch, t->packed ? " packed" : "", t->n_kv_head, t->group, t->n_new,
        t->counted ? " counted" : "", t->head_dim, t->value_dim, t->rope.dim,
        t->rope.interleaved ? " interleaved" : "", vka_dtype_name(t->q.dtype),
        vka_dtype_name(t->k.dtype), vka_dtype_name(t->v.dtype), vka_dtype_name(t->key_type),
        vka_dtype_name(t->value_type), t->page_size);
}

static enum vka_dtype draw_type(struct check *c)
{
    return type_draw(&c->rng, dtype_is_float);
}

static enum vka_status create_rows(struct check *c, uint32_t heads, uint32_t dim, const void *given,
                                   struct operand *o)
{
    const struct append_case *t = given;
    const uint32_t size[4] = {t->packed ? 1 : t->batch, heads, t->n_new, dim};
    const struct layout layout = layout_random(&c->rng, 4);
    enum vka_status status = operand_create(c->device, draw_type(c), 4, size, &layout, o);
    for (size_t i = 0; i < o->count && status == VKA_OK; i++)
        o->values[i] = rng_uniform(&c->rng, -2, 2);
    return status == VKA_OK ? operand_write(o) : status;
}

/* Integers, of which element i is between low and high; in order where they are offsets. */
static enum vka_status create_integers(struct check *c, uint32_t n, uint32_t high, bool sorted,
                                       struct operand *o)
{
    const struct layout plain = {.step = 1, .offset = 3};
    enum vka_status status = operand_create(c->device, VKA_I32, 1, &n, &plain, o);
    uint32_t low = 0;
    for (uint32_t i = 0; i < n && status == VKA_OK; i++) {
        uint32_t x = rng_range(&c->rng, low, high);
        o->values[i] = x;
        low = sorted ? x : 0;
    }
    return status == VKA_OK ? operand_write(o) : status;
}

static void draw(struct check *c, struct append_case *t)
{
    const uint32_t *dim = dims[rng_range(&c->rng, 0, COUNTOF(dims) - 1)];
    *t = (struct append_case){
        .batch = rng_range(&c->rng, 1, 3),
        .n_kv_head = rng_range(&c->rng, 1, 3),
        .group = rng_range(&c->rng, 1, 3),
        .n_new = 1,
        .head_dim = dim[0],
        .value_dim = rng_chance(&c->rng, 50) ? dim[0] : rng_range(&c->rng, 1, 70),
        .packed = rng_chance(&c->rng, 40),
        .counted = rng_chance(&c->rng, 40),
        .key_type = draw_type(c),
        .value_type = draw_type(c),
        .rope = {.dim = dim[1], .interleaved = rng_chance(&c->rng, 50)},
    };
    if (rng_chance(&c->rng, 70)) /* no more than one pass takes on any driver */
        t->n_new = rng_range(&c->rng, 1, MOST_ROWS / t->batch);
    t->page_size = rng_chance(&c->rng, 50) ? 16 : 0;
    t->n_page = t->page_size && rng_chance(&c->rng, 30) ? 4 : 0; /* the last sequences lack some */
    if (rng_chance(&c->rng, 30))
        t->rope.attention_factor = (float)rng_uniform(&c->rng, 0.1, 2);
}

/* Fills the rows of a cache with bytes, some of them NaN. */
static enum vka_status fill_with_noise(const struct vka_cache *cache, uint64_t seed)
{
    struct rng rng = {seed};
    const struct cached_rows *rows[2] = {&cache->layers->k, &cache->layers->v};
    for (int r = 0; r < 2; r++) {
        struct vka_tensor bytes = cache_bytes(rows[r]);
        uint8_t *noise = malloc(vka_tensor_size(&bytes));
        for (size_t j = 0; noise && j < vka_tensor_size(&bytes); j++)
            noise[j] = (uint8_t)rng_next(&rng);
        enum vka_status status = noise ? vka_tensor_write(&bytes, noise, vka_tensor_size(&bytes))
                                       : VKA_OUT_OF_HOST_MEMORY;
        free(noise);
        ENSURE(status);
    }
    return VKA_OK;
}

/* Two caches that hold the same: any bytes, or what cache_soil leaves. */
static enum vka_status create_caches(struct check *c, struct append_case *t)
{
    const struct vka_cache_info info = {.struct_size = sizeof info,
                                        .batch = t->batch,
                                        .n_kv_head = t->n_kv_head,
                                        .head_dim = t->head_dim,
                                        .value_dim = t->value_dim,
                                        .capacity = CAPACITY,
                                        .key_dtype = t->key_type,
                                        .value_dtype = t->value_type,
                                        .page_size = t->page_size,
                                        .n_page = t->n_page};
    const uint64_t seed = rng_next(&c->rng);
    for (int i = 0; i < 2; i++) {
        ENSURE(vka_cache_create(c->device, &info, &t->cache[i]));
        const enum soil soil = (enum soil)(seed % (SOIL_COUNT + 1));
        ENSURE(soil == SOIL_COUNT ? fill_with_noise(t->cache[i], seed)
                                  : cache_soil(t->cache[i], soil));
    }
    return VKA_OK;
}

static enum vka_status create(struct check *c, struct append_case *t)
{
    const uint32_t n_head = t->n_kv_head * t->group;
    const uint32_t q_size[4] = {t->packed ? 1 : t->batch, n_head, t->n_new, t->head_dim};
    const struct layout dense = layout_dense();
    ENSURE(create_rows(c, n_head, t->head_dim, t, &t->q));
    ENSURE(create_rows(c, t->n_kv_head, t->head_dim, t, &t->k));
    ENSURE(create_rows(c, t->n_kv_head, t->value_dim, t, &t->v));
    if (t->counted)
        ENSURE(create_integers(c, rng_chance(&c->rng, 50) ? t->batch : 1, t->n_new + 1, false,
                               &t->n_append));
    if (t->packed)
        ENSURE(create_integers(c, t->batch + 1, t->n_new, true, &t->q_start));
    const enum vka_dtype types[] = {VKA_F32, VKA_F16, VKA_BF16},
                         type = types[rng_range(&c->rng, 0, 2)];
    for (int i = 0; i < 2; i++) {
        ENSURE(operand_create(c->device, type, 4, q_size, &dense, &t->turned[i]));
        memset(t->turned[i].values, 0, t->turned[i].count * sizeof *t->turned[i].values);
        ENSURE(operand_write(&t->turned[i]));
    }
    return create_caches(c, t);
}

/* Adds the passes of a cache: one, or with `apart` one each for queries, keys and their places. */
static enum vka_status add(struct vka_plan *plan, const struct append_case *t, bool apart,
                           struct vka_cache *cache, struct vka_tensor *turned)
{
    const struct cache_use use = {cache, 0, t->n_new, t->n_append.view, t->q_start.view, HELD_KEYS};
    const struct vka_tensor positions = cache_positions(cache);
    struct new_rows rows = {*t->k.view, *t->v.view, *t->q.view, turned->dtype, &t->rope};
    ENSURE(plan_begin_step(plan, &use));
    if (apart) {
        ENSURE(plan_rotary(plan, "rotate q", &t->rope, NULL, 0, &positions, t->q_start.view, 0,
                           turned->dtype, &rows.q));
        ENSURE(plan_copy(plan, "out", &rows.q, turned));
        ENSURE(plan_rotary(plan, "rotate k", &t->rope, NULL, 0, &positions, t->q_start.view, 0,
                           VKA_F32, &rows.k));
        rows.q.storage = NULL;
    } else if (!cache_append_rotates(plan, &use, &rows)) {
        return VKA_INTERNAL;
    }
    ENSURE(plan_cache_append(plan, &use, &rows));
    return apart ? VKA_OK : plan_copy(plan, "out", &rows.q, turned);
}

static enum vka_status run(struct check *c, struct append_case *t, int i, uint64_t budget)
{
    struct plan_mark mark;
    ENSURE(
        vka_plan_create(c->device, VKA_INFO(vka_plan_info, .submit_budget = budget), &t->plan[i]));
    ENSURE(plan_begin(t->plan[i], __func__, &mark));
    ENSURE(plan_end(t->plan[i], &mark, add(t->plan[i], t, i == 1, t->cache[i], t->turned[i].view)));
    ENSURE(vka_plan_finish(t->plan[i]));
    for (int k = 0; k < RUNS; k++) {
        enum vka_status status = vka_plan_run(t->plan[i], PATIENCE);
        if (status != VKA_OK && status != VKA_INVALID) /* INVALID: no room in a sequence */
            return status;
    }
    return operand_read(&t->turned[i]);
}

static bool same_bytes(struct vka_tensor a, struct vka_tensor b)
{
    const size_t size = vka_tensor_size(&a);
    uint8_t *x = malloc(size), *y = malloc(size);
    bool same = x && y && vka_tensor_read(&a, x, size) == VKA_OK &&
                vka_tensor_read(&b, y, size) == VKA_OK && memcmp(x, y, size) == 0;
    free(x);
    free(y);
    return same;
}

/* Rows of no sequence are not written. */
static bool same_queries(const struct append_case *t)
{
    const double *one = t->turned[0].values, *several = t->turned[1].values;
    const uint32_t dim = t->head_dim, rows = (uint32_t)t->turned[0].count / dim;
    for (uint32_t i = 0; i < rows; i++) {
        const uint32_t row = i % t->n_new;
        if (t->packed && (row < t->q_start.values[0] || row >= t->q_start.values[t->batch]))
            continue;
        if (memcmp(one + (size_t)i * dim, several + (size_t)i * dim, dim * sizeof *one) != 0)
            return false;
    }
    return true;
}

static void judge(struct check *c, const struct append_case *t, const char *text)
{
    const struct cached_layer *one = t->cache[0]->layers, *several = t->cache[1]->layers;
    bool used = false;
    for (size_t i = 0; i < t->plan[0]->n_pass; i++)
        used |= t->plan[0]->passes[i].key.kernel == c->kernel;
    if (!used)
        check_fail(c, text, "the plan does not use the kernel");
    else if (!same_queries(t))
        check_fail(c, text, "rotated queries have other bits");
    else if (!same_bytes(cache_bytes(&one->k), cache_bytes(&several->k)))
        check_fail(c, text, "cached keys have other bits");
    else if (!same_bytes(cache_bytes(&one->v), cache_bytes(&several->v)))
        check_fail(c, text, "cached values have other bits");
}

static void run_case(struct check *c)
{
    char text[CASE_TEXT] = "operands";
    struct append_case t;
    draw(c, &t);
    const uint64_t budget = rng_chance(&c->rng, 20) ? 1 : VKA_NO_BUDGET;
    enum vka_status status = create(c, &t);
    print_case(&t, text);
    if (status == VKA_OK)
        status = run(c, &t, 0, budget);
    if (status == VKA_OK)
        status = run(c, &t, 1, VKA_NO_BUDGET);
    if (status == VKA_OK)
        judge(c, &t, text);
    else
        check_fail(c, text, vka_device_error(c->device));
    struct operand *operands[] = {&t.q,       &t.k,         &t.v,        &t.n_append,
                                  &t.q_start, &t.turned[0], &t.turned[1]};
    for (size_t i = 0; i < COUNTOF(operands); i++)
        operand_destroy(operands[i]);
    for (int i = 0; i < 2; i++) {
        vka_plan_destroy(&t.plan[i]);
        vka_cache_destroy(&t.cache[i]);
    }
}

void check_append(struct check *c)
{
    for (int i = 0; i < 200; i++)
        if (check_case(c))
            run_case(c);
}

/* A model with 32 heads by 8 of 128: a step of decoding and one of 512 rows. */
void bench_append(struct check *c)
{
    for (uint32_t n = 1; n <= 512; n += 511) {
        char text[CASE_TEXT];
        const uint32_t size[4] = {1, 32, n, 128}, kv_size[4] = {1, 8, n, 128};
        struct vka_tensor *q = NULL, *kv = NULL, *o = NULL;
        struct vka_cache *cache = NULL;
        struct vka_plan *plan = NULL;
        enum vka_status status = vka_tensor_create(c->device, VKA_F32, 4, size, &q);
        if (status == VKA_OK)
            status = vka_tensor_create(c->device, VKA_F32, 4, size, &o);
        if (status == VKA_OK)
            status = vka_tensor_create(c->device, VKA_F32, 4, kv_size, &kv);
        if (status == VKA_OK)
            status = vka_cache_create(c->device,
                                      VKA_INFO(vka_cache_info, .batch = 1, .n_kv_head = 8,
                                               .head_dim = 128, .capacity = 16 * 1024),
                                      &cache);
        if (status == VKA_OK)
            status = vka_plan_create(c->device, VKA_INFO(vka_plan_info, .timestamps = true), &plan);
        if (status == VKA_OK)
            status = vka_plan_add_attention(
                plan, VKA_INFO(vka_attention_op, .q = q, .k = kv, .v = kv, .output = o,
                               .cache = cache, .options.causal = true, .options.rope.dim = 128));
        snprintf(text, sizeof text, "32 heads by 8, %u rows of 128 f32", n);
        check_time(c, plan, status, 8.0 * 128 * n * (32 + 8 + 8), "GB/s", text);
        vka_plan_destroy(&plan);
        vka_cache_destroy(&cache);
        vka_tensor_destroy(&q);
        vka_tensor_destroy(&kv);
        vka_tensor_destroy(&o);
    }
}
