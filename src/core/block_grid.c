/* Blocks of iq1, iq2 and iq3: numbers of entries of a grid, which are 4 or 8 neighbours each. */
#include "core/block_grid.h"
#include "core/convert.h"
#include "params/types.h"

/* Words of two entries of 16 bits each. */
#define WORDS(a, b, c, d) a, b, c, d
static const uint32_t grid_iq1_s[] = {
#include "grids/iq1_s.def"
};
static const uint32_t grid_iq2_xxs[] = {
#include "grids/iq2_xxs.def"
};
static const uint32_t grid_iq2_xs[] = {
#include "grids/iq2_xs.def"
};
static const uint32_t grid_iq2_s[] = {
#include "grids/iq2_s.def"
};
static const uint32_t grid_iq3_xxs[] = {
#include "grids/iq3_xxs.def"
};
static const uint32_t grid_iq3_s[] = {
#include "grids/iq3_s.def"
};

static float half_of(unsigned bits)
{
    const uint16_t half = (uint16_t)bits;
    return dtype_to_float(&half, 0, VKA_F16);
}

static unsigned half_word(const uint8_t *b)
{
    return b[0] | (unsigned)b[1] << 8;
}

static unsigned word(const uint8_t *b)
{
    return half_word(b) | half_word(b + 2) << 16;
}

/* Nibble i. */
static int nibble(const uint8_t *b, int i)
{
    return b[i / 2] >> i % 2 * 4 & 15;
}

/* Value i, of `width` bits, of entry n. */
static int digit(const uint32_t *grid, unsigned n, int i, int width)
{
    return (int)(grid[n / 2] >> (n % 2 * 16 + (unsigned)(i * width)) & ((1u << width) - 1));
}

/* Eight signs of which seven are stored: there is an even number of them. */
static unsigned even_signs(unsigned seven)
{
    unsigned odd = 0;
    for (int i = 0; i < 7; i++)
        odd ^= seven >> i & 1;
    return seven | odd << 7;
}

/* A magnitude of an entry, 8, 25 or 43, with its sign. */
static float magnitude2(const uint32_t *grid, unsigned n, int i, unsigned signs)
{
    static const uint8_t magnitudes[] = {8, 25, 43};
    int x = magnitudes[digit(grid, n, i, 2)];
    return (float)(signs >> i & 1 ? -x : x);
}

/* iq3_s: float16 scale; 64 low bytes of numbers of 9 bits, of 4 values each; their 64 high bits; 256
 * signs; 8 scales of 4 bits for 32 values each, 2 s + 1. Magnitudes are 1, 3 ... 15. */
void decode_iq3_s(const uint8_t *b, float *x)
{
    float scale = half_of(half_word(b));
    for (int i = 0; i < 256; i++) {
        unsigned n = b[2 + i / 4] | (unsigned)(b[66 + i / 32] >> i / 4 % 8 & 1) << 8;
        int q = 2 * digit(grid_iq3_s, n, i % 4, 4) + 1;
        x[i] = scale * (float)(2 * nibble(b + 106, i / 32) + 1) *
               (float)(b[74 + i / 8] >> i % 8 & 1 ? -q : q);
    }
}

/* iq3_xxs: float16 scale; 64 numbers of 8 bits, of 4 values each; for 32 values each 4 times 7 signs,
 * and a scale of 4 bits, (s + 1/2) / 2. Magnitudes are 4, 12 ... 52, 62. */
void decode_iq3_xxs(const uint8_t *b, float *x)
{
    float scale = half_of(half_word(b)) * 0.25f;
    for (int i = 0; i < 256; i++) {
        unsigned last = word(b + 66 + i / 32 * 4);
        unsigned signs = even_signs(last >> i / 8 % 4 * 7 & 127);
        int q = digit(grid_iq3_xxs, b[2 + i / 4], i % 4, 4);
        int magnitude = q < 7 ? 8 * q + 4 : 62;
        x[i] = scale * (float)(2 * (last >> 28) + 1) *
               (float)(signs >> i % 8 & 1 ? -magnitude : magnitude);
    }
}

/* iq2_xxs: float16 scale; for 32 values each 4 numbers of 8 bits, of 8 values each, 4 times 7 signs,
 * and a scale of 4 bits, (s + 1/2) / 4. */
