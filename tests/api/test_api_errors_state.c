/* Every documented error of the operations of vkattn_model.h with a state. SPDX-License-Identifier: MIT */
#include <vkattn/vkattn_train.h>

#include "api_errors.h"
#include "test_program.h"

/* Two sequences of 5 rows of 3 channels, 4 wide. */
static struct vka_causal_conv_op good_conv(struct world *w)
{
    return *VKA_INFO(vka_causal_conv_op, .input = T(VKA_F16, 2, 5, 3), .weight = T(VKA_F32, 3, 4),
                     .bias = T(VKA_F32, 3), .past = T(VKA_F16, 2, 3, 3),
                     .present = T(VKA_F32, 2, 3, 3), .output = T(VKA_F32, 2, 5, 3));
}

#define CONV(status, word, ...)                                      \
    do {                                                             \
        struct vka_causal_conv_op op = good_conv(w);                 \
        __VA_ARGS__;                                                 \
        FAILS(status, word, vka_plan_add_causal_conv(w->plan, &op)); \
    } while (0)

static void conv(void **state)
{
    struct world *w = *state;
    const struct vka_causal_conv_op good = good_conv(w);
    CONV(VKA_INVALID, "input", op.input = T(VKA_I32, 2, 5, 3));
    CONV(VKA_INVALID, "input", op.input = T(VKA_F32, 10, 3));
    CONV(VKA_INVALID, "weight", op.weight = T(VKA_Q8_0, 3, 32));
    CONV(VKA_INVALID, "weight", op.weight = T(VKA_F32, 4, 4));
    CONV(VKA_INVALID, "weight", op.weight = T(VKA_F32, 3, 1, 4));
    CONV(VKA_UNSUPPORTED, "17 wide", op.weight = T(VKA_F32, 3, 17), op.past = op.present = NULL);
    CONV(VKA_UNSUPPORTED, "dilation", op.dilation = (1u << 20) + 1, op.past = op.present = NULL);
    CONV(VKA_INVALID, "bias", op.bias = T(VKA_F32, 4));
    CONV(VKA_INVALID, "activation", op.activation = VKA_ACTIVATION_COUNT);
    CONV(VKA_INVALID, "past", op.past = T(VKA_F32, 2, 3, 4));
    CONV(VKA_INVALID, "past", op.dilation = 2);
    CONV(VKA_INVALID, "past", op.weight = T(VKA_F32, 3, 1));
    CONV(VKA_INVALID, "present", op.present = T(VKA_I32, 2, 3, 3));
    CONV(VKA_INVALID, "present", op.present = op.input);
    CONV(VKA_INVALID, "lengths", op.lengths = T(VKA_I32, 3));
    CONV(VKA_INVALID, "q_start", op.q_start = T(VKA_I32, 3));
    CONV(VKA_INVALID, "lengths", op.lengths = T(VKA_I32, 2), op.q_start = T(VKA_I32, 3));
    CONV(VKA_INVALID, "output", op.output = T(VKA_F32, 2, 5, 4));
    CONV(VKA_INVALID, "output", op.output = op.input);
    assert_int_equal(vka_plan_add_causal_conv(w->plan, &good), VKA_OK);
}

#define CONV_BACKWARD(status, word, ...)                                                       \
    do {                                                                                       \
        struct vka_causal_conv_op forward = good_conv(w);                                      \
        struct vka_causal_conv_backward_op op = *VKA_INFO(                                     \
            vka_causal_conv_backward_op, .forward = &forward,                                  \
            .output_gradient = T(VKA_F32, 2, 5, 3), .present_gradient = T(VKA_F16, 2, 3, 3),   \
            .input_gradient.tensor = T(VKA_F32, 2, 5, 3),                                      \
            .weight_gradient.tensor = T(VKA_F32, 3, 4), .bias_gradient.tensor = T(VKA_F16, 3), \
            .past_gradient.tensor = T(VKA_F32, 2, 3, 3));                                      \
        __VA_ARGS__;                                                                           \
        if (status == VKA_OK)                                                                  \
            assert_int_equal(vka_plan_add_causal_conv_backward(w->plan, &op), VKA_OK);         \
        else                                                                                   \
            FAILS(status, word, vka_plan_add_causal_conv_backward(w->plan, &op));              \
    } while (0)

