/* Every documented error of the options that attention and layer operations share.
 * SPDX-License-Identifier: MIT */
#include "api_errors.h"
#include "test_program.h"

typedef enum vka_status add_with_options(struct world *w,
                                         const struct vka_attention_options *options);

static enum vka_status add_attention(struct world *w, const struct vka_attention_options *options)
{
    struct vka_attention_op op = world_attention_op(w);
    op.options = *options;
    return vka_plan_add_attention(w->plan, &op);
}

static enum vka_status add_layer(struct world *w, const struct vka_attention_options *options)
{
    struct vka_layer_op op = world_layer_op(w);
    op.attention = *options;
    return vka_plan_add_layer(w->plan, &op);
}

#define OPTION(word, ...)                               \
    do {                                                \
        struct vka_attention_options o = {__VA_ARGS__}; \
        FAILS(VKA_INVALID, word, add(w, &o));           \
    } while (0)

static void option_numbers(struct world *w, add_with_options *add)
{
    OPTION("window_left", .window = true, .window_left = -2);
    OPTION("window_left", .window = true, .window_left = INT32_MIN);
    OPTION("window_right", .window = true, .window_right = -2);
    OPTION("window_right", .window = true, .window_right = INT32_MIN);
    OPTION("window_left", .window_left = 3);
    OPTION("window_right", .window_right = -1);
    OPTION("given", .given = VKA_GIVEN_GRADIENT_SCALE);
    OPTION("given", .given = 1u << 31);
    OPTION("scale", .scale = NAN);
    OPTION("scale", .given = VKA_GIVEN_SCALE, .scale = NAN);
    OPTION("scale", .scale = INFINITY);
    OPTION("inf", .scale = INFINITY); /* and what it is */
    OPTION("-2.5", .softcap = -2.5f);
    OPTION("1.5", .dropout = 1.5f);
    OPTION("70000", .dropout_head = 70000);
    OPTION("-0.25", .norm_epsilon = -0.25f);
    OPTION("scale", .scale = -INFINITY);
    OPTION("softcap", .softcap = NAN);
    OPTION("softcap", .softcap = INFINITY);
    OPTION("softcap", .softcap = -1);
    OPTION("dropout", .dropout = NAN);
    OPTION("dropout", .dropout = -0.01f);
    OPTION("dropout", .dropout = 1);
    OPTION("dropout", .dropout = INFINITY);
    OPTION("dropout_batch", .dropout_batch = 65536);
    OPTION("dropout_head", .dropout_head = 65536);
    const struct vka_attention_options last = {.dropout = 0.5f, .dropout_batch = 65535},
                                       head = {.dropout = 0.5f, .dropout_head = 65533};
    FAILS(VKA_UNSUPPORTED, "65536 batch elements", add(w, &last));
    FAILS(VKA_UNSUPPORTED, "65536 batch elements", add(w, &head));
    OPTION("norm_epsilon", .norm_epsilon = NAN);
    OPTION("norm_epsilon", .norm_epsilon = INFINITY);
    OPTION("norm_epsilon", .norm_epsilon = -1e-6f);
    OPTION("masked_row", .masked_row = VKA_MASKED_ROW_COUNT);
    OPTION("masked_row", .masked_row = (enum vka_masked_row) - 1);
    OPTION("scores_kind", .scores_kind = VKA_SCORES_COUNT);
    OPTION("scores_kind", .scores_kind = (enum vka_scores) - 1);
    OPTION("dim", .rope = {.dim = 1});
    OPTION("dim", .rope = {.dim = 7});
    OPTION("dim", .rope = {.dim = 10}); /* head_dim is 8 */
    OPTION("dim", .rope = {.dim = UINT32_MAX});
    OPTION("rope.dim is 0", .rope = {.base = 10000});
    OPTION("rope.dim is 0", .rope = {.interleaved = true});
    OPTION("rope.dim is 0", .rope = {.attention_factor = 1});
    OPTION("base", .rope = {.dim = 8, .base = NAN});
    OPTION("base", .rope = {.dim = 8, .base = INFINITY});
    OPTION("base", .rope = {.dim = 8, .base = -1});
    OPTION("base", .rope = {.dim = 8, .base = 0.99999994f});
    OPTION("base", .rope = {.dim = 2, .base = 0.5f});
    OPTION("base", .rope = {.dim = 8, .base = 1e-45f, .interleaved = true});
    static const double fine[] = {1, 0, -1, 0.5}, fast[] = {1, 1, 1, -1.0000001};
    static const double nan[] = {NAN, 1, 1, 1};
    OPTION("frequencies", .rope = {.dim = 8, .base = 10000, .frequencies = fine});
    OPTION("frequencies", .rope = {.frequencies = fine});
    OPTION("frequencies[3]", .rope = {.dim = 8, .frequencies = fast});
    OPTION("frequencies[0]", .rope = {.dim = 2, .frequencies = nan});
    OPTION("attention_factor", .rope = {.dim = 8, .attention_factor = -1});
    OPTION("attention_factor", .rope = {.dim = 8, .attention_factor = NAN});
    OPTION("attention_factor", .rope = {.dim = 8, .attention_factor = INFINITY});
}

