/* Floats as block types: vka_dtype_encode. A type is a function, and a row of the table below. */
#include "core/block.h"
#include "core/convert.h"
#include "core/encode_k.h"
#include "core/status.h"

#include <math.h>
#include <string.h>

static void put_half(uint8_t *bytes, float x)
{
    const uint16_t bits = dtype_to_f16(x);
    bytes[0] = (uint8_t)bits;
    bytes[1] = (uint8_t)(bits >> 8);
}

/* 1 / scale; 0 where that is none. */
static float inverse_of(float scale)
{
    const float inverse = scale == 0 ? 0 : 1 / scale;
    return isinf(inverse) ? 0 : inverse;
}

/* Writes the level of value i of 32, at most `top`: four bits into bytes[16], as nibble() of block.c
 * reads them, and the fifth into fifth[4], where the type has one. */
static void put_level(int i, float level, int top, uint8_t *bytes, uint8_t *fifth)
{
    const int q =
        level < (float)top ? (int)level : top; /* top where it is NaN, as scales overflow */
    bytes[i % 16] |= (uint8_t)((q & 15) << (i / 16 * 4));
    if (fifth)
        fifth[i / 8] |= (uint8_t)(q >> 4 << i % 8);
}

/* The value of largest magnitude, the first of several. */
static float largest(const float *x)
{
    float most = x[0];
    for (int i = 1; i < 32; i++)
        most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
    return most;
}

/* The largest magnitude becomes 127, the others are rounded to nearest, ties away from 0. */
static void encode_q8_0(const float *x, uint8_t *b)
{
    const float scale = fabsf(largest(x)) / 127, inverse = inverse_of(scale);
    put_half(b, scale);
    for (int i = 0; i < 32; i++)
        b[2 + i] = (uint8_t)(int8_t)roundf(x[i] * inverse);
}

/* The value of largest magnitude becomes -8. */
static void encode_q4_0(const float *x, uint8_t *b)
{
    const float scale = largest(x) / -8, inverse = inverse_of(scale);
    memset(b, 0, 18);
    put_half(b, scale);
    for (int i = 0; i < 32; i++)
        put_level(i, x[i] * inverse + 8.5f, 15, b + 2, NULL);
}

/* The value of largest magnitude becomes -16. */
static void encode_q5_0(const float *x, uint8_t *b)
{
    const float scale = largest(x) / -16, inverse = inverse_of(scale);
    memset(b, 0, 22);
    put_half(b, scale);
    for (int i = 0; i < 32; i++)
        put_level(i, x[i] * inverse + 16.5f, 31, b + 6, b + 2);
}

/* The least value becomes 0, the largest `top`. */
static void put_span(const float *x, int top, uint8_t *b, uint8_t *bytes, uint8_t *fifth)
{
    float least = x[0], most = x[0];
    for (int i = 1; i < 32; i++) {
        least = x[i] < least ? x[i] : least;
        most = x[i] > most ? x[i] : most;
    }
    const float scale = (most - least) / (float)top, inverse = inverse_of(scale);
    put_half(b, scale);
    put_half(b + 2, least);
    for (int i = 0; i < 32; i++)
        put_level(i, (x[i] - least) * inverse + 0.5f, top, bytes, fifth);
}

static void encode_q4_1(const float *x, uint8_t *b)
{
    memset(b, 0, 20);
    put_span(x, 15, b, b + 4, NULL);
}

static void encode_q5_1(const float *x, uint8_t *b)
{
    memset(b, 0, 24);
    put_span(x, 31, b, b + 8, b + 4);
}

/* Levels of iq4_nl nearest to values times `inverse`; returns by what scale they fit best, and *gain:
 * by how much less the squared error is than that of zeros. */
static float choose_levels(const float *x, float inverse, uint8_t levels[32], double *gain)
{
    float xv = 0, vv = 0;
    for (int i = 0; i < 32; i++) {
        const float y = 2 * x[i] * inverse;
        int level = 0;
        for (int half = 8; half; half /= 2) { /* twice the middle of two levels is their sum */
            const int j = level + half;
            level += y > (float)(block_nonlinear[j - 1] + block_nonlinear[j]) ? half : 0;
        }
        levels[i] = (uint8_t)level;
        xv += x[i] * (float)block_nonlinear[level];
        vv += (float)(block_nonlinear[level] * block_nonlinear[level]);
    }
    *gain = (double)xv * (double)xv / (double)vv; /* no level is 0 */
    return xv / vv;
}

/* For the least squared error: the value of largest magnitude is near either end of the levels. */
static void encode_iq4_nl(const float *x, uint8_t *b)
{
    const float most = largest(x);
    uint8_t levels[32];
    float scale = most / -127;
    double best = 0, gain;
    for (int k = -7; k <= 7; k++)
        for (int end = 0; end <= 15; end += 15) {
            const float step = most / block_nonlinear[end] * (1 + (float)k / 32);
            const float fitted = choose_levels(x, inverse_of(step), levels, &gain);
            if (gain > best) {
                best = gain;
                scale = fitted;
            }
        }
    memset(b, 0, 18);
    put_half(b, scale);
    const uint16_t bits = dtype_to_f16(scale);
    choose_levels(x, inverse_of(dtype_to_float(&bits, 0, VKA_F16)), levels, &gain);
    for (int i = 0; i < 32; i++)
        put_level(i, levels[i], 15, b + 2, NULL);
}

static void (*const encoders[])(const float *x, uint8_t *block) = {
    [VKA_Q8_0] = encode_q8_0, [VKA_Q4_0] = encode_q4_0, [VKA_Q4_1] = encode_q4_1,
    [VKA_Q5_0] = encode_q5_0, [VKA_Q5_1] = encode_q5_1, [VKA_Q4_K] = encode_q4_K,
    [VKA_Q5_K] = encode_q5_K, [VKA_Q6_K] = encode_q6_K, [VKA_IQ4_NL] = encode_iq4_nl,
};

enum vka_status vka_dtype_encode(enum vka_dtype dtype, const float *x, size_t n_block, void *blocks)
{
    const struct block_layout *layout = block_layout(dtype);
    size_t at;
    if (!layout || (size_t)dtype >= COUNTOF(encoders) || !encoders[dtype] ||
        (n_block && (!blocks || !x)))
        return VKA_INVALID;
    for (size_t i = 0; i < n_block * layout->values; i++)
        if (!isfinite(x[i]))
            return VKA_INVALID;
    for (size_t i = 0; i < n_block; i++)
        encoders[dtype](x + i * layout->values, (uint8_t *)blocks + i * layout->bytes);
    return block_find_nonfinite(dtype, blocks, n_block, &at) ? VKA_INVALID : VKA_OK;
}
