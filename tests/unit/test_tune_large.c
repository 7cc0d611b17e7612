/* Which tile a product of 16 bits takes on a chip with many processors, and what that asks of its
 * second-level cache. SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <vkattn/vkattn.h>

#include "core/arith.h"
#include "gpu/pipeline_key.h"
#include "gpu/tuning_profile.h"
#include "kernel/matmul.h"
#include "params/params.h"
#include "plan/state.h"
#include "huge_devices.h"
#include "test_program.h"
#include "tune_devices.h"

/* A GPU with as many processors as an H100. */
static struct caps large_chip(void)
{
    struct caps caps = with_matrices(&discrete);
    caps.processors = 132;
    caps.properties.subgroup_size = caps.least_subgroup = 64;
    return caps;
}

static struct matmul_problem product(uint32_t m, uint32_t n, uint32_t k)
{
    return (struct matmul_problem){.batch = 1,
                                   .m = m,
                                   .n = n,
                                   .k = k,
                                   .a_type = VKA_F16,
                                   .b_type = VKA_F16,
                                   .a_vectors = true,
                                   .b_vectors = true};
}

/* Bytes of both inputs that the workgroups read of the second-level cache, of which a processor keeps
 * nothing from one tile to the next, for each multiplication and each addition of the product. */
static double cache_bytes(const struct matmul_problem *p, const struct matmul_choice *c)
{
    double tiles = (double)divide_up(p->m, c->rows) * divide_up(p->n, c->columns);
    double bytes = 2.0 * tiles * (c->rows + c->columns) * divide_up(p->k, c->depth) * c->depth;
    return bytes / (2.0 * p->m * p->n * p->k);
}

static bool is_large(const struct matmul_choice *c)
{
    return c->rows * c->columns == 256 * 128 && c->halves && c->depth == 32;
}

static void bytes_an_operation(void **state)
{
    (void)state;
    struct caps caps = large_chip();
    const struct matmul_problem p = product(8192, 8192, 8192);
    struct matmul_choice c = tune_choose(&caps, &p);
    assert_true(is_large(&c) && c.rows == 256);
    assert_int_equal(c.lanes, 512);
    assert_true(cache_bytes(&p, &c) <= 0.012);
    caps.properties.vendor_id = 0x10de; /* whoever made it */
    c = tune_choose(&caps, &p);
    assert_true(is_large(&c));
    caps.properties.subgroup_size = caps.least_subgroup =
        32; /* only `vkattn tune` takes it there */
    c = tune_choose(&caps, &p);
    assert_true(c.rows == 128 && c.columns == 128 && cache_bytes(&p, &c) > 0.015);
    caps = large_chip();
    caps.processors = 95; /* fewer share the cache: more workgroups on each */
    c = tune_choose(&caps, &p);
    assert_true(c.rows == 128 && c.columns == 128 && !c.halves && cache_bytes(&p, &c) > 0.012);
    caps.processors = 0; /* not told */
    c = tune_choose(&caps, &p);
    assert_true(c.rows == 128 && c.columns == 128);
}

/* Whether the tiles keep 132 processors busy to the end. */
static void filled_rounds(void **state)
{
    (void)state;
    const struct caps caps = large_chip();
    static const struct {
        uint64_t batch;
        uint32_t m, n, rows; /* 0: no large tile */
    } cases[] = {
        {1, 4096, 4096, 256}, /* 512 tiles in four rounds of 132 */
        {1, 2048, 4096, 256}, /* 256 in two */
        {1, 2048, 2048, 256}, /* 128 in one */
        {1, 1024, 1024, 0},   /* 32 */
        {1, 2304, 4096, 0},   /* 288 in three rounds: 0.73 */
        {1, 8191, 8192, 256}, /* ragged, of which little is lost */
        {1, 8200, 8192, 256}, /* eight rows of 256 more: 0.94 */
        {1, 8192, 8190, 256}, /* ragged columns */
        {1, 2049, 4096, 0},   /* 288 tiles again */
        {1, 128, 33792, 128}, /* half a tile of 256 rows: that of 128 */
        {64, 512, 512, 256},  /* 512 tiles of a batch */
        {1, 33, 8192, 0},
    };
    for (size_t i = 0; i < COUNTOF(cases); i++) {
        struct matmul_problem p = product(cases[i].m, cases[i].n, 4096);
        p.batch = cases[i].batch;
        struct matmul_choice c = tune_choose(&caps, &p);
        assert_int_equal(is_large(&c), cases[i].rows != 0);
        if (cases[i].rows)
            assert_int_equal(c.rows, cases[i].rows);
    }
}