static void conv_backward(void **state)
{
    struct world *w = *state;
    CONV_BACKWARD(VKA_INVALID, "forward", op.forward = NULL);
    CONV_BACKWARD(VKA_INVALID, "forward.struct_size", forward.struct_size = 8);
    CONV_BACKWARD(VKA_INVALID, "weight", forward.weight = T(VKA_F32, 4, 4));
    CONV_BACKWARD(VKA_INVALID, "past", forward.past = T(VKA_F32, 2, 3, 4));
    CONV_BACKWARD(VKA_INVALID, "output", forward.output = NULL);
    CONV_BACKWARD(VKA_INVALID, "in place of past", forward.present = forward.past);
    CONV_BACKWARD(VKA_UNSUPPORTED, "q_start", forward.q_start = T(VKA_I32, 3));
    CONV_BACKWARD(VKA_UNSUPPORTED, "a cache", forward.cache = w->cache);
    CONV_BACKWARD(VKA_UNSUPPORTED, "dilation", forward.dilation = (1u << 20) + 1,
                  forward.past = forward.present = NULL);
    CONV_BACKWARD(VKA_INVALID, "output_gradient", op.output_gradient = NULL);
    CONV_BACKWARD(VKA_INVALID, "output_gradient", op.output_gradient = T(VKA_F32, 2, 5, 4));
    CONV_BACKWARD(VKA_INVALID, "present_gradient", op.present_gradient = T(VKA_F32, 2, 3, 4));
    CONV_BACKWARD(VKA_INVALID, "present_gradient", op.present_gradient = T(VKA_I32, 2, 3, 3));
    CONV_BACKWARD(VKA_INVALID, "keeps no rows", forward.weight = T(VKA_F32, 3, 1),
                  forward.past = forward.present = NULL, op.past_gradient.tensor = NULL);
    CONV_BACKWARD(VKA_INVALID, "no gradient", op.input_gradient.tensor = NULL,
                  op.weight_gradient.tensor = op.bias_gradient.tensor = NULL,
                  op.past_gradient.tensor = NULL);
    CONV_BACKWARD(VKA_INVALID, "input_gradient", op.input_gradient.tensor = T(VKA_F32, 2, 5, 4));
    CONV_BACKWARD(VKA_INVALID, "weight_gradient", op.weight_gradient.tensor = T(VKA_F32, 4, 3));
    CONV_BACKWARD(VKA_INVALID, "bias_gradient", op.bias_gradient.tensor = T(VKA_F32, 4));
    CONV_BACKWARD(VKA_INVALID, "no bias", forward.bias = NULL);
    CONV_BACKWARD(VKA_INVALID, "past_gradient", op.past_gradient.tensor = T(VKA_F32, 2, 3, 4));
    CONV_BACKWARD(VKA_INVALID, "no past", forward.past = NULL);
    CONV_BACKWARD(VKA_INVALID, "input_gradient", op.input_gradient.tensor = op.output_gradient);
    CONV_BACKWARD(VKA_INVALID, "past_gradient", op.past_gradient.tensor = op.present_gradient);
    CONV_BACKWARD(VKA_OK, "", forward.present = NULL);
}

/* Two sequences of 5 tokens, 4 states, 2 heads of keys, one of queries. */
static struct vka_linear_attention_op good_linear(struct world *w)
{
    return *VKA_INFO(vka_linear_attention_op, .rule = VKA_RULE_GATED_DELTA,
                     .q = T(VKA_F16, 2, 1, 5, 8), .k = T(VKA_F16, 2, 2, 5, 8),
                     .v = T(VKA_F32, 2, 4, 5, 6), .decay = T(VKA_F32, 2, 4, 5),
                     .beta = T(VKA_F32, 2, 1, 5), .past_state = T(VKA_F32, 2, 4, 8, 6),
                     .present_state = T(VKA_F32, 2, 4, 8, 6), .output = T(VKA_F32, 2, 4, 5, 6));
}

#define LINEAR(status, word, ...)                                         \
    do {                                                                  \
        struct vka_linear_attention_op op = good_linear(w);               \
        __VA_ARGS__;                                                      \
        FAILS(status, word, vka_plan_add_linear_attention(w->plan, &op)); \
    } while (0)

