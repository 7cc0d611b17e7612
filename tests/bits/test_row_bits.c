/* The bits of a row of a linear product: the same for 1 to 40 rows as in a product of many, though
 * other kernels take them; by the rules for this device, and by those for GPUs. And the values of
 * float16 numbers below 2^-14, which devices may flush. Some numbers of rows by default, as each makes
 * pipelines of its own, and types in turn (problems/turns.h); with the argument all, each number. With
 * the argument mixed, products by the dot products of float16 that a device has; with flushed, by
 * other kernels, as that device takes subnormals for 0.
 * SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "patience.h"
#include "kernel/tune.h"
#include "params/types.h"
#include "problems/limits.h"
#include "plan/plan.h"
#include "test_program.h"
#include "problems/quantised.h"
#include "problems/turns.h"

#define MANY 100
#define MOST 40
#define TURNS 60 /* after so many, types are taken in the same order */
#define FEW 32   /* most rows that the rules for GPUs give to a kernel for few */

/* input [MANY][k], weight [n][k], output [MANY][n]. */
static const struct product {
    enum vka_dtype input, weight, output;
    uint32_t n, k, step; /* every step-th number of rows is compared */
} products[] = {
    {VKA_F32, VKA_F32, VKA_F32, 70, 384, 1},      {VKA_F16, VKA_F16, VKA_F16, 70, 384, 3},
    {VKA_F32, VKA_F32, VKA_F32, 9, 4096 + 4, 7},  {VKA_F16, VKA_F16, VKA_F32, 40, 4096 + 8, 5},
    {VKA_BF16, VKA_BF16, VKA_F32, 33, 24, 6},     {VKA_F32, VKA_F16, VKA_F32, 33, 264, 11},
    {VKA_BF16, VKA_F32, VKA_BF16, 18, 12288, 15}, {VKA_F32, VKA_Q8_0, VKA_F32, 33, 4096 + 96, 3},
    {VKA_F32, VKA_Q4_K, VKA_F32, 19, 768, 5},     {VKA_F16, VKA_Q4_0, VKA_F32, 40, 608, 4},
    {VKA_BF16, VKA_Q6_K, VKA_BF16, 33, 512, 6},   {VKA_F16, VKA_MXFP4, VKA_F16, 33, 96, 8},
    {VKA_F32, VKA_I4_G128, VKA_F32, 9, 4224, 10}, {VKA_F32, VKA_Q6_K, VKA_F32, 21, 768, 4},
    {VKA_F16, VKA_Q5_1, VKA_F32, 21, 608, 11},    {VKA_F32, VKA_Q5_K, VKA_F32, 19, 768, 9},
    {VKA_BF16, VKA_Q3_K, VKA_BF16, 9, 512, 11},   {VKA_F32, VKA_Q2_K, VKA_F32, 9, 768, 10},
    {VKA_F16, VKA_IQ4_NL, VKA_F32, 9, 576, 11},   {VKA_F16, VKA_IQ4_XS, VKA_F32, 9, 512, 12},
    {VKA_BF16, VKA_NVFP4, VKA_F32, 9, 576, 11},   {VKA_F16, VKA_IQ3_S, VKA_F32, 9, 512, 12},
    {VKA_F32, VKA_NF4_G64, VKA_F32, 9, 576, 13},  {VKA_F32, VKA_F8_E4M3_G64, VKA_F32, 9, 576, 12},
};

/* With quantised activations. */
static const struct product integers[] = {
    {VKA_F32, VKA_Q4_K, VKA_F32, 70, 8192, 1},  {VKA_F16, VKA_Q8_0, VKA_F16, 33, 4096 + 96, 4},
    {VKA_F32, VKA_Q6_K, VKA_F32, 9, 512, 8},    {VKA_F16, VKA_Q5_K, VKA_F32, 9, 768, 12},
    {VKA_F32, VKA_Q2_K, VKA_F32, 9, 512, 12},   {VKA_F32, VKA_NVFP4, VKA_F32, 9, 576, 12},
    {VKA_F32, VKA_IQ4_XS, VKA_F32, 9, 512, 12}, {VKA_F32, VKA_IQ2_XS, VKA_F32, 9, 512, 12},
};

static bool is_weight(enum vka_dtype type)
{
    bool is = false;
    for (size_t i = 0; i < COUNTOF(products); i++)
        is |= products[i].weight == type;
    return is;
}