void decode_iq2_xxs(const uint8_t *b, float *x)
{
    float scale = half_of(half_word(b)) * 0.125f;
    for (int i = 0; i < 256; i++) {
        const uint8_t *group = b + 2 + i / 32 * 8;
        unsigned last = word(group + 4), signs = even_signs(last >> i / 8 % 4 * 7 & 127);
        x[i] = scale * (float)(2 * (last >> 28) + 1) *
               magnitude2(grid_iq2_xxs, group[i / 8 % 4], i % 8, signs);
    }
}

/* iq2_xs: float16 scale; 32 numbers of 9 bits, of 8 values each, with 7 signs; 16 scales of 4 bits for
 * 16 values each, (s + 1/2) / 4. */
void decode_iq2_xs(const uint8_t *b, float *x)
{
    float scale = half_of(half_word(b)) * 0.125f;
    for (int i = 0; i < 256; i++) {
        unsigned number = half_word(b + 2 + i / 8 * 2);
        x[i] = scale * (float)(2 * nibble(b + 66, i / 16) + 1) *
               magnitude2(grid_iq2_xs, number & 511, i % 8, even_signs(number >> 9));
    }
}

/* iq2_s: float16 scale; 32 low bytes of numbers of 10 bits, of 8 values each; 256 signs; 32 times two
 * high bits; scales as iq2_xs. */
void decode_iq2_s(const uint8_t *b, float *x)
{
    float scale = half_of(half_word(b)) * 0.125f;
    for (int i = 0; i < 256; i++) {
        unsigned high = b[66 + i / 32] >> i / 8 % 4 * 2 & 3;
        x[i] = scale * (float)(2 * nibble(b + 74, i / 16) + 1) *
               magnitude2(grid_iq2_s, b[2 + i / 8] | high << 8, i % 8, b[34 + i / 8]);
    }
}

/* -1, 0 or 1 of an entry, and an eighth that is added, or with `less` subtracted; in eighths. */
static float shifted(unsigned n, int i, bool less)
{
    return (float)(8 * digit(grid_iq1_s, n, i, 2) - 8 + (less ? -1 : 1));
}

/* iq1_s: float16 scale; 32 low bytes of numbers of 11 bits, of 8 values each; for 32 values each 4
 * times three high bits, a scale of 3 bits, 2 s + 1, and whether an eighth is subtracted. */
void decode_iq1_s(const uint8_t *b, float *x)
{
    float scale = half_of(half_word(b)) * 0.125f;
    for (int i = 0; i < 256; i++) {
        unsigned group = half_word(b + 34 + i / 32 * 2);
        unsigned n = b[2 + i / 8] | (group >> i / 8 % 4 * 3 & 7) << 8;
        x[i] = scale * (float)(2 * (group >> 12 & 7) + 1) * shifted(n, i % 8, group >> 15 != 0);
    }
}

uint16_t block_scale_iq1_m(const uint8_t *b)
{
    unsigned bits = 0;
    for (unsigned i = 0; i < 4; i++)
        bits |= (unsigned)(b[49 + 2 * i] >> 4) << 4 * i;
    return (uint16_t)bits;
}

/* iq1_m: 32 low bytes of numbers of 11 bits, of 8 values each; 32 nibbles, three high bits and whether
 * an eighth is subtracted; four words with 4 scales of 3 bits each, 2 s + 1, for 16 values, and 4 bits
 * of the float16 scale of those. */
void decode_iq1_m(const uint8_t *b, float *x)
{
    float scale = half_of(block_scale_iq1_m(b)) * 0.125f;
    for (int i = 0; i < 256; i++) {
        int high = nibble(b + 32, i / 8);
        unsigned s = half_word(b + 48 + i / 64 * 2) >> i / 16 % 4 * 3 & 7;
        x[i] = scale * (float)(2 * s + 1) *
               shifted(b[i / 8] | (unsigned)(high & 7) << 8, i % 8, high >= 8);
    }
}

const uint32_t *block_grid(enum vka_dtype dtype)
{
    static const uint32_t *const grids[] = {
        [VKA_IQ3_S] = grid_iq3_s,   [VKA_IQ3_XXS] = grid_iq3_xxs, [VKA_IQ2_XXS] = grid_iq2_xxs,
        [VKA_IQ2_XS] = grid_iq2_xs, [VKA_IQ2_S] = grid_iq2_s,     [VKA_IQ1_S] = grid_iq1_s,
        [VKA_IQ1_M] = grid_iq1_s,
    };
    return HAS_GRID(dtype) ? grids[dtype] : NULL;
}
