/* Runs cut into submits of a time budget: the same bits whatever the budget, through caches and ragged
 * batches too, and how long the submits are. SPDX-License-Identifier: MIT */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "layer_case.h"
#include "plan/plan.h"
#include "rng.h"

/* The first run compiles: on a CPU driver that takes longer than a user should wait. */
#define PATIENCE (20 * VKA_TIMEOUT_DEFAULT)

/* Nanoseconds; the first, which cuts everything to its smallest pieces, and some more. */
static const uint64_t budgets[] = {1000, 1000000, 0, VKA_NO_BUDGET};
#define N_BUDGET (sizeof budgets / sizeof budgets[0])

static void check(struct vka_device *device, enum vka_status status)
{
    if (status != VKA_OK)
        fail_msg("%s: %s", vka_status_name(status), vka_device_error(device));
}

static struct vka_tensor *tensor4(struct vka_device *device, uint32_t a, uint32_t b, uint32_t c,
                                  uint32_t d)
{
    struct vka_tensor *t = NULL;
    check(device, vka_tensor_create(device, VKA_F32, 4, (const uint32_t[]){a, b, c, d}, &t));
    return t;
}

static void fill(struct vka_device *device, struct vka_tensor *t, uint64_t seed)
{
    size_t n = (size_t)vka_tensor_count(t);
    float *x = malloc(n * sizeof *x);
    struct rng rng = {seed};
    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)rng_uniform(&rng, -1, 1);
    check(device, vka_tensor_write(t, x, n * sizeof *x));
    free(x);
}

static float *contents(struct vka_device *device, struct vka_tensor *t)
{
    float *x = malloc(vka_tensor_size(t));
    assert_non_null(x);
    check(device, vka_tensor_read(t, x, vka_tensor_size(t)));
    return x;
}

static struct vka_tensor *integers(struct vka_device *device, uint32_t n, const int32_t *values)
{
    struct vka_tensor *t = NULL;
    check(device, vka_tensor_create(device, VKA_I32, 1, &n, &t));
    check(device, vka_tensor_write(t, values, n * sizeof *values));
    return t;
}

/* Attention of any kind: operands, and what the operation has beside them. */
struct problem {
    const char *name;
    uint32_t batch, n_head, n_kv_head, n_q, n_kv, dim;
    bool cache, paged, ragged, fused;
    struct vka_attention_options options;
};

struct operands {
    struct vka_tensor *q, *k, *v, *o, *q_start, *kv_start;
};

static struct operands make_operands(struct vka_device *device, const struct problem *p)
{
    static const int32_t q_start[] = {0, 7, 7, 40}, kv_start[] = {0, 70, 71, 150};
    struct operands t = {
        .q = tensor4(device, p->batch, p->n_head, p->n_q, p->dim),
        .k = tensor4(device, p->batch, p->n_kv_head, p->n_kv, p->dim),
        .v = tensor4(device, p->batch, p->n_kv_head, p->n_kv, p->dim),
        .o = tensor4(device, p->batch, p->n_head, p->n_q, p->dim),
    };
    fill(device, t.q, 1);
    fill(device, t.k, 2);
    fill(device, t.v, 3);
    if (p->ragged) {
        t.q_start = integers(device, 4, q_start);
        t.kv_start = integers(device, 4, kv_start);
    }
    return t;
}

static void free_operands(struct operands *t)
{
    vka_tensor_destroy(&t->q);
    vka_tensor_destroy(&t->k);
    vka_tensor_destroy(&t->v);
    vka_tensor_destroy(&t->o);
    vka_tensor_destroy(&t->q_start);
    vka_tensor_destroy(&t->kv_start);
}

static struct vka_plan *make_plan(struct vka_device *device, const struct problem *p,
                                  const struct operands *t, struct vka_cache *cache,
                                  uint64_t budget)
{
    struct vka_plan *plan = NULL;
    check(device,
          vka_plan_create(device,
                          VKA_INFO(vka_plan_info, .submit_budget = budget, .timestamps = true,
                                   .path = p->fused ? VKA_PATH_FUSED : VKA_PATH_AUTO),
                          &plan));
    check(device, vka_plan_add_attention(
                      plan, VKA_INFO(vka_attention_op, .q = t->q, .k = t->k, .v = t->v,
                                     .output = t->o, .q_start = t->q_start, .kv_start = t->kv_start,
                                     .cache = cache, .options = p->options)));
    check(device, vka_plan_finish(plan));
    return plan;
}