static bool is_integer_weight(enum vka_dtype type)
{
    bool is = false;
    for (size_t i = 0; i < COUNTOF(integers); i++)
        is |= integers[i].weight == type;
    return is;
}

struct operands {
    struct vka_tensor *input, *weight, *output;
    enum vka_dtype activations;
};

static void check(struct vka_device *device, enum vka_status status)
{
    if (status != VKA_OK)
        fail_msg("%s: %s", vka_status_name(status), vka_device_error(device));
}

static void fill_blocks(struct vka_device *device, struct vka_tensor *t, struct rng *rng)
{
    size_t size = vka_tensor_size(t), block = block_layout(t->dtype)->bytes;
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i += block)
        quantised_draw(rng, t->dtype, 1, bytes + i);
    check(device, vka_tensor_write(t, bytes, size));
    free(bytes);
}

/* Elements of -2 to 2: sums round in every step. */
static struct vka_tensor *matrix(struct vka_device *device, enum vka_dtype dtype, uint32_t rows,
                                 uint32_t columns, uint64_t seed)
{
    struct vka_tensor *t = NULL;
    struct rng rng = {seed};
    check(device, vka_tensor_create(device, dtype, 2, (const uint32_t[]){rows, columns}, &t));
    if (block_layout(dtype)) {
        fill_blocks(device, t, &rng);
        return t;
    }
    size_t count = (size_t)rows * columns;
    uint32_t *words = calloc(count, sizeof *words);
    assert_non_null(words);
    for (size_t i = 0; i < count; i++) {
        float x = (float)rng_uniform(&rng, -2, 2);
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        if (dtype == VKA_F32)
            words[i] = bits;
        else /* random bits of float16: an exponent of 2^-5 to 2^2, or of 0; bfloat16: x, cut */
            ((uint16_t *)words)[i] =
                (uint16_t)(dtype == VKA_BF16 ? bits >> 16 : (bits & 0x8fff) | (i % 9 ? 0x3000 : 0));
    }
    check(device, vka_tensor_write(t, words, count * (dtype == VKA_F32 ? 4 : 2)));
    free(words);
    return t;
}

/* The first m rows of the output, and the kernel. */
static void *run(struct vka_device *device, const struct operands *t, uint32_t m,
                 enum kernel *kernel)
{
    struct vka_plan *plan = NULL;
    struct vka_tensor *input = NULL, *output = NULL;
    check(device, vka_tensor_slice(t->input, 0, 0, m, &input));
    check(device, vka_tensor_slice(t->output, 0, 0, m, &output));
    void *bytes = calloc(vka_tensor_size(t->output), 1);
    assert_non_null(bytes);
    check(device,
          vka_plan_create(device, VKA_INFO(vka_plan_info, .submit_budget = VKA_NO_BUDGET), &plan));
    check(device,
          vka_plan_add_linear(plan, VKA_INFO(vka_linear_op, .input = input, .weight = t->weight,
                                             .output = output, .activations = t->activations)));
    check(device, vka_plan_finish(plan));
    *kernel = plan->passes[plan->n_pass - 1].key.kernel;
    check(device, vka_plan_run(plan, PATIENCE));
    check(device, vka_tensor_read(output, bytes, vka_tensor_size(output)));
    vka_plan_destroy(&plan);
    vka_tensor_destroy(&input);
    vka_tensor_destroy(&output);
    return bytes;
}

static bool every_number, mixed_alone, flushed;

/* Whether a product of m rows is tried: those at the ends, and at those of the kernels for few, always. */
static bool is_tried(uint32_t m)
{
    return every_number || m <= 2 || m % 7 == 0 || m == FEW || m == FEW + 1 || m == MOST;
}

