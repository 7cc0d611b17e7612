/* Code points: UTF-8, classes. SPDX-License-Identifier: MIT */
#include "letters.h"

struct range {
    uint32_t first, last, step;
};

#define R(a, b, step) {a, b, step},
#define LETTER
static const struct range letter_ranges[] = {
#include "unicode.inc"
};
#undef LETTER
#define NUMBER
static const struct range number_ranges[] = {
#include "unicode.inc"
};
#undef NUMBER
#define UNSTABLE
static const struct range unstable_ranges[] = {
#include "unicode.inc"
};
#undef UNSTABLE
#define PUNCTUATION
static const struct range punctuation_ranges[] = {
#include "unicode.inc"
};
#undef PUNCTUATION
#define CONTROL
static const struct range control_ranges[] = {
#include "unicode.inc"
};
#undef CONTROL
#define ORDERED
static const struct range ordered_ranges[] = {
#include "unicode.inc"
};
#undef ORDERED
#define SYMBOL
static const struct range symbol_ranges[] = {
#include "unicode.inc"
};
#undef SYMBOL
#define MARK
static const struct range mark_ranges[] = {
#include "unicode.inc"
};
#undef MARK
#define BARE_MARK
static const struct range bare_mark_ranges[] = {
#include "unicode.inc"
};
#undef BARE_MARK
#define UPPER
static const struct range upper_ranges[] = {
#include "unicode.inc"
};
#undef UPPER
#define LOWER
static const struct range lower_ranges[] = {
#include "unicode.inc"
};
#undef LOWER
#define TITLE
static const struct range title_ranges[] = {
#include "unicode.inc"
};
#undef TITLE
#define MODIFIER
static const struct range modifier_ranges[] = {
#include "unicode.inc"
};
#undef MODIFIER

#define COUNTOF(array) (sizeof(array) / sizeof(array)[0])

static bool within(const struct range *ranges, size_t n, uint32_t c)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges[middle].last < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && ranges[low].first <= c && (c - ranges[low].first) % ranges[low].step == 0;
}

bool letters_unstable(uint32_t c)
{
    return within(unstable_ranges, COUNTOF(unstable_ranges), c);
}

bool letters_punctuation(uint32_t c)
{
    return within(punctuation_ranges, COUNTOF(punctuation_ranges), c);
}

bool letters_control(uint32_t c)
{
    return within(control_ranges, COUNTOF(control_ranges), c);
}

bool letters_ordered(uint32_t c)
{
    return within(ordered_ranges, COUNTOF(ordered_ranges), c);
}

bool letters_mark(uint32_t c)
{
    return within(bare_mark_ranges, COUNTOF(bare_mark_ranges), c);
}

bool letters_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

unsigned letters_kinds(uint32_t c)
{
    static const struct {
        const struct range *ranges;
        size_t n;
        unsigned kind;
    } kinds[] = {
        {upper_ranges, COUNTOF(upper_ranges), KIND_UPPER},
        {lower_ranges, COUNTOF(lower_ranges), KIND_LOWER},
        {title_ranges, COUNTOF(title_ranges), KIND_TITLE},
        {modifier_ranges, COUNTOF(modifier_ranges), KIND_MODIFIER},
        {letter_ranges, COUNTOF(letter_ranges), KIND_OTHER_LETTER},
        {mark_ranges, COUNTOF(mark_ranges), KIND_MARK},
        {number_ranges, COUNTOF(number_ranges), KIND_NUMBER},
        {punctuation_ranges, COUNTOF(punctuation_ranges), KIND_PUNCTUATION},
        {symbol_ranges, COUNTOF(symbol_ranges), KIND_SYMBOL},
    };
    if (letters_space(c))
        return KIND_SPACE;
    for (size_t i = 0; i < COUNTOF(kinds); i++)
        if (within(kinds[i].ranges, kinds[i].n, c))
            return kinds[i].kind;
    return 0;
}

bool letters_read(const char *text, size_t size, size_t *at, uint32_t *c)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *b = (const unsigned char *)text + *at;
    size_t left = size - *at;
    size_t n = *b < 0x80 ? 1 : *b >= 0xc2 && *b < 0xe0 ? 2 : *b >= 0xe0 && *b < 0xf0 ? 3 : 4;
    if (left < n || (n == 4 && (*b < 0xf0 || *b > 0xf4)))
        return false;
    uint32_t value = n == 1 ? *b : *b & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((b[i] & 0xc0) != 0x80)
            return false;
        value = value << 6 | (b[i] & 0x3f);
    }
    if (value < least[n] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
        return false;
    *c = value;
    *at += n;
    return true;
}

size_t letters_write(uint32_t c, char *to)
{
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char marks[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n; i-- > 1; c >>= 6)
        to[i] = (char)(0x80 | (c & 0x3f));
    to[0] = (char)(marks[n] | c);
    return n;
}
