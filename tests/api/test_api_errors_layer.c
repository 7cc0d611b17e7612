/* Every documented error of layers whose weights lie in tensors, and of gradients of layers.
 * SPDX-License-Identifier: MIT */
#include <vkattn/vkattn_train.h>

#include "api_errors.h"
#include "test_program.h"

/* Types that have no gradient. */
static const enum vka_dtype not_floats[] = {VKA_I32, VKA_BOOL, VKA_I8};
static const float numbers[4096];

/* ---- Weights in tensors ---------------------------------------------------------------------- */

/* 4 heads of 8 features, of 2 key heads; widths 16, 20, 12 to 10. */
static struct vka_layer_info good_layer(struct world *w, enum vka_dtype dtype)
{
    return *VKA_INFO(vka_layer_info, .n_head = 4, .n_kv_head = 2, .head_dim = 8, .query_dim = 16,
                     .key_dim = 20, .value_input_dim = 12, .output_dim = 10, .dtype = dtype,
                     .query_tensors = {T(dtype, 32, 16), T(dtype, 32)},
                     .key_tensors = {T(dtype, 16, 20), T(dtype, 16)},
                     .value_tensors = {T(dtype, 16, 12), T(dtype, 16)},
                     .output_tensors = {T(dtype, 10, 32), T(dtype, 10)});
}

#define LAYER(word, ...)                                                                        \
    do {                                                                                        \
        struct vka_layer_info info = good_layer(w, VKA_F32);                                    \
        __VA_ARGS__;                                                                            \
        MAKES_NOTHING(vka_layer, VKA_INVALID, word, vka_layer_create(w->device, &info, &made)); \
    } while (0)

static void weights_in_tensors(void **state)
{
    struct world *w = *state;
    LAYER("tensors", info.query.weight = numbers);
    LAYER("tensors", info.output.bias = numbers);
    LAYER("tensors", info.key = (struct vka_linear_weights){numbers, numbers},
          info.key_tensors = (struct vka_linear_tensors){NULL, NULL});
    LAYER("query_tensors", info.query_tensors.weight = NULL);
    LAYER("key_tensors", info.key_tensors.weight = NULL);
    LAYER("value_tensors", info.value_tensors.weight = NULL);
    LAYER("output_tensors", info.output_tensors.weight = NULL);
    LAYER("output_dim", info.output_tensors.weight = info.output_tensors.bias = NULL);
    LAYER("keep_weights", info.keep_weights = true);
    LAYER("quantised", info.quantise = VKA_Q8_0, info.query_dim = info.key_dim = 32,
          info.value_input_dim = 32);
    LAYER("quantised", info.dtype = VKA_Q8_0, info.query_dim = info.key_dim = 32,
          info.value_input_dim = 32);
    LAYER("query_tensors", info.query_tensors.weight = T(VKA_F32, 16, 32));
    LAYER("query_tensors", info.query_tensors.weight = T(VKA_F32, 32, 16, 1));
    LAYER("query_tensors", info.query_tensors.bias = T(VKA_F32, 16));
    LAYER("key_tensors", info.key_tensors.weight = T(VKA_F32, 32, 20));
    LAYER("value_tensors", info.value_tensors.bias = T(VKA_F32, 1, 16));
    LAYER("output_tensors", info.output_tensors.weight = T(VKA_F32, 10, 16));
    LAYER("output_tensors", info.output_tensors.bias = FOREIGN(VKA_F32, 10));
    LAYER("key_tensors", info.key_tensors.weight = FOREIGN(VKA_F32, 16, 20));
    LAYER("dtype", info.value_tensors.weight = T(VKA_F16, 16, 12));
    LAYER("dtype", info.dtype = VKA_BF16);
    for (size_t i = 0; i < COUNTOF(not_floats); i++)
        LAYER("query_tensors", info.query_tensors.weight = T(not_floats[i], 32, 16));
}

