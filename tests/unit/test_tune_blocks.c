/* Choices of kernel for weights of blocks, and for operands of a cache, on devices made by hand.
 * SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "core/status.h"
#include "params/params.h"
#include "kernel/matmul.h"
#include "kernel/matmul_dot.h"
#include "test_program.h"
#include "tune_devices.h"

/* Quantised weights: by address on CPU drivers, where the buffer allows it, whatever m is. */
static void quantised(void **state)
{
    (void)state;
    struct caps cpu = mesa(26), gpu = mesa(26);
    struct matmul_problem p = {.batch = 1,
                               .m = 512,
                               .n = 512,
                               .k = 512,
                               .b_type = VKA_Q4_0,
                               .quantised = true,
                               .b_ours = true};
    for (p.m = 1; p.m < 4096; p.m *= 3) {
        const struct matmul_choice c = tune_choose(&cpu, &p);
        assert_int_equal(c.kernel, KERNEL_matmul_bytes);
        assert_int_equal(c.b_tile, 0);
        assert_in_range(c.rows, 1, BLOCK_ROWS);
        assert_true(c.pack_a);
        assert_int_equal(c.b_vec, p.m <= 2 ? 4 : 2); /* of 32 k in an iteration */
    }
    p.k = 512 + 64;
    assert_int_equal(tune_choose(&cpu, &p).b_vec, 2);
    p.k = 512 + 32;
    assert_int_equal(tune_choose(&cpu, &p).b_vec, 1);
    p.k = 512;
    cpu.int8 = false;
    assert_int_equal(tune_choose(&cpu, &p).kernel, KERNEL_matmul_block);
    cpu = mesa(22); /* its values are vectors all */
    assert_int_equal(tune_choose(&cpu, &p).kernel, KERNEL_matmul_block);
    assert_int_equal(tune_choose(&cpu, &p).b_vec, 0);
    p.b_words = true;
    assert_int_equal(tune_choose(&cpu, &p).b_vec, 1);
    p.k = 512 + 32;
    assert_int_equal(tune_choose(&cpu, &p).b_vec, 0);
    p.k = 512;
    p.b_ours = false; /* an application's buffer without addresses */
    assert_int_equal(tune_choose(&cpu, &p).kernel, KERNEL_matmul_tile);
    p.b_ours = true;
    p.b_type = VKA_I8;
    p.k = 500;
    assert_int_equal(tune_choose(&cpu, &p).kernel, KERNEL_matmul_tile);
    p.k = 512;
    cpu.device_address = false;
    assert_int_equal(tune_choose(&cpu, &p).kernel, KERNEL_matmul_tile);
    gpu.properties.type = VKA_DEVICE_DISCRETE;
    assert_int_equal(tune_choose(&gpu, &p).kernel, KERNEL_matmul_tile);
    assert_true(tune_choose(&gpu, &p).b_vec);
    p.m = 32;
    assert_int_equal(tune_choose(&gpu, &p).kernel, KERNEL_matmul_few);
}

/* Quantised activations: whatever the weights and the device, and no other product has their kernels.
 * The order of sums follows from k alone: blocks one by one, in steps that a group is whole of. */
static void integers(void **state)
{
    (void)state;
    const struct caps *const devices[] = {&mobile, &discrete};
    for (size_t i = 0; i < COUNTOF(devices); i++)
        for (uint32_t m = 1; m < 3000; m = 2 * m + 1)
            for (uint32_t k = 32; k < 20000; k = 3 * k + 32) {
                struct caps caps = *devices[i];
                struct matmul_problem p = {
                    .batch = 1, .m = m, .n = 99, .k = k, .b_type = VKA_Q4_0, .quantised = true};
                assert_false(matmul_is_dot(tune_choose(&caps, &p).kernel));
                p.integers = true;
                assert_int_equal(tune_choose(&caps, &p).kernel, KERNEL_matmul_dot_plain);
                caps.dot = true;
                const struct matmul_choice c = tune_choose(&caps, &p);
                assert_int_equal(c.kernel, KERNEL_matmul_dot);
                assert_true(c.pack_a);
                assert_in_range(c.rows, 1, DOT_ROWS);
                assert_int_equal(MATMUL_GROUP %
                                     (c.lanes * c.own_columns / c.columns * (uint32_t)MATMUL_BLOCK),
                                 0);
                assert_int_equal(c.lanes * c.own_columns % c.columns, 0);
                caps.without = KERNEL_SET(KERNEL_matmul_dot);
                assert_int_equal(tune_choose(&caps, &p).kernel, KERNEL_matmul_dot_plain);
            }
}

/* Scores and context of a cache: by the kernel of every capacity, which is n of the one and k of the
 * other. */
static void cached_products(void **state)
{
    (void)state;
    const struct caps devices[] = {with_matrices(&discrete), discrete, mobile, mesa(22), mesa(26)};
    static const enum vka_dtype types[] = {VKA_F32, VKA_F16, VKA_BF16};
    static const uint32_t capacities[] = {40000, 2048, 33, 16, 15, 1}, rows[] = {1, 16, 33, 200};
    for (size_t d = 0; d < COUNTOF(devices); d++)
        for (size_t t = 0; t < COUNTOF(types); t++)
            for (size_t r = 0; r < COUNTOF(rows); r++) {
                struct matmul_problem scores = {
                    .m = rows[r], .k = 64, .a_type = types[t], .b_type = types[t], .cached = true};
                struct matmul_problem context = {
                    .m = rows[r], .n = 64, .b_type = types[t], .hidden = true, .cached = true};
                scores.a_vectors = scores.b_vectors = context.a_vectors = true;
                enum kernel wanted[2] = {KERNEL_COUNT, KERNEL_COUNT};
                for (size_t c = 0; c < COUNTOF(capacities); c++) {
                    scores.batch = context.batch = 1 + 7 * c;
                    scores.n = context.k = capacities[c];
                    const enum kernel got[2] = {tune_choose(&devices[d], &scores).kernel,
                                                tune_choose(&devices[d], &context).kernel};
                    for (int i = 0; i < 2; i++) {
                        wanted[i] = c ? wanted[i] : got[i];
                        assert_int_equal(got[i], wanted[i]);
                    }
                }
            }
}

TEST_PROGRAM(tune_blocks)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantised),
        cmocka_unit_test(integers),
        cmocka_unit_test(cached_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
