/* Small letters, and letters without accents. SPDX-License-Identifier: MIT */
#include "letters.h"

#define COUNTOF(array) (sizeof(array) / sizeof(array)[0])

/* Every step-th letter from first to last has its small one `behind` it. */
struct small {
    uint32_t first, last, step;
    int32_t behind;
};

struct single {
    uint32_t letter, to;
};

struct several {
    uint32_t letter, to[3]; /* 0: none */
};

#define S(a, b, n, d) {a, b, n, d},
#define SMALL
static const struct small small_rows[] = {
#include "folds.inc"
};
#undef SMALL
#define P(c, a) {c, a},
#define SINGLE
static const struct single single_rows[] = {
#include "folds.inc"
};
#undef SINGLE
#undef P
#define P(c, a, b, d) {c, {a, b, d}},
#define SEVERAL
static const struct several several_rows[] = {
#include "folds.inc"
};
#undef SEVERAL

#define HANGUL_FIRST 0xac00u
#define HANGUL_LAST 0xd7a3u

uint32_t letters_small(uint32_t c)
{
    size_t low = 0, high = COUNTOF(small_rows);
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (small_rows[middle].last < c)
            low = middle + 1;
        else
            high = middle;
    }
    const struct small *row = &small_rows[low];
    bool has = low < COUNTOF(small_rows) && row->first <= c && (c - row->first) % row->step == 0;
    return has ? (uint32_t)((int32_t)c + row->behind) : c;
}

/* A syllable of Hangul is two or three letters: 28 endings for each of 21 vowels. */
static size_t split_hangul(uint32_t c, uint32_t to[3])
{
    uint32_t index = c - HANGUL_FIRST;
    to[0] = 0x1100 + index / (21 * 28);
    to[1] = 0x1161 + index / 28 % 21;
    to[2] = 0x11a7 + index % 28;
    return index % 28 ? 3 : 2;
}

size_t letters_stripped(uint32_t c, uint32_t to[3])
{
    if (c >= HANGUL_FIRST && c <= HANGUL_LAST)
        return split_hangul(c, to);
    for (size_t i = 0; i < COUNTOF(several_rows); i++) {
        if (several_rows[i].letter != c)
            continue;
        size_t n = 0;
        for (; n < 3 && several_rows[i].to[n]; n++)
            to[n] = several_rows[i].to[n];
        return n;
    }
    size_t low = 0, high = COUNTOF(single_rows);
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (single_rows[middle].letter < c)
            low = middle + 1;
        else
            high = middle;
    }
    bool has = low < COUNTOF(single_rows) && single_rows[low].letter == c;
    to[0] = has ? single_rows[low].to : c;
    return !letters_mark(c);
}