static void same_bits(struct vka_device *device, const struct product *p,
                      enum vka_dtype activations, bool as_gpu)
{
    enum kernel many, few;
    struct operands t = {matrix(device, p->input, MANY, p->k, 1),
                         matrix(device, p->weight, p->n, p->k, 2),
                         matrix(device, p->output, MANY, p->n, 3), activations};
    void *want = run(device, &t, MANY, &many);
    for (uint32_t m = 1; m <= MOST; m += p->step) {
        if (!is_tried(m))
            continue;
        void *got = run(device, &t, m, &few);
        if (memcmp(got, want, (size_t)m * p->n * (p->output == VKA_F32 ? 4 : 2)) != 0)
            fail_msg("%u rows by %s, %u by %s: other bits", m, kernel_table[few].name, MANY,
                     kernel_table[many].name);
        if (mixed_alone)
            assert_int_equal(many, flushed ? KERNEL_matmul_tile : KERNEL_matmul_tile_mixed);
        if (as_gpu && many == KERNEL_matmul_tile)
            assert_int_equal(few, m <= FEW ? KERNEL_matmul_few : KERNEL_matmul_tile);
        if (as_gpu && many == KERNEL_matmul_tile_mixed)
            assert_int_equal(few, m <= FEW ? KERNEL_matmul_few_mixed : KERNEL_matmul_tile_mixed);
        free(got);
    }
    print_message("%s*%s, n %u, k %u: %s\n", vka_dtype_name(p->input), vka_dtype_name(p->weight),
                  p->n, p->k, kernel_table[many].name);
    free(want);
    vka_tensor_destroy(&t.input);
    vka_tensor_destroy(&t.weight);
    vka_tensor_destroy(&t.output);
}

/* Whether a product is tried by the rules for this device, or for GPUs. At a landing all but the
 * first are by the one or the other in turn; what shaders/cpu/ does not read by those for GPUs at
 * every second one, as this device's are the same. */
static bool has_turn(size_t i, bool as_gpu)
{
    const enum vka_dtype type = products[i].weight;
    const uint32_t turn = turn_of(2);
    if (mixed_alone)
        return products[i].input == VKA_F16 && type == VKA_F16;
    if (turn == 2 || i == 0)
        return true;
    if (dtype_is_float(type))
        return (i + as_gpu) % 2 == turn;
    if (!turn_takes(type, is_weight))
        return false;
    /* Families have fewer than 7 types: of turns that far apart, each takes the same ones. */
    const bool second = (i + as_gpu) % 2 == turn_of(2 * TURNS) / TURNS;
    return second && (as_gpu || dtype_has_cpu_kernels(type));
}

static void rules_of_the_device(void **state)
{
    struct vka_device *device = NULL;
    (void)state;
    check(NULL, vka_device_create(NULL, &device));
    for (size_t i = 0; i < COUNTOF(products); i++)
        if (has_turn(i, false))
            same_bits(device, &products[i], VKA_F32, false);
    vka_device_destroy(&device);
}

/* By the rules of the device, and by those for GPUs. */
static void quantised_activations(void **state)
{
    (void)state;
    for (int as_gpu = 0; as_gpu < 2; as_gpu++) {
        struct vka_device *device = NULL;
        check(NULL, vka_device_create(NULL, &device));
        if (as_gpu)
            device->caps.properties.type = VKA_DEVICE_DISCRETE;
        for (size_t i = 0; i < COUNTOF(integers); i++)
            if (turn_takes(integers[i].weight, is_integer_weight))
                same_bits(device, &integers[i], VKA_I8, as_gpu);
        vka_device_destroy(&device);
    }
}

static void rules_for_gpus(void **state)
{
    struct vka_device *device = NULL;
    (void)state;
    check(NULL, vka_device_create(NULL, &device));
    device->caps.properties.type = VKA_DEVICE_DISCRETE;
    for (size_t i = 0; i < COUNTOF(products); i++)
        if (has_turn(i, true))
            same_bits(device, &products[i], VKA_F32, true);
    vka_device_destroy(&device);
}

/* Whether matmul_few_half takes it. */
static bool takes_half(enum vka_dtype type)
{
    return dtype_is_block(type) && (BUNDLE_PAIR_WORDS(type) != 0 || type == VKA_Q6_K) &&
           type != VKA_I4_G128;
}

/* Integers by way of float16, as GPUs of AMD take them: the bits of matmul_tile. */
static void half_integers(void **state)
{
    struct vka_device *device = NULL;
    enum kernel many, few;
    (void)state;
    check(NULL, vka_device_create(NULL, &device));
    device->caps.properties.type = VKA_DEVICE_DISCRETE;
    device->caps.properties.vendor_id = VENDOR_AMD;
    for (EACH_TURN(type, takes_half)) {
        if (!device->caps.properties.float16)
            break; /* the kernel is not there */
        struct operands t = {matrix(device, VKA_F32, MANY, 256, 1),
                             matrix(device, type, 11, 256, 2), matrix(device, VKA_F32, MANY, 11, 3),
                             VKA_F32};
        float *want = run(device, &t, MANY, &many);
        for (uint32_t m = 1; m <= 5; m += 4) {
            float *got = run(device, &t, m, &few);
            assert_int_equal(many, KERNEL_matmul_tile);
            assert_int_equal(few, KERNEL_matmul_few_half);
            assert_memory_equal(got, want, (size_t)m * 11 * sizeof *got);
            free(got);
        }
        free(want);
        vka_tensor_destroy(&t.input);
        vka_tensor_destroy(&t.weight);
        vka_tensor_destroy(&t.output);
    }
    vka_device_destroy(&device);
}

