/* Floats as blocks: special points of every type that vka_dtype_encode makes, and its squared errors
 * beside those of ggml's reference on the same distributions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <float.h>
#include <math.h>
#include <string.h>
#include <cmocka.h>

#include "problems/rng.h"
#include "core/block.h"
#include "test_program.h"

#define COUNTOF(array) (sizeof(array) / sizeof((array)[0]))

enum { MOST = 256, MOST_BYTES = 256 };

/* The types; error: the largest, in shares of the range of a block, of any value within it. Levels
 * of q4_0 and q5_0 end a step short of the largest value of the other sign; those of q4_K and q6_K go
 * where the squared error is least. */
static const struct row {
    enum vka_dtype dtype;
    double error;
} rows[] = {{VKA_Q8_0, 0.005}, {VKA_Q4_0, 0.07},  {VKA_Q4_1, 0.035},
            {VKA_Q5_0, 0.035}, {VKA_Q5_1, 0.018}, {VKA_Q4_K, 0.09},
            {VKA_Q5_K, 0.05},  {VKA_Q6_K, 0.03},  {VKA_IQ4_NL, 0.09}};

static uint32_t values_of(enum vka_dtype dtype)
{
    uint32_t values = 0;
    assert_int_equal(vka_dtype_block(dtype, &values, NULL), VKA_OK);
    return values;
}

/* Encodes and decodes a block; returns the bytes too. */
static void turn(enum vka_dtype dtype, const float *x, float *y, uint8_t bytes[MOST_BYTES])
{
    memset(bytes, 0xa5, MOST_BYTES);
    if (vka_dtype_encode(dtype, x, 1, bytes) != VKA_OK)
        fail_msg("%s", vka_dtype_name(dtype));
    assert_int_equal(vka_dtype_decode(dtype, bytes, 1, y), VKA_OK);
}

static double normal(struct rng *rng)
{
    return sqrt(-2 * log(1 - rng_uniform(rng, 0, 1))) *
           cos(6.283185307179586 * rng_uniform(rng, 0, 1));
}

/* Every type of vkattn.h that is a block is either made, or refused. */
static void which(void **state)
{
    (void)state;
    float x[MOST] = {0};
    uint8_t bytes[MOST_BYTES];
    size_t made = 0;
    for (int dtype = -1; dtype <= VKA_DTYPE_COUNT; dtype++) {
        const bool is_made = vka_dtype_encode((enum vka_dtype)dtype, NULL, 0, NULL) == VKA_OK;
        assert_int_equal(vka_dtype_encode((enum vka_dtype)dtype, x, 1, bytes) == VKA_OK, is_made);
        assert_int_equal(vka_dtype_encode((enum vka_dtype)dtype, NULL, 1, bytes), VKA_INVALID);
        assert_int_equal(vka_dtype_encode((enum vka_dtype)dtype, x, 1, NULL), VKA_INVALID);
        made += is_made;
    }
    assert_true(made >= COUNTOF(rows));
}

/* Zeros of both signs, and values that float16 scales have no number for, decode to zero. */
static void zeros(void **state)
{
    (void)state;
    static const float sizes[] = {0, 1e-45f, 1e-40f, FLT_MIN, 1e-36f, 1e-30f, 1e-20f, 1e-12f};
    for (size_t r = 0; r < COUNTOF(rows); r++)
        for (size_t s = 0; s < COUNTOF(sizes); s++) {
            float x[MOST], y[MOST];
            uint8_t bytes[MOST_BYTES];
            for (int i = 0; i < MOST; i++)
                x[i] = i % 3 ? sizes[s] : -sizes[s];
            turn(rows[r].dtype, x, y, bytes);
            for (uint32_t i = 0; i < values_of(rows[r].dtype); i++)
                assert_true(fabsf(y[i]) <= sizes[s]);
        }
}

/* Blocks of one value, of one that is not 0, of both extremes, of ties, of little range far from 0: none
 * is off by more than the type's steps. */
static void shapes(void **state)
{
    (void)state;
    enum { SHAPES = 9 };
    struct rng rng = {21};
    static const float sizes[] = {0.02f, 0.3f, 1, 3000};
    for (size_t r = 0; r < COUNTOF(rows); r++)
        for (int k = 0; k < SHAPES * (int)COUNTOF(sizes) * 20; k++) {
            const uint32_t n = values_of(rows[r].dtype);
            const float size = sizes[k / SHAPES % (int)COUNTOF(sizes)];
            const int at = (int)rng_range(&rng, 0, n - 1), shape = k % SHAPES;
            float x[MOST] = {0}, y[MOST], low = 0, high = 0;
            uint8_t bytes[MOST_BYTES];
            for (int i = 0; i < (int)n; i++) {
                const float u = (float)rng_uniform(&rng, -1, 1);
                const float all[SHAPES] = {1,
                                           -1,
                                           i == at,
                                           -(i == at),
                                           i % 2 ? 1 : -1,
                                           ((float)(i % 16) - 7.5f) / 8,
                                           1 + u / 100,
                                           -1 - u / 100,
                                           u};
                x[i] = size * all[shape];
                low = x[i] < low ? x[i] : low;
                high = x[i] > high ? x[i] : high;
            }
            turn(rows[r].dtype, x, y, bytes);
            for (uint32_t i = 0; i < n; i++)
                if (!(fabs((double)x[i] - (double)y[i]) <= rows[r].error * (double)(high - low)))
                    fail_msg("%s: shape %d: %g became %g, range %g to %g",
                             vka_dtype_name(rows[r].dtype), shape, (double)x[i], (double)y[i],
                             (double)low, (double)high);
        }
}

