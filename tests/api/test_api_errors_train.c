/* Every documented error of the operations of vkattn_train.h. SPDX-License-Identifier: MIT */
#include <vkattn/vkattn_train.h>

#include "api_errors.h"
#include "test_program.h"

/* TEST(name, type, function): a macro that changes a good op and expects INVALID and a word. */
#define BAD(type, function, word, ...)                    \
    do {                                                  \
        struct type op = good_##type(w);                  \
        __VA_ARGS__;                                      \
        FAILS(VKA_INVALID, word, function(w->plan, &op)); \
    } while (0)

/* ---- Linear ---------------------------------------------------------------------------------- */

static struct vka_linear_backward_op good_vka_linear_backward_op(struct world *w)
{
    return *VKA_INFO(
        vka_linear_backward_op, .input = T(VKA_F32, 2, 5, 3), .weight = T(VKA_F32, 4, 3),
        .output_gradient = T(VKA_F32, 2, 5, 4), .input_gradient.tensor = T(VKA_F32, 2, 5, 3),
        .weight_gradient.tensor = T(VKA_F32, 4, 3), .bias_gradient.tensor = T(VKA_F32, 4));
}

#define LINEAR(word, ...) \
    BAD(vka_linear_backward_op, vka_plan_add_linear_backward, word, __VA_ARGS__)

static void linear(void **state)
{
    struct world *w = *state;
    LINEAR("input", op.input = NULL, op.weight_gradient.tensor = NULL, op.relu_input = true);
    LINEAR("gradient",
           op.input_gradient.tensor = op.weight_gradient.tensor = op.bias_gradient.tensor = NULL);
    LINEAR("weight", op.weight = T(VKA_Q8_0, 4, 32));
    LINEAR("weight", op.weight = T(VKA_F32, 5, 3));
    LINEAR("weight", op.weight = T(VKA_F32, 1, 4, 3));
    LINEAR("input", op.input = T(VKA_F32, 10, 3));
    LINEAR("input", op.input = T(VKA_F32, 2, 6, 3));
    LINEAR("input_gradient", op.input_gradient.tensor = T(VKA_F32, 2, 5, 4));
    LINEAR("weight_gradient", op.weight_gradient.tensor = T(VKA_F32, 3, 4));
    LINEAR("bias_gradient", op.bias_gradient.tensor = T(VKA_F32, 3));
    LINEAR("input_gradient", op.input_gradient.tensor = op.input);
    LINEAR("weight_gradient", op.weight_gradient.tensor = op.weight);
    LINEAR("bias_gradient",
           op.bias_gradient.tensor = world_strided(w, op.weight_gradient.tensor, 2, 1,
                                                   (const uint32_t[]){4}, (const uint64_t[]){1}));
    LINEAR("bias_gradient",
           op.bias_gradient.tensor =
               world_strided(w, T(VKA_F32, 4), 0, 1, (const uint32_t[]){4}, (const uint64_t[]){0}));
}

/* ---- Activations ----------------------------------------------------------------------------- */

static struct vka_activation_backward_op good_vka_activation_backward_op(struct world *w)
{
    return *VKA_INFO(vka_activation_backward_op, .kind = VKA_SILU, .input = T(VKA_F32, 2, 5, 3),
                     .multiplier = T(VKA_F32, 5, 1), .output_gradient = T(VKA_F32, 2, 5, 3),
                     .input_gradient.tensor = T(VKA_F32, 2, 5, 3),
                     .multiplier_gradient.tensor = T(VKA_F32, 5, 1));
}

#define ACTIVATION(word, ...) \
    BAD(vka_activation_backward_op, vka_plan_add_activation_backward, word, __VA_ARGS__)

static void activation(void **state)
{
    struct world *w = *state;
    ACTIVATION("kind", op.kind = VKA_ACTIVATION_COUNT);
    ACTIVATION("alpha", op.alpha = NAN);
    ACTIVATION("gradient", op.input_gradient.tensor = op.multiplier_gradient.tensor = NULL);
    ACTIVATION("input", op.input = T(VKA_F32, 2, 5, 4));
    ACTIVATION("input", op.input = T(VKA_F32, 1, 2, 5, 3));
    ACTIVATION("multiplier", op.multiplier = T(VKA_F32, 4, 1));
    ACTIVATION("input_gradient", op.input_gradient.tensor = T(VKA_F32, 5, 3));
    ACTIVATION("multiplier_gradient", op.multiplier_gradient.tensor = T(VKA_F32, 2, 5, 3));
    ACTIVATION("input_gradient", op.input_gradient.tensor = op.input);
    ACTIVATION("input_gradient", op.input_gradient.tensor = op.output_gradient);
    ACTIVATION("input_gradient",
               op.input_gradient = (struct vka_gradient){op.output_gradient, true},
               op.multiplier_gradient.tensor = NULL);
    ACTIVATION("multiplier_gradient", op.multiplier_gradient.tensor = op.multiplier);
    struct vka_activation_backward_op op = good_vka_activation_backward_op(w);
    op.input_gradient.tensor = op.output_gradient;
    op.multiplier_gradient.tensor = NULL;
    assert_int_equal(vka_plan_add_activation_backward(w->plan, &op), VKA_OK);
}