/* The rules take them on GPUs alone, where matrices are large. */
static void matrix_units(void **state)
{
    struct vka_device *device = NULL;
    (void)state;
    check(NULL, vka_device_create(NULL, &device));
    limits_to_matrices(device);
    for (size_t i = 0; i < COUNTOF(products); i++)
        if (products[i].input == VKA_F16 && products[i].weight != VKA_F32 &&
            turn_takes(products[i].weight, is_weight))
            same_bits(device, &products[i], VKA_F32, false);
    vka_device_destroy(&device);
}

/* Row r of the output is column r of the weights, float16 numbers from 0 through all subnormals. */
static void subnormals(void **state)
{
    enum { N = 128, K = 16 };
    struct vka_device *device = NULL;
    const enum vka_dtype type = mixed_alone ? VKA_F16 : VKA_F32;
    float rows[MANY * K] = {0};
    uint16_t weights[N * K], row_halves[MANY * K] = {0};
    enum kernel kernel;
    (void)state;
    for (uint32_t i = 0; i < MANY; i++) {
        rows[i * K + i % K] = 1;
        row_halves[i * K + i % K] = 0x3c00;
    }
    for (uint32_t i = 0; i < N * K; i++)
        weights[i] = (uint16_t)(i | (i % 3 ? 0 : 0x8000));
    check(NULL, vka_device_create(NULL, &device));
    device->caps.properties.type = VKA_DEVICE_DISCRETE;
    struct operands t = {matrix(device, type, MANY, K, 1), matrix(device, VKA_F16, N, K, 2),
                         matrix(device, VKA_F32, MANY, N, 3), VKA_F32};
    check(device, mixed_alone ? vka_tensor_write(t.input, row_halves, sizeof row_halves)
                              : vka_tensor_write(t.input, rows, sizeof rows));
    check(device, vka_tensor_write(t.weight, weights, sizeof weights));
    for (uint32_t m = 1; m <= MANY; m = m * 3 + 1) {
        float *got = run(device, &t, m, &kernel);
        for (uint32_t i = 0; i < m * N; i++) {
            uint32_t at = i % N * K + i / N % K;
            double want = at < 0x400 ? at * 0x1p-24 : (0x400 + at % 0x400) * 0x1p-24;
            if (got[i] != (at % 3 ? want : -want))
                fail_msg("%s: float16 %u is %g", kernel_table[kernel].name, at, (double)got[i]);
        }
        free(got);
    }
    vka_tensor_destroy(&t.input);
    vka_tensor_destroy(&t.weight);
    vka_tensor_destroy(&t.output);
    vka_device_destroy(&device);
}

TEST_PROGRAM_ARGUMENTS(row_bits)
{
    every_number = argc == 2 && strcmp(argv[1], "all") == 0;
    flushed = argc == 2 && strcmp(argv[1], "flushed") == 0;
    mixed_alone = flushed || (argc == 2 && strcmp(argv[1], "mixed") == 0);
    struct vka_device *device = NULL;
    const struct CMUnitTest tests[] = {cmocka_unit_test(rules_of_the_device),
                                       cmocka_unit_test(rules_for_gpus),
                                       cmocka_unit_test(subnormals),
                                       cmocka_unit_test(half_integers),
                                       cmocka_unit_test(quantised_activations),
                                       cmocka_unit_test(matrix_units)};
    const struct CMUnitTest mixed[] = {cmocka_unit_test(rules_for_gpus),
                                       cmocka_unit_test(subnormals)};
    if (vka_device_create(NULL, &device) != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device, no bits of rows were compared\n");
        return 77;
    }
    bool matrices = !kernel_missing(KERNEL_matmul_coop_f16, &device->caps);
    vka_device_destroy(&device);
    if (mixed_alone)
        return cmocka_run_group_tests_name("row_bits mixed", mixed, NULL, NULL);
    return _cmocka_run_group_tests("row_bits", tests, matrices ? 6 : 5, NULL, NULL);
}
