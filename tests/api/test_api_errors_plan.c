/* Every documented error of plans, of linear and layer operations, and of what a device is too
 * small for. SPDX-License-Identifier: MIT */
#include "patience.h"
#include "api_errors.h"
#include "gpu/device.h"
#include "test_program.h"

/* ---- Linear ---------------------------------------------------------------------------------- */

static struct vka_linear_op good_linear(struct world *w)
{
    return *VKA_INFO(vka_linear_op, .input = T(VKA_F32, 2, 5, 3), .weight = T(VKA_F32, 4, 3),
                     .bias = T(VKA_F32, 4), .output = T(VKA_F32, 2, 5, 4));
}

#define LINEAR(word, ...)                                            \
    do {                                                             \
        struct vka_linear_op op = good_linear(w);                    \
        __VA_ARGS__;                                                 \
        FAILS(VKA_INVALID, word, vka_plan_add_linear(w->plan, &op)); \
    } while (0)

static void linear(void **state)
{
    struct world *w = *state;
    LINEAR("input", op.input = T(VKA_Q8_0, 2, 5, 32), op.weight = T(VKA_F32, 4, 32));
    LINEAR("bias", op.bias = T(VKA_I8, 4));
    LINEAR("output", op.output = T(VKA_Q4_0, 2, 5, 32));
    LINEAR("weight_scale", op.weight = T(VKA_I8, 4, 3));
    LINEAR("weight_scale", op.weight_scale = T(VKA_F32, 4));
    LINEAR("weight_scale", op.input = T(VKA_F32, 2, 5, 64), op.weight = T(VKA_NVFP4, 4, 64),
           op.weight_scale = T(VKA_F16, 4));
    LINEAR("weight_scale", op.weight = T(VKA_I8, 4, 3), op.weight_scale = T(VKA_F16, 4));
    LINEAR("weight_scale", op.weight = T(VKA_I8, 4, 3), op.weight_scale = T(VKA_F32, 3));
    LINEAR("weight_scale", op.weight = T(VKA_I8, 4, 3), op.weight_scale = FOREIGN(VKA_F32, 4));
    LINEAR("contiguous", op.weight_scale = T(VKA_F32, 4),
           op.weight =
               world_strided(w, T(VKA_I8, 30), 0, 2, (uint32_t[]){4, 3}, (uint64_t[]){6, 2}));
    LINEAR("activations is f16", op.activations = VKA_F16);
    LINEAR("activations is q8_0", op.activations = VKA_Q8_0);
    LINEAR("activations is unknown", op.activations = (enum vka_dtype)VKA_DTYPE_COUNT);
    LINEAR("weight is f32, which has no integers", op.activations = VKA_I8);
    LINEAR("weight is bf16, which has no integers", op.activations = VKA_I8,
           op.weight = T(VKA_BF16, 4, 3));
    LINEAR("weight", op.weight = T(VKA_F32, 4));
    LINEAR("weight", op.weight = T(VKA_F32, 1, 4, 3));
    LINEAR("input", op.input = T(VKA_F32, 2, 5, 4));
    LINEAR("weight", op.weight = T(VKA_F32, 4, 2));
    LINEAR("output", op.output = T(VKA_F32, 2, 5, 3));
    LINEAR("output", op.output = T(VKA_F32, 2, 4, 4));
    LINEAR("output", op.output = T(VKA_F32, 1, 5, 4));
    LINEAR("output", op.output = T(VKA_F32, 10, 4));
    LINEAR("output", op.output = T(VKA_F32, 1, 2, 5, 4));
    LINEAR("bias", op.bias = T(VKA_F32, 3));
    LINEAR("bias", op.bias = T(VKA_F32, 1));
    LINEAR("bias", op.bias = T(VKA_F32, 1, 4));
    LINEAR("bias",
           op.bias = world_strided(w, T(VKA_F32, 8), 0, 1, (uint32_t[]){4}, (uint64_t[]){2}));
}