/* ---- Sums and products, norms, rows of a table, rotations ----------------------------------------- */

static struct vka_binary_backward_op good_vka_binary_backward_op(struct world *w)
{
    return *VKA_INFO(vka_binary_backward_op, .kind = VKA_MULTIPLY, .a = T(VKA_F32, 2, 5, 3),
                     .b = T(VKA_F32, 5, 1), .output_gradient = T(VKA_F32, 2, 5, 3),
                     .a_gradient.tensor = T(VKA_F32, 2, 5, 3),
                     .b_gradient.tensor = T(VKA_F32, 5, 1));
}

#define BINARY(word, ...) \
    BAD(vka_binary_backward_op, vka_plan_add_binary_backward, word, __VA_ARGS__)

static void binary(void **state)
{
    struct world *w = *state;
    BINARY("kind", op.kind = VKA_BINARY_COUNT);
    BINARY("gradient", op.a_gradient.tensor = op.b_gradient.tensor = NULL);
    BINARY("a", op.a = T(VKA_F32, 2, 5, 4));
    BINARY("b", op.b = T(VKA_F32, 1, 1, 5, 1));
    BINARY("a_gradient", op.a_gradient.tensor = T(VKA_F32, 5, 3));
    BINARY("b_gradient", op.kind = VKA_ADD, op.b = NULL, op.b_gradient.tensor = T(VKA_F32, 4, 1));
    BINARY("b_gradient", op.b_gradient.tensor = op.b);
    BINARY("a_gradient", op.a_gradient.tensor = op.output_gradient);
}

static struct vka_norm_backward_op good_vka_norm_backward_op(struct world *w)
{
    return *VKA_INFO(
        vka_norm_backward_op, .input = T(VKA_F32, 2, 5, 3), .weight = T(VKA_F32, 3),
        .output_gradient = T(VKA_F32, 2, 5, 3), .input_gradient.tensor = T(VKA_F32, 2, 5, 3),
        .weight_gradient.tensor = T(VKA_F32, 3), .bias_gradient.tensor = T(VKA_F32, 3));
}

#define NORM(word, ...) BAD(vka_norm_backward_op, vka_plan_add_norm_backward, word, __VA_ARGS__)

static void norm(void **state)
{
    struct world *w = *state;
    NORM("kind", op.kind = VKA_NORM_COUNT);
    NORM("axes", op.axes = 4);
    NORM("weight", op.axes = 2);
    NORM("given", op.given = VKA_GIVEN_BETA1);
    NORM("epsilon", op.epsilon = -1);
    NORM("epsilon", op.epsilon = NAN);
    NORM("output_gradient", op.output_gradient = T(VKA_F32, 10, 3));
    NORM("weight", op.weight = T(VKA_F32, 4));
    NORM("weight", op.weight = T(VKA_Q8_0, 32));
    NORM("input_gradient", op.input_gradient.tensor = T(VKA_F32, 2, 5, 4));
    NORM("weight_gradient", op.weight_gradient.tensor = T(VKA_F32, 1, 3));
    NORM("bias_gradient", op.bias_gradient.tensor = T(VKA_F32, 5));
    NORM("bias_gradient", op.bias_gradient.tensor = op.weight_gradient.tensor);
    NORM("input_gradient", op.input_gradient.tensor = op.input);
    NORM("gradient",
         op.input_gradient.tensor = op.weight_gradient.tensor = op.bias_gradient.tensor = NULL);
}

static struct vka_gather_backward_op good_vka_gather_backward_op(struct world *w)
{
    return *VKA_INFO(vka_gather_backward_op, .ids = T(VKA_I32, 2, 5),
                     .output_gradient = T(VKA_F32, 2, 5, 3),
                     .table_gradient.tensor = T(VKA_F32, 7, 3));
}

