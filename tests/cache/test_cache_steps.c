/* Random caches, run by run beside a copy in host memory: several layers with one set of lengths,
 * sequences that keep some new positions or none, forks, truncation, no room; against the oracle, and
 * with the same bits whatever stands behind the lengths.
 *
 *     test_gpu cache_steps [--seed S] [--count N] [--each N] [--gpu 1]
 *
 * Every fourth seed loses the device on the way. --each: N seeds in turn have the types, sizes of head
 * and path of the first, for which kernels are compiled, and one of 4 N loses the device, so that
 * thousands take minutes. --gpu 1: with the kernels that the rules choose on GPUs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "patience.h"
#include "cache_twin.h"
#include "histories.h"
#include "core/arith.h"
#include "core/dtype.h"
#include "gpu/device.h"
#include "plan/plan.h"
#include "test_program.h"
#include "problems/rng.h"

/* Plans of one token, and of several. */
#define N_PLAN 2
#define MOST_SMALL 70u /* positions */

struct case_ {
    struct vka_device *device;
    struct rng *rng;
    uint64_t seed;
    struct twin_sizes sizes;
    struct twin twin;
    struct twin_plan plans[N_PLAN];
    double worst;
};

static uint32_t draw(struct rng *rng, const uint32_t *values, size_t n)
{
    return values[rng_range(rng, 0, (uint32_t)n - 1)];
}

static struct twin_sizes draw_sizes(struct rng *rng)
{
    static const uint32_t dims[][2] = {{16, 16}, {40, 12}, {64, 64}, {64, 32}, {5, 7}};
    static const uint32_t pages[] = {0, 0, 16, 32};
    const uint32_t *dim = dims[rng_range(rng, 0, sizeof dims / sizeof *dims - 1)];
    struct twin_sizes s = {
        .batch = rng_range(rng, 1, 4),
        .n_layer = rng_range(rng, 1, 3),
        .n_kv_head = rng_range(rng, 1, 2),
        .group = rng_range(rng, 1, 3),
        .head_dim = dim[0],
        .value_dim = dim[1],
        .capacity = rng_chance(rng, 20) ? rng_range(rng, 200, 900) : rng_range(rng, 1, MOST_SMALL),
        .page_size = draw(rng, pages, sizeof pages / sizeof *pages),
        .key_dtype = twin_draw_dtype(rng),
        .value_dtype = twin_draw_dtype(rng),
        .io_dtype = rng_chance(rng, 30) ? VKA_F16 : VKA_F32,
        .path = rng_chance(rng, 60) ? VKA_PATH_FUSED : VKA_PATH_UNFUSED,
        .causal = rng_chance(rng, 80),
        .window = rng_chance(rng, 20) ? (int32_t)rng_range(rng, 1, 40) : 0,
        .masked_row = (enum vka_masked_row)rng_range(rng, 0, VKA_MASKED_ROW_COUNT - 1),
        .hidden = rng_chance(rng, 40)   ? 0
                  : rng_chance(rng, 60) ? 100
                                        : rng_range(rng, 1, 99),
    };
    if (dtype_is_scaled(s.key_dtype) || dtype_is_scaled(s.value_dtype))
        s.path = rng_chance(rng, 50) ? VKA_PATH_FUSED : VKA_PATH_AUTO;
    else if (rng_chance(rng, 40))
        s.scores_kind = (enum vka_scores)rng_range(rng, VKA_SCORES_RAW, VKA_SCORES_COUNT - 1);
    s.no_hadamard = dim[0] % 16 != 0 || dim[1] % 16 != 0 || rng_chance(rng, 20);
    if (s.page_size && rng_chance(rng, 50)) /* fewer pages than the sequences could fill */
        s.n_page = 1 + divide_up(s.capacity, s.page_size) * s.batch * 2 / 3;
    return s;
}

/* Those of the seed; what kernels are compiled for is that of the first of `each` seeds in turn. */
static struct twin_sizes draw_shared(struct rng *rng, uint64_t seed, uint64_t each)
{
    struct rng first = {seed - seed % each};
    const struct twin_sizes shared = draw_sizes(&first);
    struct twin_sizes s = draw_sizes(rng);
    if (each == 1)
        return s;
    s.head_dim = shared.head_dim;
    s.value_dim = shared.value_dim;
    s.no_hadamard = shared.no_hadamard;
    s.group = shared.group;
    s.key_dtype = shared.key_dtype;
    s.value_dtype = shared.value_dtype;
    s.io_dtype = shared.io_dtype;
    s.path = shared.path;
    s.hidden = !shared.hidden ? 0 : s.hidden ? s.hidden : shared.hidden;
    if (s.capacity > MOST_SMALL && seed % 8 != 0) /* whose runs take seconds */
        s.capacity = s.capacity % MOST_SMALL + 1;
    s.scores_kind = !shared.scores_kind ? VKA_SCORES_NONE
                    : s.scores_kind     ? s.scores_kind
                                        : shared.scores_kind;
    return s;
}