/* The output after two runs: with a cache, the second sees the keys of the first. */
static float *run_with(struct vka_device *device, const struct problem *p, uint64_t budget,
                       size_t *n_submit)
{
    struct operands t = make_operands(device, p);
    struct vka_cache *cache = NULL;
    if (p->cache)
        check(device, vka_cache_create(device,
                                       VKA_INFO(vka_cache_info, .batch = p->batch,
                                                .n_kv_head = p->n_kv_head, .head_dim = p->dim,
                                                .capacity = 2 * p->n_kv + 9,
                                                .block_size = p->paged ? 16 : 0),
                                       &cache));
    struct vka_plan *plan = make_plan(device, p, &t, cache, budget);
    for (int i = 0; i < 2; i++)
        check(device, vka_plan_run(plan, PATIENCE));
    float *output = contents(device, t.o);
    *n_submit = plan->n_submit;
    vka_plan_destroy(&plan);
    vka_cache_destroy(&cache);
    free_operands(&t);
    return output;
}

static void same_bits(struct vka_device *device, const struct problem *p)
{
    size_t bytes = (size_t)p->batch * p->n_head * p->n_q * p->dim * sizeof(float), n[N_BUDGET];
    float *output[N_BUDGET];
    for (size_t i = 0; i < N_BUDGET; i++)
        output[i] = run_with(device, p, budgets[i], &n[i]);
    for (size_t i = 0; i < N_BUDGET; i++)
        if (memcmp(output[i], output[N_BUDGET - 1], bytes) != 0)
            fail_msg("%s: other bits in %zu submits than in one", p->name, n[i]);
    print_message("%-24s %zu, %zu, %zu, %zu submits\n", p->name, n[0], n[1], n[2], n[3]);
    assert_true(n[0] > 4 && n[0] >= n[1] && n[1] >= n[2]);
    assert_int_equal(n[N_BUDGET - 1], 1);
    for (size_t i = 0; i < N_BUDGET; i++)
        free(output[i]);
}

static const struct problem problems[] = {
    {.name = "causal",
     .batch = 2,
     .n_head = 4,
     .n_kv_head = 2,
     .n_q = 70,
     .n_kv = 70,
     .dim = 8,
     .options = {.causal = true}},
    {.name = "fused causal",
     .batch = 2,
     .n_head = 4,
     .n_kv_head = 2,
     .n_q = 70,
     .n_kv = 70,
     .dim = 8,
     .fused = true,
     .options = {.causal = true}},
    {.name = "fused, dead rows",
     .batch = 1,
     .n_head = 2,
     .n_kv_head = 1,
     .n_q = 90,
     .n_kv = 40,
     .dim = 8,
     .fused = true,
     .options = {.window = true,
                 .window_left = 3,
                 .window_right = 1,
                 .dropout = 0.25f,
                 .masked_row = VKA_MASKED_UNIFORM}},
    {.name = "ragged",
     .batch = 1,
     .n_head = 4,
     .n_kv_head = 2,
     .n_q = 40,
     .n_kv = 150,
     .dim = 8,
     .ragged = true,
     .fused = true,
     .options = {.causal = true}},
    {.name = "cache",
     .batch = 2,
     .n_head = 4,
     .n_kv_head = 2,
     .n_q = 20,
     .n_kv = 20,
     .dim = 8,
     .cache = true,
     .options = {.causal = true, .rope.dim = 8}},
    {.name = "fused paged cache",
     .batch = 2,
     .n_head = 4,
     .n_kv_head = 2,
     .n_q = 20,
     .n_kv = 20,
     .dim = 8,
     .cache = true,
     .paged = true,
     .fused = true,
     .options = {.causal = true}},
};

