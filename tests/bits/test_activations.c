/* Quantised activations of linear: their error against products of the input as it is, rows with
 * NaN, Inf, zeros, tiny and huge values, operands at strides, adding to the output, and the same
 * bits with and without the device's integer dot products. Types are taken in turn: problems/turns.h.
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
#include "core/dtype.h"
#include "kernel/matmul_dot.h"
#include "params/params.h"
#include "plan/plan.h"
#include "test_program.h"
#include "problems/quantised.h"
#include "problems/turns.h"

#define N 160u

/* input [m][k] of float32 and weight [N][k], in double too. */
struct product {
    enum vka_dtype type;
    uint32_t m, k;
    float *x;
    double *w; /* with the scale of I8 */
    struct vka_tensor *input, *weight, *scale, *output;
};

static void check(struct vka_device *device, enum vka_status status)
{
    if (status != VKA_OK)
        fail_msg("%s: %s", vka_status_name(status), vka_device_error(device));
}

/* A number of normal distribution. */
static double normal(struct rng *rng)
{
    return sqrt(-2 * log(rng_uniform(rng, 1e-9, 1))) *
           cos(6.283185307179586 * rng_uniform(rng, 0, 1));
}

static void make_weight(struct vka_device *device, struct rng *rng, struct product *p)
{
    uint32_t values, bytes;
    float scale[N];
    check(device, vka_dtype_block(p->type, &values, &bytes));
    size_t n_block = (size_t)N * p->k / values;
    uint8_t *blocks = malloc(n_block * bytes);
    assert_non_null(blocks);
    for (uint32_t i = 0; i < N; i++)
        scale[i] = (float)rng_uniform(rng, 0.1, 1);
    for (size_t i = 0; i < n_block; i++) {
        quantised_draw(rng, p->type, 1, blocks + i * bytes);
        for (uint32_t j = 0; j < values; j++)
            p->w[i * values + j] = p->type == VKA_I8
                                       ? (double)(int8_t)blocks[i] * (double)scale[i / p->k]
                                       : ref_block_value(p->type, blocks + i * bytes, j);
    }
    check(device, vka_tensor_create(device, p->type, 2, (const uint32_t[]){N, p->k}, &p->weight));
    check(device, vka_tensor_write(p->weight, blocks, n_block * bytes));
    if (p->type == VKA_I8) {
        check(device, vka_tensor_create(device, VKA_F32, 1, (const uint32_t[]){N}, &p->scale));
        check(device, vka_tensor_write(p->scale, scale, sizeof scale));
    }
    free(blocks);
}

/* Inputs of normal distribution. */
static struct product make(struct vka_device *device, enum vka_dtype type, uint32_t m, uint32_t k)
{
    struct product p = {.type = type, .m = m, .k = k};
    struct rng rng = {type + 100 * m + k};
    p.x = malloc((size_t)m * k * sizeof *p.x);
    p.w = malloc((size_t)N * k * sizeof *p.w);
    assert_true(p.x && p.w);
    for (size_t i = 0; i < (size_t)m * k; i++)
        p.x[i] = (float)normal(&rng);
    make_weight(device, &rng, &p);
    check(device, vka_tensor_create(device, VKA_F32, 2, (const uint32_t[]){m, k}, &p.input));
    check(device, vka_tensor_create(device, VKA_F32, 2, (const uint32_t[]){m, N}, &p.output));
    check(device, vka_tensor_write(p.input, p.x, (size_t)m * k * sizeof *p.x));
    return p;
}

static void destroy(struct product *p)
{
    free(p->x);
    free(p->w);
    vka_tensor_destroy(&p->input);
    vka_tensor_destroy(&p->weight);
    vka_tensor_destroy(&p->scale);
    vka_tensor_destroy(&p->output);
}