#define GATHER(word, ...) \
    BAD(vka_gather_backward_op, vka_plan_add_gather_backward, word, __VA_ARGS__)

static void gather(void **state)
{
    struct world *w = *state;
    GATHER("scale", op.scale = NAN);
    GATHER("given", op.given = ~0u);
    GATHER("ids", op.ids = T(VKA_F32, 2, 5));
    GATHER("ids", op.ids = T(VKA_I32, 1, 1, 2, 5));
    GATHER("output_gradient", op.output_gradient = T(VKA_F32, 10, 3));
    GATHER("table_gradient", op.table_gradient.tensor = T(VKA_F32, 7));
    GATHER("table_gradient", op.table_gradient.tensor = T(VKA_Q4_0, 7, 32));
    GATHER("table_gradient", op.output_gradient = T(VKA_F32, 2, 5, 3),
           op.table_gradient.tensor = world_strided(
               w, op.output_gradient, 0, 2, (const uint32_t[]){7, 3}, (const uint64_t[]){3, 1}));
}

static void rotary(void **state)
{
    struct world *w = *state;
    const struct vka_rotary_op good =
        *VKA_INFO(vka_rotary_op, .input = T(VKA_F32, 2, 3, 5, 8), .output = T(VKA_F32, 2, 3, 5, 8));
    struct vka_rotary_op op = good;
    op.input = NULL;
    FAILS(VKA_INVALID, "vka_plan_add_rotary_backward", vka_plan_add_rotary_backward(w->plan, &op));
    op = good;
    op.dim = 3;
    FAILS(VKA_INVALID, "dim", vka_plan_add_rotary_backward(w->plan, &op));
    op = good;
    op.output = op.input;
    assert_int_equal(vka_plan_add_rotary_backward(w->plan, &op), VKA_OK);
}

/* ---- Losses ---------------------------------------------------------------------------------- */

static struct vka_cross_entropy_op good_vka_cross_entropy_op(struct world *w)
{
    return *VKA_INFO(vka_cross_entropy_op, .logits = T(VKA_F32, 2, 5, 3),
                     .labels = T(VKA_I32, 2, 5), .loss = T(VKA_F32, 1),
                     .gradient = T(VKA_F32, 2, 5, 3));
}

#define ENTROPY(word, ...) BAD(vka_cross_entropy_op, vka_plan_add_cross_entropy, word, __VA_ARGS__)

static void cross_entropy(void **state)
{
    struct world *w = *state;
    ENTROPY("loss", op.loss = NULL);
    ENTROPY("smoothing", op.smoothing = -0.1f);
    ENTROPY("smoothing", op.smoothing = 1.1f);
    ENTROPY("smoothing", op.smoothing = NAN);
    ENTROPY("gradient_scale", op.gradient_scale = INFINITY);
    ENTROPY("given", op.given = VKA_GIVEN_SCALE);
    ENTROPY("labels", op.labels = T(VKA_I32, 2, 5, 1));
    ENTROPY("labels", op.labels = T(VKA_I32, 2, 3));
    ENTROPY("labels", op.labels = T(VKA_F32, 2, 5));
    ENTROPY("loss", op.loss = T(VKA_F16, 1));
    ENTROPY("loss", op.loss = T(VKA_F32, 2));
    ENTROPY("gradient", op.gradient = T(VKA_F32, 10, 3));
    ENTROPY("gradient", op.gradient = T(VKA_I32, 2, 5, 3));
    ENTROPY("logits", op.logits = T(VKA_I8, 2, 5, 3));
    ENTROPY("loss", op.loss = world_strided(w, op.gradient, 3, 1, (const uint32_t[]){1},
                                            (const uint64_t[]){1}));
    struct vka_cross_entropy_op op = good_vka_cross_entropy_op(w);
    op.gradient = op.logits;
    assert_int_equal(vka_plan_add_cross_entropy(w->plan, &op), VKA_OK);
}

static struct vka_square_error_op good_vka_square_error_op(struct world *w)
{
    return *VKA_INFO(vka_square_error_op, .input = T(VKA_F32, 5, 3), .target = T(VKA_F32, 5, 3),
                     .loss = T(VKA_F32, 1), .gradient = T(VKA_F32, 5, 3));
}

#define SQUARE(word, ...) BAD(vka_square_error_op, vka_plan_add_square_error, word, __VA_ARGS__)