static void linear(void **state)
{
    struct world *w = *state;
    struct vka_linear_attention_op good = good_linear(w);
    LINEAR(VKA_INVALID, "rule", op.rule = VKA_RULE_COUNT);
    LINEAR(VKA_INVALID, "q has rank", op.q = T(VKA_F32, 2, 5, 8));
    LINEAR(VKA_INVALID, "q has 3 heads", op.q = T(VKA_F32, 2, 3, 5, 8));
    LINEAR(VKA_INVALID, "k must", op.k = T(VKA_F32, 2, 2, 5, 7));
    LINEAR(VKA_INVALID, "k has 3 heads", op.k = T(VKA_F32, 2, 3, 5, 8));
    LINEAR(VKA_INVALID, "v must", op.v = T(VKA_F32, 2, 4, 4, 6));
    LINEAR(VKA_INVALID, "decay is NULL", op.decay = NULL);
    LINEAR(VKA_INVALID, "decay is given", op.rule = VKA_RULE_DELTA);
    LINEAR(VKA_INVALID, "beta is NULL", op.beta = NULL);
    LINEAR(VKA_INVALID, "beta is given", op.rule = VKA_RULE_GATED);
    LINEAR(VKA_INVALID, "decay", op.decay = T(VKA_F32, 2, 4, 5, 7));
    LINEAR(VKA_INVALID, "decay", op.decay = T(VKA_F32, 2, 1, 5));
    LINEAR(VKA_INVALID, "beta", op.beta = T(VKA_F32, 2, 2, 5));
    LINEAR(VKA_INVALID, "given", op.given = VKA_GIVEN_EPSILON);
    LINEAR(VKA_INVALID, "scale", op.scale = NAN);
    LINEAR(VKA_INVALID, "norm_epsilon", op.norm_epsilon = -1);
    LINEAR(VKA_INVALID, "beta_sigmoid", op.rule = VKA_RULE_GATED, op.beta = NULL,
           op.beta_sigmoid = true);
    LINEAR(VKA_INVALID, "decay_log", op.decay_log = T(VKA_F32, 5));
    LINEAR(VKA_INVALID, "decay is NULL", op.rule = VKA_RULE_DELTA, op.decay = NULL,
           op.decay_log = T(VKA_F32, 4));
    LINEAR(VKA_INVALID, "decay_log is NULL", op.decay_bias = T(VKA_F32, 4));
    LINEAR(VKA_INVALID, "decay_bias", op.decay_log = T(VKA_F32, 4),
           op.decay_bias = T(VKA_F32, 4, 8));
    LINEAR(VKA_INVALID, "decay_log is NULL", op.decay_steps = true);
    LINEAR(VKA_INVALID, "step is of a head", op.decay = T(VKA_F32, 2, 4, 5, 8),
           op.decay_log = T(VKA_F32, 4), op.decay_steps = true);
    LINEAR(VKA_INVALID, "decay_steps is false", op.decay_log = T(VKA_F32, 4), op.step_min = 1);
    LINEAR(VKA_INVALID, "step_min", op.decay_log = T(VKA_F32, 4), op.decay_steps = true,
           op.step_min = -1);
    LINEAR(VKA_INVALID, "step_max", op.decay_log = T(VKA_F32, 4), op.decay_steps = true,
           op.step_min = 2, op.step_max = 1);
    LINEAR(VKA_INVALID, "skip", op.skip = T(VKA_I32, 4));
    LINEAR(VKA_INVALID, "past_state", op.past_state = T(VKA_F16, 2, 4, 8, 6));
    LINEAR(VKA_INVALID, "past_state", op.past_state = T(VKA_F32, 2, 4, 6, 8));
    LINEAR(VKA_INVALID, "present_state", op.present_state = T(VKA_F32, 1, 4, 8, 6));
    LINEAR(VKA_INVALID, "present_state", op.v = T(VKA_F32, 2, 4, 5, 6), op.present_state = op.v);
    LINEAR(VKA_INVALID, "lengths", op.lengths = T(VKA_F32, 2));
    LINEAR(VKA_INVALID, "q_start", op.q_start = T(VKA_I32, 3));
    LINEAR(VKA_INVALID, "output", op.output = T(VKA_F32, 2, 2, 5, 6));
    LINEAR(VKA_INVALID, "output", op.output = op.v);
    good.present_state = good.past_state;
    assert_int_equal(vka_plan_add_linear_attention(w->plan, &good), VKA_OK);
}

/* Layer 0 has keys and values, 1 a state; two sequences. */
static const struct vka_cache_layer_info good_layers[2] = {
    {.struct_size = sizeof *good_layers, .n_kv_head = 1, .head_dim = 8},
    {.struct_size = sizeof *good_layers,
     .n_state = 4,
     .head_dim = 8,
     .value_dim = 6,
     .channels = 3,
     .conv_rows = 3},
};

#define LAYERS(word, ...)                                                                         \
    do {                                                                                          \
        struct vka_cache_layer_info layers[2] = {good_layers[0], good_layers[1]};                 \
        struct vka_cache_info info =                                                              \
            *VKA_INFO(vka_cache_info, .batch = 2, .n_layer = 2, .capacity = 9, .layers = layers); \
        struct vka_cache *made = NULL;                                                            \
        __VA_ARGS__;                                                                              \
        FAILS(VKA_INVALID, word, vka_cache_create(w->device, &info, &made));                      \
    } while (0)

