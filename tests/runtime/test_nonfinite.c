/* NaN and Inf counted by a plan, against counting what was read back: every type, strided outputs
 * among NaN, outputs cut for small bindings. SPDX-License-Identifier: MIT */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "patience.h"
#include "problems/operand.h"
#include "problems/types.h"
#include "op/common/nonfinite.h"
#include "test_program.h"

static void check(const struct vka_device *device, enum vka_status status)
{
    if (status != VKA_OK)
        fail_msg("%s: %s", vka_status_name(status), vka_device_error(device));
}

static void expect(struct vka_plan *plan, size_t index, const char *name, uint64_t nan,
                   uint64_t inf)
{
    struct vka_nonfinite_info info;
    assert_int_equal(vka_plan_nonfinite(plan, index, &info), VKA_OK);
    assert_string_equal(info.name, name);
    assert_int_equal(info.nan, nan);
    assert_int_equal(info.inf, inf);
}

static void expect_read(struct vka_plan *plan, size_t index, const char *name, struct operand *o)
{
    uint64_t nan = 0, inf = 0;
    assert_int_equal(operand_read(o), VKA_OK);
    for (size_t i = 0; i < o->count; i++) {
        nan += isnan(o->values[i]) != 0;
        inf += isinf(o->values[i]) != 0;
    }
    expect(plan, index, name, nan, inf);
}

/* An outer product, [heads][m][1] by [n][1], so that a row of the output is what its input is: NaN,
 * Inf, what only float16 takes for Inf, and numbers. */
static void outer_product(struct vka_device *device, enum vka_dtype dtype, struct rng *rng)
{
    const uint32_t heads = rng_range(rng, 1, 3), m = rng_range(rng, 1, 300);
    const uint32_t n = rng_range(rng, 1, 300);
    static const float values[] = {NAN, INFINITY, -INFINITY, 70000, 1, -0.5f, 0, 3};
    struct operand x, w, y;
    struct layout layout = layout_random(rng, 3), dense = layout_dense();
    struct vka_plan *plan = NULL;
    struct vka_nonfinite_info info;
    check(device, operand_create(device, VKA_F32, 3, (const uint32_t[]){heads, m, 1}, &dense, &x));
    check(device, operand_create(device, VKA_F32, 2, (const uint32_t[]){n, 1}, &dense, &w));
    check(device, operand_create(device, dtype, 3, (const uint32_t[]){heads, m, n}, &layout, &y));
    check(device, vka_plan_create(device, VKA_INFO(vka_plan_info, .count_nonfinite = true), &plan));
    check(device, vka_plan_add_linear(plan, VKA_INFO(vka_linear_op, .input = x.view,
                                                     .weight = w.view, .output = y.view)));
    check(device, vka_plan_finish(plan));
    assert_int_equal(vka_plan_nonfinite_count(plan), 1);
    assert_int_equal(vka_plan_nonfinite(plan, 0, &info), VKA_INVALID); /* not run yet */
    for (size_t i = 0; i < w.count; i++)
        w.values[i] = 1;
    check(device, operand_write(&w));
    memset(y.image, 0xff, y.bytes); /* NaN of every type, around the view too */
    for (int run = 0; run < 3; run++) {
        for (size_t i = 0; i < x.count; i++)
            x.values[i] = (double)values[run == 1 ? 4 : rng_range(rng, 0, 7)];
        check(device, operand_write(&x));
        check(device, vka_tensor_write(y.base, y.image, y.bytes));
        check(device, vka_plan_run(plan, PATIENCE));
        if (run == 1)
            expect(plan, 0, "output", 0, 0);
        expect_read(plan, 0, "output", &y);
        assert_int_equal(operand_damage(&y), SIZE_MAX);
    }
    assert_int_equal(vka_plan_nonfinite(plan, 1, &info), VKA_INVALID);
    assert_int_equal(vka_plan_nonfinite(plan, 0, NULL), VKA_INVALID);
    vka_plan_destroy(&plan);
    operand_destroy(&x);
    operand_destroy(&w);
    operand_destroy(&y);
}

static void products(void **state)
{
    struct vka_device *device = *state;
    for (EACH_TYPE(dtype, dtype_is_float))
        for (uint64_t i = 0; i < 4; i++) {
            struct rng rng = {100 * (uint64_t)dtype + i};
            outer_product(device, dtype, &rng);
        }
}