/* A layer reads its weights when a plan runs: what the plan writes may not be among them. */
static void weights_written(void **state)
{
    struct world *w = *state;
    const struct vka_layer_info info = good_layer(w, VKA_F32);
    struct vka_layer *layer = NULL;
    assert_int_equal(vka_layer_create(w->device, &info, &layer), VKA_OK);
    struct vka_tensor *out = NULL;
    assert_int_equal(
        vka_tensor_reshape(info.output_tensors.weight, 3, (const uint32_t[]){1, 32, 10}, &out),
        VKA_OK);
    world_keep(w, out);
    const struct vka_layer_op op = {.struct_size = sizeof op,
                                    .layer = layer,
                                    .query = T(VKA_F32, 1, 32, 16),
                                    .key = T(VKA_F32, 1, 3, 20),
                                    .value = T(VKA_F32, 1, 3, 12),
                                    .output = out};
    FAILS(VKA_INVALID, "output", vka_plan_add_layer(w->plan, &op));
    vka_layer_destroy(&layer);
}

/* ---- Gradients ------------------------------------------------------------------------------- */

struct ops {
    struct vka_layer *layer;
    struct vka_layer_info info;
    struct vka_layer_op forward;
    struct vka_layer_backward_op op;
};

/* Batch 2, 3 queries, 5 keys. */
static void good(struct world *w, struct ops *o)
{
    o->info = good_layer(w, VKA_F32);
    assert_int_equal(vka_layer_create(w->device, &o->info, &o->layer), VKA_OK);
    o->forward = *VKA_INFO(vka_layer_op, .layer = o->layer, .query = T(VKA_F32, 2, 3, 16),
                           .key = T(VKA_F32, 2, 5, 20), .value = T(VKA_F32, 2, 5, 12),
                           .output = T(VKA_F32, 2, 3, 10),
                           .attention = {.mask = T(VKA_F32, 3, 5),
                                         .sink = T(VKA_F32, 4),
                                         .q_norm = T(VKA_F32, 8),
                                         .k_norm = T(VKA_F32, 8)});
    o->op = *VKA_INFO(
        vka_layer_backward_op, .forward = &o->forward, .output_gradient = T(VKA_F32, 2, 3, 10),
        .query_gradient.tensor = T(VKA_F32, 2, 3, 16), .key_gradient.tensor = T(VKA_F32, 2, 5, 20),
        .value_gradient.tensor = T(VKA_F32, 2, 5, 12),
        .query_weights = {{T(VKA_F32, 32, 16), false}, {T(VKA_F32, 32), false}},
        .key_weights = {{T(VKA_F32, 16, 20), false}, {T(VKA_F32, 16), false}},
        .value_weights = {{T(VKA_F32, 16, 12), false}, {T(VKA_F32, 16), false}},
        .output_weights = {{T(VKA_F32, 10, 32), false}, {T(VKA_F32, 10), false}},
        .sink_gradient.tensor = T(VKA_F32, 4), .mask_gradient.tensor = T(VKA_F32, 3, 5),
        .q_norm_gradient.tensor = T(VKA_F32, 8), .k_norm_gradient.tensor = T(VKA_F32, 8));
}

#define BACKWARD_IS(status, word, ...)                                 \
    do {                                                               \
        struct ops o;                                                  \
        good(w, &o);                                                   \
        struct vka_layer_backward_op *op = &o.op;                      \
        struct vka_layer_op *forward = &o.forward;                     \
        (void)forward;                                                 \
        __VA_ARGS__;                                                   \
        FAILS(status, word, vka_plan_add_layer_backward(w->plan, op)); \
        vka_layer_destroy(&o.layer);                                   \
    } while (0)
#define BACKWARD(word, ...) BACKWARD_IS(VKA_INVALID, word, __VA_ARGS__)

