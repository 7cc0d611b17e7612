/* Every documented error of the operations of vkattn_model.h that place, choose or merge rows. SPDX-License-Identifier: MIT */
#include <vkattn/vkattn_model.h>

#include "api_errors.h"
#include "test_program.h"

/* ---- Rows by number -------------------------------------------------------------------------- */

static struct vka_gather_op good_gather(struct world *w)
{
    return *VKA_INFO(vka_gather_op, .table = T(VKA_F16, 7, 32), .ids = T(VKA_I32, 2, 3),
                     .output = T(VKA_F32, 2, 3, 32));
}

#define GATHER(word, ...)                                            \
    do {                                                             \
        struct vka_gather_op op = good_gather(w);                    \
        __VA_ARGS__;                                                 \
        FAILS(VKA_INVALID, word, vka_plan_add_gather(w->plan, &op)); \
    } while (0)

static void gather(void **state)
{
    struct world *w = *state;
    GATHER("scale", op.scale = NAN);
    GATHER("given", op.given = VKA_GIVEN_EPSILON);
    GATHER("table", op.table = T(VKA_I32, 7, 32));
    GATHER("table", op.table = T(VKA_I8, 7, 32));
    GATHER("ids", op.ids = T(VKA_F32, 2, 3));
    GATHER("output", op.output = T(VKA_Q8_0, 2, 3, 32));
    GATHER("table", op.table = T(VKA_F16, 1, 7, 32));
    GATHER("ids", op.ids = T(VKA_I32, 1, 1, 2, 3));
    GATHER("output", op.output = T(VKA_F32, 6, 32));
    GATHER("output", op.output = T(VKA_F32, 2, 3, 31));
    GATHER("output", op.table = T(VKA_F32, 6, 32), op.ids = T(VKA_I32, 6), op.output = op.table);
    struct vka_gather_op op = good_gather(w);
    op.table = T(VKA_Q8_0, 7, 32);
    assert_int_equal(vka_plan_add_gather(w->plan, &op), VKA_OK);
}

static struct vka_scatter_op good_scatter(struct world *w)
{
    return *VKA_INFO(vka_scatter_op, .update = T(VKA_F32, 2, 3, 4), .positions = T(VKA_I32, 2),
                     .axis = 1, .circular = true, .output = T(VKA_F16, 2, 7, 4));
}

#define SCATTER(word, ...)                                            \
    do {                                                              \
        struct vka_scatter_op op = good_scatter(w);                   \
        __VA_ARGS__;                                                  \
        FAILS(VKA_INVALID, word, vka_plan_add_scatter(w->plan, &op)); \
    } while (0)

static void scatter(void **state)
{
    struct world *w = *state;
    SCATTER("axis", op.axis = 0);
    SCATTER("axis", op.axis = 3);
    SCATTER("update", op.update = T(VKA_I32, 2, 3, 4));
    SCATTER("positions", op.positions = T(VKA_F32, 2));
    SCATTER("output", op.output = T(VKA_BOOL, 2, 7, 4));
    SCATTER("positions", op.positions = T(VKA_I32, 3));
    SCATTER("positions", op.positions = T(VKA_I32, 1, 2));
    SCATTER("output", op.output = T(VKA_F32, 2, 7, 5));
    SCATTER("output", op.output = T(VKA_F32, 1, 2, 7, 4));
    SCATTER("circular", op.update = T(VKA_F32, 2, 8, 4));
    SCATTER("output", op.update = op.output);
    struct vka_scatter_op op = good_scatter(w);
    op.update = T(VKA_F32, 2, 8, 4);
    op.circular = false;
    assert_int_equal(vka_plan_add_scatter(w->plan, &op), VKA_OK);
}

/* ---- Rotary embedding ------------------------------------------------------------------------ */

