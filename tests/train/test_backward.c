/* Gradients of attention on both paths: their memory grows no faster than the rows do, and all runs
 * have the same bits. Run as: test_gpu backward [RUNS]; 50. SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <vkattn/vkattn_train.h>

#include "patience.h"
#include "test_program.h"
#include "problems/rng.h"

#define ASSERT_OK(call) assert_int_equal(call, VKA_OK)

enum { Q, K, V, Y, DY, DQ, DK, DV, TENSORS };
enum { HEADS = 4, KEY_HEADS = 2, DIM = 12 };

static int n_run = 50;
static struct vka_device *device;
static struct vka_tensor *t[TENSORS], *log_sum;

static void make(uint32_t rows)
{
    const uint32_t q[4] = {1, HEADS, rows, DIM}, k[4] = {1, KEY_HEADS, rows, DIM};
    for (int i = 0; i < TENSORS; i++) {
        const bool of_keys = i == K || i == V || i == DK || i == DV;
        ASSERT_OK(vka_tensor_create(device, VKA_F32, 4, of_keys ? k : q, &t[i]));
    }
    ASSERT_OK(vka_tensor_create(device, VKA_F32, 3, q, &log_sum));
}

static void destroy(void)
{
    for (int i = 0; i < TENSORS; i++)
        vka_tensor_destroy(&t[i]);
    vka_tensor_destroy(&log_sum);
}

static struct vka_plan *plan_of(enum vka_path path, bool forward_too)
{
    struct vka_plan *plan = NULL;
    const struct vka_attention_op forward = {
        .struct_size = sizeof forward,
        .q = t[Q],
        .k = t[K],
        .v = t[V],
        .output = t[Y],
        .options = {.causal = true, .log_sum_exp = log_sum},
    };
    ASSERT_OK(vka_plan_create(
        device, VKA_INFO(vka_plan_info, .path = path, .submit_budget = VKA_NO_BUDGET), &plan));
    if (forward_too)
        ASSERT_OK(vka_plan_add_attention(plan, &forward));
    ASSERT_OK(vka_plan_add_attention_backward(
        plan, VKA_INFO(vka_attention_backward_op, .forward = &forward, .output_gradient = t[DY],
                       .q_gradient.tensor = t[DQ], .k_gradient.tensor = t[DK],
                       .v_gradient.tensor = t[DV])));
    return plan;
}

static uint64_t workspace(enum vka_path path, uint32_t rows)
{
    make(rows);
    struct vka_plan *plan = plan_of(path, false);
    ASSERT_OK(vka_plan_finish(plan));
    const uint64_t bytes = vka_plan_workspace(plan);
    vka_plan_destroy(&plan);
    destroy();
    return bytes;
}

static void memory_is_linear(void **state)
{
    (void)state;
    for (int path = VKA_PATH_UNFUSED; path <= VKA_PATH_FUSED; path++) {
        uint64_t last = 0;
        for (uint32_t rows = 1024; rows <= 16384; rows *= 4) {
            const uint64_t bytes = workspace((enum vka_path)path, rows);
            print_message("%s, %u rows: %llu bytes\n", path == VKA_PATH_FUSED ? "fused" : "unfused",
                          rows, (unsigned long long)bytes);
            assert_true(last == 0 || bytes <= 4 * last + 65536);
            if (path == VKA_PATH_FUSED) /* four numbers a row, and alignment */
                assert_true(bytes <= 16ull * HEADS * rows + 2 * 65536);
            last = bytes;
        }
    }
}

static void same_bits(void **state)
{
    enum { ROWS = 75 };
    static float first[3][HEADS * ROWS * DIM], again[HEADS * ROWS * DIM];
    struct rng rng = {5};
    (void)state;
    make(ROWS);
    for (int i = Q; i <= DY; i++) {
        const size_t n = (i == K || i == V ? KEY_HEADS : HEADS) * (size_t)ROWS * DIM;
        for (size_t j = 0; j < n; j++)
            again[j] = (float)rng_uniform(&rng, -2, 2);
        ASSERT_OK(vka_tensor_write(t[i], again, n * sizeof *again));
    }
    for (int path = VKA_PATH_UNFUSED; path <= VKA_PATH_FUSED; path++) {
        struct vka_plan *plan = plan_of((enum vka_path)path, true);
        ASSERT_OK(vka_plan_finish(plan));
        for (int run = 0; run < n_run; run++) {
            ASSERT_OK(vka_plan_run(plan, PATIENCE));
            for (int i = 0; i < 3; i++) {
                const size_t bytes =
                    (i == 0 ? HEADS : KEY_HEADS) * (size_t)ROWS * DIM * sizeof(float);
                ASSERT_OK(vka_tensor_read(t[DQ + i], run ? again : first[i], bytes));
                if (run)
                    assert_memory_equal(again, first[i], bytes);
            }
        }
        vka_plan_destroy(&plan);
    }
    destroy();
}

static int create_device(void **state)
{
    (void)state;
    if (vka_device_create(NULL, &device) != VKA_OK)
        exit(77);
    return 0;
}

static int destroy_device(void **state)
{
    (void)state;
    vka_device_destroy(&device);
    return 0;
}

TEST_PROGRAM_ARGUMENTS(backward)
{
    if (argc > 1)
        n_run = atoi(argv[1]);
    if (n_run < 2) {
        fprintf(stderr, "test_backward: expected two runs or more, got '%s'\n", argv[1]);
        return 2;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory_is_linear),
                                       cmocka_unit_test(same_bits)};
    return cmocka_run_group_tests(tests, create_device, destroy_device);
}