static void gradients(void **state)
{
    struct world *w = *state;
    struct ops right;
    good(w, &right);
    assert_int_equal(vka_plan_add_layer_backward(w->plan, &right.op), VKA_OK);
    vka_layer_destroy(&right.layer);
    BACKWARD("gradient", *op = *VKA_INFO(vka_layer_backward_op, .forward = forward,
                                         .output_gradient = op->output_gradient));
    BACKWARD("query_gradient", op->query_gradient.tensor = T(VKA_F32, 2, 3, 10));
    BACKWARD("key_gradient", op->key_gradient.tensor = T(VKA_F32, 5, 2, 20));
    BACKWARD("value_gradient", op->value_gradient.tensor = T(VKA_F32, 2, 5, 20));
    BACKWARD("query_weights.weight", op->query_weights.weight.tensor = T(VKA_F32, 16, 32));
    BACKWARD("key_weights.weight", op->key_weights.weight.tensor = T(VKA_F32, 16, 16));
    BACKWARD("value_weights.bias", op->value_weights.bias.tensor = T(VKA_F32, 12));
    BACKWARD("output_weights.bias", op->output_weights.bias.tensor = T(VKA_F32, 10, 1));
    BACKWARD("sink_gradient", op->sink_gradient.tensor = T(VKA_F32, 2));
    BACKWARD("mask_gradient", op->mask_gradient.tensor = T(VKA_F32, 5, 3));
    BACKWARD("q_norm_gradient", op->q_norm_gradient.tensor = T(VKA_F32, 6));
    BACKWARD("sink", forward->attention.sink = NULL);
    BACKWARD("mask is bool", forward->attention.mask = T(VKA_BOOL, 3, 5));
    BACKWARD("k_norm", forward->attention.k_norm = NULL);
    BACKWARD("query_gradient", op->query_gradient.tensor = forward->query);
    BACKWARD("key_gradient", op->key_gradient.tensor = FOREIGN(VKA_F32, 2, 5, 20));
    BACKWARD("query_weights.weight", op->query_weights.weight.tensor = o.info.query_tensors.weight);
    BACKWARD("output_weights.bias", op->output_weights.bias.tensor = o.info.output_tensors.bias);
    BACKWARD("value_weights.bias", op->value_weights.bias = op->key_weights.bias);
    BACKWARD("k_norm_gradient", op->k_norm_gradient = op->q_norm_gradient);
    for (size_t i = 0; i < COUNTOF(not_floats); i++) {
        BACKWARD("query_gradient", op->query_gradient.tensor = T(not_floats[i], 2, 3, 16));
        BACKWARD("key_weights.bias", op->key_weights.bias.tensor = T(not_floats[i], 16));
    }
}

static void forward_of_gradients(void **state)
{
    struct world *w = *state;
    struct ops right;
    good(w, &right);
    vka_layer_destroy(&right.layer);
    BACKWARD("forward", op->forward = NULL);
    BACKWARD("layer", forward->layer = NULL);
    BACKWARD("layer", forward->layer = w->foreign);
    BACKWARD("layout", forward->layout = VKA_LAYOUT_COUNT);
    BACKWARD("query", forward->query = NULL);
    BACKWARD("value", forward->value = T(VKA_F32, 2, 5, 20));
    BACKWARD("output", forward->output = NULL);
    BACKWARD("softcap", forward->attention.softcap = -1);
    BACKWARD("output_gradient", op->output_gradient = NULL);
    BACKWARD("output_gradient", op->output_gradient = T(VKA_F32, 2, 3, 16));
    BACKWARD("output_gradient", op->output_gradient = T(VKA_F32, 3, 2, 10));
    BACKWARD("output_gradient", op->output_gradient = T(VKA_I32, 2, 3, 10));
}