/* Runs op, whose weight, scale and type of activations are set here: the output, [m][N]. */
static float *run(struct vka_device *device, const struct product *p, struct vka_linear_op op,
                  enum kernel *kernel)
{
    struct vka_plan *plan = NULL;
    float *y = malloc((size_t)p->m * N * sizeof *y);
    assert_non_null(y);
    op.struct_size = sizeof op;
    op.weight = p->weight;
    op.weight_scale = p->scale;
    op.activations = VKA_I8;
    check(device, vka_plan_create(device, NULL, &plan));
    check(device, vka_plan_add_linear(plan, &op));
    check(device, vka_plan_finish(plan));
    check(device, vka_plan_run(plan, PATIENCE));
    check(device, vka_tensor_read(op.output, y, (size_t)p->m * N * sizeof *y));
    if (kernel)
        *kernel = plan->passes[plan->n_pass - 1].key.kernel;
    vka_plan_destroy(&plan);
    return y;
}

static float *run_plain(struct vka_device *device, const struct product *p)
{
    return run(device, p, (struct vka_linear_op){.input = p->input, .output = p->output}, NULL);
}

/* The worst row's error against the oracle, with activations quantised or not; the rows' mean. */
static double error_of(const struct product *p, const float *got, bool quantised, double *mean)
{
    double worst = 0, sum = 0, *x = malloc(p->k * sizeof *x), y[N], want[N];
    assert_non_null(x);
    for (uint32_t r = 0; r < p->m; r++) {
        for (uint32_t i = 0; i < p->k; i++)
            x[i] = p->x[(size_t)r * p->k + i];
        if (quantised)
            ref_activations(x, p->k, x);
        ref_linear(x, p->w, NULL, 1, p->k, N, false, want);
        for (uint32_t i = 0; i < N; i++)
            y[i] = got[r * N + i];
        double error = ref_row_nmse(y, want, 1, N, NULL);
        worst = fmax(worst, error);
        sum += error;
    }
    free(x);
    if (mean)
        *mean = sum / p->m;
    return worst;
}

/* What is lost by the activations' 8 bits, where the kernel adds no error of its own; more where offsets
 * of random blocks cancel what their integers give. */
static void errors(void **state)
{
    struct vka_device *device = *state;
    for (EACH_TURN(type, dtype_has_integers)) {
        struct product p = make(device, type, 8, 2048);
        float *y = run_plain(device, &p);
        double mean, exact = error_of(&p, y, true, NULL), whole = error_of(&p, y, false, &mean);
        print_message("%s: %.3g, and %.3g (mean %.3g) with what quantising loses\n",
                      vka_dtype_name(p.type), exact, whole, mean);
        const bool offset = HAS_OFFSET(p.type);
        assert_true(exact <= 1e-11 && mean <= (offset ? 4e-5 : 3e-5));
        assert_true(whole <= (offset ? 7e-5 : 5e-5));
        assert_true(mean > 1e-6); /* that they are quantised */
        free(y);
        destroy(&p);
    }
}

/* Row 0 has a NaN, 1 an Inf, 2 zeros alone, 3 values below the least scale, 4 the largest ones, 5
 * halves between multiples of the scale, 6 is as drawn. */
static void odd_rows(void **state)
{
    enum { ROWS = 7, K = 96 };
    struct vka_device *device = *state;
    struct product p = make(device, VKA_Q8_0, ROWS, K);
    p.x[37] = NAN;
    p.x[K + 95] = -INFINITY;
    for (uint32_t i = 0; i < K; i++) {
        p.x[2 * K + i] = i % 2 ? -0.0f : 0;
        p.x[3 * K + i] = (i % 2 ? -1 : 1) * 0x1p-116f; /* / 127 is below 2^-120 */
        p.x[4 * K + i] = (i % 2 ? -0x1.8p115f : 0x1p115f) * (i % 16 ? 0.25f : 1);
        p.x[5 * K + i] = i % 16 == 9 ? 127 : ((float)(i % 32) - 15.5f);
    }
    check(device, vka_tensor_write(p.input, p.x, sizeof(float[ROWS * K])));
    float *y = run_plain(device, &p);
    for (uint32_t i = 0; i < N; i++) {
        assert_true(isnan(y[i]) && isnan(y[N + i]));
        assert_true(y[2 * N + i] == 0 && y[3 * N + i] == 0);
        assert_true(isfinite(y[4 * N + i]) && isfinite(y[5 * N + i]) && isfinite(y[6 * N + i]));
    }
    const struct product rest = {.m = 3, .k = K, .x = p.x + 4 * K, .w = p.w};
    assert_true(error_of(&rest, y + 4 * N, true, NULL) <= 1e-11);
    free(y);
    destroy(&p);
}

