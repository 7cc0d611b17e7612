/* The oracle against problems small enough to be worked out by hand. A query of zeros gives every
 * visible key the same weight, which shows exactly what a row sees. SPDX-License-Identifier: MIT */
#include "test_program.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <reference/reference.h>

static void assert_near(double got, double want)
{
    if (isnan(want) ? !isnan(got) : !(fabs(got - want) <= 1e-12 * fmax(1, fabs(want))))
        fail_msg("got %.17g, want %.17g", got, want);
}

static void assert_all_near(const double *got, const double *want, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_near(got[i], want[i]);
}

static void solve(const struct ref_attention *a)
{
    assert_int_equal(ref_attention(a), VKA_OK);
}

static void plain(void **state)
{
    (void)state;
    const double q[] = {1, 0}, k[] = {1, 0, 0, 1}, v[] = {10, 1, 5, 20, 2, 5};
    double context[3], raw[2], weight[2];
    struct ref_attention a = {.batch = 1, .n_head = 1, .n_kv_head = 1, .n_q = 1, .n_kv = 2};
    a.head_dim = 2, a.value_dim = 3, a.q = q, a.k = k, a.v = v, a.context = context;
    a.scores[VKA_SCORES_RAW] = raw, a.scores[VKA_SCORES_SOFTMAX] = weight;
    solve(&a);
    /* e^(1 / sqrt 2) = 2.0281149816474726 against e^0 */
    const double w = 2.0281149816474726 / 3.0281149816474726;
    assert_all_near(raw, (const double[]){0.70710678118654752, 0}, 2);
    assert_all_near(weight, (const double[]){w, 1 - w}, 2);
    assert_all_near(context, (const double[]){10 * w + 20 * (1 - w), w + 2 * (1 - w), 5}, 3);
    a.scale = log(3);
    solve(&a);
    assert_all_near(weight, (const double[]){0.75, 0.25}, 2);
}

static void grouped_heads(void **state)
{
    (void)state;
    /* One key a row: each query head gives the value of its key head. */
    const double q[8] = {0}, k[4] = {0}, v[] = {1, 2, 3, 4};
    double context[8];
    struct ref_attention a = {.batch = 2, .n_head = 4, .n_kv_head = 2, .n_q = 1, .n_kv = 1};
    a.head_dim = 1, a.value_dim = 1, a.q = q, a.k = k, a.v = v, a.context = context;
    solve(&a);
    assert_all_near(context, (const double[]){1, 1, 2, 2, 3, 3, 4, 4}, 8);
}

/* ---- What a row sees ------------------------------------------------------------------------- */

#define N_Q 3
#define N_KV 5

/* Bit j of row[b][h][i]: key j is visible. Batch 2, two heads, queries of zeros. */
struct sight {
    unsigned row[2][2][N_Q];
};

static void look(struct ref_attention *a, struct sight *sight)
{
    static const double zeros[2 * 2 * N_KV];
    double weight[2 * 2 * N_Q * N_KV], bias[2 * 2 * N_Q * N_KV];
    a->batch = 2, a->n_head = 2, a->n_kv_head = 2, a->n_q = N_Q, a->n_kv = N_KV;
    a->head_dim = 1, a->value_dim = 1, a->q = zeros, a->k = zeros, a->v = zeros;
    a->scores[VKA_SCORES_SOFTMAX] = weight, a->scores[VKA_SCORES_BIAS] = bias;
    solve(a);
    memset(sight, 0, sizeof *sight);
    for (size_t row = 0; row < 2 * 2 * N_Q; row++) {
        unsigned *bits = &sight->row[row / N_Q / 2][row / N_Q % 2][row % N_Q], count = 0;
        for (unsigned j = 0; j < N_KV; j++) {
            bool seen = weight[row * N_KV + j] > 0;
            assert_true(seen == !isinf(bias[row * N_KV + j]));
            *bits |= (unsigned)seen << j;
            count += seen;
        }
        for (unsigned j = 0; j < N_KV; j++)
            assert_near(weight[row * N_KV + j], *bits >> j & 1 ? 1.0 / count : 0);
    }
}

