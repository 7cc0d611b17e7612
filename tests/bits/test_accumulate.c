/* Linear that adds to its output, beside a product and an addition: the same bits, by every kernel,
 * whole and cut by limits and budgets, run after run. SPDX-License-Identifier: MIT */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <core/block.h>
#include <core/dtype.h>
#include <vkattn/vkattn_model.h>

#include "patience.h"
#include "problems/limits.h"
#include "problems/operand.h"
#include "plan/plan.h"
#include "test_program.h"
#include "problems/quantised.h"
#include "problems/rng.h"

#define SMALL_BUDGET 1000 /* nanoseconds: cuts whatever can be cut */
#define FIRST_ROW 3       /* of the output in its tensor, which is larger */
#define MORE_ROWS 130     /* the first output exceeds LEAST_RANGE then, and is packed */
#define FEW 4             /* the first products are in every run */

/* input [m][k], weight [n][k], output [m][n], whose columns are contiguous where `turned`. */
static const struct product {
    enum vka_dtype input, weight, output;
    uint32_t m, n, k;
    bool bias, turned;
} products[] = {
    {VKA_F32, VKA_F32, VKA_F32, 40, 100, 130, true, true},
    {VKA_BF16, VKA_F32, VKA_F16, 3, 18, 260, false, false},
    {VKA_F32, VKA_Q4_0, VKA_F32, 33, 70, 160, true, false},
    {VKA_F32, VKA_F32, VKA_F32, 2, 3, 16519, true, false},
    {VKA_F32, VKA_F32, VKA_F32, 1, 37, 261, false, true},
    {VKA_F16, VKA_F16, VKA_F16, 5, 33, 4096 + 64, true, false},
    {VKA_F16, VKA_F16, VKA_F16, 130, 72, 72, false, false},
    {VKA_BF16, VKA_BF16, VKA_BF16, 34, 65, 40, false, false},
    {VKA_F16, VKA_I8, VKA_BF16, 4, 70, 260, false, false},
    {VKA_BF16, VKA_BF16, VKA_BF16, 33, 2, 16519, false, true},
};

static size_t n_product = FEW;

struct operands {
    struct vka_tensor *input, *weight, *bias, *scale, *rows;
    struct vka_tensor *output;         /* a slice of `rows`, or of its transpose */
    struct vka_tensor *product, *want; /* float32, and as output; dense */
};

static void check(struct vka_device *device, enum vka_status status)
{
    if (status != VKA_OK)
        fail_msg("%s: %s", vka_status_name(status), vka_device_error(device));
}

/* The bytes of a tensor, drawn: the multiples of 1/16 up to 1, in every float type. */
static void draw(struct vka_device *device, struct vka_tensor *t, struct rng *rng)
{
    enum vka_dtype dtype = vka_tensor_dtype(t);
    size_t size = vka_tensor_size(t), n = size / (dtype == VKA_F32 ? 4 : 2);
    unsigned char *bytes = malloc(size);
    assert_non_null(bytes);
    if (dtype_is_quantised(dtype)) {
        size_t block = block_layout(dtype) ? block_layout(dtype)->bytes : 1;
        for (size_t i = 0; i < size; i += block)
            quantised_draw(rng, dtype, 1, bytes + i);
    }
    for (size_t i = 0; i < n && !dtype_is_quantised(dtype); i++) {
        float x = (float)rng_range(rng, 1, 16) / (rng_chance(rng, 50) ? 16 : -16);
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        if (dtype == VKA_F16) /* its exponent has another bias */
            bits = (bits >> 16 & 0x8000) << 16 | (((bits & 0x7fffffff) - 0x38000000) << 3);
        if (dtype == VKA_F32)
            memcpy(bytes + 4 * i, &bits, 4);
        else
            memcpy(bytes + 2 * i, (uint16_t[]){(uint16_t)(bits >> 16)}, 2);
    }
    check(device, vka_tensor_write(t, bytes, size));
    free(bytes);
}