static void option_masks(struct world *w, add_with_options *add)
{
    OPTION("mask", .mask = FOREIGN(VKA_BOOL, 3, 5));
    OPTION("mask", .mask = T(VKA_I32, 3, 5));
    OPTION("mask", .mask = T(VKA_BOOL, 6));
    OPTION("mask", .mask = T(VKA_F32, 3, 6));
    OPTION("mask", .mask = T(VKA_F16, 2, 5)); /* 3 queries */
    OPTION("mask", .mask = T(VKA_BOOL, 4, 5));
    OPTION("mask", .mask = T(VKA_BF16, 2, 3, 5)); /* 4 heads */
    OPTION("mask", .mask = T(VKA_BOOL, 8, 3, 5));
    OPTION("mask", .mask = T(VKA_BOOL, 3, 4, 3, 5)); /* batch 2 */
    OPTION("mask", .mask = T(VKA_BOOL, 4, 1, 1, 5));
    OPTION("scores", .scores_kind = VKA_SCORES_RAW);
    OPTION("scores", .scores_kind = VKA_SCORES_SOFTMAX);
    OPTION("scores_kind", .scores = T(VKA_F32, 2, 4, 3, 5));
    const uint32_t full[] = {2, 4, 3, 5};
    struct vka_tensor *store = T(VKA_F32, 2, 4, 3, 5);
    struct vka_tensor *const wrong[] = {
        FOREIGN(VKA_F32, 2, 4, 3, 5),
        T(VKA_I32, 2, 4, 3, 5),
        T(VKA_BOOL, 2, 4, 3, 5),
        T(VKA_F32, 8, 3, 5),
        T(VKA_F32, 1, 4, 3, 5),
        T(VKA_F32, 2, 2, 3, 5),
        T(VKA_F32, 2, 4, 1, 5),
        T(VKA_F32, 2, 4, 3, 8),
        world_strided(w, store, 0, 4, full, (uint64_t[]){0, 15, 5, 1}),
        world_strided(w, store, 0, 4, full, (uint64_t[]){60, 15, 5, 0}),
    };
    for (size_t i = 0; i < COUNTOF(wrong); i++)
        OPTION("scores", .scores_kind = VKA_SCORES_BIAS, .scores = wrong[i]);
}

static void option_log_sum(struct world *w, add_with_options *add)
{
    struct vka_tensor *store = T(VKA_F32, 2, 4, 3);
    const uint32_t full[] = {2, 4, 3};
    struct vka_tensor *const wrong[] = {
        FOREIGN(VKA_F32, 2, 4, 3),
        T(VKA_F16, 2, 4, 3),
        T(VKA_BF16, 2, 4, 3),
        T(VKA_I32, 2, 4, 3),
        T(VKA_F32, 8, 3),
        T(VKA_F32, 2, 4, 3, 1),
        T(VKA_F32, 1, 4, 3),
        T(VKA_F32, 2, 2, 3), /* heads of the queries, not of the keys */
        T(VKA_F32, 2, 4, 5),
        world_strided(w, store, 0, 3, full, (uint64_t[]){12, 0, 1}),
        world_strided(w, store, 0, 3, full, (uint64_t[]){12, 3, 0}),
    };
    for (size_t i = 0; i < COUNTOF(wrong); i++)
        OPTION("log_sum_exp", .log_sum_exp = wrong[i]);
}

static void option_vectors(struct world *w, add_with_options *add)
{
    const uint32_t two[] = {2}, four[] = {4}, eight[] = {8};
    const uint64_t apart[] = {2};
    struct vka_tensor *const lengths[] = {
        FOREIGN(VKA_I32, 2), T(VKA_F32, 2),    T(VKA_BOOL, 2),
        T(VKA_I32, 3),       T(VKA_I32, 1, 2), world_strided(w, T(VKA_I32, 4), 0, 1, two, apart),
    };
    for (size_t i = 0; i < COUNTOF(lengths); i++) {
        OPTION("kv_length", .kv_length = lengths[i]);
        OPTION("query_offset", .query_offset = lengths[i]);
    }
    struct vka_tensor *const norms[] = {
        FOREIGN(VKA_F32, 8),
        T(VKA_F16, 8),
        T(VKA_I32, 8),
        T(VKA_F32, 6),
        T(VKA_F32, 1),
        T(VKA_F32, 1, 8),
        world_strided(w, T(VKA_F32, 16), 0, 1, eight, apart),
    };
    for (size_t i = 0; i < COUNTOF(norms); i++) {
        OPTION("q_norm", .q_norm = norms[i]);
        OPTION("k_norm", .k_norm = norms[i]);
    }
    struct vka_tensor *const heads[] = {
        FOREIGN(VKA_F32, 4),
        T(VKA_BF16, 4),
        T(VKA_BOOL, 4),
        T(VKA_F32, 2),
        T(VKA_F32, 8),
        T(VKA_F32, 4, 1),
        world_strided(w, T(VKA_F32, 8), 0, 1, four, apart),
    };
    for (size_t i = 0; i < COUNTOF(heads); i++) {
        OPTION("sink", .sink = heads[i]);
        OPTION("alibi", .alibi = heads[i]);
    }
}

static void options_of_attention(void **state)
{
    option_numbers(*state, add_attention);
    option_masks(*state, add_attention);
    option_log_sum(*state, add_attention);
    option_vectors(*state, add_attention);
}

static void options_of_layer(void **state)
{
    option_numbers(*state, add_layer);
    option_masks(*state, add_layer);
    option_log_sum(*state, add_layer);
    option_vectors(*state, add_layer);
}

TEST_PROGRAM(api_errors_options)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_of_attention),
        cmocka_unit_test(options_of_layer),
        cmocka_unit_test(world_is_well),
    };
    if (!have_device("errors of options"))
        return 77;
    return cmocka_run_group_tests(tests, world_create, world_destroy);
}
