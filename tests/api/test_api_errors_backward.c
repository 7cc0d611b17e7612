/* Every documented error of gradients of attention and linear attention. SPDX-License-Identifier: MIT */
#include <vkattn/vkattn_train.h>

#include "api_errors.h"
#include "test_program.h"

/* Types that have no gradient. */
static const enum vka_dtype not_floats[] = {VKA_I32, VKA_BOOL, VKA_I8};

struct attention_ops {
    struct vka_attention_op forward;
    struct vka_attention_backward_op op;
};

static void good_attention(struct world *w, struct attention_ops *a)
{
    a->forward =
        *VKA_INFO(vka_attention_op, .q = T(VKA_F32, 2, 4, 3, 8), .k = T(VKA_F32, 2, 2, 5, 8),
                  .v = T(VKA_F32, 2, 2, 5, 6), .output = T(VKA_F32, 2, 4, 3, 6),
                  .options = {.mask = T(VKA_F32, 3, 5),
                              .sink = T(VKA_F32, 4),
                              .q_norm = T(VKA_F32, 8),
                              .k_norm = T(VKA_F32, 8),
                              .log_sum_exp = T(VKA_F32, 2, 4, 3)});
    a->op = *VKA_INFO(
        vka_attention_backward_op, .forward = &a->forward,
        .output_gradient = T(VKA_F32, 2, 4, 3, 6), .q_gradient.tensor = T(VKA_F32, 2, 4, 3, 8),
        .k_gradient.tensor = T(VKA_F32, 2, 2, 5, 8), .v_gradient.tensor = T(VKA_F32, 2, 2, 5, 6),
        .sink_gradient.tensor = T(VKA_F32, 4), .mask_gradient.tensor = T(VKA_F32, 3, 5),
        .q_norm_gradient.tensor = T(VKA_F32, 8), .k_norm_gradient.tensor = T(VKA_F32, 8));
}

#define ATTENTION_IS(status, word, ...)                                    \
    do {                                                                   \
        struct attention_ops a;                                            \
        good_attention(w, &a);                                             \
        struct vka_attention_backward_op *op = &a.op;                      \
        struct vka_attention_op *forward = &a.forward;                     \
        (void)forward;                                                     \
        __VA_ARGS__;                                                       \
        FAILS(status, word, vka_plan_add_attention_backward(w->plan, op)); \
    } while (0)
#define ATTENTION(word, ...) ATTENTION_IS(VKA_INVALID, word, __VA_ARGS__)

static void attention_gradients(void **state)
{
    struct world *w = *state;
    struct attention_ops good;
    good_attention(w, &good);
    assert_int_equal(vka_plan_add_attention_backward(w->plan, &good.op), VKA_OK);
    ATTENTION("gradient",
              op->q_gradient.tensor = op->k_gradient.tensor = op->v_gradient.tensor = NULL,
              op->sink_gradient.tensor = op->mask_gradient.tensor = NULL,
              op->q_norm_gradient.tensor = op->k_norm_gradient.tensor = NULL);
    ATTENTION("q_gradient", op->q_gradient.tensor = T(VKA_F32, 2, 4, 3, 6));
    ATTENTION("k_gradient", op->k_gradient.tensor = T(VKA_F32, 2, 4, 5, 8));
    ATTENTION("v_gradient", op->v_gradient.tensor = T(VKA_F32, 2, 2, 5, 8));
    ATTENTION("sink_gradient", op->sink_gradient.tensor = T(VKA_F32, 2));
    ATTENTION("mask_gradient", op->mask_gradient.tensor = T(VKA_F32, 2, 4, 3, 5));
    ATTENTION("q_norm_gradient", op->q_norm_gradient.tensor = T(VKA_F32, 6));
    ATTENTION("k_norm_gradient", op->k_norm_gradient.tensor = T(VKA_F32, 4));
    ATTENTION("sink", forward->options.sink = NULL);
    ATTENTION("mask", forward->options.mask = NULL);
    ATTENTION("mask is bool", forward->options.mask = T(VKA_BOOL, 3, 5));
    ATTENTION("q_norm", forward->options.q_norm = NULL);
    ATTENTION("k_norm", forward->options.k_norm = NULL);
    ATTENTION("q_gradient", op->q_gradient.tensor = forward->q);
    ATTENTION("v_gradient", op->v_gradient.tensor = forward->v);
    ATTENTION("v_gradient", forward->v = T(VKA_F32, 2, 4, 3, 6),
              forward->k = T(VKA_F32, 2, 4, 3, 8), forward->options.mask = T(VKA_F32, 3, 3),
              op->mask_gradient.tensor = NULL, op->k_gradient.tensor = NULL,
              op->v_gradient.tensor = op->output_gradient);
    ATTENTION("k_norm_gradient", op->k_norm_gradient = op->q_norm_gradient);
    ATTENTION("q_gradient", op->q_gradient.tensor = FOREIGN(VKA_F32, 2, 4, 3, 8));
    for (size_t i = 0; i < COUNTOF(not_floats); i++) {
        ATTENTION("q_gradient", op->q_gradient.tensor = T(not_floats[i], 2, 4, 3, 8));
        ATTENTION("mask_gradient", op->mask_gradient.tensor = T(not_floats[i], 3, 5));
    }
}