static void square_error(void **state)
{
    struct world *w = *state;
    SQUARE("loss", op.loss = NULL);
    SQUARE("target", op.target = T(VKA_F32, 3, 5));
    SQUARE("target", op.target = T(VKA_I32, 5, 3));
    SQUARE("loss", op.loss = T(VKA_F32, 1, 1));
    SQUARE("gradient", op.gradient = T(VKA_F32, 15));
    SQUARE("gradient", op.gradient = op.target);
    SQUARE("gradient_scale", op.gradient_scale = NAN);
    SQUARE("given", op.given = VKA_GIVEN_SCALE);
}

/* ---- Optimisers ------------------------------------------------------------------------------ */

struct optimiser {
    struct vka_parameter p;
    struct vka_optimiser_op op;
};

static struct optimiser good_optimiser(struct world *w, enum vka_optimiser kind)
{
    struct optimiser o = {{T(VKA_F16, 5, 3), T(VKA_F32, 5, 3), T(VKA_F32, 5, 3), T(VKA_F32, 5, 3)},
                          {0}};
    o.op = *VKA_INFO(vka_optimiser_op, .kind = kind, .n_parameter = 1, .learning_rate = 0.1,
                     .step = T(VKA_I32, 1), .rate = T(VKA_F32, 1));
    if (kind == VKA_SGD) {
        o.op.step = NULL;
        o.op.momentum = 0.9;
        o.p.second_moment = NULL;
    }
    return o;
}

#define OPTIMISER(kind, word, ...)                                        \
    do {                                                                  \
        struct optimiser o = good_optimiser(w, kind);                     \
        o.op.parameters = &o.p;                                           \
        __VA_ARGS__;                                                      \
        FAILS(VKA_INVALID, word, vka_plan_add_optimiser(w->plan, &o.op)); \
    } while (0)

static void optimiser_numbers(void **state)
{
    struct world *w = *state;
    FAILS(VKA_INVALID, NULL, vka_plan_add_optimiser(NULL, NULL));
    OPTIMISER(VKA_ADAM, "struct_size", o.op.struct_size = 8);
    OPTIMISER(VKA_ADAM, "kind", o.op.kind = VKA_OPTIMISER_COUNT);
    OPTIMISER(VKA_ADAM, "parameters", o.op.parameters = NULL);
    OPTIMISER(VKA_ADAM, "parameters", o.op.n_parameter = 0);
    OPTIMISER(VKA_ADAM, "learning_rate", o.op.learning_rate = 0);
    OPTIMISER(VKA_ADAM, "learning_rate", o.op.learning_rate = -1);
    OPTIMISER(VKA_ADAM, "learning_rate", o.op.learning_rate = (double)NAN);
    OPTIMISER(VKA_ADAM, "given", o.op.given = VKA_GIVEN_SCALE);
    OPTIMISER(VKA_ADAM, "beta1", o.op.beta1 = 1);
    OPTIMISER(VKA_ADAM, "beta1", o.op.beta1 = NAN);
    OPTIMISER(VKA_ADAM, "beta2", o.op.beta2 = -0.5);
    OPTIMISER(VKA_ADAM, "epsilon", o.op.epsilon = (double)INFINITY);
    OPTIMISER(VKA_ADAM, "weight_decay", o.op.weight_decay = -1);
    OPTIMISER(VKA_ADAM, "momentum", o.op.momentum = 0.9);
    OPTIMISER(VKA_SGD, "nesterov", o.op.momentum = 0, o.op.nesterov = true);
}

static void optimiser_tensors(void **state)
{
    struct world *w = *state;
    OPTIMISER(VKA_ADAM, "step", o.op.step = NULL);
    OPTIMISER(VKA_ADAM, "step", o.op.step = T(VKA_F32, 1));
    OPTIMISER(VKA_ADAM, "step", o.op.step = T(VKA_I32, 2));
    OPTIMISER(VKA_SGD, "step", o.op.step = T(VKA_I32, 1));
    OPTIMISER(VKA_SGD, "rate", o.op.rate = T(VKA_F16, 1));
    OPTIMISER(VKA_ADAMW, "parameter", o.p.parameter = NULL);
    OPTIMISER(VKA_ADAMW, "parameter", o.p.parameter = T(VKA_Q8_0, 5, 32));
    OPTIMISER(VKA_ADAMW, "gradient", o.p.gradient = NULL);
    OPTIMISER(VKA_ADAMW, "gradient", o.p.gradient = T(VKA_F32, 3, 5));
    OPTIMISER(VKA_ADAMW, "first_moment", o.p.first_moment = NULL);
    OPTIMISER(VKA_ADAMW, "first_moment", o.p.first_moment = T(VKA_F16, 5, 3));
    OPTIMISER(VKA_ADAMW, "second_moment", o.p.second_moment = T(VKA_F32, 15));
    OPTIMISER(VKA_SGD, "second_moment", o.p.second_moment = T(VKA_F32, 5, 3));
    OPTIMISER(VKA_SGD, "first_moment", o.op.momentum = 0);
    OPTIMISER(VKA_ADAM, "second_moment", o.p.second_moment = o.p.first_moment);
    OPTIMISER(VKA_ADAM, "first_moment", o.p.first_moment = o.p.gradient);
    OPTIMISER(VKA_ADAM, "parameter", o.p.parameter = FOREIGN(VKA_F32, 5, 3));
}

