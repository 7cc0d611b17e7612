/* Every documented error of attention: its tensors, ragged batches, caches.
 * SPDX-License-Identifier: MIT */
#include "api_errors.h"
#include "test_program.h"

static const enum vka_dtype not_floats[] = {VKA_I32, VKA_BOOL};

/* A valid operation with 7 past keys. */
static struct vka_attention_op good_past(struct world *w)
{
    struct vka_attention_op op = world_attention_op(w);
    op.past_key = T(VKA_F32, 2, 2, 7, 8);
    op.past_value = T(VKA_F32, 2, 2, 7, 6);
    op.present_key = T(VKA_F32, 2, 2, 12, 8);
    op.present_value = T(VKA_F32, 2, 2, 12, 6);
    return op;
}

/* Two sequences in rows 0 .. 2 and 0 .. 4. */
static struct vka_attention_op good_ragged(struct world *w)
{
    return *VKA_INFO(vka_attention_op, .q = T(VKA_F32, 1, 4, 3, 8), .k = T(VKA_F32, 1, 2, 5, 8),
                     .v = T(VKA_F32, 1, 2, 5, 6), .output = T(VKA_F32, 1, 4, 3, 6),
                     .q_start = T(VKA_I32, 3), .kv_start = T(VKA_I32, 3));
}

#define ATTENTION_FROM(good, want, word, ...)                    \
    do {                                                         \
        struct vka_attention_op op = good(w);                    \
        __VA_ARGS__;                                             \
        FAILS(want, word, vka_plan_add_attention(w->plan, &op)); \
    } while (0)
#define ATTENTION(word, ...) ATTENTION_FROM(world_attention_op, VKA_INVALID, word, __VA_ARGS__)
#define PAST(word, ...) ATTENTION_FROM(good_past, VKA_INVALID, word, __VA_ARGS__)
#define RAGGED(word, ...) ATTENTION_FROM(good_ragged, VKA_INVALID, word, __VA_ARGS__)

static void attention_tensors(void **state)
{
    struct world *w = *state;
    ATTENTION("q", op.q = NULL);
    ATTENTION("k", op.k = NULL);
    ATTENTION("v", op.v = NULL);
    ATTENTION("output", op.output = NULL);
    ATTENTION("q", op.q = FOREIGN(VKA_F32, 2, 4, 3, 8));
    ATTENTION("k", op.k = FOREIGN(VKA_F32, 2, 2, 5, 8));
    ATTENTION("v", op.v = FOREIGN(VKA_F32, 2, 2, 5, 6));
    ATTENTION("output", op.output = FOREIGN(VKA_F32, 2, 4, 3, 6));
    for (size_t i = 0; i < COUNTOF(not_floats); i++) {
        enum vka_dtype dtype = not_floats[i];
        ATTENTION("q", op.q = T(dtype, 2, 4, 3, 8));
        ATTENTION("k", op.k = T(dtype, 2, 2, 5, 8));
        ATTENTION("v", op.v = T(dtype, 2, 2, 5, 6));
        ATTENTION("output", op.output = T(dtype, 2, 4, 3, 6));
        PAST("past_key", op.past_key = T(dtype, 2, 2, 7, 8));
        PAST("past_value", op.past_value = T(dtype, 2, 2, 7, 6));
        PAST("present_key", op.present_key = T(dtype, 2, 2, 12, 8));
        PAST("present_value", op.present_value = T(dtype, 2, 2, 12, 6));
    }
    ATTENTION("q", op.q = T(VKA_F32, 8, 3, 8));
    ATTENTION("k", op.k = T(VKA_F32, 4, 5, 8));
    ATTENTION("v", op.v = T(VKA_F32, 4, 5, 6));
    ATTENTION("output", op.output = T(VKA_F32, 8, 3, 6));
}