static struct vka_rotary_op good_rotary(struct world *w)
{
    return *VKA_INFO(vka_rotary_op, .input = T(VKA_F32, 2, 3, 5, 8), .positions = T(VKA_I32, 2, 5),
                     .dim = 6, .cos = T(VKA_F16, 9, 3), .sin = T(VKA_F16, 9, 3),
                     .output = T(VKA_BF16, 2, 3, 5, 8));
}

#define ROTARY(word, ...)                                            \
    do {                                                             \
        struct vka_rotary_op op = good_rotary(w);                    \
        __VA_ARGS__;                                                 \
        FAILS(VKA_INVALID, word, vka_plan_add_rotary(w->plan, &op)); \
    } while (0)

static void rotary(void **state)
{
    struct world *w = *state;
    const double fast[] = {1, 0.5, 1.5}, nan[] = {1, NAN, 0}, fine[] = {1, 0.5, -0.25};
    ROTARY("dim", op.dim = 5);
    ROTARY("dim", op.dim = 10);
    ROTARY("attention_factor", op.attention_factor = INFINITY);
    ROTARY("attention_factor", op.attention_factor = -1);
    ROTARY("sin", op.sin = NULL);
    ROTARY("cos", op.cos = NULL);
    ROTARY("cos", op.cos = FOREIGN(VKA_F16, 9, 3));
    ROTARY("sin", op.sin = FOREIGN(VKA_F16, 9, 3));
    ROTARY("input", op.input = T(VKA_I32, 2, 3, 5, 8));
    ROTARY("positions", op.positions = T(VKA_F32, 2, 5));
    ROTARY("cos", op.cos = T(VKA_I32, 9, 3));
    ROTARY("sin", op.sin = T(VKA_BOOL, 9, 3));
    ROTARY("output", op.output = T(VKA_I8, 2, 3, 5, 8));
    ROTARY("input", op.input = T(VKA_F32, 6, 5, 8));
    ROTARY("positions", op.positions = T(VKA_I32, 3, 5));
    ROTARY("positions", op.positions = T(VKA_I32, 5));
    ROTARY("cos", op.cos = T(VKA_F16, 9, 4));
    ROTARY("sin", op.sin = T(VKA_F16, 9, 6));
    ROTARY("sin", op.sin = T(VKA_F16, 8, 3));
    ROTARY("cos", op.positions = NULL);
    ROTARY("cos", op.cos = op.sin = T(VKA_F16, 2, 5, 3));
    ROTARY("base", op.base = 10000);
    ROTARY("base", op.cos = op.sin = NULL, op.base = 0.5f);
    ROTARY("base", op.cos = op.sin = NULL, op.base = NAN);
    ROTARY("base", op.cos = op.sin = NULL, op.base = 100, op.frequencies = fine);
    ROTARY("frequencies", op.frequencies = fine);
    ROTARY("frequencies", op.cos = op.sin = NULL, op.frequencies = fast);
    ROTARY("frequencies", op.cos = op.sin = NULL, op.frequencies = nan);
    ROTARY("output", op.output = T(VKA_F32, 2, 3, 5, 6));
    struct vka_rotary_op op = good_rotary(w);
    op.cos = op.sin = NULL;
    op.frequencies = fine;
    op.output = op.input;
    assert_int_equal(vka_plan_add_rotary(w->plan, &op), VKA_OK);
}

/* ---- The end of a model ---------------------------------------------------------------------- */

static struct vka_argmax_op good_argmax(struct world *w)
{
    return *VKA_INFO(vka_argmax_op, .input = T(VKA_F16, 2, 3, 9), .output = T(VKA_I32, 2, 3));
}

#define ARGMAX(word, ...)                                            \
    do {                                                             \
        struct vka_argmax_op op = good_argmax(w);                    \
        __VA_ARGS__;                                                 \
        FAILS(VKA_INVALID, word, vka_plan_add_argmax(w->plan, &op)); \
    } while (0)