/* Items of a list that share what is written; a gradient may serve two parameters. */
static void optimiser_items(void **state)
{
    struct world *w = *state;
    const struct optimiser good = good_optimiser(w, VKA_ADAM);
    struct vka_parameter two[] = {good.p, good_optimiser(w, VKA_ADAM).p};
    const struct vka_parameter other = two[1];
    struct vka_optimiser_op op = good.op;
    op.parameters = two;
    op.n_parameter = 2;
#define ITEMS(word, ...)                                                \
    do {                                                                \
        two[1] = other;                                                 \
        __VA_ARGS__;                                                    \
        FAILS(VKA_INVALID, word, vka_plan_add_optimiser(w->plan, &op)); \
    } while (0)
    ITEMS("item", two[1] = good.p);
    ITEMS("item", two[1].parameter = good.p.parameter);
    ITEMS("first_moment", two[1].first_moment = good.p.first_moment);
    ITEMS("second_moment", two[1].second_moment = good.p.second_moment);
    ITEMS("first_moment", two[1].second_moment = good.p.first_moment);
    ITEMS("gradient", two[1].gradient = good.p.second_moment);
    two[1] = other;
    two[1].gradient = good.p.gradient;
    assert_int_equal(vka_plan_add_optimiser(w->plan, &op), VKA_OK);
}

static void clip(void **state)
{
    struct world *w = *state;
    struct vka_tensor *gradients[2] = {T(VKA_F32, 5, 3), T(VKA_F16, 4)}, *norm = T(VKA_F32, 1);
    struct vka_tensor *wrong[2] = {gradients[0], T(VKA_I32, 4)}, *none[1] = {NULL};
    struct vka_tensor *twice[2] = {gradients[0], gradients[0]};
    const struct vka_clip_op good = *VKA_INFO(vka_clip_op, .gradients = gradients, .n_gradient = 2,
                                              .max_norm = 1, .norm = norm);
    struct vka_clip_op op;
#define CLIP(word, ...)                                            \
    do {                                                           \
        op = good;                                                 \
        __VA_ARGS__;                                               \
        FAILS(VKA_INVALID, word, vka_plan_add_clip(w->plan, &op)); \
    } while (0)
    CLIP("struct_size", op.struct_size = 0);
    CLIP("gradients", op.gradients = NULL);
    CLIP("gradients", op.n_gradient = 0);
    CLIP("gradients", op.gradients = wrong);
    CLIP("gradients", op.gradients = none, op.n_gradient = 1);
    CLIP("max_norm", op.max_norm = 0);
    CLIP("max_norm", op.max_norm = (double)NAN);
    CLIP("norm", op.norm = NULL);
    CLIP("norm", op.norm = T(VKA_F32, 2));
    CLIP("gradients", op.gradients = &norm, op.n_gradient = 1);
    CLIP("gradient of item 0", op.gradients = twice);
    assert_int_equal(vka_plan_add_clip(w->plan, &good), VKA_OK);
}

TEST_PROGRAM(api_errors_train)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear),
        cmocka_unit_test(activation),
        cmocka_unit_test(cross_entropy),
        cmocka_unit_test(square_error),
        cmocka_unit_test(optimiser_numbers),
        cmocka_unit_test(optimiser_tensors),
        cmocka_unit_test(optimiser_items),
        cmocka_unit_test(clip),
        cmocka_unit_test(binary),
        cmocka_unit_test(norm),
        cmocka_unit_test(gather),
        cmocka_unit_test(rotary),
    };
    return cmocka_run_group_tests(tests, world_create, world_destroy);
}