static void attention_shapes(void **state)
{
    struct world *w = *state;
    ATTENTION("k", op.k = T(VKA_F32, 1, 2, 5, 8));
    ATTENTION("k", op.k = T(VKA_F32, 2, 2, 5, 7));
    ATTENTION("k", op.k = T(VKA_F32, 2, 3, 5, 8)); /* q has 4 heads */
    ATTENTION("q", op.q = T(VKA_F32, 2, 5, 3, 8));
    ATTENTION("k", op.k = T(VKA_F32, 2, 8, 5, 8));
    ATTENTION("v", op.v = T(VKA_F32, 1, 2, 5, 6));
    ATTENTION("v", op.v = T(VKA_F32, 2, 1, 5, 6));
    ATTENTION("v", op.v = T(VKA_F32, 2, 4, 5, 6));
    ATTENTION("v", op.v = T(VKA_F32, 2, 2, 4, 6));
    ATTENTION("v", op.v = T(VKA_F32, 2, 2, 6, 6));
    ATTENTION("output", op.output = T(VKA_F32, 1, 4, 3, 6));
    ATTENTION("output", op.output = T(VKA_F32, 2, 2, 3, 6));
    ATTENTION("output", op.output = T(VKA_F32, 2, 4, 4, 6));
    ATTENTION("output", op.output = T(VKA_F32, 2, 4, 3, 8));
    const uint32_t many[] = {2, 2, 1u << 31, 8}, values[] = {2, 2, 1u << 31, 6};
    const uint64_t still[] = {0, 0, 0, 1};
    ATTENTION("k", op.k = world_strided(w, op.k, 0, 4, many, still),
              op.v = world_strided(w, op.v, 0, 4, values, still));
    PAST("past_key", op.past_key = NULL);
    PAST("past_value", op.past_value = NULL);
    PAST("present_key", op.present_key = NULL);
    PAST("present_value", op.present_value = NULL);
    ATTENTION("past_value", op.past_key = T(VKA_F32, 2, 2, 7, 8));
    ATTENTION("present_key", op.present_value = T(VKA_F32, 2, 2, 5, 6));
    PAST("past_key", op.past_key = FOREIGN(VKA_F32, 2, 2, 7, 8));
    PAST("past_value", op.past_value = FOREIGN(VKA_F32, 2, 2, 7, 6));
    PAST("present_key", op.present_key = FOREIGN(VKA_F32, 2, 2, 12, 8));
    PAST("present_value", op.present_value = FOREIGN(VKA_F32, 2, 2, 12, 6));
    PAST("past_key", op.past_key = T(VKA_F32, 4, 7, 8));
    PAST("past_key", op.past_key = T(VKA_F32, 2, 2, 7, 6));
    PAST("past_key", op.past_key = T(VKA_F32, 2, 4, 7, 8));
    PAST("past_value", op.past_value = T(VKA_F32, 4, 7, 6));
    PAST("past_value", op.past_value = T(VKA_F32, 2, 2, 6, 6));
    PAST("past_value", op.past_value = T(VKA_F32, 1, 2, 7, 6));
    PAST("present_key", op.present_key = T(VKA_F32, 4, 12, 8));
    PAST("present_key", op.present_key = T(VKA_F32, 2, 2, 5, 8));
    PAST("present_key", op.present_key = T(VKA_F32, 2, 2, 13, 8));
    PAST("present_value", op.present_value = T(VKA_F32, 4, 12, 6));
    PAST("present_value", op.present_value = T(VKA_F32, 2, 2, 7, 6));
    PAST("present_value", op.present_value = T(VKA_F32, 2, 2, 12, 8));
}

