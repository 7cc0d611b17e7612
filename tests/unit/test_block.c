/* Block types against the oracle. That they are GGUF's is judged by tests/cases/quant, whose
 * weights gguf dequantised. SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <string.h>
#include <cmocka.h>

#include "problems/rng.h"
#include "problems/types.h"
#include "core/block.h"
#include "core/dtype.h"
#include "test_program.h"
#include <reference/reference.h>

#define MOST_BYTES 256

static void random_block(struct rng *rng, enum vka_dtype dtype, uint8_t *block)
{
    const struct block_layout *layout = block_layout(dtype);
    for (uint32_t i = 0; i < layout->bytes; i++)
        block[i] = (uint8_t)rng_range(rng, 0, 255);
    for (int j = 0; j < 2 && layout->scale_at[j] >= 0; j++)
        if ((block[layout->scale_at[j] + 1] & 0x7c) == 0x7c)
            block[layout->scale_at[j] + 1] ^= 0x40; /* finite */
    if (dtype == VKA_IQ1_M)
        block[55] &= 0xbf;
}

static bool has_floats(enum vka_dtype dtype)
{
    return dtype_is_block(dtype) && !dtype_has_integers(dtype);
}

static void sizes(void **state)
{
    (void)state;
    static const struct {
        enum vka_dtype dtype;
        uint32_t values, bytes;
    } want[] = {
        {VKA_F32, 1, 4},       {VKA_BF16, 1, 2},          {VKA_I8, 1, 1},
        {VKA_Q8_0, 32, 34},    {VKA_Q4_0, 32, 18},        {VKA_Q4_1, 32, 20},
        {VKA_Q5_0, 32, 22},    {VKA_Q4_K, 256, 144},      {VKA_Q6_K, 256, 210},
        {VKA_MXFP4, 32, 17},   {VKA_I4_G128, 128, 68},    {VKA_F8_E4M3, 1, 1},
        {VKA_Q5_1, 32, 24},    {VKA_Q5_K, 256, 176},      {VKA_Q3_K, 256, 110},
        {VKA_Q2_K, 256, 84},   {VKA_IQ4_NL, 32, 18},      {VKA_IQ4_XS, 256, 136},
        {VKA_NVFP4, 64, 36},   {VKA_TQ2_0, 256, 66},      {VKA_TQ1_0, 256, 54},
        {VKA_IQ3_S, 256, 110}, {VKA_IQ3_XXS, 256, 98},    {VKA_IQ2_XXS, 256, 66},
        {VKA_IQ2_XS, 256, 74}, {VKA_IQ2_S, 256, 82},      {VKA_IQ1_S, 256, 50},
        {VKA_IQ1_M, 256, 56},  {VKA_F8_E4M3_G64, 64, 68}, {VKA_F8_E5M2_G64, 64, 68},
        {VKA_NF4_G64, 64, 36},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        uint32_t values, bytes;
        assert_int_equal(vka_dtype_block(want[i].dtype, &values, &bytes), VKA_OK);
        assert_int_equal(values, want[i].values);
        assert_int_equal(bytes, want[i].bytes);
        assert_int_equal(vka_dtype_block(want[i].dtype, NULL, NULL), VKA_OK);
        assert_int_equal(dtype_bytes(want[i].dtype, 7 * values), 7 * bytes);
        assert_int_equal(dtype_is_block(want[i].dtype), values > 1);
    }
}