/* A layer without biases, an output projection or plain weights, or with one tensor for two inputs. */
static void weights_that_are_missing(void **state)
{
    struct world *w = *state;
    struct vka_layer *layer = NULL;
    struct vka_layer_info info =
        *VKA_INFO(vka_layer_info, .n_head = 2, .head_dim = 16, .query_dim = 32,
                  .query = {numbers, NULL}, .key = {numbers, NULL}, .value = {numbers, NULL});
    assert_int_equal(vka_layer_create(w->device, &info, &layer), VKA_OK);
    struct vka_tensor *x = T(VKA_F32, 2, 3, 32), *dy = T(VKA_F32, 2, 3, 32);
    struct vka_layer_op forward =
        *VKA_INFO(vka_layer_op, .layer = layer, .query = x, .output = T(VKA_F32, 2, 3, 32));
#define OF(...) \
    VKA_INFO(vka_layer_backward_op, .forward = &forward, .output_gradient = dy, __VA_ARGS__)
#define SHARED(word, ...) \
    FAILS(VKA_INVALID, word, vka_plan_add_layer_backward(w->plan, OF(__VA_ARGS__)))
    SHARED("query_weights.bias", .query_weights.bias.tensor = T(VKA_F32, 32));
    SHARED("output_weights.weight", .output_weights.weight.tensor = T(VKA_F32, 32, 32));
    SHARED("output_weights.bias", .output_weights.bias.tensor = T(VKA_F32, 32));
    SHARED("key_gradient", .key_gradient.tensor = T(VKA_F32, 2, 3, 32));
    SHARED("value_gradient", .value_gradient.tensor = T(VKA_F32, 2, 3, 32));
    forward.key = x;
    SHARED("key_gradient", .key_gradient.tensor = T(VKA_F32, 2, 3, 32));
    forward.key = T(VKA_F32, 2, 3, 32);
    SHARED("value_gradient", .value_gradient.tensor = T(VKA_F32, 2, 3, 32));
    forward.value = x;
    SHARED("value_gradient", .value_gradient.tensor = T(VKA_F32, 2, 3, 32));
    forward.cache = w->cache;
    FAILS(VKA_INVALID, "cache",
          vka_plan_add_layer_backward(w->plan, OF(.query_gradient.tensor = T(VKA_F32, 2, 3, 32))));
    forward.cache = NULL;
    vka_layer_destroy(&layer);

    info.quantise = VKA_Q8_0;
    assert_int_equal(vka_layer_create(w->device, &info, &layer), VKA_OK);
    forward.layer = layer;
    SHARED("q8_0", .query_gradient.tensor = T(VKA_F32, 2, 3, 32));
    vka_layer_destroy(&layer);
}

static void with_cache(void **state)
{
    struct world *w = *state;
    struct vka_cache *cache = NULL;
    struct ops o;
    good(w, &o);
    assert_int_equal(vka_cache_create(w->device,
                                      VKA_INFO(vka_cache_info, .batch = 2, .n_kv_head = 2,
                                               .head_dim = 8, .capacity = 16),
                                      &cache),
                     VKA_OK);
    o.forward.cache = cache;
    o.forward.attention.mask = NULL;
    o.op.mask_gradient.tensor = NULL;
    FAILS(VKA_UNSUPPORTED, "cache", vka_plan_add_layer_backward(w->plan, &o.op));
    vka_cache_destroy(&cache);
    vka_layer_destroy(&o.layer);
}

/* Rows of all batch elements, which no sum over them can be without, beyond an allocation. */
static void too_large(void **state)
{
    struct world *w = *state;
    struct ops o;
    good(w, &o);
    o.forward = *VKA_INFO(vka_layer_op, .layer = o.layer, .query = T(VKA_F32, 200, 60, 16),
                          .key = T(VKA_F32, 200, 3, 20), .value = T(VKA_F32, 200, 3, 12),
                          .output = T(VKA_F32, 200, 60, 10));
    FAILS(VKA_UNSUPPORTED, "allocation",
          vka_plan_add_layer_backward(w->plan,
                                      VKA_INFO(vka_layer_backward_op, .forward = &o.forward,
                                               .output_gradient = T(VKA_F32, 200, 60, 10),
                                               .query_weights.weight.tensor = T(VKA_F32, 32, 16))));
    vka_layer_destroy(&o.layer);
}

TEST_PROGRAM(api_errors_layer)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_in_tensors),
        cmocka_unit_test(weights_written),
        cmocka_unit_test(gradients),
        cmocka_unit_test(forward_of_gradients),
        cmocka_unit_test(weights_that_are_missing),
        cmocka_unit_test(with_cache),
        cmocka_unit_test(too_large),
    };
    if (!have_device("errors of gradients of layers"))
        return 77;
    return cmocka_run_group_tests(tests, world_create, world_destroy);
}