static void linear_overlaps(void **state)
{
    struct world *w = *state;
    struct vka_tensor *store = T(VKA_F32, 64), *square = T(VKA_F32, 4, 4);
    const uint32_t x[] = {2, 5, 3}, y[] = {2, 5, 4}, row[] = {4};
    const uint64_t x_strides[] = {15, 3, 1}, y_strides[] = {20, 4, 1}, repeat[] = {0, 4, 1};
    const uint64_t crossing[] = {4, 4, 1}, one[] = {1}, apart[] = {35, 7, 1};
    struct vka_tensor *large = T(VKA_F32, 70);
    LINEAR("output", op.input = world_strided(w, large, 3, 3, x, apart),
           op.output = world_strided(w, large, 0, 3, y, apart));
    LINEAR("output", op.input = world_strided(w, store, 0, 3, x, x_strides),
           op.output = world_strided(w, store, 0, 3, y, y_strides));
    LINEAR("output", op.input = world_strided(w, store, 34, 3, x, x_strides),
           op.output = world_strided(w, store, 0, 3, y, y_strides)); /* by some elements */
    LINEAR("output", op.bias = world_strided(w, store, 39, 1, row, one),
           op.output = world_strided(w, store, 0, 3, y, y_strides)); /* by one */
    LINEAR("output", op.input = square, op.weight = square, op.output = square);
    LINEAR("output", op.input = T(VKA_F32, 4, 4), op.weight = square, op.output = square);
    LINEAR("output", op.input = square, op.weight = T(VKA_F32, 4, 4), op.output = square,
           op.accumulate = true);
    LINEAR("output", op.output = world_strided(w, store, 0, 3, y, repeat));
    LINEAR("output", op.output = world_strided(w, store, 0, 3, y, crossing));
    /* Side by side is no overlap, nor are rows that lie between others. */
    struct vka_linear_op op = good_linear(w);
    op.bias = world_strided(w, store, 40, 1, row, one);
    op.output = world_strided(w, store, 0, 3, y, y_strides);
    assert_int_equal(vka_plan_add_linear(w->plan, &op), VKA_OK);
    op = good_linear(w);
    op.output = world_strided(w, large, 0, 3, y, apart);
    op.input = world_strided(w, large, 4, 3, x, apart);
    assert_int_equal(vka_plan_add_linear(w->plan, &op), VKA_OK);
}

/* ---- Layers ---------------------------------------------------------------------------------- */

#define LAYER(word, ...)                                            \
    do {                                                            \
        struct vka_layer_op op = world_layer_op(w);                 \
        __VA_ARGS__;                                                \
        FAILS(VKA_INVALID, word, vka_plan_add_layer(w->plan, &op)); \
    } while (0)

static void layer(void **state)
{
    struct world *w = *state;
    LAYER("layer", op.layer = NULL);
    LAYER("layer", op.layer = w->foreign);
    LAYER("layout", op.layout = VKA_LAYOUT_COUNT);
    LAYER("layout", op.layout = (enum vka_layout) - 1);
    LAYER("key", op.key = NULL); /* the query is 24 wide, keys 20 */
    LAYER("query", op.query = T(VKA_F32, 3, 24));
    LAYER("key", op.key = T(VKA_F32, 1, 2, 5, 20));
    LAYER("value", op.value = T(VKA_F32, 280));
    LAYER("output", op.output = T(VKA_F32, 6, 16));
    LAYER("query", op.query = T(VKA_F32, 2, 3, 23));
    LAYER("key", op.key = T(VKA_F32, 2, 5, 24));
    LAYER("value", op.value = T(VKA_F32, 2, 5, 20));
    LAYER("output", op.output = T(VKA_F32, 2, 3, 24));
    LAYER("key", op.key = T(VKA_F32, 1, 5, 20));
    LAYER("value", op.value = T(VKA_F32, 3, 5, 28));
    LAYER("output", op.output = T(VKA_F32, 1, 3, 16));
    LAYER("value", op.value = T(VKA_F32, 2, 4, 28));
    LAYER("output", op.output = T(VKA_F32, 2, 4, 16));
    LAYER("value", op.layout = VKA_SEQUENCE_FIRST, op.key = T(VKA_F32, 5, 3, 20)); /* batch 3 */
    LAYER("key", op.layout = VKA_SEQUENCE_FIRST); /* 3 batch elements of 2, 5 of 2 */
}