static struct vka_tensor *make(struct vka_device *device, enum vka_dtype dtype, uint32_t rank,
                               uint32_t rows, uint32_t columns)
{
    struct vka_tensor *t = NULL;
    check(device, vka_tensor_create(device, dtype, rank, (const uint32_t[]){rows, columns}, &t));
    return t;
}

static struct operands make_operands(struct vka_device *device, const struct product *p)
{
    struct rng rng = {p->k};
    uint32_t n_row = p->turned ? p->n : p->m, width = p->turned ? p->m : p->n;
    struct vka_tensor *turned = NULL;
    struct operands t = {
        .input = make(device, p->input, 2, p->m, p->k),
        .weight = make(device, p->weight, 2, p->n, p->k),
        .bias = p->bias ? make(device, VKA_F32, 1, p->n, 0) : NULL,
        .scale = p->weight == VKA_I8 ? make(device, VKA_F32, 1, p->n, 0) : NULL,
        .rows = make(device, p->output, 2, n_row, FIRST_ROW + width + MORE_ROWS),
        .product = make(device, VKA_F32, 2, p->m, p->n),
        .want = make(device, p->output, 2, p->m, p->n),
    };
    if (p->turned)
        check(device, vka_tensor_permute(t.rows, (const uint32_t[]){1, 0}, &turned));
    check(device, vka_tensor_slice(p->turned ? turned : t.rows, p->turned ? 0 : 1, FIRST_ROW, width,
                                   &t.output));
    vka_tensor_destroy(&turned);
    struct vka_tensor *drawn[] = {t.input, t.weight, t.bias, t.scale};
    for (size_t i = 0; i < sizeof drawn / sizeof *drawn; i++)
        if (drawn[i])
            draw(device, drawn[i], &rng);
    return t;
}

static void free_operands(struct operands *t)
{
    struct vka_tensor **all[] = {&t->input,  &t->weight,  &t->bias, &t->scale,
                                 &t->output, &t->product, &t->want, &t->rows};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        vka_tensor_destroy(all[i]);
}

/* A plan of the product into `to`; without accumulate, the sum of it and of `want` follows. */
static struct vka_plan *record(struct vka_device *device, const struct operands *t, uint64_t budget,
                               bool accumulate, struct vka_tensor *to)
{
    struct vka_plan *plan = NULL;
    check(device, vka_plan_create(device, VKA_INFO(vka_plan_info, .submit_budget = budget), &plan));
    check(device,
          vka_plan_add_linear(plan, VKA_INFO(vka_linear_op, .input = t->input, .weight = t->weight,
                                             .bias = t->bias, .weight_scale = t->scale,
                                             .output = to, .accumulate = accumulate)));
    if (!accumulate)
        check(device,
              vka_plan_add_binary(plan, VKA_INFO(vka_binary_op, .kind = VKA_ADD, .a = t->product,
                                                 .b = t->want, .output = t->want)));
    check(device, vka_plan_finish(plan));
    return plan;
}

static void write_start(struct vka_device *device, struct vka_tensor *t)
{
    struct rng rng = {5};
    draw(device, t, &rng);
}

static void *read_tensor(struct vka_device *device, struct vka_tensor *t)
{
    void *bytes = malloc(vka_tensor_size(t));
    assert_non_null(bytes);
    check(device, vka_tensor_read(t, bytes, vka_tensor_size(t)));
    return bytes;
}

/* Runs a plan twice from the same start: the bits of `t`. */
static void *run_twice(struct vka_device *device, struct vka_plan *plan, struct vka_tensor *t)
{
    write_start(device, t);
    check(device, vka_plan_run(plan, PATIENCE));
    check(device, vka_plan_run(plan, PATIENCE));
    vka_plan_destroy(&plan);
    return read_tensor(device, t);
}