static void attention_overlaps(void **state)
{
    struct world *w = *state;
    struct vka_tensor *square = T(VKA_F32, 2, 2, 5, 8);
    const uint32_t out[] = {2, 4, 3, 6};
    const uint64_t crossing[] = {72, 18, 5, 1}, repeat[] = {0, 18, 6, 1};
    ATTENTION("output", op.q = op.k = op.v = op.output = square);
    ATTENTION("output", op.k = op.v = op.output = square, op.q = T(VKA_F32, 2, 2, 5, 8));
    ATTENTION("output", op.v = op.output = square, op.q = op.k = T(VKA_F32, 2, 2, 5, 8));
    ATTENTION("output", op.output = world_strided(w, op.output, 0, 4, out, crossing));
    ATTENTION("output", op.output = world_strided(w, op.output, 0, 4, out, repeat));
    PAST("present_key", op.k = world_strided(w, op.present_key, 0, 4, (uint32_t[]){2, 2, 5, 8},
                                             (uint64_t[]){192, 96, 8, 1}));
    PAST("present_key",
         op.past_key = world_strided(w, op.present_key, 0, 4, (uint32_t[]){2, 2, 7, 8},
                                     (uint64_t[]){192, 96, 8, 1}));
    PAST("present_value",
         op.past_value = world_strided(w, op.present_value, 0, 4, (uint32_t[]){2, 2, 7, 6},
                                       (uint64_t[]){144, 72, 6, 1}));
    PAST("present_value",
         op.present_value = world_strided(w, op.present_key, 0, 4, (uint32_t[]){2, 2, 12, 6},
                                          (uint64_t[]){144, 72, 6, 1}));
    PAST("present_value",
         op.present_value = world_strided(w, op.present_value, 0, 4, (uint32_t[]){2, 2, 12, 6},
                                          (uint64_t[]){144, 72, 0, 1}));
    ATTENTION("output", op.options.mask = world_strided(w, op.output, 0, 2, (uint32_t[]){3, 5},
                                                        (uint64_t[]){5, 1}));
    ATTENTION("output", op.options.sink =
                            world_strided(w, op.output, 100, 1, (uint32_t[]){4}, (uint64_t[]){1}));
    ATTENTION("output", op.options.q_norm =
                            world_strided(w, op.output, 8, 1, (uint32_t[]){8}, (uint64_t[]){1}));
    ATTENTION("scores", op.options.scores_kind = VKA_SCORES_RAW,
              op.options.scores = world_strided(w, op.output, 0, 4, (uint32_t[]){2, 4, 3, 5},
                                                (uint64_t[]){60, 15, 5, 1}));
    ATTENTION("scores", op.options.scores_kind = VKA_SCORES_RAW,
              op.options.scores = world_strided(w, op.q, 0, 4, (uint32_t[]){2, 4, 3, 5},
                                                (uint64_t[]){60, 15, 5, 1}));
    const uint32_t sums[] = {2, 4, 3};
    const uint64_t rows[] = {12, 3, 1};
    ATTENTION("log_sum_exp",
              op.options.log_sum_exp = world_strided(w, op.output, 20, 3, sums, rows));
    ATTENTION("log_sum_exp", op.options.log_sum_exp = world_strided(w, op.q, 0, 3, sums, rows));
    ATTENTION("log_sum_exp", op.options.sink = T(VKA_F32, 4),
              op.options.log_sum_exp = world_strided(w, op.v, 0, 3, sums, rows));
    ATTENTION("log_sum_exp", op.options.scores_kind = VKA_SCORES_RAW,
              op.options.scores = T(VKA_F32, 2, 4, 3, 5),
              op.options.log_sum_exp = world_strided(w, op.options.scores, 90, 3, sums, rows));
    PAST("present_value",
         op.options.log_sum_exp = world_strided(w, op.present_value, 0, 3, sums, rows));
}