static void layer_overlaps(void **state)
{
    struct world *w = *state;
    const uint32_t out[] = {2, 3, 16};
    const uint64_t dense[] = {48, 16, 1}, repeat[] = {48, 0, 1}, crossing[] = {16, 16, 1};
    LAYER("output", op.output = world_strided(w, op.query, 0, 3, out, dense));
    LAYER("output", op.output = world_strided(w, op.key, 96, 3, out, dense));
    LAYER("output", op.output = world_strided(w, op.value, 7, 3, out, dense));
    LAYER("output", op.output = world_strided(w, op.output, 0, 3, out, repeat));
    LAYER("output", op.output = world_strided(w, op.output, 0, 3, out, crossing));
    LAYER("output", op.attention.mask =
                        world_strided(w, op.output, 0, 2, (uint32_t[]){3, 5}, (uint64_t[]){5, 1}));
    LAYER("output",
          op.attention.sink = world_strided(w, op.output, 92, 1, (uint32_t[]){4}, (uint64_t[]){1}));
    const uint32_t scores[] = {2, 4, 3, 5};
    const uint64_t rows[] = {60, 15, 5, 1};
    struct vka_tensor *store = T(VKA_F32, 200);
    LAYER("scores", op.attention.scores_kind = VKA_SCORES_RAW,
          op.attention.scores = world_strided(w, store, 0, 4, scores, rows),
          op.output = world_strided(w, store, 100, 3, out, dense));
    LAYER("scores", op.attention.scores_kind = VKA_SCORES_RAW,
          op.attention.scores = world_strided(w, store, 0, 4, scores, rows),
          op.query =
              world_strided(w, store, 50, 3, (uint32_t[]){2, 3, 24}, (uint64_t[]){72, 24, 1}));
    const uint64_t sum_rows[] = {12, 3, 1};
    LAYER("log_sum_exp", op.attention.log_sum_exp =
                             world_strided(w, op.output, 70, 3, (uint32_t[]){2, 4, 3}, sum_rows));
    LAYER("log_sum_exp", op.attention.scores_kind = VKA_SCORES_RAW,
          op.attention.scores = world_strided(w, store, 0, 4, scores, rows),
          op.attention.log_sum_exp =
              world_strided(w, store, 110, 3, (uint32_t[]){2, 4, 3}, sum_rows));
}

static void layer_cache(void **state)
{
    struct world *w = *state;
    struct vka_cache *other = NULL, *narrow = NULL;
    struct vka_cache_info info = {.struct_size = sizeof info,
                                  .batch = 2,
                                  .n_kv_head = 2,
                                  .head_dim = 8,
                                  .value_dim = 6,
                                  .capacity = 16};
    assert_int_equal(vka_cache_create(w->other, &info, &other), VKA_OK);
    info.head_dim = 4;
    assert_int_equal(vka_cache_create(w->device, &info, &narrow), VKA_OK);
    LAYER("cache", op.cache = other);
    LAYER("cache", op.cache = narrow);
    LAYER("cache", op.cache = w->cache, op.query = T(VKA_F32, 1, 3, 24),
          op.key = T(VKA_F32, 1, 5, 20), op.value = T(VKA_F32, 1, 5, 28),
          op.output = T(VKA_F32, 1, 3, 16));
    LAYER("cache", op.cache = w->cache, op.key = T(VKA_F32, 2, 17, 20),
          op.value = T(VKA_F32, 2, 17, 28));
    LAYER("kv_length", op.cache = w->cache, op.attention.kv_length = T(VKA_I32, 1));
    LAYER("query_offset", op.cache = w->cache, op.attention.query_offset = T(VKA_I32, 1));
    vka_cache_destroy(&other);
    vka_cache_destroy(&narrow);
}

