/* Dropout of the oracle: which weights a seed keeps, and how many. SPDX-License-Identifier: MIT */
#include "test_program.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <reference/reference.h>

/* Two keys of equal weight with values 1 and 16: the context tells which of them were kept. */
static void dropout_draw(void **state)
{
    (void)state;
    static const double zeros[12];
    const double v[] = {1, 16, 1, 16, 1, 16, 1, 16};
    const uint64_t seed = 0x123456789abcdef0u;
    double context[12], weight[24];
    struct ref_attention a = {.batch = 2, .n_head = 2, .n_kv_head = 2, .n_q = 3, .n_kv = 2};
    a.head_dim = 1, a.value_dim = 1, a.q = zeros, a.k = zeros, a.v = v, a.context = context;
    a.dropout = 0.5, a.dropout_seed = seed, a.scores[VKA_SCORES_SOFTMAX] = weight;
    assert_int_equal(ref_attention(&a), VKA_OK);
    for (uint32_t row = 0; row < 12; row++) {
        double want = 0;
        for (uint32_t j = 0; j < 2; j++) {
            const uint32_t counter[] = {j, row % 3, row / 3 % 2, row / 6};
            uint32_t word[4];
            ref_philox(counter, (const uint32_t[]){0x9abcdef0u, 0x12345678u}, word);
            want += word[0] >= 0x80000000u ? (j == 0 ? 1 : 16) : 0;
            assert_true(weight[row * 2 + j] == 0.5);
        }
        assert_true(context[row] == want);
    }
}

/* A rate of 1/4 keeps about three of four weights, each times 4/3; UNIFORM rows are drawn too. */
static void dropout_rate(void **state)
{
    (void)state;
    enum { N = 4096 };
    static double k[N], v[N];
    const uint8_t none = 0;
    double context;
    for (int j = 0; j < N; j++)
        v[j] = 1;
    struct ref_attention a = {.batch = 1, .n_head = 1, .n_kv_head = 1, .n_q = 1, .n_kv = N};
    a.head_dim = 1, a.value_dim = 1, a.q = v, a.k = k, a.v = v, a.dropout = 0.25,
    a.dropout_seed = 7, a.context = &context;
    assert_int_equal(ref_attention(&a), VKA_OK);
    double kept = context * N * 0.75, seen = context;
    assert_true(fabs(kept - rint(kept)) < 1e-6);
    /* Six standard deviations of a binomial. */
    assert_true(fabs(kept - 0.75 * N) < 6 * sqrt(N * 0.75 * 0.25));
    a.mask_rank = 1, a.mask_shape[0] = 1, a.bool_mask = &none, a.masked_row = VKA_MASKED_UNIFORM;
    assert_int_equal(ref_attention(&a), VKA_OK);
    assert_true(fabs(context - seen) < 1e-9);
    a.dropout_seed = 8;
    assert_int_equal(ref_attention(&a), VKA_OK);
    assert_true(fabs(context - seen) > 1e-9);
}

TEST_PROGRAM(reference_dropout)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(dropout_draw),
                                       cmocka_unit_test(dropout_rate)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
