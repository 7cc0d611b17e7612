/* Training: gradients of sums, products and rotations, and gradients added to what is there.
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

#include <reference/train.h>
#include <vkattn/vkattn_train.h>

#include "patience.h"
#include "problems/compare.h"
#include "problems/types.h"
#include "test_program.h"

#define ASSERT_OK(call) assert_int_equal(call, VKA_OK)

static int open_device(void **state)
{
    struct vka_device *device = NULL;
    if (vka_device_create(NULL, &device) != VKA_OK)
        exit(77);
    *state = device;
    return 0;
}

static int close_device(void **state)
{
    struct vka_device *device = *state;
    vka_device_destroy(&device);
    return 0;
}

static void make(struct vka_device *device, struct rng *rng, enum vka_dtype dtype, uint32_t rank,
                 const uint32_t *size, struct operand *o)
{
    const struct layout layout = layout_random(rng, rank);
    ASSERT_OK(operand_create(device, dtype, rank, size, &layout, o));
    for (size_t i = 0; i < o->count; i++)
        o->values[i] = operand_round(dtype, rng_uniform(rng, -1, 1.5));
    ASSERT_OK(operand_write(o));
}

typedef enum vka_status add_function(struct vka_plan *plan, const void *op);

static void run(struct vka_device *device, add_function *add, const void *op)
{
    struct vka_plan *plan = NULL;
    ASSERT_OK(vka_plan_create(device, NULL, &plan));
    if (add(plan, op) != VKA_OK)
        fail_msg("%s", vka_device_error(device));
    ASSERT_OK(vka_plan_finish(plan));
    ASSERT_OK(vka_plan_run(plan, PATIENCE));
    vka_plan_destroy(&plan);
}

static void judge(struct operand *o, const double *want, const char *name)
{
    char why[WHY];
    ASSERT_OK(operand_read(o));
    assert_true(operand_damage(o) == SIZE_MAX);
    if (!compare_values(o, want, compare_limit(o->dtype), name, name, NULL, why))
        fail_msg("%s: %s", name, why);
}

/* Runs twice from the same contents: the gradient replaces them, or is added to them. want[count] is
 * the gradient; NULL: whatever the first run gave. */
static void check_gradient(struct vka_device *device, add_function *add, const void *op,
                           struct vka_gradient *gradient, struct operand *o, const double *want,
                           const char *name)
{
    double *before = calloc(o->count, sizeof *before), *sum = calloc(o->count, sizeof *sum);
    assert_non_null(before);
    assert_non_null(sum);
    memcpy(before, o->values, o->count * sizeof *before);
    *gradient = (struct vka_gradient){o->view, false};
    run(device, add, op);
    ASSERT_OK(operand_read(o));
    if (want)
        judge(o, want, name);
    for (size_t i = 0; i < o->count; i++)
        sum[i] = before[i] + (want ? want[i] : o->values[i]);
    memcpy(o->values, before, o->count * sizeof *before);
    ASSERT_OK(operand_write(o));
    gradient->accumulate = true;
    run(device, add, op);
    judge(o, sum, name);
    *gradient = (struct vka_gradient){NULL, false};
    free(before);
    free(sum);
}

/* ---- Sums and products ----------------------------------------------------------------------- */

static enum vka_status add_binary(struct vka_plan *plan, const void *op)
{
    return vka_plan_add_binary_backward(plan, op);
}

static void check_binary(struct vka_device *device, struct rng *rng, const uint32_t shape[3][5],
                         enum vka_binary kind, enum vka_dtype dtype)
{
    struct operand a, b, dy, da, db;
    struct vka_binary_backward_op op = {.struct_size = sizeof op, .kind = kind};
    make(device, rng, dtype, shape[0][0], shape[0] + 1, &a);
    make(device, rng, dtype, shape[1][0], shape[1] + 1, &b);
    make(device, rng, dtype, shape[2][0], shape[2] + 1, &dy);
    make(device, rng, VKA_F32, shape[0][0], shape[0] + 1, &da);
    make(device, rng, dtype, shape[1][0], shape[1] + 1, &db);
    double *want_a = calloc(a.count, sizeof *want_a), *want_b = calloc(b.count, sizeof *want_b);
    assert_non_null(want_a);
    assert_non_null(want_b);
    for (size_t i = 0; i < dy.count; i++) {
        size_t at = operand_broadcast(&a, &dy, i), b_at = operand_broadcast(&b, &dy, i);
        want_a[at] += dy.values[i] * (kind == VKA_MULTIPLY ? b.values[b_at] : 1);
        want_b[b_at] += dy.values[i] * (kind == VKA_MULTIPLY ? a.values[at] : 1);
    }
    op.a = kind == VKA_MULTIPLY ? a.view : NULL;
    op.b = b.view;
    op.output_gradient = dy.view;
    check_gradient(device, add_binary, &op, &op.a_gradient, &da, want_a, "a");
    check_gradient(device, add_binary, &op, &op.b_gradient, &db, want_b, "b");
    struct operand *all[] = {&a, &b, &dy, &da, &db};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        operand_destroy(all[i]);
    free(want_a);
    free(want_b);
}