static void argmax(void **state)
{
    struct world *w = *state;
    const struct vka_argmax_op good = good_argmax(w);
    ARGMAX("input", op.input = T(VKA_I32, 2, 3, 9));
    ARGMAX("output", op.output = T(VKA_F32, 2, 3));
    ARGMAX("output", op.output = T(VKA_I32, 2, 3, 1));
    ARGMAX("output", op.input = T(VKA_F32, 9), op.output = T(VKA_I32, 9));
    assert_int_equal(vka_plan_add_argmax(w->plan, &good), VKA_OK);
}

static struct vka_sample_op good_sample(struct world *w)
{
    return *VKA_INFO(vka_sample_op, .logits = T(VKA_F16, 3, 9), .temperature = 1, .top_k = 4,
                     .top_p = 0.9f, .min_p = 0.1f, .step = T(VKA_I32, 1), .output = T(VKA_I32, 3));
}

#define SAMPLE(word, ...)                                            \
    do {                                                             \
        struct vka_sample_op op = good_sample(w);                    \
        __VA_ARGS__;                                                 \
        FAILS(VKA_INVALID, word, vka_plan_add_sample(w->plan, &op)); \
    } while (0)

static void sample(void **state)
{
    struct world *w = *state;
    const struct vka_sample_op good = good_sample(w);
    SAMPLE("temperature", op.temperature = -1);
    SAMPLE("temperature", op.temperature = INFINITY);
    SAMPLE("top_p", op.top_p = -0.5f);
    SAMPLE("top_p", op.top_p = 1.5f);
    SAMPLE("min_p", op.min_p = NAN);
    SAMPLE("min_p", op.min_p = 2);
    SAMPLE("logits", op.logits = T(VKA_I32, 3, 9));
    SAMPLE("step", op.step = T(VKA_F32, 1));
    SAMPLE("output", op.output = T(VKA_F32, 3));
    SAMPLE("logits", op.logits = T(VKA_F16, 1, 3, 9));
    SAMPLE("step", op.step = T(VKA_I32, 2));
    SAMPLE("step", op.step = T(VKA_I32, 3, 1));
    SAMPLE("seeds", op.seeds = T(VKA_F32, 3, 2));
    SAMPLE("seeds", op.seeds = T(VKA_I32, 3));
    SAMPLE("seeds", op.seeds = T(VKA_I32, 2, 2));
    SAMPLE("seeds", op.seeds = FOREIGN(VKA_I32, 3, 2));
    SAMPLE("output", op.step = T(VKA_I32, 3), op.output = op.step);
    SAMPLE("output", op.output = T(VKA_I32, 9));
    SAMPLE("output", op.logits = T(VKA_F16, 9), op.output = T(VKA_I32, 9));
    SAMPLE("output", op.logits = T(VKA_F16, 9), op.output = op.step);
    const uint32_t size = (1u << 24) + 1;
    const uint64_t repeat = 0;
    SAMPLE("logits", op.logits = world_strided(w, T(VKA_F16, 1), 0, 1, &size, &repeat),
           op.output = T(VKA_I32, 1));
    assert_int_equal(vka_plan_add_sample(w->plan, &good), VKA_OK);
}

static struct vka_pool_op good_pool(struct world *w)
{
    return *VKA_INFO(vka_pool_op, .input = T(VKA_F16, 2, 3, 9), .mask = T(VKA_BOOL, 2, 3),
                     .lengths = T(VKA_I32, 2), .output = T(VKA_F32, 2, 9));
}

#define POOL(word, ...)                                            \
    do {                                                           \
        struct vka_pool_op op = good_pool(w);                      \
        __VA_ARGS__;                                               \
        FAILS(VKA_INVALID, word, vka_plan_add_pool(w->plan, &op)); \
    } while (0)

