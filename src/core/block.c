/* The block types of vkattn.h, decoded. Those of GGUF have its layouts. */
#include "core/block.h"
#include "core/block_grid.h"
#include "core/convert.h"
#include "core/status.h"
#include "params/types.h"

#include <math.h>
#include <string.h>

static float half_at(const uint8_t *bytes)
{
    const uint16_t bits = (uint16_t)(bytes[0] | bytes[1] << 8);
    return dtype_to_float(&bits, 0, VKA_F16);
}

/* Value i of 32 in 16 bytes: the low halves of all bytes, then the high ones. */
static int nibble(const uint8_t *bytes, int i)
{
    return bytes[i % 16] >> (i / 16 * 4) & 15;
}

/* q8_0: float16 scale, 32 int8. */
static void decode_q8_0(const uint8_t *b, float *x)
{
    float scale = half_at(b);
    for (int i = 0; i < 32; i++)
        x[i] = scale * (float)(int8_t)b[2 + i];
}

/* q4_0: float16 scale, 32 values of 4 bits, less 8. */
static void decode_q4_0(const uint8_t *b, float *x)
{
    float scale = half_at(b);
    for (int i = 0; i < 32; i++)
        x[i] = scale * (float)(nibble(b + 2, i) - 8);
}

/* q4_1: float16 scale and minimum, 32 values of 4 bits. */
static void decode_q4_1(const uint8_t *b, float *x)
{
    float scale = half_at(b), least = half_at(b + 2);
    for (int i = 0; i < 32; i++)
        x[i] = scale * (float)nibble(b + 4, i) + least;
}

/* q5_0: float16 scale, 32 fifth bits, 32 values of 4 bits; less 16. */
static void decode_q5_0(const uint8_t *b, float *x)
{
    float scale = half_at(b);
    for (int i = 0; i < 32; i++) {
        int fifth = b[2 + i / 8] >> i % 8 & 1;
        x[i] = scale * (float)((nibble(b + 6, i) | fifth << 4) - 16);
    }
}

/* q5_1: float16 scale and minimum, 32 fifth bits, 32 values of 4 bits. */
static void decode_q5_1(const uint8_t *b, float *x)
{
    float scale = half_at(b), least = half_at(b + 2);
    for (int i = 0; i < 32; i++) {
        int fifth = b[4 + i / 8] >> i % 8 & 1;
        x[i] = scale * (float)(nibble(b + 8, i) | fifth << 4) + least;
    }
}

/* Float16 scale and minimum of 8 scales and 8 minima of 6 bits in 12 bytes, for 32 values each; then
 * 256 fifth bits in 32 bytes, unless they are NULL; 256 values of 4 bits, 64 in 32 bytes. */
static void decode_sixes(const uint8_t *b, const uint8_t *fifths, const uint8_t *nibbles, float *x)
{
    float scale = half_at(b), least = half_at(b + 2);
    const uint8_t *six = b + 4;
    for (int i = 0; i < 256; i++) {
        int subblock = i / 32, s, m;
        if (subblock < 4) {
            s = six[subblock] & 63;
            m = six[subblock + 4] & 63;
        } else {
            s = (six[subblock + 4] & 15) | six[subblock - 4] >> 6 << 4;
            m = six[subblock + 4] >> 4 | six[subblock] >> 6 << 4;
        }
        int q = nibbles[i / 64 * 32 + i % 32] >> (subblock % 2 * 4) & 15;
        if (fifths)
            q |= (fifths[i % 32] >> subblock & 1) << 4;
        x[i] = scale * (float)s * (float)q - least * (float)m;
    }
}

static void decode_q4_K(const uint8_t *b, float *x)
{
    decode_sixes(b, NULL, b + 16, x);
}

static void decode_q5_K(const uint8_t *b, float *x)
{
    decode_sixes(b, b + 16, b + 48, x);
}

/* q2_K: 16 bytes with a scale and a minimum of 4 bits each, for 16 values each; 256 values of 2 bits,
 * 128 in 32 bytes; float16 scale of scales and of minima. */