static void binary(void **state)
{
    /* Ranks and sizes of a, b and dy. */
    static const uint32_t shapes[][3][5] = {
        {{2, 5, 66}, {2, 5, 66}, {2, 5, 66}},
        {{4, 2, 3, 4, 5}, {1, 5}, {4, 2, 3, 4, 5}},
        {{4, 2, 3, 4, 5}, {3, 3, 1, 1}, {4, 2, 3, 4, 5}},
        {{3, 3, 1, 7}, {4, 2, 1, 6, 1}, {4, 2, 3, 6, 7}},
        {{2, 1, 1}, {2, 90, 130}, {2, 90, 130}},
        {{2, 4100, 33}, {1, 33}, {2, 4100, 33}},
    };
    struct rng rng = {3};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int kind = 0; kind < VKA_BINARY_COUNT; kind++)
            for (EACH_TYPE(dtype, dtype_is_float))
                check_binary(*state, &rng, shapes[i], (enum vka_binary)kind, dtype);
}

/* ---- Rotations ------------------------------------------------------------------------------- */

static enum vka_status add_rotary(struct vka_plan *plan, const void *op)
{
    return vka_plan_add_rotary(plan, op);
}

static enum vka_status add_rotary_backward(struct vka_plan *plan, const void *op)
{
    return vka_plan_add_rotary_backward(plan, op);
}

/* A rotation and its gradient are the square of the factor: a rotation's transpose turns back. */
static void rotary(void **state)
{
    static const uint32_t size[4] = {2, 3, 37, 22}, places[2] = {2, 37};
    struct vka_device *device = *state;
    struct rng rng = {11};
    struct vka_tensor *positions = NULL;
    int32_t numbers[74];
    for (int i = 0; i < 74; i++)
        numbers[i] = 1000 * i - 900;
    ASSERT_OK(vka_tensor_create(device, VKA_I32, 2, places, &positions));
    ASSERT_OK(vka_tensor_write(positions, numbers, sizeof numbers));
    for (unsigned option = 0; option < 16; option++) {
        struct operand x, y, dx;
        struct vka_rotary_op op = {.struct_size = sizeof op};
        double want[2 * 3 * 37 * 22];
        make(device, &rng, VKA_F32, 4, size, &x);
        make(device, &rng, VKA_F32, 4, size, &y);
        make(device, &rng, VKA_F32, 4, size, &dx);
        op.input = x.view;
        op.output = y.view;
        op.interleaved = option & 1;
        op.dim = option & 2 ? 14 : 0;
        op.positions = option & 4 ? positions : NULL;
        op.attention_factor = option & 8 ? 1.5f : 0;
        run(device, add_rotary, &op);
        op.input = y.view;
        op.output = dx.view;
        run(device, add_rotary_backward, &op);
        const uint32_t dim = op.dim ? op.dim : size[3];
        for (size_t i = 0; i < x.count; i++)
            want[i] = x.values[i] * (option & 8 && i % size[3] < dim ? 2.25 : 1);
        judge(&dx, want, "rotary");
        operand_destroy(&x);
        operand_destroy(&y);
        operand_destroy(&dx);
    }
    vka_tensor_destroy(&positions);
}

/* ---- Added to what is there ------------------------------------------------------------------ */

static enum vka_status add_norm(struct vka_plan *plan, const void *op)
{
    return vka_plan_add_norm_backward(plan, op);
}

static enum vka_status add_activation(struct vka_plan *plan, const void *op)
{
    return vka_plan_add_activation_backward(plan, op);
}

static enum vka_status add_gather(struct vka_plan *plan, const void *op)
{
    return vka_plan_add_gather_backward(plan, op);
}

