/* Runs cut into submits of a time budget: the same bits whatever the budget, through caches and
 * ragged batches too. SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "patience.h"
#include "budget_case.h"
#include "layers/layer_case.h"
#include "params/params.h"
#include "plan/plan.h"
#include "problems/turns.h"
#include "test_program.h"

/* Nanoseconds; the first, which cuts everything to its smallest spans, and some more. */
static const uint64_t budgets[] = {1000, 1000000, 0, VKA_NO_BUDGET};
#define N_BUDGET (sizeof budgets / sizeof budgets[0])

/* The output after two runs: with a cache, the second sees the keys of the first. */
static void *run_with(struct vka_device *device, const struct budget_case *p, uint64_t budget,
                      size_t *n_submit)
{
    struct budget_operands t = budget_operands_make(device, p);
    struct vka_cache *cache = budget_cache(device, p);
    struct vka_plan *plan = budget_plan(device, p, &t, cache, budget);
    for (int i = 0; i < 2; i++)
        budget_check(device, vka_plan_run(plan, PATIENCE));
    void *output = budget_contents(device, t.o);
    *n_submit = plan->n_submit;
    vka_plan_destroy(&plan);
    vka_cache_destroy(&cache);
    budget_operands_free(&t);
    return output;
}

static void same_bits(struct vka_device *device, const struct budget_case *p)
{
    size_t bytes = (size_t)p->batch * p->n_head * p->n_q * p->dim * vka_dtype_size(p->dtype);
    size_t n[N_BUDGET];
    void *output[N_BUDGET];
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

static const struct budget_case problems[] = {
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
     .path = VKA_PATH_FUSED,
     .options = {.causal = true}},
    {.name = "fused, fully masked rows",
     .batch = 1,
     .n_head = 2,
     .n_kv_head = 1,
     .n_q = 330, /* of a tile of 128 rows five passes too */
     .n_kv = 100,
     .dim = 8,
     .path = VKA_PATH_FUSED,
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
     .path = VKA_PATH_FUSED,
     .options = {.causal = true}},
    {.name = "ragged, few rows a sequence", /* q_start is clamped: all rows are of the first */
     .batch = 1,
     .n_head = 4,
     .n_kv_head = 2,
     .n_q = 5,
     .n_kv = 150,
     .dim = 8,
     .ragged = true,
     .path = VKA_PATH_FUSED,
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
     .path = VKA_PATH_FUSED,
     .options = {.causal = true}},
};

/* Each of them by the kernel that the device prefers. */
static void bits_whatever_the_budget(void **state)
{
    struct vka_device *device = *state;
    for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++)
        same_bits(device, &problems[i]);
}

/* By the one for GPUs, at a landing every second problem in turn (problems/turns.h), as it compiles
 * for seconds. NO_GPU_KERNELS: the driver here cannot compile it. */
static void bits_of_gpu_kernels(void **state)
{
    struct vka_device *device = *state;
    const struct kernel_set disabled = device->caps.without;
    const struct kernel_set others = KERNEL_SET(KERNEL_attention_row, KERNEL_attention_address,
                                                KERNEL_attention_texel, KERNEL_attention_feature);
#ifdef NO_GPU_KERNELS
    print_message("SKIPPED: this driver cannot compile kernels of GPUs\n");
    skip();
#endif
    set_join(&device->caps.without, others);
    for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++)
        if (problems[i].path == VKA_PATH_FUSED && (turn_of(2) == 2 || i % 2 == turn_of(2)) &&
            !kernel_missing(KERNEL_attention_tile, &device->caps))
            same_bits(device, &problems[i]);
    device->caps.without = disabled;
}

/* The kernels of fused attention but those for matrix units, and what splits of keys need. */
#define NOT_MATRICES                                                                         \
    KERNEL_SET(KERNEL_attention_row, KERNEL_attention_address, KERNEL_attention_texel,       \
               KERNEL_attention_tile, KERNEL_attention_tile_mixed, KERNEL_attention_feature, \
               KERNEL_attention_decode, KERNEL_attention_merge)

/* By the kernels for matrix units, the keys not split, as splits would not be cut. */
static void bits_of_matrix_units(void **state)
{
    struct vka_device *device = *state;
    const enum kernel kernels[] = {KERNEL_attention_coop_f16,      KERNEL_attention_coop_bf16,
                                   KERNEL_attention_coop2_f16,     KERNEL_attention_coop2_bf16,
                                   KERNEL_attention_coop2_ext_f16, KERNEL_attention_coop2_ext_bf16};
    const struct kernel_set disabled = device->caps.without;
    struct kernel_set others = NOT_MATRICES;
    size_t n = 0;
    for (size_t k = 0; k < COUNTOF(kernels); k++)
        set_add(&others, kernels[k]);
    for (size_t k = 0; k < COUNTOF(kernels); k++)
        for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++) {
            struct budget_case p = problems[i];
            device->caps.without = set_union(disabled, set_minus(others, KERNEL_SET(kernels[k])));
            p.dtype = k % 2 == 0 ? VKA_F16 : VKA_BF16;
            if (p.path != VKA_PATH_FUSED || kernel_missing(kernels[k], &device->caps))
                continue;
            same_bits(device, &p);
            n++;
        }
    device->caps.without = disabled;
    if (!n)
        skip();
}