static void attention_ragged(void **state)
{
    struct world *w = *state;
    RAGGED("kv_start", op.kv_start = NULL);
    RAGGED("q_start", op.q_start = NULL);
    RAGGED("q_start", op.q_start = FOREIGN(VKA_I32, 3));
    RAGGED("kv_start", op.kv_start = FOREIGN(VKA_I32, 3));
    RAGGED("q_start", op.q_start = T(VKA_F32, 3));
    RAGGED("kv_start", op.kv_start = T(VKA_BOOL, 3));
    RAGGED("q_start", op.q_start = T(VKA_I32, 1, 3));
    RAGGED("kv_start", op.kv_start = T(VKA_I32, 3, 1));
    RAGGED("q_start", op.q_start = T(VKA_I32, 4));
    RAGGED("kv_start", op.kv_start = T(VKA_I32, 2));
    RAGGED("q_start", op.q_start = op.kv_start = T(VKA_I32, 1)); /* no sequence */
    RAGGED("q_start",
           op.q_start = world_strided(w, T(VKA_I32, 6), 0, 1, (uint32_t[]){3}, (uint64_t[]){2}));
    RAGGED("q", op = world_attention_op(w), op.q_start = op.kv_start = T(VKA_I32, 3));
    RAGGED("mask", op.options.mask = T(VKA_BOOL, 3, 5));
    RAGGED("scores", op.options.scores_kind = VKA_SCORES_RAW,
           op.options.scores = T(VKA_F32, 1, 4, 3, 5));
    RAGGED("rope", op.options.rope.dim = 4);
    RAGGED("past", op.past_key = T(VKA_F32, 1, 2, 7, 8), op.past_value = T(VKA_F32, 1, 2, 7, 6));
    RAGGED("present", op.present_key = T(VKA_F32, 1, 2, 5, 8),
           op.present_value = T(VKA_F32, 1, 2, 5, 6));
    RAGGED("output", op.output = T(VKA_F32, 1, 4, 4, 6));
    struct vka_plan *plan = NULL;
    const struct vka_attention_op op = good_ragged(w);
    assert_int_equal(
        vka_plan_create(w->device, VKA_INFO(vka_plan_info, .path = VKA_PATH_UNFUSED), &plan),
        VKA_OK);
    FAILS(VKA_INVALID, "q_start", vka_plan_add_attention(plan, &op));
    vka_plan_destroy(&plan);
}

/* The world's cache: batch 2, 2 key heads, widths 8 and 6, 16 positions. */
static void attention_cache(void **state)
{
    struct world *w = *state;
    struct vka_cache *other = NULL;
    const struct vka_cache_info info = {.struct_size = sizeof info,
                                        .batch = 2,
                                        .n_kv_head = 2,
                                        .head_dim = 8,
                                        .value_dim = 6,
                                        .capacity = 16};
    assert_int_equal(vka_cache_create(w->other, &info, &other), VKA_OK);
    ATTENTION("cache", op.cache = other);
    vka_cache_destroy(&other);
    ATTENTION("cache", op = good_past(w), op.cache = w->cache);
    ATTENTION("cache", op.cache = w->cache, op.present_key = T(VKA_F32, 2, 2, 5, 8),
              op.present_value = T(VKA_F32, 2, 2, 5, 6));
    ATTENTION("with a cache q_start is also of k", op = good_ragged(w), op.cache = w->cache);
    struct vka_cache_info quantised = info;
    quantised.key_dtype = VKA_Q8_0;
    assert_int_equal(vka_cache_create(w->device, &quantised, &other), VKA_OK);
    ATTENTION_FROM(world_attention_op, VKA_UNSUPPORTED, "only the fused path reads",
                   op.cache = other, op.options.scores_kind = VKA_SCORES_RAW,
                   op.options.scores = T(VKA_F32, 2, 4, 3, 16));
    vka_cache_destroy(&other);
    ATTENTION("cache_layer is 1", op.cache = w->cache, op.cache_layer = 1);
    ATTENTION("n_append or cache_layer", op.cache_layer = 1);
    ATTENTION("n_append or cache_layer", op.n_append = T(VKA_I32, 2));
    ATTENTION("n_append", op.cache = w->cache, op.n_append = T(VKA_I32, 3));
    ATTENTION("n_append", op.cache = w->cache, op.n_append = T(VKA_F32, 2));
    ATTENTION("n_append", op.cache = w->cache, op.n_append = T(VKA_I32, 2, 1));
    ATTENTION("kv_length", op.cache = w->cache, op.options.kv_length = T(VKA_I32, 2));
    ATTENTION("query_offset", op.cache = w->cache, op.options.query_offset = T(VKA_I32, 2));
    ATTENTION("cache", op.cache = w->cache, op.k = T(VKA_F32, 2, 2, 17, 8),
              op.v = T(VKA_F32, 2, 2, 17, 6));
    ATTENTION("cache", op.cache = w->cache, op.v = T(VKA_F32, 2, 2, 5, 8),
              op.output = T(VKA_F32, 2, 4, 3, 8));
    ATTENTION("cache", op.cache = w->cache, op.k = T(VKA_F32, 2, 1, 5, 8),
              op.v = T(VKA_F32, 2, 1, 5, 6));
    ATTENTION("scores", op.cache = w->cache, op.options.scores_kind = VKA_SCORES_RAW,
              op.options.scores = T(VKA_F32, 2, 4, 3, 5)); /* n_kv is 16 */
    ATTENTION("mask", op.cache = w->cache, op.options.mask = T(VKA_BOOL, 3, 17));
}