static void attention_forward(void **state)
{
    struct world *w = *state;
    struct attention_ops good;
    good_attention(w, &good);
    ATTENTION("forward", op->forward = NULL);
    ATTENTION("log_sum_exp", forward->options.log_sum_exp = NULL);
    ATTENTION("log_sum_exp", forward->options.log_sum_exp = T(VKA_F32, 2, 4, 5));
    ATTENTION("output_gradient", op->output_gradient = NULL);
    ATTENTION("output_gradient", op->output_gradient = T(VKA_F32, 2, 4, 3, 8));
    ATTENTION("output_gradient", op->output_gradient = T(VKA_I32, 2, 4, 3, 6));
    ATTENTION("k", forward->k = T(VKA_F32, 2, 3, 5, 8));
    ATTENTION("v", forward->v = T(VKA_Q8_0, 2, 2, 5, 32));
    ATTENTION("softcap", forward->options.softcap = -1);
    ATTENTION_IS(VKA_UNSUPPORTED, "past_key", forward->past_key = T(VKA_F32, 2, 2, 1, 8),
                 forward->past_value = T(VKA_F32, 2, 2, 1, 6));
    ATTENTION_IS(VKA_UNSUPPORTED, "present_key", forward->present_key = T(VKA_F32, 2, 2, 5, 8),
                 forward->present_value = T(VKA_F32, 2, 2, 5, 6));
    ATTENTION_IS(VKA_UNSUPPORTED, "ragged", forward->q_start = T(VKA_I32, 3),
                 forward->kv_start = T(VKA_I32, 3));
    ATTENTION_IS(VKA_UNSUPPORTED, "chunk", forward->n_key = 256);
}

/* The fused path keeps no scores, of which a mask's gradient is a sum. */
static void fused_path(void **state)
{
    struct world *w = *state;
    struct attention_ops a;
    struct vka_plan *plan = NULL;
    assert_int_equal(
        vka_plan_create(w->device, VKA_INFO(vka_plan_info, .path = VKA_PATH_FUSED), &plan), VKA_OK);
    good_attention(w, &a);
    FAILS(VKA_UNSUPPORTED, "mask", vka_plan_add_attention_backward(plan, &a.op));
    a.op.mask_gradient.tensor = NULL;
    assert_int_equal(vka_plan_add_attention_backward(plan, &a.op), VKA_OK);
    vka_plan_destroy(&plan);
}

struct linear_ops {
    struct vka_linear_attention_op forward;
    struct vka_linear_attention_backward_op op;
};

static void good_linear(struct world *w, struct linear_ops *a)
{
    a->forward = *VKA_INFO(vka_linear_attention_op, .rule = VKA_RULE_GATED_DELTA,
                           .q = T(VKA_F32, 2, 2, 3, 8), .k = T(VKA_F32, 2, 2, 3, 8),
                           .v = T(VKA_F32, 2, 4, 3, 4), .decay = T(VKA_F32, 2, 4, 3),
                           .beta = T(VKA_F32, 2, 1, 3), .past_state = T(VKA_F32, 2, 4, 8, 4),
                           .output = T(VKA_F32, 2, 4, 3, 4));
    a->op = *VKA_INFO(
        vka_linear_attention_backward_op, .forward = &a->forward,
        .output_gradient = T(VKA_F32, 2, 4, 3, 4), .present_state_gradient = T(VKA_F16, 2, 4, 8, 4),
        .q_gradient.tensor = T(VKA_F32, 2, 2, 3, 8), .k_gradient.tensor = T(VKA_F32, 2, 2, 3, 8),
        .v_gradient.tensor = T(VKA_F32, 2, 4, 3, 4), .decay_gradient.tensor = T(VKA_F32, 2, 4, 3),
        .beta_gradient.tensor = T(VKA_F32, 2, 1, 3),
        .past_state_gradient.tensor = T(VKA_F32, 2, 4, 8, 4));
}

