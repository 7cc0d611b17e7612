/* Every documented error of norms, activations and arithmetic of vkattn_model.h. SPDX-License-Identifier: MIT */
#include <vkattn/vkattn_model.h>

#include "api_errors.h"
#include "test_program.h"

static const enum vka_dtype not_floats[] = {VKA_I32, VKA_BOOL, VKA_I8};

/* ---- Norms ----------------------------------------------------------------------------------- */

static struct vka_norm_op good_norm(struct world *w)
{
    return *VKA_INFO(vka_norm_op, .input = T(VKA_F32, 2, 5, 3), .residual = T(VKA_F32, 2, 5, 3),
                     .sum = T(VKA_F32, 2, 5, 3), .weight = T(VKA_F32, 3), .bias = T(VKA_F32, 3),
                     .output = T(VKA_F32, 2, 5, 3));
}

#define NORM(word, ...)                                            \
    do {                                                           \
        struct vka_norm_op op = good_norm(w);                      \
        __VA_ARGS__;                                               \
        FAILS(VKA_INVALID, word, vka_plan_add_norm(w->plan, &op)); \
    } while (0)

static void norm(void **state)
{
    struct world *w = *state;
    NORM("kind", op.kind = VKA_NORM_COUNT);
    NORM("kind", op.kind = (enum vka_norm) - 1);
    NORM("axes", op.axes = 4);
    NORM("given", op.given = VKA_GIVEN_SCALE);
    NORM("epsilon", op.epsilon = -1e-5f);
    NORM("epsilon", op.epsilon = NAN);
    NORM("epsilon", op.epsilon = INFINITY);
    NORM("output", op.output = NULL);
    NORM("output", op.output = FOREIGN(VKA_F32, 2, 5, 3));
    for (size_t i = 0; i < COUNTOF(not_floats); i++) {
        enum vka_dtype dtype = not_floats[i];
        NORM("output", op.output = T(dtype, 2, 5, 3));
    }
    NORM("output", op.output = T(VKA_F32, 2, 5, 4));
    NORM("output", op.output = T(VKA_F32, 10, 3));
    NORM("residual", op.residual = T(VKA_F32, 1, 5, 3));
    NORM("sum", op.sum = T(VKA_F32, 5, 3));
    NORM("weight", op.weight = T(VKA_F32, 4));
    NORM("weight", op.weight = T(VKA_F32, 1));
    NORM("bias", op.bias = T(VKA_F32, 1, 3));
    NORM("weight", op.axes = 2);
    NORM("bias", op.axes = 2, op.weight = T(VKA_F32, 5, 3));
    NORM("gate", op.residual = op.sum = NULL, op.gate = T(VKA_F32, 2, 5, 4));
    NORM("residual or sum", op.sum = NULL, op.gate = T(VKA_F32, 2, 5, 3));
    NORM("residual or sum", op.residual = NULL, op.gate = T(VKA_F32, 2, 5, 3));
    NORM("gate is NULL", op.gate_first = true);
    NORM("gate is NULL", op.gate_activation = VKA_SILU);
    NORM("gate_activation", op.gate_activation = VKA_ACTIVATION_COUNT);
    NORM("axes", op.groups = 3, op.axes = 2, op.weight = op.bias = T(VKA_F32, 5, 3));
    NORM("no divisor", op.groups = 2);
    struct vka_tensor *four = T(VKA_F32, 2, 5, 2, 4);
    FAILS(VKA_UNSUPPORTED, "groups",
          vka_plan_add_norm(w->plan, VKA_INFO(vka_norm_op, .input = four, .groups = 2,
                                              .output = T(VKA_F32, 2, 5, 2, 4))));
}

static void norm_overlaps(void **state)
{
    struct world *w = *state;
    struct vka_tensor *store = T(VKA_F32, 128);
    const uint32_t size[] = {2, 5, 3};
    const uint64_t dense[] = {15, 3, 1}, repeat[] = {0, 3, 1};
    NORM("output", op.output = op.residual);
    NORM("output", op.output = op.sum);
    NORM("output", op.residual = op.sum = NULL, op.output = op.gate = T(VKA_F32, 2, 5, 3));
    NORM("output", op.output = world_strided(w, store, 0, 3, size, repeat));
    NORM("sum", op.sum = world_strided(w, store, 0, 3, size, repeat));
    NORM("sum", op.input = world_strided(w, store, 0, 3, size, dense),
         op.sum = world_strided(w, store, 29, 3, size, dense));
    NORM("output", op.input = world_strided(w, store, 0, 3, size, dense),
         op.output = world_strided(w, store, 1, 3, size, dense));
    NORM("output", op.sum = op.input, op.output = op.input);
    /* In place, by another handle too. */
    struct vka_norm_op op = good_norm(w);
    op.input = world_strided(w, store, 0, 3, size, dense);
    op.sum = world_strided(w, store, 0, 3, size, dense);
    assert_int_equal(vka_plan_add_norm(w->plan, &op), VKA_OK);
    op.sum = op.residual;
    op.output = op.input;
    assert_int_equal(vka_plan_add_norm(w->plan, &op), VKA_OK);
}

