/* Keys by key chunks. */
#include "patience.h"
#include "invariance.h"

#include <gpu/device.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MULTIPLE 128u /* keys: a key chunk has one or more of them, the last what is left */

/* A problem that may have key chunks, and what its runs need. */
struct key_chunks {
    struct vka_device *device;
    const struct problem *p;
    struct vka_attention_op op;
    struct vka_tensor *state; /* NULL: the problem has no key chunks on this device */
    struct rng rng;
};

static enum vka_status make_plan(const struct key_chunks *b, uint64_t budget,
                                 struct vka_plan **plan)
{
    return vka_plan_create(
        b->device, VKA_INFO(vka_plan_info, .path = b->p->path, .submit_budget = budget), plan);
}

static enum vka_status run(struct vka_plan **plan)
{
    enum vka_status status = vka_plan_finish(*plan);
    if (status == VKA_OK)
        status = vka_plan_run(*plan, PATIENCE);
    vka_plan_destroy(plan);
    return status;
}

static enum vka_status poison(struct vka_tensor *t)
{
    size_t size = vka_tensor_size(t);
    void *data = malloc(size);
    if (!data)
        return VKA_OUT_OF_HOST_MEMORY;
    memset(data, 0xff, size); /* NaN */
    enum vka_status status = vka_tensor_write(t, data, size);
    free(data);
    return status;
}

/* The state between the key chunks, full of NaN. */
static enum vka_status make_state(struct key_chunks *b)
{
    struct vka_attention_op whole = b->op;
    struct vka_plan *plan = NULL;
    uint64_t count = 0;
    whole.n_key = b->p->n_new;
    enum vka_status status = make_plan(b, 0, &plan);
    if (status == VKA_OK)
        status = vka_plan_attention_state(plan, &whole, &count);
    vka_plan_destroy(&plan);
    if (status != VKA_OK || !count)
        return status;
    const uint32_t n = (uint32_t)count;
    status = vka_tensor_create(b->device, VKA_F32, 1, &n, &b->state);
    return status == VKA_OK ? poison(b->state) : status;
}

static enum vka_status add_key_chunk(struct key_chunks *b, struct vka_plan *plan, uint32_t first,
                                     uint32_t n)
{
    struct vka_attention_op key_chunk = b->op;
    key_chunk.state = b->state;
    key_chunk.key_first = first;
    key_chunk.n_key = b->p->n_new;
    key_chunk.k = key_chunk.v = NULL;
    enum vka_status status = vka_tensor_slice(b->op.k, 2, first, n, &key_chunk.k);
    if (status == VKA_OK)
        status = vka_tensor_slice(b->op.v, 2, first, n, &key_chunk.v);
    if (status == VKA_OK)
        status = vka_plan_add_attention(plan, &key_chunk);
    vka_tensor_destroy(&key_chunk.k);
    vka_tensor_destroy(&key_chunk.v);
    return status;
}

/* All key chunks in one plan, or each in its own. */
static enum vka_status run_key_chunks(struct key_chunks *b)
{
    bool one_plan = rng_chance(&b->rng, 50);
    uint64_t budget = invariance_budget(&b->rng);
    struct vka_plan *plan = NULL;
    enum vka_status status = VKA_OK;
    for (uint32_t first = 0, n; first < b->p->n_new && status == VKA_OK; first += n) {
        n = rng_range(&b->rng, 1, 2) * MULTIPLE;
        n = n < b->p->n_new - first ? n : b->p->n_new - first;
        status = plan ? VKA_OK : make_plan(b, budget, &plan);
        if (status == VKA_OK)
            status = add_key_chunk(b, plan, first, n);
        if (status == VKA_OK && (!one_plan || first + n == b->p->n_new))
            status = run(&plan);
    }
    vka_plan_destroy(&plan);
    return status;
}

static enum vka_status run_whole(struct key_chunks *b)
{
    struct vka_plan *plan = NULL;
    enum vka_status status = make_plan(b, 0, &plan);
    if (status == VKA_OK)
        status = vka_plan_add_attention(plan, &b->op);
    if (status == VKA_OK)
        status = run(&plan);
    vka_plan_destroy(&plan);
    return status;
}

/* Whether the key chunks give the bits of all keys at once; true where the problem has none here. */
static bool compare(struct invariance *t, struct key_chunks *b)
{
    size_t size = vka_tensor_size(b->op.output);
    void *want = malloc(size), *got = malloc(size);
    enum vka_status status = want && got ? make_state(b) : VKA_OUT_OF_HOST_MEMORY;
    bool same = true;
    if (status == VKA_OK && b->state) {
        status = run_whole(b);
        if (status == VKA_OK)
            status = vka_tensor_read(b->op.output, want, size);
        if (status == VKA_OK)
            status = poison(b->op.output);
        if (status == VKA_OK)
            status = run_key_chunks(b);
        if (status == VKA_OK)
            status = vka_tensor_read(b->op.output, got, size);
        same = status == VKA_OK && memcmp(got, want, size) == 0;
        t->n_run++;
        t->n_key_chunks++;
    }
    if (status != VKA_OK)
        snprintf(t->why, WHY, "%s: %s", vka_status_name(status), vka_device_error(b->device));
    else if (!same)
        snprintf(t->why, WHY, "other bits key chunk by key chunk");
    vka_tensor_destroy(&b->state);
    free(want);
    free(got);
    return same && status == VKA_OK;
}

/* The first problem from the seed on that may have several key chunks. */
static void draw(struct problem *p, uint64_t seed)
{
    struct rng rng = {seed};
    do
        invariance_draw(p, rng_next(&rng), VKA_PATH_FUSED);
    while (p->n_new <= MULTIPLE || p->n_past || p->has_present || p->scores_kind);
}

bool invariant_keys(struct invariance *t, uint64_t seed)
{
    struct problem p;
    struct problem_data d;
    draw(&p, seed);
    struct key_chunks b = {.device = t->device, .p = &p, .rng = {p.seed}};
    const struct kernel_set disabled = t->device->caps.without;
    set_join(&t->device->caps.without, p.disabled_kernels);
    enum vka_status status = problem_data_create(t->device, &p, &d);
    bool ok = status == VKA_OK;
    if (ok) {
        problem_op(&d, &b.op);
        ok = compare(t, &b);
    } else {
        snprintf(t->why, WHY, "%s: %s", vka_status_name(status), vka_device_error(t->device));
    }
    if (!ok) {
        char text[PROBLEM_TEXT];
        printf("%s\n", problem_text(&p, text));
    }
    problem_data_destroy(&d);
    t->device->caps.without = disabled;
    return ok;
}