/* Rows of both heads of both batch elements. */
static void assert_sight(struct ref_attention a, const unsigned batch0[N_Q],
                         const unsigned batch1[N_Q])
{
    struct sight sight;
    look(&a, &sight);
    for (size_t h = 0; h < 2; h++)
        for (size_t i = 0; i < N_Q; i++) {
            assert_int_equal(sight.row[0][h][i], batch0[i]);
            assert_int_equal(sight.row[1][h][i], batch1[i]);
        }
}

#define SIGHT(batch0, batch1, ...)                                                 \
    assert_sight((struct ref_attention){__VA_ARGS__}, (const unsigned[N_Q])batch0, \
                 (const unsigned[N_Q])batch1)
#define ROWS(a, b, c) \
    {                 \
        a, b, c       \
    }

static void positions(void **state)
{
    (void)state;
    const int64_t offsets[] = {2, -1}, far[] = {INT64_MAX, INT64_MIN}, one[] = {1};
    SIGHT(ROWS(31, 31, 31), ROWS(31, 31, 31), 0);
    SIGHT(ROWS(1, 3, 7), ROWS(1, 3, 7), .causal = true);
    SIGHT(ROWS(7, 15, 31), ROWS(7, 15, 31), .causal = true, .n_past = 2);
    SIGHT(ROWS(7, 15, 31), ROWS(0, 1, 3), .causal = true, .query_offset = offsets,
          .query_offset_count = 2);
    SIGHT(ROWS(3, 7, 15), ROWS(3, 7, 15), .causal = true, .n_past = 2, .query_offset = one,
          .query_offset_count = 1);
    SIGHT(ROWS(31, 31, 31), ROWS(0, 0, 0), .causal = true, .query_offset = far,
          .query_offset_count = 2);
}

static void windows(void **state)
{
    (void)state;
    const int64_t offset[] = {2};
    SIGHT(ROWS(3, 7, 14), ROWS(3, 7, 14), .window = true, .window_left = 1, .window_right = 1);
    SIGHT(ROWS(1, 2, 4), ROWS(1, 2, 4), .window = true);
    SIGHT(ROWS(31, 31, 31), ROWS(31, 31, 31), .window_left = 0, .window_right = 0);
    SIGHT(ROWS(31, 31, 30), ROWS(31, 31, 30), .window = true, .window_left = 1, .window_right = -1);
    SIGHT(ROWS(7, 15, 31), ROWS(7, 15, 31), .window = true, .window_left = -1, .window_right = 2);
    SIGHT(ROWS(6, 12, 24), ROWS(6, 12, 24), .window = true, .window_left = 1, .window_right = 7,
          .causal = true, .query_offset = offset, .query_offset_count = 1);
}

static void lengths(void **state)
{
    (void)state;
    const int64_t two[] = {3, 0}, one[] = {4}, wild[] = {INT64_MAX, -7};
    SIGHT(ROWS(7, 7, 7), ROWS(0, 0, 0), .kv_length = two, .kv_length_count = 2);
    SIGHT(ROWS(15, 15, 15), ROWS(15, 15, 15), .kv_length = one, .kv_length_count = 1);
    SIGHT(ROWS(31, 31, 31), ROWS(0, 0, 0), .kv_length = wild, .kv_length_count = 2);
    SIGHT(ROWS(1, 3, 7), ROWS(0, 0, 0), .kv_length = two, .kv_length_count = 2, .causal = true);
}