/* What the kernel checks compare with the oracle is added here. */
static void accumulated(void **state)
{
    static const uint32_t rows[2] = {70, 33}, width[1] = {33}, table[2] = {9, 33};
    struct vka_device *device = *state;
    struct rng rng = {5};
    const uint32_t n[2] = {70, 8300};
    for (EACH_TYPE(dtype, dtype_is_float)) {
        struct operand x, b, dy, dx, dw, dt;
        make(device, &rng, VKA_F32, 2, rows, &x);
        make(device, &rng, VKA_F32, 1, width, &b);
        make(device, &rng, VKA_F32, 2, rows, &dy);
        make(device, &rng, dtype, 2, rows, &dx);
        make(device, &rng, dtype, 1, width, &dw);
        make(device, &rng, dtype, 2, table, &dt);
        struct vka_norm_backward_op norm = *VKA_INFO(vka_norm_backward_op, .input = x.view,
                                                     .weight = b.view, .output_gradient = dy.view);
        check_gradient(device, add_norm, &norm, &norm.input_gradient, &dx, NULL, "norm dx");
        check_gradient(device, add_norm, &norm, &norm.weight_gradient, &dw, NULL, "norm dw");
        check_gradient(device, add_norm, &norm, &norm.bias_gradient, &dw, NULL, "norm db");
        struct vka_activation_backward_op gate =
            *VKA_INFO(vka_activation_backward_op, .kind = VKA_SILU, .input = x.view,
                      .multiplier = b.view, .output_gradient = dy.view);
        check_gradient(device, add_activation, &gate, &gate.input_gradient, &dx, NULL, "gate dx");
        check_gradient(device, add_activation, &gate, &gate.multiplier_gradient, &dw, NULL,
                       "gate db");
        for (int i = 0; i < 2; i++) { /* the second in several passes */
            const uint32_t size[2] = {n[i], 33};
            struct operand many;
            struct vka_tensor *ids = NULL;
            int32_t *id = calloc(n[i], sizeof *id);
            assert_non_null(id);
            for (uint32_t j = 0; j < n[i]; j++)
                id[j] = (int32_t)rng_range(&rng, 0, 8);
            make(device, &rng, VKA_F32, 2, size, &many);
            ASSERT_OK(vka_tensor_create(device, VKA_I32, 1, &n[i], &ids));
            ASSERT_OK(vka_tensor_write(ids, id, n[i] * sizeof *id));
            struct vka_gather_backward_op gather =
                *VKA_INFO(vka_gather_backward_op, .ids = ids, .output_gradient = many.view);
            check_gradient(device, add_gather, &gather, &gather.table_gradient, &dt, NULL,
                           "gather");
            operand_destroy(&many);
            vka_tensor_destroy(&ids);
            free(id);
        }
        struct operand *all[] = {&x, &b, &dy, &dx, &dw, &dt};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            operand_destroy(all[i]);
    }
}

/* Infinite parameters stay so without decay, and a beta1 of 0 forgets a large gradient. */
static void optimiser_points(void **state)
{
    enum { N = 4, TENSORS = 4 };
    struct vka_device *device = *state;
    static const float start[N] = {INFINITY, -INFINITY, 1, 1}, none[N] = {0};
    static const float gradients[2][N] = {{0, 1, 1, 1}, {0, 1, 1e-3f, 1e-9f}};
    for (int kind = VKA_SGD; kind <= VKA_ADAMW; kind++) {
        const uint32_t n = N, one = 1;
        struct vka_tensor *t[TENSORS], *step = NULL;
        struct vka_plan *plan = NULL;
        float w[N];
        double want[N], g[N], m[N] = {0}, v[N] = {0};
        for (int i = 0; i < TENSORS; i++) {
            ASSERT_OK(vka_tensor_create(device, VKA_F32, 1, &n, &t[i]));
            ASSERT_OK(vka_tensor_write(t[i], i ? none : start, sizeof start));
        }
        ASSERT_OK(vka_tensor_create(device, VKA_I32, 1, &one, &step));
        ASSERT_OK(vka_tensor_write(step, none, sizeof *none));
        const bool adam = kind != VKA_SGD;
        const struct vka_parameter p = {t[0], t[1], adam ? t[2] : NULL, adam ? t[3] : NULL};
        const struct vka_optimiser_op op = {.struct_size = sizeof op,
                                            .kind = (enum vka_optimiser)kind,
                                            .parameters = &p,
                                            .n_parameter = 1,
                                            .learning_rate = 0.1,
                                            .given = adam ? VKA_GIVEN_BETA1 | VKA_GIVEN_BETA2 : 0,
                                            .step = adam ? step : NULL};
        ASSERT_OK(vka_plan_create(device, NULL, &plan));
        ASSERT_OK(vka_plan_add_optimiser(plan, &op));
        ASSERT_OK(vka_plan_finish(plan));
        for (int i = 0; i < N; i++)
            want[i] = (double)start[i];
        for (int run = 0; run < 2; run++) {
            ASSERT_OK(vka_tensor_write(t[1], gradients[run], sizeof *gradients));
            ASSERT_OK(vka_plan_run(plan, PATIENCE));
            for (int i = 0; i < N; i++)
                g[i] = (double)gradients[run][i];
            ref_optimiser(&op, N, run + 1, want, g, m, v);
        }
        ASSERT_OK(vka_tensor_read(t[0], w, sizeof w));
        for (int i = 0; i < N; i++)
            assert_true((double)w[i] == want[i] || fabs((double)w[i] - want[i]) < 1e-6);
        vka_plan_destroy(&plan);
        vka_tensor_destroy(&step);
        for (int i = 0; i < TENSORS; i++)
            vka_tensor_destroy(&t[i]);
    }
}

TEST_PROGRAM(train_operations)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(binary), cmocka_unit_test(rotary),
                                       cmocka_unit_test(accumulated),
                                       cmocka_unit_test(optimiser_points)};
    return cmocka_run_group_tests(tests, open_device, close_device);
}