static void pool(void **state)
{
    struct world *w = *state;
    const struct vka_pool_op good = good_pool(w);
    POOL("input", op.input = T(VKA_I32, 2, 3, 9));
    POOL("mask", op.mask = T(VKA_I32, 2, 3));
    POOL("lengths", op.lengths = T(VKA_F32, 2));
    POOL("output", op.output = T(VKA_I32, 2, 9));
    POOL("input", op.input = T(VKA_F32, 2, 3, 9, 1));
    POOL("mask", op.mask = T(VKA_BOOL, 2, 4));
    POOL("mask", op.mask = T(VKA_BOOL, 6));
    POOL("lengths", op.lengths = T(VKA_I32, 1));
    POOL("output", op.output = T(VKA_F32, 2, 3));
    assert_int_equal(vka_plan_add_pool(w->plan, &good), VKA_OK);
}

/* Slices 2 x 4 x 3 x 6, of two types. */
struct merge_args {
    struct vka_tensor *slices[3], *log_sums[3];
    struct vka_merge_op op;
};

static void good_merge(struct world *w, struct merge_args *a)
{
    for (int i = 0; i < 3; i++) {
        a->slices[i] = T(i ? VKA_F32 : VKA_F16, 2, 4, 3, 6);
        a->log_sums[i] = T(VKA_F32, 2, 4, 3);
    }
    a->op = *VKA_INFO(vka_merge_op, .n_slice = 3, .slices = a->slices, .log_sum_exps = a->log_sums,
                      .output = T(VKA_F32, 2, 4, 3, 6), .log_sum_exp = T(VKA_F32, 2, 4, 3));
}

#define MERGE(word, ...)                                              \
    do {                                                              \
        struct merge_args a;                                          \
        good_merge(w, &a);                                            \
        __VA_ARGS__;                                                  \
        FAILS(VKA_INVALID, word, vka_plan_add_merge(w->plan, &a.op)); \
    } while (0)

static void merge(void **state)
{
    struct world *w = *state;
    const uint32_t full[] = {2, 4, 3, 6};
    const uint64_t crossed[] = {72, 18, 6, 0}, rows[] = {12, 3, 1}, still[] = {12, 0, 1};
    struct merge_args good;
    good_merge(w, &good);
    MERGE("n_slice", a.op.n_slice = 0);
    MERGE("n_slice", a.op.n_slice = VKA_MERGE_SLICES + 1);
    MERGE("slices", a.op.slices = NULL);
    MERGE("log_sum_exps", a.op.log_sum_exps = NULL);
    MERGE("output", a.op.output = T(VKA_I32, 2, 4, 3, 6));
    MERGE("output", a.op.output = T(VKA_F32, 6));
    MERGE("output", a.op.output = world_strided(w, a.op.output, 0, 4, full, crossed));
    for (int i = 0; i < 3; i++) {
        MERGE("slice", a.slices[i] = NULL);
        MERGE("slice", a.slices[i] = FOREIGN(VKA_F32, 2, 4, 3, 6));
        MERGE("slice", a.slices[i] = T(VKA_Q8_0, 2, 4, 3, 32));
        MERGE("slice", a.slices[i] = T(VKA_F32, 2, 4, 3, 5));
        MERGE("slice", a.slices[i] = T(VKA_F32, 8, 3, 6));
        MERGE("output", a.slices[i] = a.op.output);
        MERGE("log_sum_exps", a.log_sums[i] = NULL);
        MERGE("log_sum_exps", a.log_sums[i] = FOREIGN(VKA_F32, 2, 4, 3));
        MERGE("log_sum_exps", a.log_sums[i] = T(VKA_F16, 2, 4, 3));
        MERGE("log_sum_exps", a.log_sums[i] = T(VKA_F32, 2, 4, 3, 1));
        MERGE("log_sum_exps", a.log_sums[i] = T(VKA_F32, 2, 4, 6));
        MERGE("log_sum_exp", a.log_sums[i] = a.op.log_sum_exp);
        MERGE("output", a.log_sums[i] = world_strided(w, a.op.output, 9, 3, full, rows));
    }
    MERGE("log_sum_exp", a.op.log_sum_exp = T(VKA_BF16, 2, 4, 3));
    MERGE("log_sum_exp", a.op.log_sum_exp = T(VKA_F32, 2, 4));
    MERGE("log_sum_exp", a.op.log_sum_exp = world_strided(w, a.op.log_sum_exp, 0, 3, full, still));
    MERGE("log_sum_exp", a.op.log_sum_exp = world_strided(w, a.op.output, 9, 3, full, rows));
    MERGE("log_sum_exp", a.op.log_sum_exp = world_strided(w, a.slices[1], 9, 3, full, rows));
    assert_int_equal(vka_plan_add_merge(w->plan, &good.op), VKA_OK);
}