/* ---- What the device is too small for -------------------------------------------------------- */

static void too_large(void **state)
{
    struct world *w = *state; /* one kernel sees 65536 bytes */
    struct vka_plan *plan = NULL, *unfused = NULL;
    assert_int_equal(
        vka_plan_create(w->device, VKA_INFO(vka_plan_info, .path = VKA_PATH_AUTO), &plan), VKA_OK);
    assert_int_equal(
        vka_plan_create(w->device, VKA_INFO(vka_plan_info, .path = VKA_PATH_UNFUSED), &unfused),
        VKA_OK);
    const struct vka_linear_op wide = {
        .struct_size = sizeof wide,
        .input = T(VKA_F32, 2, 20000),
        .weight = T(VKA_F32, 3, 20000),
        .output = T(VKA_F32, 2, 3),
    };
    assert_int_equal(vka_plan_add_linear(plan, &wide), VKA_OK); /* cut along k */
    const struct vka_attention_op deep = {
        .struct_size = sizeof deep,
        .q = T(VKA_F32, 1, 1, 2, 1),
        .k = T(VKA_F32, 1, 1, 20000, 1),
        .v = T(VKA_F32, 1, 1, 20000, 1),
        .output = T(VKA_F32, 1, 1, 2, 1),
    };
    assert_int_equal(vka_plan_add_attention(plan, &deep), VKA_OK); /* cut along the keys */
    /* The scores of one query are not cut. */
    FAILS(VKA_UNSUPPORTED, "the device", vka_plan_add_attention(unfused, &deep));
    struct vka_layer_op op = world_layer_op(w);
    op.key = T(VKA_F16, 1, 17000, 20);
    op.value = T(VKA_F16, 1, 17000, 28);
    op.query = T(VKA_F32, 1, 3, 24);
    op.output = T(VKA_F32, 1, 3, 16);
    FAILS(VKA_UNSUPPORTED, "the device", vka_plan_add_layer(unfused, &op));
    /* What was taken back leaves a plan that works. */
    const struct vka_linear_op fits = good_linear(w);
    assert_int_equal(vka_plan_add_linear(unfused, &fits), VKA_OK);
    vka_plan_destroy(&unfused);
    vka_plan_destroy(&plan);
}

/* Plays a device that lacks what a kernel needs. */
static void no_kernel(void **state)
{
    struct world *w = *state;
    const struct vka_linear_op linear_op = good_linear(w);
    const struct vka_layer_op layer_op = world_layer_op(w);
    w->device->caps.without = set_all_but(NO_KERNELS);
    FAILS(VKA_UNSUPPORTED, "matmul_tile", vka_plan_add_linear(w->plan, &linear_op));
    FAILS(VKA_UNSUPPORTED, "matmul_tile", vka_plan_add_layer(w->plan, &layer_op));
    w->device->caps.without = NO_KERNELS;
    for (int k = 0; k < KERNEL_COUNT; k++)
        if (kernel_table[k].family == FAMILY_SOFTMAX || kernel_table[k].family == FAMILY_ATTENTION)
            set_add(&w->device->caps.without, k);
    FAILS(VKA_UNSUPPORTED, "softmax_shared", vka_plan_add_layer(w->plan, &layer_op));
    w->device->caps.without = NO_KERNELS;
}

/* ---- The life of a plan ---------------------------------------------------------------------- */