static void cache_layers(void **state)
{
    struct world *w = *state;
    static const float one[] = {1};
    LAYERS("layers is given, and a field", info.head_dim = 8);
    LAYERS("layers is given, and a field", info.n_kv_head = 1);
    LAYERS("layers is given, and a field", info.key_dtype = VKA_F16);
    LAYERS("layers is given, and a field", info.key_scales = one);
    LAYERS("layers is given, and a field", info.no_hadamard = true);
    LAYERS("n_layer is 0", info.n_layer = 0);
    LAYERS("layers[1].struct_size", layers[1].struct_size = 0);
    LAYERS("layers[1].n_kv_head, n_state and channels are 0",
           layers[1] = (struct vka_cache_layer_info){.struct_size = sizeof layers[1]});
    LAYERS("layers[0].n_kv_head is 1, but n_state", layers[0].n_state = 2);
    LAYERS("layers[0].n_kv_head is 1, but n_state", layers[0].conv_rows = 2);
    LAYERS("layers[1].channels is 3 and conv_rows 0", layers[1].conv_rows = 0);
    LAYERS("layers[1].channels is 0 and conv_rows 3", layers[1].channels = 0);
    LAYERS("layers[0].head_dim is 0", layers[0].head_dim = 0);
    LAYERS("layers[1].head_dim is 8, but", layers[1].n_state = 0);
    LAYERS("layers[1].value_dim is given", layers[1].n_state = layers[1].head_dim = 0);
    LAYERS("layers[1].key_dtype, value_dtype", layers[1].value_dtype = VKA_F16);
    LAYERS("layers[1].key_dtype, value_dtype", layers[1].key_scales = one);
    LAYERS("layers[0].key_dtype is i32", layers[0].key_dtype = VKA_I32);
    LAYERS("layers[0].key_scales is given", layers[0].key_scales = one);
}

static void cached(void **state)
{
    struct world *w = *state;
    struct vka_cache *cache = NULL;
    assert_int_equal(vka_cache_create(w->device,
                                      VKA_INFO(vka_cache_info, .batch = 2, .n_layer = 2,
                                               .capacity = 9, .layers = good_layers),
                                      &cache),
                     VKA_OK);
#define CACHED op.cache = cache, op.cache_layer = 1
#define CONV_CACHED CACHED, op.past = op.present = NULL
#define LINEAR_CACHED CACHED, op.past_state = op.present_state = NULL
    CONV(VKA_INVALID, "past or present is given, but", CACHED);
    CONV(VKA_INVALID, "cache_layer is 2", CONV_CACHED, op.cache_layer = 2);
    CONV(VKA_INVALID, "cache_layer is 0, which holds no state", CONV_CACHED, op.cache_layer = 0);
    CONV(VKA_INVALID, "the state of cache_layer 1", CONV_CACHED, op.weight = T(VKA_F32, 3, 3));
    CONV(VKA_INVALID, "10 rows exceed", CONV_CACHED, op.input = T(VKA_F32, 2, 10, 3),
         op.output = T(VKA_F32, 2, 10, 3));
    CONV(VKA_INVALID, "the state of cache_layer 1", CONV_CACHED, op.input = T(VKA_F32, 1, 5, 3),
         op.output = T(VKA_F32, 1, 5, 3), op.q_start = T(VKA_I32, 4));
    LINEAR(VKA_INVALID, "past_state or present_state is given, but", CACHED);
    LINEAR(VKA_INVALID, "cache_layer is 9", LINEAR_CACHED, op.cache_layer = 9);
    LINEAR(VKA_INVALID, "cache_layer is 0, which holds no state", LINEAR_CACHED,
           op.cache_layer = 0);
    LINEAR(VKA_INVALID, "the state of cache_layer 1", LINEAR_CACHED, op.v = T(VKA_F32, 2, 4, 5, 5),
           op.output = T(VKA_F32, 2, 4, 5, 5));
    struct vka_attention_op attention =
        *VKA_INFO(vka_attention_op, .q = T(VKA_F32, 2, 1, 5, 8), .k = T(VKA_F32, 2, 1, 5, 8),
                  .v = T(VKA_F32, 2, 1, 5, 8), .output = T(VKA_F32, 2, 1, 5, 8), .cache = cache,
                  .cache_layer = 1);
    FAILS(VKA_INVALID, "which holds a state, not keys",
          vka_plan_add_attention(w->plan, &attention));
    vka_cache_destroy(&cache);
}

TEST_PROGRAM(api_errors_state)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(conv),   cmocka_unit_test(conv_backward),
                                       cmocka_unit_test(linear), cmocka_unit_test(cache_layers),
                                       cmocka_unit_test(cached), cmocka_unit_test(world_is_well)};
    return cmocka_run_group_tests(tests, world_create, world_destroy);
}