static void masks(void **state)
{
    (void)state;
    const uint8_t keys[] = {1, 0, 2, 0, 255}, rows[] = {1, 0, 1}, batch[] = {0, 1};
    const uint8_t short_rows[] = {1, 1, 0, 1, 1, 0}, square[2 * N_Q * N_KV] = {[4] = 1, [17] = 1};
    const double additive[] = {0, -INFINITY, 0, NAN, 0};
    SIGHT(ROWS(21, 21, 21), ROWS(21, 21, 21), .mask_rank = 1, .mask_shape = {5}, .bool_mask = keys);
    SIGHT(ROWS(31, 31, 31), ROWS(31, 31, 31), .mask_rank = 1, .mask_shape = {1}, .bool_mask = keys);
    SIGHT(ROWS(31, 0, 31), ROWS(31, 0, 31), .mask_rank = 2, .mask_shape = {3, 1},
          .bool_mask = rows);
    SIGHT(ROWS(0, 0, 0), ROWS(31, 31, 31), .mask_rank = 4, .mask_shape = {2, 1, 1, 1},
          .bool_mask = batch);
    SIGHT(ROWS(16, 0, 0), ROWS(4, 0, 0), .mask_rank = 4, .mask_shape = {2, 1, 3, 5},
          .bool_mask = square);
    SIGHT(ROWS(3, 2, 1), ROWS(3, 2, 1), .mask_rank = 2, .mask_shape = {3, 2},
          .bool_mask = short_rows);
    SIGHT(ROWS(1, 3, 2), ROWS(1, 3, 2), .mask_rank = 2, .mask_shape = {3, 2},
          .bool_mask = (const uint8_t[]){1, 0, 1, 1, 0, 1});
    SIGHT(ROWS(21, 21, 21), ROWS(21, 21, 21), .mask_rank = 1, .mask_shape = {5},
          .float_mask = additive);
    SIGHT(ROWS(5, 5, 5), ROWS(5, 5, 5), .mask_rank = 1, .mask_shape = {4}, .float_mask = additive);
    SIGHT(ROWS(1, 1, 5), ROWS(1, 1, 5), .mask_rank = 1, .mask_shape = {5}, .bool_mask = keys,
          .causal = true);
}

/* A mask with an axis of heads: each head sees its own keys. */
static void mask_of_heads(void **state)
{
    (void)state;
    const uint8_t heads[] = {1, 1, 0, 0, 0, 0, 0, 0, 1, 1};
    struct ref_attention a = {.mask_rank = 3, .mask_shape = {2, 1, 5}, .bool_mask = heads};
    struct sight sight;
    look(&a, &sight);
    for (size_t b = 0; b < 2; b++)
        for (size_t i = 0; i < N_Q; i++) {
            assert_int_equal(sight.row[b][0][i], 3);
            assert_int_equal(sight.row[b][1][i], 24);
        }
}

/* ---- Scores ---------------------------------------------------------------------------------- */

/* One row, head_dim and value_dim 1, scale 1: the scores are the keys. */
static struct ref_attention one_row(size_t n_kv, const double *k, const double *v)
{
    static const double one = 1;
    return (struct ref_attention){.batch = 1,
                                  .n_head = 1,
                                  .n_kv_head = 1,
                                  .n_q = 1,
                                  .n_kv = n_kv,
                                  .head_dim = 1,
                                  .value_dim = 1,
                                  .q = &one,
                                  .k = k,
                                  .v = v,
                                  .scale = 1};
}

static void score_kinds(void **state)
{
    (void)state;
    const double k[] = {1, 2, 3}, v[] = {1, 10, 100}, mask[] = {0.5, -INFINITY, -0.5};
    double got[VKA_SCORES_COUNT][3], context;
    struct ref_attention a = one_row(3, k, v);
    a.softcap = 2, a.mask_rank = 1, a.mask_shape[0] = 3, a.float_mask = mask, a.context = &context;
    for (int kind = VKA_SCORES_RAW; kind < VKA_SCORES_COUNT; kind++)
        a.scores[kind] = got[kind];
    solve(&a);
    /* 2 tanh(1/2), 2 tanh 1, 2 tanh(3/2) */
    const double capped[] = {0.9242343145200195, 1.5231883119115297, 1.8102965072897328};
    const double w = 1 / (1 + exp((capped[2] - 0.5) - (capped[0] + 0.5)));
    assert_all_near(got[VKA_SCORES_RAW], k, 3);
    assert_all_near(got[VKA_SCORES_SOFTCAP], capped, 3);
    assert_true(got[VKA_SCORES_BIAS][1] == -INFINITY);
    assert_near(got[VKA_SCORES_BIAS][0], got[VKA_SCORES_SOFTCAP][0] + 0.5);
    assert_near(got[VKA_SCORES_BIAS][2], got[VKA_SCORES_SOFTCAP][2] - 0.5);
    assert_near(got[VKA_SCORES_SOFTMAX][0], w);
    assert_true(got[VKA_SCORES_SOFTMAX][1] == 0);
    assert_near(context, w + 100 * (1 - w));
}