static void creation(void **state)
{
    struct world *w = *state;
    struct vka_plan_info info = {.struct_size = sizeof info};
    const size_t sizes[] = WRONG_SIZES(vka_plan_info);
    MAKES_NOTHING(vka_plan, VKA_INVALID, NULL, vka_plan_create(NULL, &info, &made));
    FAILS(VKA_INVALID, "plan", vka_plan_create(w->device, &info, NULL));
    for (size_t i = 0; i < COUNTOF(sizes); i++) {
        info.struct_size = sizes[i];
        MAKES_NOTHING(vka_plan, VKA_INVALID, "struct_size",
                      vka_plan_create(w->device, &info, &made));
    }
    info = (struct vka_plan_info){.struct_size = sizeof info, .path = VKA_PATH_COUNT};
    MAKES_NOTHING(vka_plan, VKA_INVALID, "path", vka_plan_create(w->device, &info, &made));
    info.path = (enum vka_path) - 1;
    MAKES_NOTHING(vka_plan, VKA_INVALID, "path", vka_plan_create(w->device, &info, &made));
    info = (struct vka_plan_info){.struct_size = sizeof info, .whole_n_head = 6};
    MAKES_NOTHING(vka_plan, VKA_INVALID, "whole_n_head", vka_plan_create(w->device, &info, &made));
    info.whole_n_kv_head = 4;
    MAKES_NOTHING(vka_plan, VKA_INVALID, "whole_n_head", vka_plan_create(w->device, &info, &made));
}

static void unfinished(void **state)
{
    struct world *w = *state;
    struct vka_plan *empty = NULL;
    struct vka_pass_info pass;
    uint64_t ticket = 77;
    assert_int_equal(vka_plan_create(w->device, NULL, &empty), VKA_OK);
    FAILS(VKA_INVALID, NULL, vka_plan_finish(NULL));
    FAILS(VKA_INVALID, "no operations", vka_plan_finish(empty));
    FAILS(VKA_INVALID, "finished", vka_plan_submit(w->plan, &ticket));
    FAILS(VKA_INVALID, "finished", vka_plan_submit(empty, NULL));
    FAILS(VKA_INVALID, "finished", vka_plan_run(w->plan, PATIENCE));
    FAILS(VKA_INVALID, "ticket", vka_plan_wait(w->plan, 0, 0));
    FAILS(VKA_INVALID, "ticket", vka_plan_wait(w->plan, 1, 0));
    FAILS(VKA_INVALID, "index", vka_plan_pass(w->plan, 0, &pass));
    FAILS(VKA_INVALID, NULL, vka_plan_submit(NULL, &ticket));
    FAILS(VKA_INVALID, NULL, vka_plan_run(NULL, 0));
    FAILS(VKA_INVALID, NULL, vka_plan_wait(NULL, 1, 0));
    FAILS(VKA_INVALID, NULL, vka_plan_pass(NULL, 0, &pass));
    assert_int_equal(ticket, 77);
    assert_int_equal(vka_plan_pass_count(NULL), 0);
    assert_int_equal(vka_plan_pass_count(w->plan), 0);
    assert_int_equal(vka_plan_workspace(NULL), 0);
    assert_int_equal(vka_plan_workspace(empty), 0);
    assert_int_equal(vka_plan_describe(NULL, NULL, 0), 0);
    assert_int_equal(vka_plan_describe(empty, NULL, 0), 0);
    vka_plan_destroy(&empty);
}

static VKAPI_ATTR VkResult VKAPI_CALL no_descriptors(VkDevice device,
                                                     const VkDescriptorPoolCreateInfo *info,
                                                     const VkAllocationCallbacks *allocator,
                                                     VkDescriptorPool *pool)
{
    (void)device, (void)info, (void)allocator, (void)pool;
    return VK_ERROR_OUT_OF_HOST_MEMORY;
}