static void same_bits(struct vka_device *device, const struct product *p)
{
    struct operands t = make_operands(device, p);
    size_t size = vka_tensor_size(t.want);
    void *want = run_twice(device, record(device, &t, VKA_NO_BUDGET, false, t.product), t.want);
    struct vka_plan *plan = record(device, &t, VKA_NO_BUDGET, true, t.output);
    enum kernel kernel = plan->passes[plan->n_pass - 1].key.kernel;
    size_t whole = plan->n_pass;
    void *got = run_twice(device, plan, t.output);
    if (memcmp(want, got, size) != 0)
        fail_msg("%s: %u x %u x %u: other bits", kernel_table[kernel].name, p->m, p->n, p->k);
    free(got);
    plan = record(device, &t, SMALL_BUDGET, true, t.output);
    size_t cut = plan->n_pass;
    got = run_twice(device, plan, t.output);
    if (memcmp(want, got, size) != 0)
        fail_msg("%s: %u x %u x %u: other bits by the budget", kernel_table[kernel].name, p->m,
                 p->n, p->k);
    free(got);
    struct vka_device_properties usual = limits_lower(device, LEAST_RANGE, LEAST_ALLOCATION);
    plan = record(device, &t, VKA_NO_BUDGET, true, t.output);
    limits_restore(device, &usual);
    got = run_twice(device, plan, t.output);
    if (memcmp(want, got, size) != 0)
        fail_msg("%s: %u x %u x %u: other bits by the limits", kernel_table[kernel].name, p->m,
                 p->n, p->k);
    print_message("%s*%s->%s, %u x %u x %u: %s, %zu passes, %zu by the budget\n",
                  vka_dtype_name(p->input), vka_dtype_name(p->weight), vka_dtype_name(p->output),
                  p->m, p->n, p->k, kernel_table[kernel].name, whole, cut);
    assert_true(cut > whole);
    free(got);
    free(want);
    free_operands(&t);
}

static void all_products(struct vka_device *device)
{
    for (size_t i = 0; i < n_product; i++)
        same_bits(device, &products[i]);
}

static void kernels_of_the_device(void **state)
{
    struct vka_device *device = NULL;
    (void)state;
    check(NULL, vka_device_create(NULL, &device));
    all_products(device);
    if (n_product > FEW) {
        device->caps.without = /* so that the next are taken */
            KERNEL_SET(KERNEL_matmul_address, KERNEL_matmul_bytes);
        all_products(device);
        set_join(&device->caps.without, KERNEL_SET(KERNEL_matmul_texel, KERNEL_matmul_block));
        all_products(device);
    }
    vka_device_destroy(&device);
}

static void kernels_for_gpus(void **state)
{
    struct vka_device *device = NULL;
    (void)state;
    check(NULL, vka_device_create(NULL, &device));
    device->caps.properties.type = VKA_DEVICE_DISCRETE;
    all_products(device);
    if (n_product > FEW) {
        device->caps.without = KERNEL_SET(KERNEL_matmul_few); /* so that tiles take few rows */
        all_products(device);
    }
    vka_device_destroy(&device);
}

static void matrix_units(void **state)
{
    struct vka_device *device = NULL;
    (void)state;
    check(NULL, vka_device_create(NULL, &device));
    limits_to_matrices(device);
    for (size_t i = 0; i < n_product; i++)
        if (products[i].input == VKA_F16 && products[i].weight == VKA_F16)
            same_bits(device, &products[i]);
    vka_device_destroy(&device);
}

/* Any argument: all products, by more kernels. */
TEST_PROGRAM_ARGUMENTS(accumulate)
{
    (void)argv;
    n_product = argc > 1 ? sizeof products / sizeof *products : FEW;
    struct vka_device *device = NULL;
    const struct CMUnitTest tests[] = {cmocka_unit_test(kernels_of_the_device),
                                       cmocka_unit_test(kernels_for_gpus),
                                       cmocka_unit_test(matrix_units)};
    if (vka_device_create(NULL, &device) != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device, no sums were compared\n");
        return 77;
    }
    bool matrices = n_product > FEW && !kernel_missing(KERNEL_matmul_coop_f16, &device->caps);
    vka_device_destroy(&device);
    return _cmocka_run_group_tests("accumulate", tests, matrices ? 3 : 2, NULL, NULL);
}