/* All outputs of an attention whose second half of rows sees no key, which gives NaN; of a plan's
 * second operation, after one of the same. */
static void attention(void **state)
{
    struct vka_device *device = *state;
    enum { HEADS = 2, N = 6, DIM = 4 };
    const uint32_t size[] = {1, HEADS, N, DIM}, square[] = {1, HEADS, N, N};
    struct operand o[6];
    struct rng rng = {7};
    struct vka_plan *plan = NULL;
    for (size_t i = 0; i < 6; i++) {
        struct layout layout = layout_random(&rng, 4);
        check(device, operand_create(device, i == 4 ? VKA_F16 : VKA_F32, 4, i == 4 ? square : size,
                                     &layout, &o[i]));
        for (size_t j = 0; j < o[i].count; j++)
            o[i].values[j] = rng_uniform(&rng, -1, 1);
        if (i == 1)
            o[i].values[0] = (double)INFINITY; /* in a key: present_key has it */
        check(device, operand_write(&o[i]));
    }
    struct vka_tensor *mask = NULL, *present_value = NULL, *log_sum = NULL;
    uint8_t seen[N * N];
    for (int i = 0; i < N * N; i++)
        seen[i] = i / N < N / 2 && i % N > 0;
    check(device, vka_tensor_create(device, VKA_BOOL, 2, (const uint32_t[]){N, N}, &mask));
    check(device, vka_tensor_create(device, VKA_BF16, 4, size, &present_value));
    check(device, vka_tensor_create(device, VKA_F32, 3, size, &log_sum));
    check(device, vka_tensor_write(mask, seen, sizeof seen));
    check(device, vka_plan_create(device, VKA_INFO(vka_plan_info, .count_nonfinite = true), &plan));
    struct vka_attention_op op = {
        .struct_size = sizeof op,
        .q = o[0].view,
        .k = o[1].view,
        .v = o[2].view,
        .output = o[3].view,
        .present_key = o[5].view,
        .present_value = present_value,
        .options = {.mask = mask,
                    .masked_row = VKA_MASKED_NAN,
                    .scores_kind = VKA_SCORES_BIAS,
                    .scores = o[4].view,
                    .log_sum_exp = log_sum},
    };
    check(device, vka_plan_add_attention(plan, &op));
    op.output = NULL; /* refused, and leaves nothing behind */
    assert_int_equal(vka_plan_add_attention(plan, &op), VKA_INVALID);
    op.output = o[3].view;
    check(device, vka_plan_add_attention(plan, &op));
    check(device, vka_plan_finish(plan));
    check(device, vka_plan_run(plan, PATIENCE));
    assert_int_equal(vka_plan_nonfinite_count(plan), 10);
    for (size_t i = 0; i < 10; i += 5) {
        expect(plan, i, "output", HEADS * N / 2 * DIM, 0);
        expect_read(plan, i, "output", &o[3]);
        expect(plan, i + 1, "scores", 0, HEADS * (N / 2 + N / 2 * N));
        expect_read(plan, i + 1, "scores", &o[4]);
        expect(plan, i + 2, "log_sum_exp", 0, HEADS * N / 2);
        expect(plan, i + 3, "present_key", 0, 1);
        expect(plan, i + 4, "present_value", 0, 0);
    }
    vka_plan_destroy(&plan);
    vka_tensor_destroy(&mask);
    vka_tensor_destroy(&present_value);
    vka_tensor_destroy(&log_sum);
    for (size_t i = 0; i < 6; i++)
        operand_destroy(&o[i]);
}

/* A tensor that takes more passes than a plan has is refused before anything is made for it. */
static void too_many_passes(void **state)
{
    struct vka_device *device = *state;
    struct vka_tensor *small = NULL, huge;
    struct vka_plan *plan = NULL;
    check(device, vka_tensor_create(device, VKA_F32, 1, (const uint32_t[]){1}, &small));
    check(device,
          vka_plan_create(
              device, VKA_INFO(vka_plan_info, .count_nonfinite = true, .submit_budget = 1), &plan));
    huge = *small;
    assert_true(shape_dense(4, (const uint32_t[]){1 << 15, 1 << 16, 1 << 8, 1 << 8}, &huge.shape));
    assert_int_equal(plan_count_nonfinite(plan, "output", &huge), VKA_UNSUPPORTED);
    assert_non_null(strstr(vka_device_error(device), "passes"));
    assert_int_equal(vka_plan_workspace(plan), 0);
    assert_int_equal(vka_plan_nonfinite_count(plan), 0);
    vka_plan_destroy(&plan);
    vka_tensor_destroy(&small);
}