/* A plan whose constants are on the device takes no others, though finishing it failed behind that. */
static void half_finished(void **state)
{
    struct world *w = *state;
    struct vka_plan *plan = NULL;
    const struct vka_attention_op op = world_attention_op(w);
    assert_int_equal(
        vka_plan_create(w->device, VKA_INFO(vka_plan_info, .path = VKA_PATH_FUSED), &plan), VKA_OK);
    assert_int_equal(vka_plan_add_attention(plan, &op), VKA_OK);
    const PFN_vkCreateDescriptorPool real = w->device->vk.vkCreateDescriptorPool;
    w->device->vk.vkCreateDescriptorPool = no_descriptors;
    assert_int_equal(vka_plan_finish(plan), VKA_OUT_OF_HOST_MEMORY);
    w->device->vk.vkCreateDescriptorPool = real;
    FAILS(VKA_INVALID, "being finished", vka_plan_add_attention(plan, &op));
    assert_int_equal(vka_plan_finish(plan), VKA_OK);
    assert_int_equal(vka_plan_run(plan, PATIENCE), VKA_OK);
    vka_plan_destroy(&plan);
}

/* The last test: finishes the plan that all failed calls were made on. */
static void finished(void **state)
{
    struct world *w = *state;
    struct vka_pass_info pass;
    const struct vka_linear_op linear_op = good_linear(w);
    const struct vka_layer_op layer_op = world_layer_op(w);
    const struct vka_attention_op attention_op = {
        .struct_size = sizeof attention_op,
        .q = T(VKA_F32, 1, 1, 2, 4),
        .k = T(VKA_F32, 1, 1, 3, 4),
        .v = T(VKA_F32, 1, 1, 3, 4),
        .output = T(VKA_F32, 1, 1, 2, 4),
    };
    assert_int_equal(vka_plan_finish(w->plan), VKA_OK);
    size_t n = vka_plan_pass_count(w->plan);
    assert_true(n > 0);
    FAILS(VKA_INVALID, "finished", vka_plan_finish(w->plan));
    FAILS(VKA_INVALID, "finished", vka_plan_add_linear(w->plan, &linear_op));
    FAILS(VKA_INVALID, "finished", vka_plan_add_attention(w->plan, &attention_op));
    FAILS(VKA_INVALID, "finished", vka_plan_add_layer(w->plan, &layer_op));
    FAILS(VKA_INVALID, "index", vka_plan_pass(w->plan, n, &pass));
    FAILS(VKA_INVALID, "index", vka_plan_pass(w->plan, SIZE_MAX, &pass));
    FAILS(VKA_INVALID, "info", vka_plan_pass(w->plan, 0, NULL));
    FAILS(VKA_INVALID, "ticket", vka_plan_wait(w->plan, 1, 0));
    uint64_t ticket = 0;
    assert_int_equal(vka_plan_submit(w->plan, &ticket), VKA_OK);
    FAILS(VKA_INVALID, "ticket", vka_plan_wait(w->plan, 0, PATIENCE));
    FAILS(VKA_INVALID, "ticket", vka_plan_wait(w->plan, ticket - 1, PATIENCE));
    FAILS(VKA_INVALID, "ticket", vka_plan_wait(w->plan, ticket + 1, PATIENCE));
    FAILS(VKA_INVALID, "ticket", vka_plan_wait(w->plan, UINT64_MAX, PATIENCE));
    assert_int_equal(vka_plan_wait(w->plan, ticket, PATIENCE), VKA_OK);
    assert_int_equal(vka_plan_pass(w->plan, n - 1, &pass), VKA_OK);
}

TEST_PROGRAM(api_errors_plan)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear),      cmocka_unit_test(linear_overlaps),
        cmocka_unit_test(layer),       cmocka_unit_test(layer_overlaps),
        cmocka_unit_test(layer_cache), cmocka_unit_test(too_large),
        cmocka_unit_test(no_kernel),   cmocka_unit_test(creation),
        cmocka_unit_test(unfinished),  cmocka_unit_test(half_finished),
        cmocka_unit_test(finished),    cmocka_unit_test(world_is_well),
    };
    if (!have_device("errors of plans"))
        return 77;
    return cmocka_run_group_tests(tests, world_create, world_destroy);
}