/* The largest values of float16 at both signs are kept; what its scales have no number for is refused,
 * as are NaN and Inf at every place. */
static void refused(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, 1e30f, 1e12f};
    for (size_t r = 0; r < COUNTOF(rows); r++) {
        const uint32_t n = values_of(rows[r].dtype);
        float x[2 * MOST] = {0}, y[MOST];
        uint8_t bytes[2 * MOST_BYTES];
        x[0] = 65504;
        x[n - 1] = -65504;
        turn(rows[r].dtype, x, y, bytes);
        assert_true(fabsf(y[0] - 65504) < 131008 * (float)rows[r].error);
        assert_true(fabsf(y[n - 1] + 65504) < 131008 * (float)rows[r].error);
        for (size_t b = 0; b < COUNTOF(bad); b++)
            for (uint32_t i = 0; i < 2 * n; i++) {
                const float kept = x[i];
                x[i] = bad[b];
                assert_int_equal(vka_dtype_encode(rows[r].dtype, x, 2, bytes), VKA_INVALID);
                x[i] = kept;
            }
        assert_int_equal(vka_dtype_encode(rows[r].dtype, x, 2, bytes), VKA_OK);
    }
}

/* A block does not depend on its neighbours, nor on where it lies; a power of two scales it. */
static void alone(void **state)
{
    (void)state;
    struct rng rng = {22};
    for (size_t r = 0; r < COUNTOF(rows); r++)
        for (int round = 0; round < 40; round++) {
            const uint32_t n = values_of(rows[r].dtype);
            float x[3 * MOST + 1], y[MOST], z[MOST];
            uint8_t three[3 * MOST_BYTES + 1], one[MOST_BYTES];
            uint32_t size;
            vka_dtype_block(rows[r].dtype, NULL, &size);
            for (uint32_t i = 0; i < 3 * n + 1; i++)
                x[i] = (float)normal(&rng);
            assert_int_equal(vka_dtype_encode(rows[r].dtype, x + 1, 3, three + 1), VKA_OK);
            for (uint32_t b = 0; b < 3; b++) {
                turn(rows[r].dtype, x + 1 + b * n, y, one);
                assert_memory_equal(one, three + 1 + b * size, size);
            }
            const float factor = round % 2 ? 8 : 0.25f;
            for (uint32_t i = 0; i < n; i++)
                x[i] = x[1 + 2 * n + i] * factor;
            turn(rows[r].dtype, x, z, one);
            for (uint32_t i = 0; i < n; i++)
                assert_true(z[i] == y[i] * factor);
        }
}

/* The squared error as a fraction of the squares: no more than that of ggml's reference, which these
 * numbers are, as measured on 2^20 values of the distribution. */
static void errors(void **state)
{
    (void)state;
    enum { BLOCKS = 300 };
    static const struct {
        enum vka_dtype dtype;
        double gauss, uniform, shifted;
    } wanted[] = {
        {VKA_Q8_0, 2.90e-5, 1.45e-5, 2.45e-5},   {VKA_Q4_0, 7.55e-3, 4.30e-3, 6.25e-3},
        {VKA_Q4_1, 6.25e-3, 3.75e-3, 3.12e-3},   {VKA_Q5_0, 1.87e-3, 9.85e-4, 1.57e-3},
        {VKA_Q5_1, 1.50e-3, 9.00e-4, 7.40e-4},   {VKA_Q4_K, 5.05e-3, 2.98e-3, 2.49e-3},
        {VKA_Q5_K, 1.25e-3, 7.40e-4, 6.10e-4},   {VKA_Q6_K, 3.10e-4, 1.75e-4, 2.69e-4},
        {VKA_IQ4_NL, 5.60e-3, 4.00e-3, 5.00e-3},
    };
    for (size_t r = 0; r < COUNTOF(wanted); r++)
        for (int kind = 0; kind < 3; kind++) {
            struct rng rng = {23 + (uint64_t)kind};
            const uint32_t n = values_of(wanted[r].dtype);
            double error = 0, squares = 0;
            for (uint32_t b = 0; b < BLOCKS * MOST / n; b++) {
                float x[MOST], y[MOST];
                uint8_t bytes[MOST_BYTES];
                for (uint32_t i = 0; i < n; i++)
                    x[i] = (float)(kind == 1 ? rng_uniform(&rng, -1, 1) : normal(&rng) + kind / 2);
                turn(wanted[r].dtype, x, y, bytes);
                for (uint32_t i = 0; i < n; i++) {
                    error += pow((double)x[i] - (double)y[i], 2);
                    squares += pow((double)x[i], 2);
                }
            }
            const double most = kind == 0   ? wanted[r].gauss
                                : kind == 1 ? wanted[r].uniform
                                            : wanted[r].shifted;
            print_message("%s: %.3g of %.3g\n", vka_dtype_name(wanted[r].dtype), error / squares,
                          most);
            assert_true(error / squares <= most && error / squares > most * 0.85);
        }
}

TEST_PROGRAM(encode)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(which),   cmocka_unit_test(zeros), cmocka_unit_test(shapes),
        cmocka_unit_test(refused), cmocka_unit_test(alone), cmocka_unit_test(errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