/* Passes of a name, of the problem's plan for a budget. */
static size_t count_passes(struct vka_device *device, const struct budget_case *p, uint64_t budget,
                           const char *name)
{
    struct budget_operands t = budget_operands_make(device, p);
    struct vka_cache *cache = budget_cache(device, p);
    struct vka_plan *plan = budget_plan(device, p, &t, cache, budget);
    size_t n = 0;
    for (size_t i = 0; i < plan->n_pass; i++)
        n += strcmp(plan->passes[i].name, name) == 0;
    vka_plan_destroy(&plan);
    vka_cache_destroy(&cache);
    budget_operands_free(&t);
    return n;
}

/* Passes that move and rotate rows are cut too. */
static void moves_are_cut(void **state)
{
    struct vka_device *device = *state;
    const struct budget_case paged = {.name = "rotated, paged cache",
                                      .batch = 2,
                                      .n_head = 4,
                                      .n_kv_head = 2,
                                      .n_q = 50,
                                      .n_kv = 50,
                                      .dim = 24,
                                      .cache = true,
                                      .paged = true,
                                      .path = VKA_PATH_UNFUSED,
                                      .options = {.causal = true, .rope.dim = 24}};
    const bool cpu = vka_device_properties(device)->type == VKA_DEVICE_CPU;
    struct budget_case plain = paged, alone = paged, step = paged, many;
    step.name = "step";
    step.n_q = step.n_kv = 8;
    step.dim = step.options.rope.dim = 64;
    plain.name = "cache";
    plain.options.rope.dim = 0;
    many = plain;
    many.name = "cache, many rows";
    many.n_q = many.n_kv = 520;
    alone.name = "rotated";
    alone.cache = alone.paged = false;
    const struct {
        const struct budget_case *p;
        const char *name;
        size_t passes;
    } moves[] = {{&step, "rotate and append", 1},
                 {&paged, "gather", 2},
                 {&plain, "append", cpu ? 2 : 1}, /* GPUs move 1,024 rows of both in one */
                 {&many, "append", 2},
                 {&alone, "rotate q", 1},
                 {&alone, "rotate k", 1}};
    for (size_t i = 0; i < sizeof moves / sizeof moves[0]; i++) {
        size_t whole = count_passes(device, moves[i].p, VKA_NO_BUDGET, moves[i].name);
        assert_int_equal(whole, moves[i].passes);
        assert_true(count_passes(device, moves[i].p, 1, moves[i].name) >= 3 * whole);
    }
    same_bits(device, &paged);
    same_bits(device, &plain);
    same_bits(device, &step);
}

/* What a plan has no room for leaves nothing in it: no pass, no memory, no hold on a cache. */
static void refusal_leaves_nothing(void **state)
{
    struct vka_device *device = *state;
    const struct budget_case p = {.name = "cache",
                                  .batch = 2,
                                  .n_head = 4,
                                  .n_kv_head = 2,
                                  .n_q = 50,
                                  .n_kv = 50,
                                  .dim = 8,
                                  .cache = true};
    struct budget_operands t = budget_operands_make(device, &p);
    struct vka_plan *plan = NULL, before;
    enum vka_status status = VKA_OK;
    uint64_t workspace;
    budget_check(device, vka_plan_create(device,
                                         VKA_INFO(vka_plan_info, .submit_budget = 1,
                                                  .path = VKA_PATH_FUSED, .count_nonfinite = true),
                                         &plan));
    do {
        struct vka_cache *cache = budget_cache(device, &p);
        before = *plan;
        workspace = vka_plan_workspace(plan);
        status = vka_plan_add_attention(plan, VKA_INFO(vka_attention_op, .q = t.q, .k = t.k,
                                                       .v = t.v, .output = t.o, .cache = cache));
        vka_cache_destroy(&cache);
    } while (status == VKA_OK);
    assert_int_equal(status, VKA_UNSUPPORTED);
    assert_non_null(strstr(vka_device_error(device), "passes"));
    assert_true(before.n_pass > 0 && before.n_attached > 0 && workspace > 0);
    assert_int_equal(plan->n_pass, before.n_pass);
    assert_int_equal(plan->n_attached, before.n_attached);
    assert_int_equal(vka_plan_workspace(plan), workspace);
    vka_plan_destroy(&plan);
    budget_operands_free(&t);
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
        budget_check(device, vka_plan_submit(plan, &ticket));
    budget_check(device, vka_plan_wait(plan, ticket, PATIENCE));
    assert_true(rig_error(&rig) <= LAYER_NMSE);
    budget_check(device, vka_plan_submit(plan, NULL));
    vka_plan_destroy(&plan); /* in flight */
    rig_destroy(&rig);
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

TEST_PROGRAM(submit_budget)
{
    const struct CMUnitTest tests[] = {
        ON_DEVICE(whole_layer),
        ON_FENCES(whole_layer),
        ON_DEVICE(runs_in_flight),
        ON_FENCES(runs_in_flight),
        ON_DEVICE(bits_whatever_the_budget),
        ON_DEVICE(bits_of_gpu_kernels),
        ON_DEVICE(bits_of_matrix_units),
        ON_DEVICE(moves_are_cut),
        ON_DEVICE(refusal_leaves_nothing),
    };
    if (!have_device("the budget of submits"))
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