static void huge_scores(void **state)
{
    (void)state;
    const double k[] = {1e6, 1e6 - log(3), -1e6}, v[] = {4, 8, 1e9};
    double context;
    struct ref_attention a = one_row(3, k, v);
    a.context = &context;
    solve(&a);
    assert_true(fabs(context - 5) < 1e-9);
}

/* Weights 1 and 3, and 4 of the sink. */
static void log_sum_of_a_row(void **state)
{
    (void)state;
    const double k[] = {0, log(3)}, v[] = {4, 8}, sink = log(4), none = -INFINITY, all = INFINITY;
    const double overflow[] = {0, INFINITY}, nothing[] = {-INFINITY, -INFINITY};
    const int64_t zero = 0, one = 1;
    double got;
    struct ref_attention a = one_row(2, k, v);
    a.log_sum_exp = &got;
    solve(&a);
    assert_near(got, log(4));
    a.dropout = 0.5, a.dropout_seed = 7;
    solve(&a);
    assert_near(got, log(4));
    a.sink = &sink;
    solve(&a);
    assert_near(got, log(8));
    a.sink = &none;
    solve(&a);
    assert_near(got, log(4));
    a.sink = &all;
    solve(&a);
    assert_true(got == INFINITY);
    a.kv_length = &zero, a.kv_length_count = 1, a.masked_row = VKA_MASKED_UNIFORM;
    solve(&a);
    assert_true(got == -INFINITY); /* of no key, whatever UNIFORM gives */
    a.kv_length = &one, a.sink = NULL;
    solve(&a);
    assert_near(got, 0);
    a.kv_length = NULL, a.k = overflow;
    solve(&a);
    assert_true(isnan(got));
    a.k = nothing;
    solve(&a);
    assert_true(got == -INFINITY);
}

static void alibi(void **state)
{
    (void)state;
    const double q[] = {1, 1, 1, 1}, k[] = {1, 1, 1}, v[] = {0, 0, 0}, slopes[] = {1, 0.25};
    const int64_t offset = 1;
    double bias[12], softcap[12];
    struct ref_attention a = one_row(3, k, v);
    a.n_head = 2, a.n_q = 2, a.q = q, a.alibi = slopes;
    a.query_offset = &offset, a.query_offset_count = 1;
    a.scores[VKA_SCORES_BIAS] = bias, a.scores[VKA_SCORES_SOFTCAP] = softcap;
    solve(&a);
    const double want[] = {0, 1, 0, -1, 0, 1, 0.75, 1, 0.75, 0.5, 0.75, 1};
    assert_all_near(bias, want, 12);
    for (int i = 0; i < 12; i++)
        assert_near(softcap[i], 1);
}

static void sink(void **state)
{
    (void)state;
    const double q[] = {1, 1}, k[] = {0, log(2)}, v[] = {3, 6}, sinks[] = {log(3), 1e5};
    const uint8_t hidden[] = {0};
    double context[2], weight[4];
    struct ref_attention a = one_row(2, k, v);
    a.n_head = 2, a.q = q, a.sink = sinks, a.context = context;
    a.scores[VKA_SCORES_SOFTMAX] = weight;
    solve(&a);
    assert_all_near(weight, (const double[]){1.0 / 6, 2.0 / 6, 0, 0}, 4);
    assert_all_near(context, (const double[]){2.5, 0}, 2);
    /* Scores of -inf are visible, and leave everything to the sink. */
    a.k = (const double[]){-INFINITY, -INFINITY};
    solve(&a);
    assert_all_near(weight, (const double[]){0, 0, 0, 0}, 4);
    /* A row that sees nothing gives what masked_row says, sink or not. */
    a.mask_rank = 1, a.mask_shape[0] = 1, a.bool_mask = hidden;
    a.masked_row = VKA_MASKED_UNIFORM;
    solve(&a);
    assert_all_near(context, (const double[]){4.5, 4.5}, 2);
}

