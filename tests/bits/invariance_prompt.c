#include "patience.h"
#include "problems/cache_soil.h"
#include "problems/types.h"
#include "invariance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_TOKENS 160u

/* A prompt through a cache. */
struct prompt {
    uint32_t batch, n_kv_head, n_head, head_dim, value_dim;
    uint32_t n, capacity, page_size; /* tokens, positions of a sequence, those of a page */
    enum vka_dtype dtype;            /* of the cache */
    struct vka_rope rope;
    enum vka_path path;
    bool pinned;      /* steps of few rows take the kernel of the whole, by whole_n_q */
    uint64_t budget;  /* nanoseconds of a submit of a step; 0: the library's */
    float *q, *k, *v; /* [batch][head][n][dim] */
};

static void draw(struct prompt *p, struct rng *rng, enum vka_path path)
{
    static const uint32_t dims[] = {4, 6, 8, 16, 32, 40, 64};
    uint32_t most = path == VKA_PATH_FUSED ? 2 : 6; /* CPU drivers compile others for minutes */
    *p = (struct prompt){
        .batch = rng_range(rng, 1, 3),
        .n_kv_head = rng_range(rng, 1, 3),
        .head_dim = dims[rng_range(rng, 0, most)],
        .value_dim = dims[rng_range(rng, 0, most)],
        .n = rng_range(rng, 2, MOST_TOKENS),
        .dtype = type_draw_float(rng),
        .path = path,
    };
    p->n_head = p->n_kv_head * rng_range(rng, 1, 3);
    p->capacity = p->n + rng_range(rng, 0, 40);
    p->page_size = rng_chance(rng, 50) ? 16 * rng_range(rng, 1, 3) : 0;
    if (rng_chance(rng, 50))
        p->rope.dim = 2 * rng_range(rng, 1, p->head_dim / 2);
    p->budget = invariance_budget(rng);
}

static float *noise(struct rng *rng, size_t n)
{
    float *x = malloc(n * sizeof *x);
    for (size_t i = 0; x && i < n; i++)
        x[i] = (float)rng_uniform(rng, -1.5, 1.5);
    return x;
}

/* One run of `step` tokens: its tensors and plan. */
struct step {
    struct vka_tensor *q, *k, *v, *o;
    struct vka_plan *plan;
};

static void close_step(struct step *c)
{
    vka_plan_destroy(&c->plan);
    vka_tensor_destroy(&c->q);
    vka_tensor_destroy(&c->k);
    vka_tensor_destroy(&c->v);
    vka_tensor_destroy(&c->o);
}

static enum vka_status open_step(struct vka_device *device, const struct prompt *p,
                                 struct vka_cache *cache, uint32_t step, struct step *c)
{
    *c = (struct step){0};
    const struct {
        struct vka_tensor **tensor;
        uint32_t shape[4];
    } rows[] = {
        {&c->q, {p->batch, p->n_head, step, p->head_dim}},
        {&c->k, {p->batch, p->n_kv_head, step, p->head_dim}},
        {&c->v, {p->batch, p->n_kv_head, step, p->value_dim}},
        {&c->o, {p->batch, p->n_head, step, p->value_dim}},
    };
    enum vka_status status = VKA_OK;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && status == VKA_OK; i++)
        status = vka_tensor_create(device, VKA_F32, 4, rows[i].shape, rows[i].tensor);
    if (status == VKA_OK)
        status = vka_plan_create(device,
                                 VKA_INFO(vka_plan_info, .path = p->path,
                                          .submit_budget = step < p->n ? p->budget : 0,
                                          .whole_n_head = p->pinned ? p->n_head : 0,
                                          .whole_n_kv_head = p->pinned ? p->n_kv_head : 0,
                                          .whole_n_q = p->pinned ? p->n : 0),
                                 &c->plan);
    if (status == VKA_OK)
        status = vka_plan_add_attention(
            c->plan, VKA_INFO(vka_attention_op, .q = c->q, .k = c->k, .v = c->v, .output = c->o,
                              .cache = cache, .options.causal = true, .options.rope = p->rope));
    return status == VKA_OK ? vka_plan_finish(c->plan) : status;
}

/* Copies tokens t .. t + step - 1 between all[outer][n][dim] and rows_of_step[outer][step][dim]. */
static void cut(float *all, float *rows_of_step, size_t outer, uint32_t n, uint32_t t,
                uint32_t step, size_t dim, bool back)
{
    for (size_t i = 0; i < outer; i++) {
        float *a = all + (i * n + t) * dim, *b = rows_of_step + i * step * dim;
        memcpy(back ? a : b, back ? b : a, step * dim * sizeof *a);
    }
}