/* Packed rows with the world's cache: 5 of two sequences. */
static struct vka_attention_op good_packed(struct world *w)
{
    return *VKA_INFO(vka_attention_op, .q = T(VKA_F32, 1, 4, 5, 8), .k = T(VKA_F32, 1, 2, 5, 8),
                     .v = T(VKA_F32, 1, 2, 5, 6), .output = T(VKA_F32, 1, 4, 5, 6),
                     .q_start = T(VKA_I32, 3), .cache = w->cache);
}

#define PACKED(word, ...) ATTENTION_FROM(good_packed, VKA_INVALID, word, __VA_ARGS__)

static void attention_packed(void **state)
{
    struct world *w = *state;
    PACKED("cache has batch 2", op.q_start = T(VKA_I32, 4));
    PACKED("cache has batch 2", op.q_start = NULL); /* the batch of q is 1 */
    PACKED("q_start", op.q_start = FOREIGN(VKA_I32, 3));
    PACKED("q_start", op.q_start = T(VKA_F32, 3));
    PACKED("kv_start is given", op.kv_start = T(VKA_I32, 3));
    PACKED("one for each of the 4 rows", op.q = T(VKA_F32, 1, 4, 4, 8),
           op.output = T(VKA_F32, 1, 4, 4, 6));
    PACKED("q has batch 2", op.q = T(VKA_F32, 2, 4, 5, 8), op.k = T(VKA_F32, 2, 2, 5, 8),
           op.v = T(VKA_F32, 2, 2, 5, 6), op.output = T(VKA_F32, 2, 4, 5, 6));
    PACKED("scores", op.options.scores_kind = VKA_SCORES_RAW,
           op.options.scores = T(VKA_F32, 1, 4, 5, 16));
    PACKED("past", op.past_key = T(VKA_F32, 1, 2, 7, 8), op.past_value = T(VKA_F32, 1, 2, 7, 6));
    PACKED("n_append", op.n_append = T(VKA_I32, 3));
    PACKED("n_append", op.n_append = T(VKA_F32, 2));
    PACKED("kv_length", op.options.kv_length = T(VKA_I32, 2));
    PACKED("query_offset", op.options.query_offset = T(VKA_I32, 2));
    PACKED("mask", op.options.mask = T(VKA_BOOL, 5, 17)); /* the capacity is 16 */
    PACKED("mask", op.options.mask = T(VKA_BOOL, 2, 1, 5, 16));
    PACKED("cache_layer is 1", op.cache_layer = 1);
    ATTENTION_FROM(good_packed, VKA_UNSUPPORTED, "exact_softmax", op.options.exact_softmax = true);
}

#define BLOCK(word, ...)                                                \
    do {                                                                \
        struct vka_attention_op op = world_attention_op(w);             \
        op.n_key = 200, op.key_first = 128;                             \
        op.k = T(VKA_F32, 2, 2, 72, 8), op.v = T(VKA_F32, 2, 2, 72, 6); \
        __VA_ARGS__;                                                    \
        FAILS(VKA_INVALID, word, vka_plan_add_attention(w->plan, &op)); \
    } while (0)

/* Two key chunks, the second of which is missing its state, or a part of it. A GPU splits the
 * keys of few rows over workgroups, so that the caller's mistakes come before what it lacks. */