/* float32 of the exact value, as one rounding is all that a decoded value may have. */
static void decoded(void **state)
{
    (void)state;
    struct rng rng = {11};
    for (int dtype = 0; dtype < VKA_DTYPE_COUNT; dtype++) {
        const struct block_layout *layout = block_layout((enum vka_dtype)dtype);
        float x[2 * MOST_BLOCK_VALUES];
        uint8_t blocks[2 * MOST_BYTES];
        for (int round = 0; layout && round < 2000; round++) {
            random_block(&rng, (enum vka_dtype)dtype, blocks);
            random_block(&rng, (enum vka_dtype)dtype, blocks + layout->bytes);
            assert_int_equal(vka_dtype_decode((enum vka_dtype)dtype, blocks, 2, x), VKA_OK);
            for (uint32_t i = 0; i < 2 * layout->values; i++) {
                double want = ref_block_value((enum vka_dtype)dtype,
                                              blocks + i / layout->values * layout->bytes,
                                              i % layout->values);
                assert_true(x[i] == (float)want || (isnan(x[i]) && isnan(want)));
            }
        }
        if (!layout)
            assert_int_equal(vka_dtype_decode((enum vka_dtype)dtype, blocks, 1, x), VKA_INVALID);
    }
}

/* The error is at most half a step, and what is on the grid is kept. */
static void encoded(void **state)
{
    (void)state;
    struct rng rng = {12};
    static const struct {
        enum vka_dtype dtype;
        double steps; /* of the largest magnitude */
    } rows[] = {{VKA_Q8_0, 127}, {VKA_Q4_0, 8}};
    for (size_t r = 0; r < 2; r++)
        for (int round = 0; round < 5000; round++) {
            float x[32], y[32], z[32];
            uint8_t block[34], again[34];
            double most = 0, scale = pow(2, (double)rng_range(&rng, 0, 12) - 4);
            for (int i = 0; i < 32; i++) {
                x[i] = (float)(scale * rng_uniform(&rng, -1, 1));
                most = fmax(most, fabs((double)x[i]));
            }
            assert_int_equal(vka_dtype_encode(rows[r].dtype, x, 1, block), VKA_OK);
            assert_int_equal(vka_dtype_decode(rows[r].dtype, block, 1, y), VKA_OK);
            double step = most / rows[r].steps, limit = step * 0.5 + most * 0x1p-10;
            if (rows[r].dtype == VKA_Q4_0)
                limit = step + most * 0x1p-10; /* the far end of the other sign is 7 steps */
            for (int i = 0; i < 32; i++)
                assert_true(fabs((double)x[i] - (double)y[i]) <= limit);
            assert_int_equal(vka_dtype_encode(rows[r].dtype, y, 1, again), VKA_OK);
            assert_int_equal(vka_dtype_decode(rows[r].dtype, again, 1, z), VKA_OK);
            for (int i = 0; i < 32; i++)
                assert_true(fabs((double)z[i] - (double)y[i]) <= most * 0x1p-10);
        }
}

static void zeros(void **state)
{
    (void)state;
    static const float sizes_of[] = {0, 1e-45f, 3e-39f, 1e-38f, 1e-36f, 1e-30f, 1e-12f};
    float x[32] = {0}, y[32];
    uint8_t block[34];
    for (size_t i = 0; i < 2 * sizeof sizes_of / sizeof *sizes_of; i++) {
        int dtype = i % 2 ? VKA_Q8_0 : VKA_Q4_0;
        x[3] = -sizes_of[i / 2];
        x[7] = sizes_of[i / 2] / 2;
        assert_int_equal(vka_dtype_encode((enum vka_dtype)dtype, x, 1, block), VKA_OK);
        assert_int_equal(vka_dtype_decode((enum vka_dtype)dtype, block, 1, y), VKA_OK);
        for (int j = 0; j < 32; j++)
            assert_true(y[j] == 0);
    }
}

static void refused(void **state)
{
    (void)state;
    float x[32] = {0};
    uint8_t block[34];
    x[5] = NAN;
    assert_int_equal(vka_dtype_encode(VKA_Q8_0, x, 1, block), VKA_INVALID);
    x[5] = INFINITY;
    assert_int_equal(vka_dtype_encode(VKA_Q4_0, x, 1, block), VKA_INVALID);
    x[5] = 1e30f; /* the scale passes float16 */
    assert_int_equal(vka_dtype_encode(VKA_Q8_0, x, 1, block), VKA_INVALID);
    assert_int_equal(vka_dtype_encode(VKA_MXFP4, x, 1, block), VKA_INVALID);
    assert_int_equal(vka_dtype_encode(VKA_F32, x, 1, block), VKA_INVALID);
    assert_int_equal(vka_dtype_encode(VKA_Q8_0, NULL, 1, block), VKA_INVALID);
    assert_int_equal(vka_dtype_decode(VKA_Q8_0, block, 1, NULL), VKA_INVALID);
    assert_int_equal(vka_dtype_decode(VKA_DTYPE_COUNT, block, 1, x), VKA_INVALID);
}