/* A row whose elements lie so far apart that no binding holds it. */
static void norm_limits(void **state)
{
    struct world *w = *state;
    const uint32_t size[] = {1, 17};
    const uint64_t apart[] = {20000, 1100};
    struct vka_norm_op op = {.struct_size = sizeof op};
    op.input = world_strided(w, T(VKA_F32, 20000), 0, 2, size, apart);
    op.output = T(VKA_F32, 1, 17);
    FAILS(VKA_UNSUPPORTED, "bytes", vka_plan_add_norm(w->plan, &op));
}

/* ---- Element by element ---------------------------------------------------------------------- */

static struct vka_activation_op good_activation(struct world *w)
{
    return *VKA_INFO(vka_activation_op, .kind = VKA_SILU, .input = T(VKA_F32, 2, 5, 3),
                     .multiplier = T(VKA_F32, 5, 1), .output = T(VKA_F32, 2, 5, 3));
}

#define ACTIVATION(word, ...)                                            \
    do {                                                                 \
        struct vka_activation_op op = good_activation(w);                \
        __VA_ARGS__;                                                     \
        FAILS(VKA_INVALID, word, vka_plan_add_activation(w->plan, &op)); \
    } while (0)

static void activation(void **state)
{
    struct world *w = *state;
    ACTIVATION("kind", op.kind = VKA_ACTIVATION_COUNT);
    ACTIVATION("kind", op.kind = (enum vka_activation) - 1);
    ACTIVATION("alpha", op.alpha = NAN);
    ACTIVATION("input", op.input = T(VKA_F32, 2, 4, 3));
    ACTIVATION("multiplier", op.multiplier = T(VKA_F32, 2));
    ACTIVATION("multiplier", op.multiplier = T(VKA_F32, 2, 2, 5, 3));
    ACTIVATION("output", op.output = T(VKA_F32, 1, 2, 5, 3));
    ACTIVATION("output", op.input = T(VKA_F32, 1, 5, 3));
    ACTIVATION("output", op.input = T(VKA_F32, 1, 5, 3), op.multiplier = NULL);
    struct vka_tensor *store = T(VKA_F32, 64);
    const uint32_t size[] = {2, 5, 3}, thin[] = {2, 5, 1};
    const uint64_t dense[] = {15, 3, 1}, repeat[] = {15, 3, 0};
    ACTIVATION("output", op.output = world_strided(w, store, 0, 3, size, repeat));
    ACTIVATION("output", op.input = world_strided(w, store, 0, 3, size, dense),
               op.output = world_strided(w, store, 1, 3, size, dense));
    ACTIVATION("output", op.multiplier = world_strided(w, store, 0, 3, thin, dense),
               op.output = world_strided(w, store, 0, 3, size, dense));
    struct vka_activation_op op = good_activation(w);
    op.output = op.input;
    assert_int_equal(vka_plan_add_activation(w->plan, &op), VKA_OK);
}

static struct vka_binary_op good_binary(struct world *w)
{
    return *VKA_INFO(vka_binary_op, .a = T(VKA_F32, 3), .b = T(VKA_F16, 2, 5, 1),
                     .output = T(VKA_BF16, 2, 5, 3));
}

#define BINARY(word, ...)                                            \
    do {                                                             \
        struct vka_binary_op op = good_binary(w);                    \
        __VA_ARGS__;                                                 \
        FAILS(VKA_INVALID, word, vka_plan_add_binary(w->plan, &op)); \
    } while (0)

static void binary(void **state)
{
    struct world *w = *state;
    const struct vka_binary_op good = good_binary(w);
    BINARY("kind", op.kind = VKA_BINARY_COUNT);
    BINARY("a", op.a = T(VKA_F32, 2));
    BINARY("b", op.b = T(VKA_F32, 5));
    BINARY("output", op.output = T(VKA_F32, 2, 2, 5, 3));
    BINARY("output", op.a = op.b);
    BINARY("a", op.a = T(VKA_F32, 2, 5, 3), op.output = op.b);
    assert_int_equal(vka_plan_add_binary(w->plan, &good), VKA_OK);
}

TEST_PROGRAM(api_errors_model)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norm),        cmocka_unit_test(norm_overlaps),
        cmocka_unit_test(norm_limits), cmocka_unit_test(activation),
        cmocka_unit_test(binary),
    };
    return cmocka_run_group_tests(tests, world_create, world_destroy);
}