/* Counts are those of the last run, which has to be waited for; also of one that its cache had no room for. */
static void last_run(void **state)
{
    struct vka_device *device = *state;
    const uint32_t shape[4] = {1, 1, 1, 4};
    static const float ones[4] = {1, 1, 1, 1}, nans[4] = {NAN, NAN, NAN, NAN};
    struct vka_tensor *t[4];
    struct vka_cache *cache = NULL;
    struct vka_plan *plan = NULL;
    struct vka_nonfinite_info info;
    uint64_t ticket;
    for (int i = 0; i < 4; i++) {
        check(device, vka_tensor_create(device, VKA_F32, 4, shape, &t[i]));
        check(device, vka_tensor_write(t[i], ones, sizeof ones));
    }
    check(device, vka_cache_create(device,
                                   VKA_INFO(vka_cache_info, .batch = 1, .n_kv_head = 1,
                                            .head_dim = 4, .capacity = 1),
                                   &cache));
    check(device, vka_plan_create(device, VKA_INFO(vka_plan_info, .count_nonfinite = true), &plan));
    check(device,
          vka_plan_add_attention(plan, VKA_INFO(vka_attention_op, .q = t[0], .k = t[1], .v = t[2],
                                                .output = t[3], .cache = cache)));
    check(device, vka_plan_finish(plan));
    check(device, vka_plan_run(plan, PATIENCE));
    expect(plan, 0, "output", 0, 0);
    check(device, vka_tensor_write(t[0], nans, sizeof nans));
    check(device, vka_plan_submit(plan, &ticket));
    assert_int_equal(vka_plan_nonfinite(plan, 0, &info), VKA_INVALID);
    assert_int_equal(vka_plan_wait(plan, ticket, PATIENCE), VKA_INVALID); /* the cache is full */
    assert_non_null(strstr(vka_device_error(device), "the cache is full"));
    expect(plan, 0, "output", 4, 0);
    vka_plan_destroy(&plan);
    vka_cache_destroy(&cache);
    for (int i = 0; i < 4; i++)
        vka_tensor_destroy(&t[i]);
}

static void off(void **state)
{
    struct vka_device *device = *state;
    struct vka_plan *plan = NULL;
    struct vka_nonfinite_info info;
    check(device, vka_plan_create(device, NULL, &plan));
    assert_int_equal(vka_plan_nonfinite_count(plan), 0);
    assert_int_equal(vka_plan_nonfinite(plan, 0, &info), VKA_INVALID);
    assert_int_equal(vka_plan_nonfinite_count(NULL), 0);
    assert_int_equal(vka_plan_nonfinite(NULL, 0, &info), VKA_INVALID);
    vka_plan_destroy(&plan);
}

TEST_PROGRAM(nonfinite)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products), cmocka_unit_test(attention), cmocka_unit_test(too_many_passes),
        cmocka_unit_test(last_run), cmocka_unit_test(off),
    };
    static const struct vka_device_info infos[] = {
        {.struct_size = sizeof *infos},
        {.struct_size = sizeof *infos, .max_buffer_range = 65536, .no_mapped_memory = true},
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof infos / sizeof *infos; i++) {
        struct vka_device *device = NULL;
        if (vka_device_create(&infos[i], &device) != VKA_OK) {
            fprintf(stderr, "SKIPPED: no Vulkan device, no NaN or Inf was counted\n");
            return 77;
        }
        struct CMUnitTest with_device[sizeof tests / sizeof *tests];
        memcpy(with_device, tests, sizeof tests);
        for (size_t t = 0; t < sizeof tests / sizeof *tests; t++)
            with_device[t].initial_state = device;
        failed += cmocka_run_group_tests(with_device, NULL, NULL);
        vka_device_destroy(&device);
    }
    return failed;
}