/* ---- What must not leak, and what must ------------------------------------------------------- */

static void masked_rows(void **state)
{
    (void)state;
    const double k[] = {NAN, 1, 2, INFINITY}, v[] = {1, 2, 4, 9};
    const uint8_t none = 0; /* a mask that hides all keys */
    const double wants[VKA_MASKED_ROW_COUNT] = {
        [VKA_MASKED_ZERO] = 0, [VKA_MASKED_UNIFORM] = 0.25, [VKA_MASKED_NAN] = NAN};
    for (int answer = 0; answer < VKA_MASKED_ROW_COUNT; answer++) {
        double weight[4], bias[4], context;
        struct ref_attention a = one_row(4, k, v);
        a.mask_rank = 1, a.mask_shape[0] = 1, a.bool_mask = &none;
        a.masked_row = (enum vka_masked_row)answer, a.context = &context;
        a.scores[VKA_SCORES_SOFTMAX] = weight, a.scores[VKA_SCORES_BIAS] = bias;
        solve(&a);
        for (int j = 0; j < 4; j++) {
            assert_near(weight[j], wants[answer]);
            assert_true(bias[j] == -INFINITY);
        }
        assert_near(context, answer == VKA_MASKED_UNIFORM ? 4 : wants[answer]);
        if (answer == VKA_MASKED_ZERO) {
            a.v = k;
            solve(&a);
            assert_true(context == 0);
        }
    }
}

/* A fully masked row with some of its four keys behind the length: scores -inf or 0, and what is
 * there counts in no mean. */
static void masked_rows_of_length(void **state)
{
    (void)state;
    const double k[] = {1, 2, NAN, NAN}, v[] = {1, 2, NAN, NAN};
    const uint8_t none = 0;
    for (int64_t n = 0; n <= 2; n++)
        for (int answer = 0; answer < VKA_MASKED_ROW_COUNT; answer++) {
            double weight[4], raw[4], softcap[4], context, log_sum;
            const double each = answer == VKA_MASKED_NAN       ? (double)NAN
                                : answer == VKA_MASKED_UNIFORM ? 1 / (double)n
                                                               : 0;
            const double mean = answer == VKA_MASKED_UNIFORM ? (n == 0   ? 0
                                                                : n == 1 ? 1
                                                                         : 1.5)
                                                             : each;
            struct ref_attention a = one_row(4, k, v);
            a.mask_rank = 1, a.mask_shape[0] = 1, a.bool_mask = &none;
            a.kv_length = &n, a.kv_length_count = 1, a.softcap = 3;
            a.masked_row = (enum vka_masked_row)answer, a.context = &context;
            a.log_sum_exp = &log_sum;
            a.scores[VKA_SCORES_SOFTMAX] = weight, a.scores[VKA_SCORES_RAW] = raw;
            a.scores[VKA_SCORES_SOFTCAP] = softcap;
            solve(&a);
            for (int64_t j = 0; j < 4; j++) {
                assert_near(weight[j], j < n ? each : 0);
                assert_true(j < n ? isfinite(raw[j]) : raw[j] == -INFINITY);
                assert_true(j < n ? isfinite(softcap[j]) : softcap[j] == -INFINITY);
            }
            assert_near(context, mean);
            assert_true(log_sum == -INFINITY);
        }
}

