/* Random caches with layers of keys and values and of states, run by run beside a copy in host memory:
 * steps in any order of their operations, that leave states out, two in a plan, runs in flight, padded
 * and ragged batches, sequences that wait and that have no room, forks, truncation, losses.
 *
 *     test_gpu cache_mixed [--seed S] [--count N] [--each N] [--gpu 1]
 *
 * --each: N seeds in turn have the layers of the first, for which kernels are compiled. --gpu 1: with the
 * kernels that the rules choose on GPUs. */
#include "cache_mixed.h"
#include "histories.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gpu/device.h>
#include <op/cache/cache.h>

#include "patience.h"
#include "problems/cache_soil.h"
#include "test_program.h"

#define N_PLAN 3

struct history {
    struct vka_device *device;
    struct rng rng;
    uint64_t seed;
    struct mixed mixed;
    struct mixed_plan plans[N_PLAN];
    double worst; /* error over its limit */
};

static void require(const struct history *h, bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "FAIL %s: seed %llu: batch %u, capacity %u, pages of %u: %s\n", what,
            (unsigned long long)h->seed, h->mixed.sizes.batch, h->mixed.sizes.capacity,
            h->mixed.sizes.page_size, vka_device_error(h->device));
    for (uint32_t i = 0; i < h->mixed.sizes.n_layer; i++) {
        const struct mixed_layer *l = &h->mixed.sizes.layers[i];
        fprintf(stderr,
                "layer %u: %s, heads %u:%u:%u of %ux%u, rule %d%s, %u channels, width %u, dilation "
                "%u, %s and %s, inputs %s\n",
                i, l->keys ? "keys" : "states", l->n_head, l->n_kv_head, l->n_state, l->head_dim,
                l->value_dim, (int)l->rule, l->key_decay ? " by key" : "", l->channels, l->width,
                l->dilation, vka_dtype_name(l->key_dtype), vka_dtype_name(l->value_dtype),
                vka_dtype_name(l->io_dtype));
    }
    exit(1);
}

/* States as bytes, of layers in turn. */
static float *read_states(const struct history *h, size_t *count)
{
    const struct mixed_sizes *s = &h->mixed.sizes;
    *count = 0;
    for (uint32_t i = 0; i < 2 * s->n_layer; i++)
        *count += s->batch * mixed_count(s, i / 2, i % 2) * !s->layers[i / 2].keys;
    float *states = calloc(*count + 1, sizeof *states), *at = states;
    for (uint32_t i = 0; i < 2 * s->n_layer; i++) {
        struct cached_layer *l = &h->mixed.cache->layers[i / 2];
        struct vka_tensor *t = i % 2 ? &l->conv : &l->linear;
        if (s->layers[i / 2].keys || !t->storage)
            continue;
        require(h, vka_tensor_read(t, at, vka_tensor_size(t)) == VKA_OK, "states");
        at += vka_tensor_size(t) / sizeof *at;
    }
    return states;
}

/* Whether a run of the plan changes the state. */
static bool changes(const struct mixed_plan *p, uint32_t layer, int which, uint32_t sequence)
{
    const enum mixed_kind kind = which ? MIXED_CONV : MIXED_LINEAR;
    for (uint32_t i = 0; i < p->n_step; i++)
        for (uint32_t j = 0; j < p->steps[i].n_op; j++)
            if (p->steps[i].ops[j].layer == layer && p->steps[i].ops[j].kind == kind &&
                p->steps[i].kept[sequence])
                return true;
    return false;
}

/* States that no operation was to change have the same bits. */
static void compare_left(const struct history *h, const struct mixed_plan *p, const float *before)
{
    const struct mixed_sizes *s = &h->mixed.sizes;
    size_t count, at = 0;
    float *after = read_states(h, &count);
    for (uint32_t i = 0; i < 2 * s->n_layer; i++) {
        const size_t n = mixed_count(s, i / 2, i % 2);
        for (uint32_t b = 0; b < s->batch && !s->layers[i / 2].keys; b++, at += n)
            require(h,
                    changes(p, i / 2, i % 2, b) ||
                        memcmp(before + at, after + at, n * sizeof *after) == 0,
                    "a state that was left out");
    }
    free(after);
}

/* The sentence names the first sequence without room. */
static void expect(const struct history *h, enum vka_status status, uint32_t full)
{
    char words[64] = "";
    for (uint32_t b = MIXED_BATCH; b-- > 0;)
        if (full >> b & 1)
            snprintf(words, sizeof words, "the cache is full: sequence %u holds ", b);
    require(h, status == (full ? VKA_INVALID : VKA_OK), vka_status_name(status));
    require(h, strstr(vka_device_error(h->device), words), words);
}