static void fail(const struct case_ *c, const char *what)
{
    const struct twin_sizes *s = &c->sizes;
    fprintf(
        stderr,
        "FAIL %s: seed %llu: batch %u, %u layers, %u x %u heads, dims %u and %u, capacity %u, "
        "pages of %u "
        "(%u), %s and %s, inputs %s, path %d, causal %d, window %d, %u %% hidden, masked row %d, "
        "scores %d\n",
        what, (unsigned long long)c->seed, s->batch, s->n_layer, s->n_kv_head, s->group,
        s->head_dim, s->value_dim, s->capacity, s->page_size, s->n_page,
        vka_dtype_name(s->key_dtype), vka_dtype_name(s->value_dtype), vka_dtype_name(s->io_dtype),
        (int)s->path, s->causal, s->window, s->hidden, (int)s->masked_row, (int)s->scores_kind);
    exit(1);
}

/* One run: the lengths, and every layer's output, are the twin's. */
static void run(struct case_ *c)
{
    uint32_t which = rng_range(c->rng, 0, N_PLAN - 1);
    struct twin_plan *plan = &c->plans[which];
    char why[WHY];
    bool full = twin_append(&c->twin, plan, c->rng);
    void *before = cache_before(c->twin.cache);
    enum vka_status status = vka_plan_run(plan->plan, PATIENCE);
    if (status != (full ? VKA_INVALID : VKA_OK))
        fail(c, vka_device_error(c->device));
    if (!twin_lengths_match(&c->twin))
        fail(c, "lengths");
    double worst = twin_compare(&c->twin, plan);
    double limit = c->sizes.io_dtype == VKA_F16 ? 1e-6 : 1e-11;
    c->worst = worst / limit > c->worst ? worst / limit : c->worst;
    if (!(worst <= limit)) {
        fprintf(stderr, "row NMSE %.3g\n", worst);
        fail(c, "output");
    }
    if (!full && rng_chance(c->rng, 40) && !twin_soil(&c->twin, plan, before, why))
        fail(c, why);
    free(before);
}

static void change(struct case_ *c)
{
    uint32_t b = rng_range(c->rng, 0, c->sizes.batch - 1);
    uint32_t to = rng_range(c->rng, 0, c->sizes.batch - 1);
    if (rng_chance(c->rng, 50) || to == b)
        twin_truncate(&c->twin, b, rng_range(c->rng, 0, c->twin.length[b]));
    else
        twin_fork(&c->twin, b, to);
    if (!twin_lengths_match(&c->twin))
        fail(c, "lengths after a change");
}

/* The device is lost and recovered: the cache is empty, and has its scales again. */
static void lose(struct case_ *c)
{
    if (c->device->vk.vkDeviceWaitIdle(c->device->handle) != VK_SUCCESS)
        fail(c, "idle");
    c->device->lost = true;
    if (vka_device_recover(c->device) != VKA_OK)
        fail(c, vka_device_error(c->device));
    twin_recovered(&c->twin);
    if (!twin_lengths_match(&c->twin))
        fail(c, "lengths after a loss");
}

static unsigned used[KERNEL_COUNT]; /* passes by each kernel */

static void count_kernels(const struct vka_plan *plan)
{
    for (size_t i = 0; i < plan->n_pass; i++)
        used[plan->passes[i].key.kernel]++;
}

static double run_case(struct vka_device *device, uint64_t seed, uint64_t each)
{
    struct rng rng = {seed};
    struct case_ c = {
        .device = device, .rng = &rng, .seed = seed, .sizes = draw_shared(&rng, seed, each)};
    if (!twin_open(&c.twin, device, &c.sizes))
        fail(&c, vka_device_error(device));
    uint32_t most = c.sizes.capacity < 24 ? c.sizes.capacity : 24;
    for (int i = 0; i < N_PLAN; i++)
        if (!twin_plan_open(&c.plans[i], &c.twin, i ? rng_range(&rng, 1, most) : 1,
                            rng_chance(&rng, 60), &rng))
            fail(&c, vka_device_error(device));
        else
            count_kernels(c.plans[i].plan);
    if (each == 1)
        twin_poison(&c.twin, &c.plans[1]);
    else if (cache_soil(c.twin.cache, SOIL_NAN) != VKA_OK) /* without runs, which take longer */
        fail(&c, vka_device_error(device));
    for (uint32_t i = rng_range(&rng, 3, 10); i-- > 0;) {
        run(&c);
        if (i == 2 && seed % (4 * each) == 0)
            lose(&c);
        if (!c.sizes.n_page && rng_chance(&rng, 30))
            change(&c);
    }
    for (int i = 0; i < N_PLAN; i++)
        twin_plan_close(&c.plans[i]);
    twin_close(&c.twin);
    return c.worst;
}

TEST_PROGRAM_ARGUMENTS(cache_steps)
{
    const int status = histories_run(argc, argv, 40, run_case);
    for (int k = 0; k < KERNEL_COUNT; k++)
        if (used[k])
            printf("%s: %u\n", kernel_table[k].name, used[k]);
    return status;
}
