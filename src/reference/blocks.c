/* Values of quantised blocks: where each of its fields lies, as bits of the block; and what a
 * quantised cache keeps.
 * SPDX-License-Identifier: MIT */
#include <reference/block_bits.h>
#include <reference/block_grids.h>
#include <reference/blocks.h>
#include <reference/numbers.h>

#include <math.h>

static int int8(const uint8_t *block, size_t byte)
{
    int x = (int)bits(block, 8 * byte, 8);
    return x < 128 ? x : x - 256;
}

/* Bit of nibble i of 32 in 16 bytes from `byte` on. */
static size_t nibble(size_t byte, size_t i)
{
    return 8 * (byte + i % 16) + (i < 16 ? 0 : 4);
}

/* With nibbles from byte `first` on, behind fifth bits if there are any. */
static double with_sixes(const uint8_t *b, size_t first, size_t i)
{
    size_t group = i / 32, more = group - 4;
    unsigned scale, least;
    if (group < 4) {
        scale = bits(b, 32 + 8 * group, 6);
        least = bits(b, 64 + 8 * group, 6);
    } else {
        scale = bits(b, 96 + 8 * more, 4) + 16 * bits(b, 38 + 8 * more, 2);
        least = bits(b, 100 + 8 * more, 4) + 16 * bits(b, 70 + 8 * more, 2);
    }
    unsigned q = bits(b, 8 * first + 256 * (group / 2) + 8 * (i % 32) + 4 * (group % 2), 4);
    if (first > 16)
        q += 16 * bits(b, 128 + 8 * (i % 32) + group, 1);
    return half(b, 0) * scale * q - half(b, 2) * least;
}

/* Value q of iq4_nl and iq4_xs: -127 and the steps up to it. */
static int nonlinear(unsigned q)
{
    static const unsigned steps[] = {23, 21, 18, 16, 14, 13, 12, 11, 12, 12, 13, 15, 16, 20, 24};
    int x = -127;
    for (unsigned i = 0; i < q; i++)
        x += (int)steps[i];
    return x;
}

static double iq4_xs(const uint8_t *b, size_t i)
{
    size_t group = i / 32;
    int scale = (int)(bits(b, 32 + 4 * group, 4) + 16 * bits(b, 16 + 2 * group, 2)) - 32;
    return half(b, 0) * scale * nonlinear(bits(b, nibble(8 + 16 * group, i % 32), 4));
}

static double q6_k(const uint8_t *b, size_t i)
{
    size_t side = i / 128, quarter = i / 32 % 4;
    unsigned low = bits(b, 512 * side + 256 * (quarter % 2) + 8 * (i % 32) + 4 * (quarter / 2), 4);
    unsigned high = bits(b, 1024 + 256 * side + 8 * (i % 32) + 2 * quarter, 2);
    return half(b, 208) * int8(b, 192 + i / 16) * ((int)(low + 16 * high) - 32);
}

static double q3_k(const uint8_t *b, size_t i)
{
    size_t group = i / 16;
    unsigned low = bits(b, 768 + 8 * (group % 8) + 4 * (group / 8), 4);
    unsigned high = bits(b, 832 + 8 * (group % 4) + 2 * (group / 4), 2);
    unsigned q = bits(b, 256 + 256 * (i / 128) + 8 * (i % 32) + 2 * (i / 32 % 4), 2);
    q += 4 * bits(b, 8 * (i % 32) + i / 32, 1);
    return half(b, 108) * ((int)(low + 16 * high) - 32) * ((int)q - 4);
}

static double q2_k(const uint8_t *b, size_t i)
{
    unsigned scale = bits(b, 8 * (i / 16), 4), least = bits(b, 8 * (i / 16) + 4, 4);
    unsigned q = bits(b, 128 + 256 * (i / 128) + 8 * (i % 32) + 2 * (i / 32 % 4), 2);
    return half(b, 80) * scale * q - half(b, 82) * least;
}

/* e2m1: exponents 0 (0 or 1/2) to 3. */
static double e2m1(unsigned q)
{
    unsigned exponent = q >> 1 & 3, mantissa = q & 1;
    double x = exponent ? ldexp(1 + mantissa / 2.0, (int)exponent - 1) : mantissa / 2.0;
    return q & 8 ? -x : x;
}

static double mxfp4(const uint8_t *b, size_t i)
{
    return ldexp(e2m1(bits(b, nibble(1, i), 4)), b[0] - 127);
}