/* Each of them by the kernel that the device prefers, and by the one for GPUs. */
static void bits_whatever_the_budget(void **state)
{
    struct vka_device *device = *state;
    const uint64_t disabled = device->caps.disabled_kernels;
    const uint64_t others = 1ull << KERNEL_attention_row | 1ull << KERNEL_attention_address |
                            1ull << KERNEL_attention_texel;
    for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++)
        same_bits(device, &problems[i]);
    device->caps.disabled_kernels |= others;
    for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++)
        if (problems[i].fused && !kernel_missing(KERNEL_attention_tile, &device->caps))
            same_bits(device, &problems[i]);
    device->caps.disabled_kernels = disabled;
}

/* A layer: matrix products and copies too. */
static void whole_layer(void **state)
{
    struct vka_device *device = *state;
    struct layer_rig rig;
    size_t n_submit[N_BUDGET];
    rig_create(&rig, device, &layer_plain, 5);
    float *first = malloc(rig_count(&rig) * sizeof *first);
    float *other = malloc(rig_count(&rig) * sizeof *other);
    assert_true(first && other);
    for (size_t i = 0; i < N_BUDGET; i++) {
        struct vka_plan *plan =
            rig_plan(&rig, VKA_INFO(vka_plan_info, .submit_budget = budgets[i]));
        assert_true(rig_run(&rig, plan) <= LAYER_NMSE);
        rig_read(&rig, i ? other : first);
        assert_true(!i || memcmp(first, other, rig_count(&rig) * sizeof *first) == 0);
        n_submit[i] = plan->n_submit;
        vka_plan_destroy(&plan);
    }
    assert_true(n_submit[0] > 16); /* more than there are fences */
    assert_int_equal(n_submit[N_BUDGET - 1], 1);
    free(first);
    free(other);
    rig_destroy(&rig);
}