static void key_chunk_states(struct world *w, uint32_t whole_n_q)
{
    struct vka_plan *plan = NULL;
    struct vka_attention_op op = world_attention_op(w);
    uint64_t count = 0;
    assert_int_equal(
        vka_plan_create(w->device,
                        VKA_INFO(vka_plan_info, .path = VKA_PATH_FUSED, .whole_n_q = whole_n_q),
                        &plan),
        VKA_OK);
    op.n_key = 133, op.k = T(VKA_F32, 2, 2, 128, 8), op.v = T(VKA_F32, 2, 2, 128, 6);
    FAILS(VKA_INVALID, "state is NULL", vka_plan_add_attention(plan, &op));
    assert_int_equal(vka_plan_attention_state(plan, &op, &count), VKA_OK);
    op.state = T(VKA_F32, count ? (uint32_t)count - 1 : 9);
    if (count)
        FAILS(VKA_INVALID, "state has", vka_plan_add_attention(plan, &op));
    else
        FAILS(VKA_UNSUPPORTED, "supported here", vka_plan_add_attention(plan, &op));
    if (whole_n_q)
        assert_true(count > 0); /* of many rows no keys are split */
    vka_plan_destroy(&plan);
    op.n_key = 128, op.options.exact_softmax = true,
    count = 77; /* all keys, not by one fused pass */
    assert_int_equal(vka_plan_attention_state(w->plan, &op, &count), VKA_OK);
    assert_int_equal(count, 0);
}

static void attention_blocks(void **state)
{
    struct world *w = *state;
    BLOCK("n_key", op.n_key = 0);
    BLOCK("n_key", op.n_key = 0, op.key_first = 0, op.state = T(VKA_F32, 9));
    BLOCK("n_key 199", op.n_key = 199);
    BLOCK("128", op.n_key = 201);
    BLOCK("128", op.key_first = 127);
    BLOCK("n_key", op.key_first = UINT32_MAX);
    BLOCK("n_key", op.n_key = UINT32_MAX);
    BLOCK("state", op.state = T(VKA_F16, 999));
    BLOCK("state", op.state = FOREIGN(VKA_F32, 999));
    BLOCK("state", op.state = T(VKA_F32, 3, 333));
    BLOCK("state",
          op.state = world_strided(w, T(VKA_F32, 9), 1, 1, (uint32_t[]){3}, (uint64_t[]){1}));
    BLOCK("state", op.state = op.q);
    BLOCK("mask", op.options.mask = T(VKA_BOOL, 3, 201));
    BLOCK("past", op.past_key = T(VKA_F32, 2, 2, 7, 8), op.past_value = T(VKA_F32, 2, 2, 7, 6));
    BLOCK("scores", op.options.scores_kind = VKA_SCORES_RAW,
          op.options.scores = T(VKA_F32, 2, 4, 3, 200));
    BLOCK("cache", op.cache = w->cache);
    struct vka_plan *plan = NULL;
    struct vka_attention_op op = world_attention_op(w);
    uint64_t count;
    op.n_key = vka_tensor_shape(op.k, 2);
    assert_int_equal(
        vka_plan_create(w->device, VKA_INFO(vka_plan_info, .path = VKA_PATH_FUSED), &plan), VKA_OK);
    FAILS(VKA_INVALID, "count", vka_plan_attention_state(plan, &op, NULL));
    FAILS(VKA_INVALID, "op", vka_plan_attention_state(plan, NULL, &count));
    assert_int_equal(vka_plan_attention_state(plan, &op, &count), VKA_OK);
    op.n_key = 0;
    FAILS(VKA_INVALID, "n_key", vka_plan_attention_state(plan, &op, &count));
    vka_plan_destroy(&plan);
    key_chunk_states(w, 0);
    key_chunk_states(w, 1u << 20);
}

TEST_PROGRAM(api_errors_attention)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_tensors),  cmocka_unit_test(attention_shapes),
        cmocka_unit_test(attention_overlaps), cmocka_unit_test(attention_ragged),
        cmocka_unit_test(attention_packed),   cmocka_unit_test(attention_blocks),
        cmocka_unit_test(attention_cache),    cmocka_unit_test(world_is_well),
    };
    if (!have_device("errors of attention"))
        return 77;
    return cmocka_run_group_tests(tests, world_create, world_destroy);
}