static void run(struct history *h)
{
    struct mixed_plan *p = &h->plans[rng_range(&h->rng, 0, N_PLAN - 1)];
    const uint32_t times = rng_chance(&h->rng, 20) ? 2 : 1;
    uint64_t tickets[2];
    uint32_t full[2];
    size_t count;
    if (rng_chance(&h->rng, 30))
        require(h, cache_soil(h->mixed.cache, (enum soil)rng_range(&h->rng, 0, 2)) == VKA_OK,
                "soil");
    float *before = read_states(h, &count);
    require(h, mixed_feed(&h->mixed, p, &h->rng), "inputs");
    for (uint32_t i = 0; i < times; i++) {
        require(h, vka_plan_submit(p->plan, &tickets[i]) == VKA_OK, "submit");
        full[i] = mixed_model(&h->mixed, p);
    }
    for (uint32_t i = 0; i < times; i++)
        expect(h, vka_plan_wait(p->plan, tickets[i], PATIENCE), full[i]);
    require(h, mixed_compare_cache(&h->mixed, &h->worst), "the cache");
    require(h, mixed_compare_outputs(&h->mixed, p, &h->worst), "an output");
    if (times == 1)
        compare_left(h, p, before);
    free(before);
}

static void change(struct history *h)
{
    struct mixed *m = &h->mixed;
    const uint32_t b = rng_range(&h->rng, 0, m->sizes.batch - 1);
    const uint32_t to = rng_range(&h->rng, 0, m->sizes.batch - 1), page = 0;
    const uint32_t size = m->sizes.page_size, held = size ? (m->length[b] + size - 1) / size : 0;
    switch (rng_range(&h->rng, 0, 5)) {
    case 0:
        require(h, mixed_truncate(m, b, rng_range(&h->rng, 0, m->length[b] + 1)), "truncate");
        break;
    case 1:
        require(h, mixed_truncate(m, b, 0), "truncate to 0");
        break;
    case 2:
        require(h, mixed_truncate(m, b, m->length[b]), "truncate to the length");
        break;
    case 3:
        if (held && m->sizes.has_state)
            require(h,
                    vka_cache_set_pages(m->cache, b, rng_range(&h->rng, 0, held - 1), 1, &page) ==
                        VKA_INVALID,
                    "pages below a length");
        break;
    default:
        if (to != b)
            require(h, mixed_fork(m, b, to), "fork");
    }
    require(h, mixed_compare_cache(m, &h->worst), "the cache after a change");
}

static void lose(struct history *h)
{
    require(h, h->device->vk.vkDeviceWaitIdle(h->device->handle) == VK_SUCCESS, "idle");
    h->device->lost = true;
    require(h, vka_device_recover(h->device) == VKA_OK, "recovery");
    mixed_forget(&h->mixed);
    require(h, mixed_compare_cache(&h->mixed, &h->worst), "the cache after a loss");
}

/* What stood in the memory of states is forgotten with the sequence. */
static void poison(struct history *h)
{
    for (uint32_t i = 0; i < 2 * h->mixed.sizes.n_layer; i++) {
        struct cached_layer *l = &h->mixed.cache->layers[i / 2];
        struct vka_tensor *t = i % 2 ? &l->conv : &l->linear;
        if (!t->storage)
            continue;
        const size_t bytes = vka_tensor_size(t);
        void *soil = malloc(bytes);
        require(h, soil, "memory");
        memset(soil, 0xff, bytes); /* NaN */
        require(h, vka_tensor_write(t, soil, bytes) == VKA_OK, "poison");
        free(soil);
    }
    for (uint32_t b = 0; b < h->mixed.sizes.batch; b++)
        require(h, mixed_truncate(&h->mixed, b, 0), "truncate");
}

static double run_history(struct vka_device *device, uint64_t seed, uint64_t each)
{
    static struct history h;
    struct rng first = {seed - seed % each};
    h = (struct history){.device = device, .rng = {seed}, .seed = seed};
    struct mixed_sizes sizes = mixed_draw(&first, NULL);
    if (each > 1)
        sizes = mixed_draw(&h.rng, &sizes);
    h.mixed.sizes = sizes;
    require(&h, mixed_open(&h.mixed, device, &sizes), "a new cache");
    require(&h, mixed_compare_cache(&h.mixed, &h.worst), "a new cache");
    poison(&h);
    for (int i = 0; i < N_PLAN; i++)
        require(&h, mixed_plan_open(&h.plans[i], &h.mixed, &h.rng), "a plan");
    for (uint32_t i = rng_range(&h.rng, 3, 14); i-- > 0;) {
        run(&h);
        if (rng_chance(&h.rng, 40))
            change(&h);
        if (i == 2 && seed % (4 * each) == 0)
            lose(&h);
    }
    for (int i = 0; i < N_PLAN; i++)
        mixed_plan_close(&h.plans[i]);
    mixed_close(&h.mixed);
    return h.worst;
}

TEST_PROGRAM_ARGUMENTS(cache_mixed)
{
    return histories_run(argc, argv, 20, run_history);
}