static double nvfp4(const uint8_t *b, size_t i)
{
    size_t group = i / 16, at = 8 * (4 + 8 * group + i % 8) + (i % 16 < 8 ? 0 : 4);
    unsigned exponent = bits(b, 8 * group + 3, 4), mantissa = bits(b, 8 * group, 3);
    double scale = ldexp(mantissa + (exponent ? 8.0 : 0.0), (exponent ? (int)exponent : 1) - 10);
    return (b[group] == 0x7f ? 0 : scale) * e2m1(bits(b, at, 4));
}

static double tq2_0(const uint8_t *b, size_t i)
{
    size_t at = 256 * (i / 128) + 8 * (i % 32) + 2 * (i / 32 % 4);
    return half(b, 64) * ((int)bits(b, at, 2) - 1);
}

/* Digit by digit, the highest first: what is left of a fraction of 256, times 3. */
static double tq1_0(const uint8_t *b, size_t i)
{
    size_t byte = i % 32, digit = i / 32;
    if (i >= 160)
        byte = 32 + i % 16, digit = (i - 160) / 16;
    if (i >= 240)
        byte = 48 + i % 4, digit = (i - 240) / 4;
    unsigned rest = b[byte], q = 0;
    for (size_t n = 0; n <= digit; n++) {
        q = rest * 3 / 256;
        rest = rest * 3 % 256;
    }
    return half(b, 52) * ((int)q - 1);
}

static double single(const uint8_t *b)
{
    const uint32_t word = bits(b, 0, 32);
    const int exponent = (int)(word >> 23 & 255);
    const double mantissa = (double)(word & 0x7fffff) + (exponent ? 0x1p23 : 0);
    const double x = exponent == 255 ? (word & 0x7fffff ? (double)NAN : (double)INFINITY)
                                     : ldexp(mantissa, (exponent ? exponent : 1) - 150);
    return word >> 31 ? -x : x;
}

/* A float of 8 bits, `width` of which are its mantissa. */
static double f8(unsigned byte, int width)
{
    const int bias = (1 << (6 - width)) - 1, exponent = (int)(byte >> width) & (2 * bias + 1);
    const unsigned mantissa = (byte & ((1u << width) - 1)) | (exponent ? 1u << width : 0);
    double x = ldexp(mantissa, (exponent ? exponent : 1) - bias - width);
    if (width == 3 ? (byte & 0x7f) == 0x7f : exponent == 31)
        x = width == 2 && !(byte & 3) ? (double)INFINITY : (double)NAN;
    return byte & 0x80 ? -x : x;
}

static double nf4(unsigned q)
{
    static const int32_t values[16] = {
        /* in units of 2^-27 */
        -134217728, -93441416, -70474112, -53004928, -38177076, -24799870, -12220529, 0,
        10681087,   21599686,  33032634,  45354216,  59151072,  75513176,  97033624,  134217728};
    return ldexp(values[q], -27);
}

double ref_block_value(enum vka_dtype dtype, const uint8_t *b, size_t i)
{
    switch (dtype) {
    case VKA_Q8_0:
        return half(b, 0) * int8(b, 2 + i);
    case VKA_Q4_0:
        return half(b, 0) * ((int)bits(b, nibble(2, i), 4) - 8);
    case VKA_Q4_1:
        return half(b, 0) * bits(b, nibble(4, i), 4) + half(b, 2);
    case VKA_Q5_0:
        return half(b, 0) * ((int)(bits(b, nibble(6, i), 4) + 16 * bits(b, 16 + i, 1)) - 16);
    case VKA_Q5_1:
        return half(b, 0) * (bits(b, nibble(8, i), 4) + 16 * bits(b, 32 + i, 1)) + half(b, 2);
    case VKA_IQ4_NL:
        return half(b, 0) * nonlinear(bits(b, nibble(2, i), 4));
    case VKA_IQ4_XS:
        return iq4_xs(b, i);
    case VKA_Q4_K:
        return with_sixes(b, 16, i);
    case VKA_Q5_K:
        return with_sixes(b, 48, i);
    case VKA_Q3_K:
        return q3_k(b, i);
    case VKA_Q2_K:
        return q2_k(b, i);
    case VKA_Q6_K:
        return q6_k(b, i);
    case VKA_MXFP4:
        return mxfp4(b, i);
    case VKA_NVFP4:
        return nvfp4(b, i);
    case VKA_TQ2_0:
        return tq2_0(b, i);
    case VKA_TQ1_0:
        return tq1_0(b, i);
    case VKA_IQ3_S:
    case VKA_IQ3_XXS:
    case VKA_IQ2_XXS:
    case VKA_IQ2_XS:
    case VKA_IQ2_S:
    case VKA_IQ1_S:
    case VKA_IQ1_M:
        return ref_grid_value(dtype, b, i);
    case VKA_F8_E4M3_G64:
        return single(b) * f8(b[4 + i], 3);
    case VKA_F8_E5M2_G64:
        return single(b) * f8(b[4 + i], 2);
    case VKA_NF4_G64:
        return single(b) * nf4(bits(b, 8 * (4 + 8 * (i / 16) + i % 8) + (i % 16 < 8 ? 0 : 4), 4));
    case VKA_I4_G128:
        return half(b, 64) * ((int)bits(b, 4 * i, 4) - (int)bits(b, 8 * 66, 16));
    case VKA_F32:
    case VKA_F16:
    case VKA_BF16:
    case VKA_I32:
    case VKA_BOOL:
    case VKA_I8:
    case VKA_F8_E4M3:
    case VKA_DTYPE_COUNT:
        break;
    }
    return NAN;
}