static enum vka_status run_step(const struct prompt *p, struct step *c, uint32_t t, uint32_t step,
                                float *rows_of_step, float *context)
{
    const struct {
        struct vka_tensor *tensor;
        float *all;
        size_t heads, dim;
    } rows[] = {
        {c->q, p->q, p->n_head, p->head_dim},
        {c->k, p->k, p->n_kv_head, p->head_dim},
        {c->v, p->v, p->n_kv_head, p->value_dim},
    };
    enum vka_status status = VKA_OK;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && status == VKA_OK; i++) {
        cut(rows[i].all, rows_of_step, p->batch * rows[i].heads, p->n, t, step, rows[i].dim, false);
        status = vka_tensor_write(rows[i].tensor, rows_of_step, vka_tensor_size(rows[i].tensor));
    }
    if (status == VKA_OK)
        status = vka_plan_run(c->plan, PATIENCE);
    if (status == VKA_OK)
        status = vka_tensor_read(c->o, rows_of_step, vka_tensor_size(c->o));
    if (status == VKA_OK)
        cut(context, rows_of_step, (size_t)p->batch * p->n_head, p->n, t, step, p->value_dim, true);
    return status;
}

/* The whole prompt in steps of `step` tokens, the last what is left. */
static enum vka_status run(struct vka_device *device, const struct prompt *p, uint32_t step,
                           float *rows_of_step, float *context)
{
    struct vka_cache *cache = NULL;
    struct step c = {0};
    enum vka_status status = vka_cache_create(
        device,
        VKA_INFO(vka_cache_info, .batch = p->batch, .n_kv_head = p->n_kv_head,
                 .head_dim = p->head_dim, .value_dim = p->value_dim, .capacity = p->capacity,
                 .key_dtype = p->dtype, .value_dtype = p->dtype, .page_size = p->page_size),
        &cache);
    if (status == VKA_OK)
        cache_soil_new(cache);
    uint32_t open = 0; /* tokens of c */
    for (uint32_t t = 0; t < p->n && status == VKA_OK; t += open) {
        uint32_t now = p->n - t < step ? p->n - t : step;
        if (now != open) {
            close_step(&c);
            status = open_step(device, p, cache, now, &c);
        }
        open = now;
        if (status == VKA_OK)
            status = run_step(p, &c, t, now, rows_of_step, context);
    }
    close_step(&c);
    vka_cache_destroy(&cache);
    return status;
}

static bool check(struct invariance *t, const struct prompt *p, uint32_t step)
{
    size_t widest = p->head_dim > p->value_dim ? p->head_dim : p->value_dim;
    size_t n = (size_t)p->batch * p->n_head * p->n;
    float *whole = calloc(n * p->value_dim, sizeof *whole),
          *rows_of_step = malloc(n * widest * sizeof *rows_of_step);
    float *stepped = calloc(n * p->value_dim, sizeof *stepped);
    enum vka_status status = VKA_OUT_OF_HOST_MEMORY;
    t->why[0] = '\0';
    if (whole && rows_of_step && stepped && p->q && p->k && p->v)
        status = run(t->device, p, p->n, rows_of_step, whole);
    t->n_run++;
    if (status == VKA_OK)
        status = run(t->device, p, step, rows_of_step, stepped);
    size_t e = 0;
    while (status == VKA_OK && e < n * p->value_dim &&
           memcmp(&whole[e], &stepped[e], sizeof *whole) == 0)
        e++;
    bool ok = status == VKA_OK && e == n * p->value_dim;
    if (!ok)
        snprintf(
            t->why, WHY,
            "steps of %u of %u tokens, budget %.6g ns, batch %u heads %u/%u dims %u,%u cache %s "
            "of %u in pages of %u: %s, [%zu]: %.9g, not %.9g",
            step, p->n, (double)p->budget, p->batch, p->n_head, p->n_kv_head, p->head_dim,
            p->value_dim, vka_dtype_name(p->dtype), p->capacity, p->page_size,
            status == VKA_OK ? "other bits" : vka_device_error(t->device), e,
            ok || status != VKA_OK ? 0.0 : (double)stepped[e],
            ok || status != VKA_OK ? 0.0 : (double)whole[e]);
    free(whole);
    free(rows_of_step);
    free(stepped);
    return ok;
}

bool invariant_prompt(struct invariance *t, uint64_t seed, enum vka_path path)
{
    struct rng rng = {seed};
    struct prompt p;
    draw(&p, &rng, path);
    p.q = noise(&rng, (size_t)p.batch * p.n_head * p.n * p.head_dim);
    p.k = noise(&rng, (size_t)p.batch * p.n_kv_head * p.n * p.head_dim);
    p.v = noise(&rng, (size_t)p.batch * p.n_kv_head * p.n * p.value_dim);
    /* GPUs have a kernel for few rows, whose sums have another order; CPU drivers keep the bits
     * unasked. */
    p.pinned = vka_device_properties(t->device)->type != VKA_DEVICE_CPU || seed % 2;
    bool ok = check(t, &p, rng_chance(&rng, 10) ? 1 : rng_range(&rng, 1, p.n - 1));
    free(p.q);
    free(p.k);
    free(p.v);
    return ok;
}
