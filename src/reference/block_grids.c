/* Values of iq1, iq2 and iq3: where each field lies, as bits of the block. What grids hold is read from
 * the files that everything reads; tests/cases/quant and the tests of Python judge them.
 * SPDX-License-Identifier: MIT */
#include <reference/block_bits.h>
#include <reference/block_grids.h>

#include <math.h>

/* Two entries of 16 bits each a word. */
#define WORDS(a, b, c, d) a, b, c, d
static const uint32_t iq1_s[] = {
#include "grids/iq1_s.def"
};
static const uint32_t iq2_xxs[] = {
#include "grids/iq2_xxs.def"
};
static const uint32_t iq2_xs[] = {
#include "grids/iq2_xs.def"
};
static const uint32_t iq2_s[] = {
#include "grids/iq2_s.def"
};
static const uint32_t iq3_xxs[] = {
#include "grids/iq3_xxs.def"
};
static const uint32_t iq3_s[] = {
#include "grids/iq3_s.def"
};

/* Bits `first` .. of entry n. */
static unsigned of_entry(const uint32_t *grid, unsigned n, size_t first, unsigned count)
{
    unsigned entry = grid[n / 2] / (n % 2 ? 65536 : 1) % 65536;
    return entry >> first & ((1u << count) - 1);
}

static double with_sign(double magnitude, unsigned sign)
{
    return sign ? -magnitude : magnitude;
}

/* The sign of value i of 8, of which seven are stored from bit `first` on, and the last is theirs
 * multiplied. */
static unsigned sign_of_seven(const uint8_t *b, size_t first, size_t i)
{
    unsigned odd = 0;
    for (size_t j = 0; j < 7; j++)
        odd ^= bits(b, first + j, 1);
    return i == 7 ? odd : bits(b, first + i, 1);
}

/* In eighths of the scale. */
static double twos(const uint32_t *grid, unsigned n, size_t i)
{
    static const double magnitudes[] = {8, 25, 43, NAN};
    return magnitudes[of_entry(grid, n, 2 * (i % 8), 2)] / 8;
}

static double threes(enum vka_dtype dtype, const uint8_t *b, size_t i)
{
    size_t group = i / 32, four = i / 4;
    unsigned low = bits(b, 16 + 8 * four, 8);
    if (dtype == VKA_IQ3_S) {
        unsigned n = low + 256 * bits(b, 8 * 66 + four, 1);
        double scale = half(b, 0) * (1 + 2.0 * bits(b, 8 * 106 + 4 * group, 4));
        double magnitude = 1 + 2.0 * of_entry(iq3_s, n, 4 * (i % 4), 4);
        return scale * with_sign(magnitude, bits(b, 8 * 74 + i, 1));
    }
    static const double magnitudes[] = {4, 12, 20, 28, 36, 44, 52, 62};
    size_t last = 8 * 66 + 32 * group;
    double scale = half(b, 0) * (0.5 + bits(b, last + 28, 4)) * 0.5;
    double magnitude = magnitudes[of_entry(iq3_xxs, low, 4 * (i % 4), 3)];
    return scale * with_sign(magnitude, sign_of_seven(b, last + 7 * (i / 8 % 4), i % 8));
}

static double ones(enum vka_dtype dtype, const uint8_t *b, size_t i)
{
    size_t eight = i / 8, group = i / 32;
    double scale;
    unsigned n, less;
    if (dtype == VKA_IQ1_S) {
        size_t word = 8 * 34 + 16 * group;
        n = bits(b, 16 + 8 * eight, 8) + 256 * bits(b, word + 3 * (eight % 4), 3);
        less = bits(b, word + 15, 1);
        scale = half(b, 0) * (1 + 2.0 * bits(b, word + 12, 3));
    } else {
        unsigned d = 0;
        for (unsigned j = 0; j < 4; j++)
            d |= bits(b, 8 * 48 + 16 * j + 12, 4) << 4 * j;
        n = bits(b, 8 * eight, 8) + 256 * bits(b, 8 * 32 + 4 * eight, 3);
        less = bits(b, 8 * 32 + 4 * eight + 3, 1);
        scale = ref_from_f16((uint16_t)d) *
                (1 + 2.0 * bits(b, 8 * 48 + 16 * (i / 64) + 3 * (i / 16 % 4), 3));
    }
    return scale * ((double)of_entry(iq1_s, n, 2 * (i % 8), 2) - 1 + (less ? -0.125 : 0.125));
}

double ref_grid_value(enum vka_dtype dtype, const uint8_t *b, size_t i)
{
    size_t eight = i / 8, group = i / 32, sixteen = i / 16;
    if (dtype == VKA_IQ3_S || dtype == VKA_IQ3_XXS)
        return threes(dtype, b, i);
    if (dtype == VKA_IQ1_S || dtype == VKA_IQ1_M)
        return ones(dtype, b, i);
    if (dtype == VKA_IQ2_XXS) {
        size_t last = 16 + 64 * group + 32;
        double x = twos(iq2_xxs, bits(b, 16 + 64 * group + 8 * (eight % 4), 8), i);
        unsigned sign = sign_of_seven(b, last + 7 * (eight % 4), i % 8);
        return half(b, 0) * (1 + 2.0 * bits(b, last + 28, 4)) * with_sign(x, sign);
    }
    if (dtype == VKA_IQ2_XS) {
        double x = twos(iq2_xs, bits(b, 16 + 16 * eight, 9), i);
        double scale = half(b, 0) * (1 + 2.0 * bits(b, 8 * 66 + 4 * sixteen, 4));
        return scale * with_sign(x, sign_of_seven(b, 16 + 16 * eight + 9, i % 8));
    }
    if (dtype == VKA_IQ2_S) {
        unsigned n = bits(b, 16 + 8 * eight, 8) + 256 * bits(b, 8 * 66 + 2 * eight, 2);
        double scale = half(b, 0) * (1 + 2.0 * bits(b, 8 * 74 + 4 * sixteen, 4));
        return scale * with_sign(twos(iq2_s, n, i), bits(b, 8 * 34 + i, 1));
    }
    return NAN;
}
