/* Products so long that they are cut along k, by the budget of a submit and by lower limits: the
 * same bits by every kernel, those of NaN too, which sums meet in another order in each. And sums
 * of equal terms, which round alike: each row's normalised squared error stays below 1e-11.
 * SPDX-License-Identifier: MIT */
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
#include "problems/limits.h"
#include "plan/plan.h"
#include "kernel/tune.h"
#include "test_program.h"
#include "problems/rng.h"

#define K 16519        /* 66,076 bytes a row of float32: past a lower limit */
#define PACKED_ROWS 33 /* for which B is packed */

/* input [m][K], weight [n][K], output [m][n]. */
struct product {
    uint32_t m, n;
    enum vka_dtype input, weight, output;
    bool bias, relu;
};

static const struct product products[] = {
    {1, 5, VKA_F32, VKA_F32, VKA_F32, false, false},
    {PACKED_ROWS, 3, VKA_F32, VKA_F32, VKA_F32, true, true},
    {5, 7, VKA_BF16, VKA_BF16, VKA_BF16, true, false},
    {PACKED_ROWS, 1, VKA_F16, VKA_F16, VKA_F32, false, true},
    {3, 4, VKA_F32, VKA_F16, VKA_F16, false, false},
};

struct operands {
    struct vka_tensor *input, *weight, *bias, *output;
};

static void check(struct vka_device *device, enum vka_status status)
{
    if (status != VKA_OK)
        fail_msg("%s: %s", vka_status_name(status), vka_device_error(device));
}

static struct vka_tensor *matrix(struct vka_device *device, enum vka_dtype dtype, uint32_t rows,
                                 uint32_t columns)
{
    struct vka_tensor *t = NULL;
    check(device, vka_tensor_create(device, dtype, 2, (const uint32_t[]){rows, columns}, &t));
    return t;
}

/* The bits of x, rounded towards zero to 16 bits where the type has so many. */
static uint32_t encode(enum vka_dtype dtype, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (dtype == VKA_F32)
        return bits;
    if (dtype == VKA_BF16)
        return bits >> 16;
    uint32_t sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
    if (rest >= 0x7f800000u)
        return sign | 0x7c00u | (rest > 0x7f800000u ? 0x200u : 0);
    return rest < 0x38800000u ? sign : sign | (rest - 0x38000000u) >> 13;
}

/* Elements of 0.5 to 1 and either sign. */
static void *noise(enum vka_dtype dtype, size_t n, uint64_t seed)
{
    struct rng rng = {seed};
    size_t size = dtype == VKA_F32 ? 4 : 2;
    unsigned char *bytes = malloc(n * size);
    assert_non_null(bytes);
    for (size_t i = 0; i < n; i++) {
        float x = (float)rng_uniform(&rng, 0.5, 1);
        uint32_t bits = encode(dtype, rng_chance(&rng, 50) ? x : -x);
        memcpy(bytes + i * size, &bits, size);
    }
    return bytes;
}

/* Rows 1, 3, ... of `rows` get two elements, early and late, that make NaN of either sign. */
static void poison(enum vka_dtype dtype, void *elements, uint32_t rows)
{
    static const float pairs[][2] = {
        {NAN, -NAN}, {-NAN, NAN}, {INFINITY, -INFINITY}, {-NAN, INFINITY}, {INFINITY, NAN}};
    size_t size = dtype == VKA_F32 ? 4 : 2, n = sizeof pairs / sizeof pairs[0];
    for (uint32_t row = 1; row < rows; row += 2)
        for (int i = 0; i < 2; i++) {
            uint32_t bits = encode(dtype, pairs[row / 2 % n][i]);
            size_t at = (size_t)row * K + (i ? K - 7 : 11 + row);
            memcpy((unsigned char *)elements + at * size, &bits, size);
        }
}

static struct operands make_operands(struct vka_device *device, const struct product *p)
{
    struct operands t = {
        .input = matrix(device, p->input, p->m, K),
        .weight = matrix(device, p->weight, p->n, K),
        .output = matrix(device, p->output, p->m, p->n),
    };
    void *input = noise(p->input, (size_t)p->m * K, 1), *weight;
    weight = noise(p->weight, (size_t)p->n * K, 2);
    poison(p->input, input, p->m);
    poison(p->weight, weight, p->n);
    check(device, vka_tensor_write(t.input, input, vka_tensor_size(t.input)));
    check(device, vka_tensor_write(t.weight, weight, vka_tensor_size(t.weight)));
    free(input);
    free(weight);
    if (p->bias) {
        void *bias = noise(VKA_F32, p->n, 3);
        check(device, vka_tensor_create(device, VKA_F32, 1, &p->n, &t.bias));
        check(device, vka_tensor_write(t.bias, bias, p->n * sizeof(float)));
        free(bias);
    }
    return t;
}

static void free_operands(struct operands *t)
{
    vka_tensor_destroy(&t->input);
    vka_tensor_destroy(&t->weight);
    vka_tensor_destroy(&t->bias);
    vka_tensor_destroy(&t->output);
}