/* Many runs of many submits each in flight at once. */
static void runs_in_flight(void **state)
{
    struct vka_device *device = *state;
    struct layer_rig rig;
    uint64_t ticket = 0;
    rig_create(&rig, device, &layer_plain, 6);
    struct vka_plan *plan = rig_plan(&rig, VKA_INFO(vka_plan_info, .submit_budget = 1000));
    assert_true(rig_run(&rig, plan) <= LAYER_NMSE);
    for (int i = 0; i < 10; i++)
        check(device, vka_plan_submit(plan, &ticket));
    check(device, vka_plan_wait(plan, ticket, PATIENCE));
    assert_true(rig_error(&rig) <= LAYER_NMSE);
    check(device, vka_plan_submit(plan, NULL));
    vka_plan_destroy(&plan); /* in flight */
    rig_destroy(&rig);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Milliseconds of each submit of the last run, ascending; the caller frees them. */
static double *submit_times(struct vka_plan *plan)
{
    double *ms = calloc(plan->n_submit, sizeof *ms);
    assert_non_null(ms);
    for (size_t i = 0; i < plan->n_submit; i++)
        for (size_t j = plan->first[i]; j < plan->first[i + 1]; j++) {
            struct vka_pass_info pass;
            check(plan->device, vka_plan_pass(plan, j, &pass));
            assert_true(pass.gpu_ms >= 0);
            ms[i] += pass.gpu_ms;
        }
    qsort(ms, plan->n_submit, sizeof *ms, compare_doubles);
    return ms;
}

/* Runs the plan twice, as the first run of a CPU driver compiles, and prints how long its submits
 * were. Other programs may stretch them all: then each is still a fair part of `whole_ms`, what the run
 * takes in one submit. */
static void print_times(struct vka_plan *plan, const char *name, double budget_ms, double whole_ms)
{
    check(plan->device, vka_plan_run(plan, PATIENCE));
    check(plan->device, vka_plan_run(plan, PATIENCE));
    double *ms = submit_times(plan);
    size_t n = plan->n_submit;
    print_message("%s, budget %g ms: %zu submits, least %.3f ms, median %.3f ms, longest %.3f ms\n",
                  name, budget_ms, n, ms[0], ms[n / 2], ms[n - 1]);
    assert_true(ms[n / 2] <= fmax(2 * budget_ms, 4 * whole_ms / (double)n));
    free(ms);
}

/* Milliseconds of a run in one submit. */
static double whole_time(struct vka_device *device, const struct problem *p,
                         const struct operands *t)
{
    struct vka_plan *plan = make_plan(device, p, t, NULL, VKA_NO_BUDGET);
    check(device, vka_plan_run(plan, PATIENCE));
    check(device, vka_plan_run(plan, PATIENCE));
    assert_int_equal(plan->n_submit, 1);
    double *ms = submit_times(plan), whole = ms[0];
    free(ms);
    vka_plan_destroy(&plan);
    return whole;
}

static void times_within_the_budget(void **state)
{
    struct vka_device *device = *state;
    static const uint64_t ms[] = {5, 20, 200};
    const struct problem p = {
        .batch = 1, .n_head = 4, .n_kv_head = 4, .n_q = 512, .n_kv = 512, .dim = 64};
    if (!device->caps.properties.timestamps)
        skip();
    struct operands t = make_operands(device, &p);
    size_t before = SIZE_MAX;
    double whole = whole_time(device, &p, &t);
    for (size_t i = 0; i < sizeof ms / sizeof ms[0]; i++) {
        struct vka_plan *plan = make_plan(device, &p, &t, NULL, ms[i] * 1000000);
        print_times(plan, "4 heads of 512 x 512", (double)ms[i], whole);
        assert_true(plan->n_submit <= before);
        before = plan->n_submit;
        vka_plan_destroy(&plan);
    }
    free_operands(&t);
}

/* What hangs a GPU elsewhere: very many keys, for one row and for a block of causal ones. */
static void many_keys(void **state)
{
    struct vka_device *device = *state;
    const int32_t position = 131072 - 16;
    struct problem p = {.n_head = 4, .n_kv_head = 1, .n_q = 1, .n_kv = 131072, .dim = 64};
    p.batch = 1;
    for (int block = 0; block < 2; block++) {
        p.n_q = block ? 16 : 1;
        struct operands t = make_operands(device, &p);
        struct vka_tensor *offset = integers(device, 1, &position);
        p.options.causal = block;
        p.options.query_offset = block ? offset : NULL;
        struct vka_plan *bounded = make_plan(device, &p, &t, NULL, 0);
        if (device->caps.properties.timestamps)
            print_times(bounded, block ? "16 causal rows, 131072 keys" : "1 row, 131072 keys", 200,
                        whole_time(device, &p, &t));
        check(device, vka_plan_run(bounded, PATIENCE));
        float *cut = contents(device, t.o);
        struct vka_plan *whole = make_plan(device, &p, &t, NULL, VKA_NO_BUDGET);
        check(device, vka_plan_run(whole, PATIENCE));
        float *uncut = contents(device, t.o);
        assert_memory_equal(cut, uncut, vka_tensor_size(t.o));
        free(cut);
        free(uncut);
        vka_plan_destroy(&bounded);
        vka_plan_destroy(&whole);
        vka_tensor_destroy(&offset);
        free_operands(&t);
    }
}

static int create_device(void **state)
{
    return vka_device_create(NULL, (struct vka_device **)state) != VKA_OK;
}

static int create_without_timeline(void **state)
{
    return vka_device_create(VKA_INFO(vka_device_info, .no_timeline = true),
                             (struct vka_device **)state) != VKA_OK;
}

static int destroy_device(void **state)
{
    vka_device_destroy((struct vka_device **)state);
    return 0;
}

#define ON_DEVICE(test) cmocka_unit_test_setup_teardown(test, create_device, destroy_device)
#define ON_FENCES(test) \
    cmocka_unit_test_setup_teardown(test, create_without_timeline, destroy_device)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_DEVICE(whole_layer),
        ON_FENCES(whole_layer),
        ON_DEVICE(runs_in_flight),
        ON_FENCES(runs_in_flight),
        ON_DEVICE(times_within_the_budget),
        ON_DEVICE(many_keys),
        ON_DEVICE(bits_whatever_the_budget),
    };
    if (!have_device("the budget of submits"))
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