/* What the tile needs, and nothing of which it would not be the faster one. */
static void needs(void **state)
{
    (void)state;
    const struct matmul_problem usual = product(8192, 8192, 8192);
    struct caps few_bytes = large_chip(), few_registers = few_bytes, short_matrices = few_bytes;
    few_bytes.properties.max_shared_memory = 32768;
    few_registers.matrix_registers = 72;
    short_matrices.matrix_f16.m = 8;
    const struct caps caps = large_chip(), *unfit[] = {&few_bytes, &few_registers, &short_matrices};
    for (size_t i = 0; i < COUNTOF(unfit); i++) {
        struct matmul_choice c = tune_choose(unfit[i], &usual);
        assert_int_equal(c.kernel, KERNEL_matmul_coop_f16);
        assert_false(is_large(&c));
    }
    struct matmul_problem problems[] = {usual, usual, usual};
    problems[0].a_vectors = false;
    problems[1].b_vectors = false;
    problems[2].quantised = true;
    problems[2].b_type = VKA_Q8_0;
    for (size_t i = 0; i < COUNTOF(problems); i++) {
        struct matmul_choice c = tune_choose(&caps, &problems[i]);
        assert_int_equal(c.kernel, KERNEL_matmul_coop_f16);
        assert_false(is_large(&c));
    }
}

/* The pipeline's constants: halves, and edges of k and of both others. */
static void constants(void **state)
{
    (void)state;
    const struct caps caps = large_chip();
    static const struct {
        uint32_t m, n, k, edge;
    } cases[] = {
        {8192, 8192, 8192, 0},
        {8192, 8192, 8184, COOP_EDGE_K},
        {8191, 8192, 8192, COOP_EDGE_MN},
        {8192, 8184, 8200, COOP_EDGE_K | COOP_EDGE_MN},
    };
    for (size_t i = 0; i < COUNTOF(cases); i++) {
        struct matmul_problem p = product(cases[i].m, cases[i].n, cases[i].k);
        struct matmul_choice c = tune_choose(&caps, &p);
        struct pipeline_key key;
        const struct matmul_operands operands = {.m = p.m, .n = p.n, .k = p.k};
        assert_true(is_large(&c));
        tune_matmul_key(&c, &operands, &key);
        assert_int_equal(key.n_spec, MATMUL_COOP_SPECS);
        assert_int_equal(key.spec[MATMUL_COOP_HALVES], 1);
        assert_int_equal(key.spec[MATMUL_COOP_EDGE], cases[i].edge);
        assert_int_equal(key.spec[MATMUL_COOP_THREADS], 512);
    }
}

/* `vkattn tune` tries variants 0 to 3: the rules' tile, the large one and those of 128 x 128, whatever the
 * rules take. All variants fit and differ. */
static void variants(void **state)
{
    (void)state;
    struct caps caps = large_chip();
    struct matmul_problem p = product(8192, 8192, 8192);
    struct matmul_choice c[PROFILE_VARIANTS];
    for (p.variant = 0; p.variant < PROFILE_VARIANTS; p.variant++) {
        c[p.variant] = tune_choose(&caps, &p);
        for (uint32_t i = 1; i < p.variant; i++)
            assert_true(c[i].rows != c[p.variant].rows || c[i].columns != c[p.variant].columns ||
                        c[i].depth != c[p.variant].depth || c[i].lanes != c[p.variant].lanes ||
                        c[i].halves != c[p.variant].halves);
    }
    assert_true(is_large(&c[0]) && is_large(&c[1]));
    assert_true(c[2].rows == 128 && c[2].columns == 128 && c[2].lanes == 256 && !c[2].halves);
    assert_true(c[3].rows == 128 && c[3].columns == 128 && c[3].lanes == 512 && !c[3].halves);
    caps.processors = 8; /* where the rules take another, it is tried, too */
    p.variant = 1;
    c[1] = tune_choose(&caps, &p);
    assert_true(is_large(&c[1]));
    p.m = 40; /* a profile's variant was measured with more rows */
    c[1] = tune_choose(&caps, &p);
    assert_true(c[1].rows <= 2 * p.m);
    p.m = 8192;
    caps.matrix_f16.k = 32; /* halves of one matrix each do not fit 32 k */
    c[1] = tune_choose(&caps, &p);
    assert_false(c[1].halves);
}