/* [2][7][3], padded by 1 row, to [2][4][5]. */
static struct vka_conv1d_op good_conv1d(struct world *w)
{
    return *VKA_INFO(vka_conv1d_op, .input = T(VKA_F16, 2, 7, 3), .weight = T(VKA_F32, 5, 3, 3),
                     .bias = T(VKA_F32, 5), .stride = 2, .padding_before = 1, .padding_after = 1,
                     .output = T(VKA_F32, 2, 4, 5));
}

#define CONV1D(word, ...)                                            \
    do {                                                             \
        struct vka_conv1d_op op = good_conv1d(w);                    \
        __VA_ARGS__;                                                 \
        FAILS(VKA_INVALID, word, vka_plan_add_conv1d(w->plan, &op)); \
    } while (0)

static void conv1d(void **state)
{
    struct world *w = *state;
    const struct vka_conv1d_op good = good_conv1d(w);
    const uint32_t three[] = {5, 3, 3}, bias[] = {5};
    struct vka_tensor *store = T(VKA_F32, 100);
    CONV1D("input", op.input = T(VKA_I32, 2, 7, 3));
    CONV1D("weight", op.weight = T(VKA_Q8_0, 5, 3, 32));
    CONV1D("bias", op.bias = T(VKA_I32, 5));
    CONV1D("output", op.output = T(VKA_BOOL, 2, 4, 5));
    CONV1D("input", op.input = T(VKA_F32, 7, 3));
    CONV1D("input", op.input = T(VKA_F32, 1, 2, 7, 3));
    CONV1D("weight", op.input = T(VKA_F32, 2, 7, 4));
    CONV1D("weight", op.weight = T(VKA_F32, 5, 9));
    CONV1D("contiguous", op.weight = world_strided(w, store, 0, 3, three, (uint64_t[]){9, 1, 3}));
    CONV1D("bias", op.bias = T(VKA_F32, 4));
    CONV1D("bias", op.bias = world_strided(w, store, 0, 1, bias, (uint64_t[]){2}));
    CONV1D("rows", op.weight = T(VKA_F32, 5, 10, 3));
    CONV1D("rows", op.padding_before = INT32_MAX);
    CONV1D("rows", op.padding_before = op.padding_after = UINT32_MAX);
    CONV1D("output", op.output = T(VKA_F32, 2, 5, 5));
    CONV1D("output", op.output = T(VKA_F32, 2, 4, 3));
    CONV1D("output", op.output = T(VKA_F32, 1, 4, 5));
    CONV1D("output", op.stride = 3);
    CONV1D("activation", op.activation = VKA_ACTIVATION_COUNT);
    CONV1D("shares",
           op.input = world_strided(w, store, 39, 3, (uint32_t[]){2, 7, 3}, (uint64_t[]){21, 3, 1}),
           op.output =
               world_strided(w, store, 0, 3, (uint32_t[]){2, 4, 5}, (uint64_t[]){20, 5, 1}));
    assert_int_equal(vka_plan_add_conv1d(w->plan, &good), VKA_OK);
}

TEST_PROGRAM(api_errors_rows)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gather), cmocka_unit_test(scatter), cmocka_unit_test(rotary),
        cmocka_unit_test(argmax), cmocka_unit_test(sample),  cmocka_unit_test(pool),
        cmocka_unit_test(merge),  cmocka_unit_test(conv1d),
    };
    return cmocka_run_group_tests(tests, world_create, world_destroy);
}