/* 16 values or fewer; the scale is rounded up to 12 significant bits. */
static void activation_block(const double *x, size_t n, double *y)
{
    float peak = 0;
    int exponent;
    bool finite = true;
    for (size_t i = 0; i < n; i++) {
        finite &= isfinite(x[i]) != 0;
        peak = fmaxf(peak, fabsf((float)x[i]));
    }
    double digits = frexp(finite ? (double)(peak * (1.0f / 127)) : 0, &exponent);
    double scale = ldexp(ceil(ldexp(digits, 12)), exponent - 12);
    for (size_t i = 0; i < n; i++) {
        double q = scale < 0x1p-120 ? 0 : round(x[i] / scale);
        y[i] = !finite ? (double)NAN : fmin(fmax(q, -127), 127) * scale;
    }
}

void ref_activations(const double *x, size_t n, double *y)
{
    for (size_t i = 0; i < n; i += 16)
        activation_block(x + i, n - i < 16 ? n - i : 16, y + i);
}

/* Values of one scale: 32, or fewer at the end of a row. */
static void cache_block(enum vka_dtype dtype, const float *x, size_t n, double *y)
{
    double most = dtype == VKA_Q8_0 ? 127 : 7, least = dtype == VKA_Q8_0 ? -127 : -8;
    float peak = 0;
    for (size_t i = 0; i < n && !isnan(peak); i++)
        if (isnan(x[i]) || fabsf(x[i]) > fabsf(peak))
            peak = x[i];
    float scale = dtype == VKA_Q8_0 ? fabsf(peak) * (1.0f / 127) : peak * -0.125f;
    double d = ref_from_f16(ref_to_f16(scale));
    for (size_t i = 0; i < n; i++) {
        double q = d == 0 ? 0 : round(x[i] / d);
        y[i] = isfinite(d) ? d * fmin(fmax(q, least), most) : NAN;
    }
}

static double cache_e4m3(float x, float scale)
{
    const float y = x * (1 / scale);
    const double most = 448;
    if (isnan(y))
        return NAN;
    if (fabs((double)y) >= most)
        return copysign(most, (double)y) * scale;
    int exponent = y == 0 ? -6 : ilogb((double)y);
    double spacing = ldexp(1, (exponent < -6 ? -6 : exponent) - 3); /* between neighbours */
    return rint((double)y / spacing) * spacing * scale;
}

void ref_cache_row(enum vka_dtype dtype, float scale, const float *x, size_t dim, double *y)
{
    for (size_t i = 0; i < dim; i += 32)
        if (dtype != VKA_F8_E4M3)
            cache_block(dtype, x + i, dim - i < 32 ? dim - i : 32, y + i);
    for (size_t i = 0; i < dim && dtype == VKA_F8_E4M3; i++)
        y[i] = cache_e4m3(x[i], scale);
}

void ref_hadamard(const float *x, size_t dim, size_t block, float *y)
{
    for (size_t i = 0; i < dim; i++) {
        float sum = 0;
        for (size_t j = 0; j < block; j++) {
            size_t shared = i % block & j;
            int odd = 0;
            for (; shared; shared &= shared - 1)
                odd ^= 1;
            float term = x[i / block * block + j];
            sum += odd ? -term : term;
        }
        y[i] = sum * (1 / sqrtf((float)block));
    }
}