static void decode_q2_K(const uint8_t *b, float *x)
{
    float scale = half_at(b + 80), least = half_at(b + 82);
    for (int i = 0; i < 256; i++) {
        int s = b[i / 16] & 15, m = b[i / 16] >> 4;
        int q = b[16 + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
        x[i] = scale * (float)s * (float)q - least * (float)m;
    }
}

/* q3_K: 256 values of 3 bits, less 4: their highest in 32 bytes, low two in 64; 16 scales of 16 values
 * each, of 6 bits less 32, their low four in 8 bytes and high two in 4; the float16 scale of those. */
static void decode_q3_K(const uint8_t *b, float *x)
{
    float scale = half_at(b + 108);
    for (int i = 0; i < 256; i++) {
        int subblock = i / 16, low = b[96 + subblock % 8] >> (subblock / 8 * 4) & 15;
        int s = (low | (b[104 + subblock % 4] >> (subblock / 4 * 2) & 3) << 4) - 32;
        int q = b[32 + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
        q |= (b[i % 32] >> i / 32 & 1) << 2;
        x[i] = scale * (float)s * (float)(q - 4);
    }
}

const int8_t block_nonlinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                    1,    13,   25,  38,  53,  69,  89,  113};

/* iq4_nl: float16 scale, 32 values of 4 bits. */
static void decode_iq4_nl(const uint8_t *b, float *x)
{
    float scale = half_at(b);
    for (int i = 0; i < 32; i++)
        x[i] = scale * (float)block_nonlinear[nibble(b + 2, i)];
}

/* iq4_xs: float16 scale; 8 scales of 6 bits, less 32, for 32 values each: their high two bits in 2
 * bytes, then their low four in 4; 256 values of 4 bits, 32 in 16 bytes. */
static void decode_iq4_xs(const uint8_t *b, float *x)
{
    float scale = half_at(b);
    unsigned high = b[2] | (unsigned)b[3] << 8;
    for (int i = 0; i < 256; i++) {
        int subblock = i / 32, low = b[4 + subblock / 2] >> subblock % 2 * 4 & 15;
        int s = (low | (int)(high >> 2 * subblock & 3) << 4) - 32;
        x[i] = scale * (float)s * (float)block_nonlinear[nibble(b + 8 + 16 * subblock, i % 32)];
    }
}

/* q6_K: 256 values of 6 bits, less 32: their low four in 128 bytes and high two in 64; 16 int8
 * scales of 16 values each, and the float16 scale of those. */
static void decode_q6_K(const uint8_t *b, float *x)
{
    float scale = half_at(b + 208);
    for (int i = 0; i < 256; i++) {
        int half = i / 128, subblock = i % 128 / 32, at = i % 32;
        int low = b[64 * half + 32 * (subblock % 2) + at] >> (subblock / 2 * 4) & 15;
        int high = b[128 + 32 * half + at] >> 2 * subblock & 3;
        x[i] = scale * (float)(int8_t)b[192 + i / 16] * (float)((low | high << 4) - 32);
    }
}

/* mxfp4: exponent 2^(e - 127), 32 values of type e2m1. */
static void decode_mxfp4(const uint8_t *b, float *x)
{
    static const float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    for (int i = 0; i < 32; i++) {
        int q = nibble(b + 1, i);
        float magnitude = ldexpf(values[q & 7], b[0] - 127);
        x[i] = q & 8 && magnitude != 0 ? -magnitude : magnitude;
    }
}

/* Half of a number of 4 bits of exponent and 3 of mantissa; 0x7f is 0. */
static float half_e4m3(uint8_t bits)
{
    int exponent = bits >> 3 & 15, mantissa = bits & 7;
    return bits == 0x7f   ? 0
           : exponent > 0 ? ldexpf((float)(8 + mantissa), exponent - 11)
                          : ldexpf((float)mantissa, -10);
}

/* nvfp4: scales of 16 values each; 64 values of type e2m1, 16 in 8 bytes. */
static void decode_nvfp4(const uint8_t *b, float *x)
{
    static const int8_t twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    for (int i = 0; i < 64; i++) {
        int subblock = i / 16, q = b[4 + 8 * subblock + i % 8] >> (i / 8 % 2 * 4) & 15;
        x[i] = half_e4m3(b[subblock]) * (float)twice[q];
    }
}

/* tq2_0: 256 values of 2 bits, less 1, 128 in 32 bytes; float16 scale. */
static void decode_tq2_0(const uint8_t *b, float *x)
{
    float scale = half_at(b + 64);
    for (int i = 0; i < 256; i++)
        x[i] = scale * (float)((b[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3) - 1);
}

/* tq1_0: digits of base 3, less 1, the first of a byte its highest: 5 of 32 bytes each, then 5 of 16 and
 * 4 of 4; float16 scale. A byte is the number whose digits they are, of 3^5, as a fraction of 256. */
static void decode_tq1_0(const uint8_t *b, float *x)
{
    static const uint8_t powers[] = {1, 3, 9, 27, 81};
    float scale = half_at(b + 52);
    for (int i = 0; i < 256; i++) {
        int width = i < 160 ? 32 : i < 240 ? 16 : 4, from = i < 160 ? 0 : i < 240 ? 160 : 240;
        uint8_t rest = b[from / 5 + i % width] * powers[(i - from) / width] & 255;
        x[i] = scale * (float)((rest * 3 >> 8) - 1);
    }
}

static float float_at(const uint8_t *bytes)
{
    const uint32_t bits =
        bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* f8_e4m3_g64: float32 scale, 64 numbers of 1 sign, 4 bits of exponent and 3 of mantissa. */
static void decode_f8_e4m3_g64(const uint8_t *b, float *x)
{
    const float scale = float_at(b);
    for (int i = 0; i < 64; i++) {
        const uint8_t bits = b[4 + i], magnitude = bits & 0x7f;
        const float value = magnitude == 0x7f ? NAN : 2 * half_e4m3(magnitude);
        x[i] = scale * (bits & 0x80 ? -value : value);
    }
}

/* f8_e5m2_g64: float32 scale, 64 high bytes of float16. */
static void decode_f8_e5m2_g64(const uint8_t *b, float *x)
{
    const float scale = float_at(b);
    for (int i = 0; i < 64; i++) {
        const uint8_t half[2] = {0, b[4 + i]};
        x[i] = scale * half_at(half);
    }
}

/* Quantiles of the normal distribution, of which the largest magnitude is 1. */
static const float nf4_values[16] = {-1,           -0.6961928f,  -0.52507305f,  -0.3949175f,
                                     -0.28444138f, -0.18477343f, -0.091050036f, 0,
                                     0.0795803f,   0.1609302f,   0.2461123f,    0.33791524f,
                                     0.44070983f,  0.562617f,    0.72295684f,   1};

/* nf4_g64: float32 scale, 64 values of 4 bits, 16 in 8 bytes. */
static void decode_nf4_g64(const uint8_t *b, float *x)
{
    const float scale = float_at(b);
    for (int i = 0; i < 64; i++)
        x[i] = scale * nf4_values[b[4 + i / 16 * 8 + i % 8] >> (i / 8 % 2 * 4) & 15];
}

/* i4_g128: 128 values of 4 bits, two a byte, in order; float16 scale; zero point, 16 bits. */
static void decode_i4_g128(const uint8_t *b, float *x)
{
    float scale = half_at(b + 64);
    int zero = b[66] | b[67] << 8;
    for (int i = 0; i < 128; i++)
        x[i] = scale * (float)((b[i / 2] >> (i % 2 * 4) & 15) - zero);
}

/* Those of blocks, in the table of types. */
#define LAYOUT(a, id, NAME, name, kind, values, bytes, word, scale, offset, cpu) \
    LAYOUT_##kind(NAME, name, values, bytes, scale, offset)
#define LAYOUT_FLOAT(NAME, name, values, bytes, scale, offset)
#define LAYOUT_INTEGER(NAME, name, values, bytes, scale, offset)
#define LAYOUT_CACHED(NAME, name, values, bytes, scale, offset)
#define LAYOUT_WEIGHT(NAME, name, values, bytes, scale, offset)
#define LAYOUT_BLOCK(NAME, name, values, bytes, scale, offset) \
    [VKA_##NAME] = {values, bytes, decode_##name, {scale, offset}},
#define LAYOUT_BUNDLES LAYOUT_BLOCK
static const struct block_layout layouts[] = {TYPES(LAYOUT, LAYOUT, )};

const struct block_layout *block_layout(enum vka_dtype dtype)
{
    return (size_t)dtype < COUNTOF(layouts) && layouts[dtype].values ? &layouts[dtype] : NULL;
}

/* Whether the float32 scale of a block that HAS_FLOATS, or a value of 8 bits, is NaN or infinite. */
static bool has_nonfinite(enum vka_dtype dtype, const uint8_t *b)
{
    bool found = !isfinite(float_at(b));
    for (int i = 0; i < 64 && IS_F8(dtype); i++)
        found |= dtype == VKA_F8_E4M3_G64 ? (b[4 + i] & 0x7f) == 0x7f : (b[4 + i] & 0x7c) == 0x7c;
    return found;
}

bool block_find_nonfinite(enum vka_dtype dtype, const void *blocks, size_t n_block, size_t *at)
{
    const struct block_layout *layout = block_layout(dtype);
    const uint8_t *b = blocks;
    for (size_t i = 0; layout && i < n_block; i++, b += layout->bytes) {
        bool found = dtype == VKA_IQ1_M && (block_scale_iq1_m(b) & 0x7c00) == 0x7c00;
        found |= dtype == VKA_MXFP4 && b[0] == 0xff; /* the exponent that is no number */
        found |= HAS_FLOATS(dtype) && has_nonfinite(dtype, b);
        for (int j = 0; j < 2 && layout->scale_at[j] >= 0; j++)
            found |= (b[layout->scale_at[j] + 1] & 0x7c) == 0x7c;
        if (found) {
            *at = i;
            return true;
        }
    }
    return false;
}

enum vka_status vka_dtype_decode(enum vka_dtype dtype, const void *blocks, size_t n_block, float *x)
{
    const struct block_layout *layout = block_layout(dtype);
    if (!layout || (n_block && (!blocks || !x)))
        return VKA_INVALID;
    for (size_t i = 0; i < n_block; i++)
        layout->decode((const uint8_t *)blocks + i * layout->bytes, x + i * layout->values);
    return VKA_OK;
}