static void hidden_poison(void **state)
{
    (void)state;
    const double k[] = {0, NAN, log(3), INFINITY, NAN}, v[] = {4, NAN, 8, -INFINITY, 1};
    const uint8_t mask[] = {1, 0, 1, 0, 1};
    const int64_t length = 4;
    double context, weight[5], raw[5];
    struct ref_attention a = one_row(5, k, v);
    a.mask_rank = 1, a.mask_shape[0] = 5, a.bool_mask = mask, a.context = &context;
    a.kv_length = &length, a.kv_length_count = 1;
    a.scores[VKA_SCORES_SOFTMAX] = weight, a.scores[VKA_SCORES_RAW] = raw;
    solve(&a);
    assert_near(context, 7);
    assert_all_near(weight, (const double[]){0.25, 0, 0.75, 0, 0}, 5);
    assert_true(isnan(raw[1]) && isinf(raw[3]));
    /* That poison, where it is visible, makes the row NaN. */
    a.kv_length = NULL;
    solve(&a);
    assert_true(isnan(context) && isnan(weight[0]) && isnan(weight[4]));
    assert_true(weight[1] == 0 && weight[3] == 0);
    a.dropout = 0.99;
    solve(&a);
    assert_true(isnan(context));
}

/* ---- Norm, rotation -------------------------------------------------------------------------- */

static void norms(void **state)
{
    (void)state;
    const double q[] = {3, 4}, k[] = {3, 4, 6, 8}, v[] = {0, 0}, qw[] = {1, 2}, kw[] = {10, 1};
    double key[4], raw[2];
    struct ref_attention a = one_row(2, k, v);
    a.head_dim = 2, a.q = q, a.q_norm = qw, a.k_norm = kw, a.norm_epsilon = 12.5;
    a.n_past = 1, a.key = key, a.scores[VKA_SCORES_RAW] = raw;
    solve(&a);
    /* mean(3^2, 4^2) + 12.5 = 25; mean(6^2, 8^2) + 12.5 = 62.5; the past key stays as it is. */
    assert_all_near(key, (const double[]){3, 4, 60 / sqrt(62.5), 8 / sqrt(62.5)}, 4);
    assert_near(raw[0], 0.6 * 3 + 1.6 * 4);
}

/* Queries turn by their position, new keys by their index, past keys not at all. */
static void rotation_positions(void **state)
{
    (void)state;
    const double q[] = {1, 0, 1, 0, 1, 0, 1, 0}, k[] = {1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0};
    const double v[6] = {0};
    const int64_t offsets[] = {5, -3};
    double raw[12], key[12];
    struct ref_attention a = {.batch = 2, .n_head = 1, .n_kv_head = 1, .n_q = 2, .n_kv = 3};
    a.head_dim = 2, a.value_dim = 1, a.scale = 1, a.q = q, a.k = k, a.v = v, a.rope.dim = 2;
    a.n_past = 1, a.query_offset = offsets, a.query_offset_count = 2, a.key = key;
    a.scores[VKA_SCORES_RAW] = raw;
    solve(&a);
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 3; j++)
                assert_near(raw[(b * 2 + i) * 3 + j], cos((double)(offsets[b] + i - j)));
    assert_all_near(key, (const double[]){1, 0, cos(1), sin(1), cos(2), sin(2)}, 6);
}

TEST_PROGRAM(reference)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain),
        cmocka_unit_test(log_sum_of_a_row),
        cmocka_unit_test(grouped_heads),
        cmocka_unit_test(positions),
        cmocka_unit_test(windows),
        cmocka_unit_test(lengths),
        cmocka_unit_test(masks),
        cmocka_unit_test(mask_of_heads),
        cmocka_unit_test(score_kinds),
        cmocka_unit_test(huge_scores),
        cmocka_unit_test(alibi),
        cmocka_unit_test(sink),
        cmocka_unit_test(masked_rows),
        cmocka_unit_test(masked_rows_of_length),
        cmocka_unit_test(hidden_poison),
        cmocka_unit_test(norms),
        cmocka_unit_test(rotation_positions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