/* The input as columns of a tensor [k][m], the output between others, added to. */
static void strides(void **state)
{
    enum { ROWS = 5, K = 352 };
    struct vka_device *device = *state;
    struct product p = make(device, VKA_Q4_0, ROWS, K);
    struct vka_tensor *turned = NULL, *columns = NULL, *wide = NULL, *some = NULL;
    float x[K * ROWS], filled[ROWS * 2 * N];
    for (uint32_t i = 0; i < K * ROWS; i++)
        x[i] = p.x[i % ROWS * K + i / ROWS];
    for (uint32_t i = 0; i < ROWS * 2 * N; i++)
        filled[i] = (float)(i % 7);
    check(device, vka_tensor_create(device, VKA_F32, 2, (const uint32_t[]){K, ROWS}, &turned));
    check(device, vka_tensor_write(turned, x, sizeof x));
    check(device, vka_tensor_permute(turned, (const uint32_t[]){1, 0}, &columns));
    check(device, vka_tensor_create(device, VKA_F32, 2, (const uint32_t[]){ROWS, 2 * N}, &wide));
    check(device, vka_tensor_write(wide, filled, sizeof filled));
    check(device, vka_tensor_slice(wide, 1, N / 2, N, &some));
    float *want = run_plain(device, &p);
    float *got =
        run(device, &p,
            (struct vka_linear_op){.input = columns, .output = some, .accumulate = true}, NULL);
    check(device, vka_tensor_read(wide, filled, sizeof filled));
    for (uint32_t i = 0; i < ROWS * 2 * N; i++) {
        uint32_t row = i / (2 * N), column = i % (2 * N) - N / 2;
        float start = (float)(i % 7);
        assert_true(filled[i] == (column < N ? start + want[row * N + column] : start));
    }
    free(want);
    free(got);
    vka_tensor_destroy(&columns);
    vka_tensor_destroy(&turned);
    vka_tensor_destroy(&some);
    vka_tensor_destroy(&wide);
    destroy(&p);
}

static void without_dot_products(void **state)
{
    struct vka_device *device = *state;
    const struct kernel_set usual = device->caps.without;
    enum kernel with, plain;
    for (EACH_TURN(type, dtype_has_integers)) {
        struct product p = make(device, type, 3, 768);
        const struct vka_linear_op op = {.input = p.input, .output = p.output};
        float *first = run(device, &p, op, &with);
        set_add(&device->caps.without, KERNEL_matmul_dot);
        float *second = run(device, &p, op, &plain);
        device->caps.without = usual;
        assert_true(matmul_is_dot(with) && plain == KERNEL_matmul_dot_plain);
        assert_memory_equal(first, second, sizeof(float[3 * N]));
        free(first);
        free(second);
        destroy(&p);
    }
}

/* One device for all. */
static int open_device(void **state)
{
    struct vka_device *device = NULL;
    check(NULL, vka_device_create(NULL, &device));
    *state = device;
    return 0;
}

static int close_device(void **state)
{
    struct vka_device *device = *state;
    vka_device_destroy(&device);
    return 0;
}

TEST_PROGRAM(quantised_activations)
{
    struct vka_device *device = NULL;
    const struct CMUnitTest tests[] = {cmocka_unit_test(errors), cmocka_unit_test(odd_rows),
                                       cmocka_unit_test(strides),
                                       cmocka_unit_test(without_dot_products)};
    if (vka_device_create(NULL, &device) != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device, no activations were quantised\n");
        return 77;
    }
    vka_device_destroy(&device);
    return cmocka_run_group_tests_name("activations", tests, open_device, close_device);
}