/* `vkattn tune` takes variants for one where their passes have the same detail. */
static void details(void **state)
{
    (void)state;
    struct vka_device *device = &huge_devices[0];
    const struct caps usual = device->caps;
    struct tuning_profile_entry entry = {.problem = "matmul/*", .kernel = KERNEL_matmul_coop_f16};
    const struct tuning_profile profile = {1, &entry};
    char detail[PROFILE_VARIANTS][sizeof((struct pass *)0)->detail];
    struct vka_tensor *t[3] = {NULL};
    device->caps = with_matrices(&usual);
    device->caps.profile = &profile;
    for (size_t i = 0; i < COUNTOF(t); i++)
        assert_int_equal(
            vka_tensor_create(device, VKA_F16, 2, (const uint32_t[]){8192, 8192}, &t[i]), VKA_OK);
    for (entry.variant = 1; entry.variant < PROFILE_VARIANTS; entry.variant++) {
        struct vka_plan *plan = NULL;
        assert_int_equal(
            vka_plan_create(device, VKA_INFO(vka_plan_info, .submit_budget = VKA_NO_BUDGET), &plan),
            VKA_OK);
        assert_int_equal(vka_plan_add_linear(plan, VKA_INFO(vka_linear_op, .input = t[0],
                                                            .weight = t[1], .output = t[2])),
                         VKA_OK);
        memcpy(detail[entry.variant], plan->passes[0].detail, sizeof detail[0]);
        for (uint32_t i = 1; i < entry.variant; i++)
            assert_string_not_equal(detail[i], detail[entry.variant]);
        vka_plan_destroy(&plan);
    }
    assert_non_null(strstr(detail[1], "tile 256x128, 4x2 subgroups, k 32 by halves"));
    for (size_t i = 0; i < COUNTOF(t); i++)
        vka_tensor_destroy(&t[i]);
    device->caps = usual;
}

/* Prefill by attention_coop, whose variants take other keys a step and the same rows. */
static void attention_details(void **state)
{
    (void)state;
    struct vka_device *device = &huge_devices[0];
    const struct caps usual = device->caps;
    const uint32_t shape[4] = {1, 8, 8192, 128};
    struct tuning_profile_entry entry = {.problem = "attention/*",
                                         .kernel = KERNEL_attention_coop_f16};
    const struct tuning_profile profile = {1, &entry};
    char detail[2][sizeof((struct pass *)0)->detail];
    struct vka_tensor *q = NULL, *output = NULL;
    device->caps = with_matrices(&usual);
    device->caps.profile = &profile;
    assert_int_equal(vka_tensor_create(device, VKA_F16, 4, shape, &q), VKA_OK);
    assert_int_equal(vka_tensor_create(device, VKA_F16, 4, shape, &output), VKA_OK);
    for (entry.variant = 0; entry.variant < COUNTOF(detail); entry.variant++) {
        struct vka_plan *plan = NULL;
        assert_int_equal(
            vka_plan_create(device, VKA_INFO(vka_plan_info, .submit_budget = VKA_NO_BUDGET), &plan),
            VKA_OK);
        assert_int_equal(vka_plan_add_attention(plan, VKA_INFO(vka_attention_op, .q = q, .k = q,
                                                               .v = q, .output = output)),
                         VKA_OK);
        assert_int_equal(plan->passes[0].key.kernel, KERNEL_attention_coop_f16);
        memcpy(detail[entry.variant], plan->passes[0].detail, sizeof detail[0]);
        vka_plan_destroy(&plan);
    }
    assert_non_null(strstr(detail[0], ", 32 keys a step"));
    assert_non_null(strstr(detail[1], ", 16 keys a step"));
    vka_tensor_destroy(&q);
    vka_tensor_destroy(&output);
    device->caps = usual;
}

TEST_PROGRAM(tune_large)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_an_operation),
        cmocka_unit_test(filled_rounds),
        cmocka_unit_test(needs),
        cmocka_unit_test(constants),
        cmocka_unit_test(variants),
        cmocka_unit_test(details),
        cmocka_unit_test(attention_details),
    };
    return cmocka_run_group_tests(tests, huge_devices_make, huge_devices_free);
}