static bool has_scale(enum vka_dtype dtype, int j)
{
    const bool own = dtype == VKA_IQ1_M || dtype == VKA_MXFP4;
    return block_layout(dtype)->scale_at[j] >= 0 || (j == 0 && own);
}

/* Makes scale j infinite or NaN. */
static void spoil(enum vka_dtype dtype, int j, uint8_t *block)
{
    if (dtype == VKA_MXFP4)
        block[0] = 0xff;
    else if (dtype != VKA_IQ1_M)
        block[block_layout(dtype)->scale_at[j] + 1] = 0xfc;
    else
        block[53] |= 0xc0, block[55] |= 0x70;
}

/* Each scale of each type, in each of three blocks. */
static void nonfinite(void **state)
{
    (void)state;
    struct rng rng = {13};
    for (int dtype = 0; dtype < VKA_DTYPE_COUNT; dtype++) {
        const struct block_layout *layout = block_layout((enum vka_dtype)dtype);
        for (uint32_t bad = 0; layout && bad < 3; bad++)
            for (int j = 0; j < 2 && has_scale((enum vka_dtype)dtype, j); j++) {
                uint8_t blocks[3 * MOST_BYTES];
                size_t at = 99;
                for (uint32_t i = 0; i < 3; i++)
                    random_block(&rng, (enum vka_dtype)dtype, blocks + i * layout->bytes);
                assert_false(block_find_nonfinite((enum vka_dtype)dtype, blocks, 3, &at));
                spoil((enum vka_dtype)dtype, j, blocks + bad * layout->bytes);
                assert_true(block_find_nonfinite((enum vka_dtype)dtype, blocks, 3, &at));
                assert_int_equal(at, bad);
            }
    }
}

/* Every number of 8 bits with scales of any float32. What is reported are scales, and numbers of 8 bits,
 * that are none, but not what exceeds float32. */
static void floats(void **state)
{
    (void)state;
    static const float scales[] = {1, -0.3f, 0x1.fffffep127f, 0x1p-149f, 0, INFINITY, NAN};
    for (EACH_TYPE(dtype, has_floats))
        for (uint32_t i = 0; i < 7 * 4; i++) {
            const uint32_t bytes = block_layout(dtype)->bytes;
            uint8_t block[68], plain[68] = {0, 0, 0x80, 0x3f}; /* with the scale 1 */
            float x[64];
            size_t at = 99;
            bool whole = isfinite(scales[i / 4]);
            memcpy(block, &scales[i / 4], sizeof(float));
            for (uint32_t j = 4; j < bytes; j++)
                plain[j] = block[j] = (uint8_t)(i * 64 + j - 4);
            assert_int_equal(vka_dtype_decode(dtype, block, 1, x), VKA_OK);
            for (uint32_t j = 0; j < 64; j++) {
                const float want = (float)ref_block_value(dtype, block, j);
                assert_true(x[j] == want || (isnan(x[j]) && isnan(want)));
                whole = whole && isfinite(ref_block_value(dtype, plain, j));
            }
            assert_int_equal(block_find_nonfinite(dtype, block, 1, &at), !whole);
        }
}

TEST_PROGRAM(block)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),  cmocka_unit_test(decoded), cmocka_unit_test(encoded),
        cmocka_unit_test(zeros),  cmocka_unit_test(refused), cmocka_unit_test(nonfinite),
        cmocka_unit_test(floats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