/* The output by a plan of this budget, and how many passes of a product it took. */
static void *run(struct vka_device *device, const struct product *p, const struct operands *t,
                 uint64_t budget, size_t *n_pass, enum kernel *kernel)
{
    struct vka_plan *plan = NULL;
    void *output = malloc(vka_tensor_size(t->output));
    assert_non_null(output);
    check(device, vka_plan_create(device, VKA_INFO(vka_plan_info, .submit_budget = budget), &plan));
    check(device, vka_plan_add_linear(plan, VKA_INFO(vka_linear_op, .input = t->input,
                                                     .weight = t->weight, .bias = t->bias,
                                                     .output = t->output, .relu_input = p->relu)));
    check(device, vka_plan_finish(plan));
    *n_pass = 0;
    for (size_t i = 0; i < plan->n_pass; i++)
        if (strcmp(plan->passes[i].name, "linear") == 0) {
            *kernel = plan->passes[i].key.kernel;
            ++*n_pass;
        }
    check(device, vka_plan_run(plan, PATIENCE));
    check(device, vka_tensor_read(t->output, output, vka_tensor_size(t->output)));
    vka_plan_destroy(&plan);
    return output;
}

static void same_bits(struct vka_device *device, const struct product *p)
{
    struct operands t = make_operands(device, p);
    size_t bytes = vka_tensor_size(t.output), n[3];
    enum kernel kernel[3];
    void *whole = run(device, p, &t, VKA_NO_BUDGET, &n[0], &kernel[0]);
    void *cut = run(device, p, &t, 1000, &n[1], &kernel[1]);
    struct vka_device_properties usual = limits_lower(device, LEAST_RANGE, LEAST_ALLOCATION);
    void *limited = run(device, p, &t, VKA_NO_BUDGET, &n[2], &kernel[2]);
    limits_restore(device, &usual);
    print_message("%s, %u x %u x %u: %zu, %zu, %zu passes\n", kernel_table[kernel[0]].name, p->m,
                  p->n, K, n[0], n[1], n[2]);
    size_t chains = (K + TUNE_CHAIN - 1) / TUNE_CHAIN;
    if (kernel[0] == KERNEL_matmul_tile) /* which loops too often for some CPU drivers */
        assert_in_range(n[0], chains, 4 * chains);
    else
        assert_int_equal(n[0], chains);
    assert_true(n[1] > K / 512 && n[2] >= n[0]);
    assert_true(kernel[1] == kernel[0] && kernel[2] == kernel[0]);
    if (memcmp(whole, cut, bytes) != 0)
        fail_msg("other bits by the budget");
    if (memcmp(whole, limited, bytes) != 0)
        fail_msg("other bits by the limits");
    free(whole);
    free(cut);
    free(limited);
    free_operands(&t);
}

/* Outputs of each kind of equal terms, of which those from CHAIN_WORST on round worst in a chain of
 * 128 blocks of 128: 1.14e-11. */
#define N_EQUAL 40
#define CHAIN_WORST 0x1.f9ab8p+0f

static void equal_terms(struct vka_device *device, uint32_t m)
{
    const struct product p = {m, N_EQUAL, VKA_F32, VKA_F32, VKA_F32, false, false};
    struct operands t = make_operands(device, &p);
    float *ones = malloc(vka_tensor_size(t.input)), *terms = malloc(vka_tensor_size(t.weight));
    size_t n_pass;
    enum kernel kernel;
    assert_true(ones && terms);
    for (size_t i = 0; i < (size_t)m * K; i++)
        ones[i] = i % K < TUNE_CHAIN;
    for (size_t i = 0; i < (size_t)N_EQUAL * K; i++)
        terms[i] = CHAIN_WORST + (float)(i / K % 8) * 0x1p-23f + (float)(i / K / 8) * 0.17f;
    check(device, vka_tensor_write(t.input, ones, vka_tensor_size(t.input)));
    check(device, vka_tensor_write(t.weight, terms, vka_tensor_size(t.weight)));
    float *sums = run(device, &p, &t, VKA_NO_BUDGET, &n_pass, &kernel);
    double worst = 0;
    for (uint32_t i = 0; i < m * N_EQUAL; i++) {
        double error = sums[i] / ((double)terms[(size_t)(i % N_EQUAL) * K] * TUNE_CHAIN) - 1;
        worst = fmax(worst, error * error);
    }
    print_message("%s, %u rows of equal terms: %.2e\n", kernel_table[kernel].name, m, worst);
    assert_true(worst < 1e-11);
    free(ones);
    free(terms);
    free(sums);
    free_operands(&t);
}

static void all_products(struct vka_device *device)
{
    equal_terms(device, 1);
    equal_terms(device, PACKED_ROWS);
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++)
        same_bits(device, &products[i]);
}

/* By the kernels that the device prefers, then without one after the other. */
static void every_kernel(void **state)
{
    struct vka_device *device = NULL;
    static const enum kernel without[] = {KERNEL_matmul_coop_f16, KERNEL_matmul_coop_bf16,
                                          KERNEL_matmul_address,  KERNEL_matmul_texel,
                                          KERNEL_matmul_lane8,    KERNEL_matmul_lane4};
    (void)state;
    check(NULL, vka_device_create(NULL, &device));
    all_products(device);
    for (size_t i = 0; i < sizeof without / sizeof without[0]; i++) {
        if (kernel_missing(without[i], &device->caps))
            continue;
        set_add(&device->caps.without, without[i]);
        all_products(device);
    }
    vka_device_destroy(&device);
}

TEST_PROGRAM(long_products)
{
    struct vka_device *device = NULL;
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_kernel)};
    if (vka_device_create(NULL, &device) != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device, no long products were tested\n");
        return 77;
    }
    vka_device_destroy(&device);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