#define LINEAR_IS(status, word, ...)                                              \
    do {                                                                          \
        struct linear_ops a;                                                      \
        good_linear(w, &a);                                                       \
        struct vka_linear_attention_backward_op *op = &a.op;                      \
        struct vka_linear_attention_op *forward = &a.forward;                     \
        (void)forward;                                                            \
        __VA_ARGS__;                                                              \
        FAILS(status, word, vka_plan_add_linear_attention_backward(w->plan, op)); \
    } while (0)
#define LINEAR(word, ...) LINEAR_IS(VKA_INVALID, word, __VA_ARGS__)

static void linear_attention(void **state)
{
    struct world *w = *state;
    struct linear_ops good;
    good_linear(w, &good);
    if (vka_plan_add_linear_attention_backward(w->plan, &good.op) != VKA_OK)
        fail_msg("%s", vka_device_error(w->device));
    LINEAR("forward", op->forward = NULL);
    LINEAR("struct_size", forward->struct_size = 8);
    LINEAR("no gradient", op->q_gradient.tensor = op->k_gradient.tensor = NULL,
           op->v_gradient.tensor = op->decay_gradient.tensor = op->beta_gradient.tensor = NULL,
           op->past_state_gradient.tensor = NULL);
    LINEAR("output_gradient", op->output_gradient = T(VKA_F32, 2, 2, 3, 4));
    LINEAR("present_state_gradient", op->present_state_gradient = T(VKA_F32, 2, 4, 4, 8));
    LINEAR("q_gradient", op->q_gradient.tensor = T(VKA_F32, 2, 4, 3, 8));
    LINEAR("decay_gradient", op->decay_gradient.tensor = T(VKA_F32, 2, 4, 3, 8));
    LINEAR("beta_gradient", op->beta_gradient.tensor = T(VKA_F32, 2, 4, 3));
    LINEAR("k_gradient", op->k_gradient.tensor = forward->k);
    LINEAR("k_gradient", op->k_gradient = op->q_gradient);
    LINEAR("past_state_gradient", op->past_state_gradient.tensor = forward->past_state);
    LINEAR("forward has no past_state", forward->past_state = NULL);
    LINEAR("forward has no skip", op->skip_gradient.tensor = T(VKA_F32, 4));
    LINEAR("forward has no decay_log", op->decay_log_gradient.tensor = T(VKA_F32, 4));
    LINEAR("forward has no decay_bias", op->decay_bias_gradient.tensor = T(VKA_F32, 4));
    LINEAR("in place of past_state", forward->present_state = forward->past_state);
    LINEAR("rule", forward->rule = VKA_RULE_GATED, op->beta_gradient.tensor = NULL);
    LINEAR_IS(VKA_UNSUPPORTED, "q_start", forward->q_start = T(VKA_I32, 3));
    LINEAR_IS(VKA_UNSUPPORTED, "more than a binding", forward->v = T(VKA_F32, 2, 4, 3, 6),
              op->output_gradient = forward->output = T(VKA_F32, 2, 4, 3, 6),
              forward->past_state = op->present_state_gradient = NULL,
              op->v_gradient.tensor = op->past_state_gradient.tensor = NULL);
    LINEAR_IS(VKA_UNSUPPORTED, "head_dim is 1025", forward->q = T(VKA_F32, 1, 1, 1, 1025),
              forward->k = T(VKA_F32, 1, 1, 1, 1025), forward->v = T(VKA_F32, 1, 1, 1, 1),
              forward->rule = VKA_RULE_LINEAR, forward->decay = forward->beta = NULL,
              forward->past_state = NULL, forward->output = T(VKA_F32, 1, 1, 1, 1),
              *op = *VKA_INFO(vka_linear_attention_backward_op, .forward = forward,
                              .output_gradient = T(VKA_F32, 1, 1, 1, 1),
                              .v_gradient.tensor = T(VKA_F32, 1, 1, 1, 1)));
}

TEST_PROGRAM(api_errors_backward)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_gradients),
        cmocka_unit_test(attention_forward),
        cmocka_unit_test(fused_path),
        cmocka_unit_test(linear_attention),
    };
    return cmocka_run_group_tests(tests, world_create, world_destroy);
}
