/* Code points: UTF-8, classes, words. SPDX-License-Identifier: MIT */
#include "letters.h"

struct range {
    uint32_t first, last;
};

#define R(a, b) {a, b},
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
#define MARK
static const struct range mark_ranges[] = {
#include "unicode.inc"
};
#undef MARK

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
    return low < n && ranges[low].first <= c;
}

bool letters_letter(uint32_t c)
{
    return within(letter_ranges, COUNTOF(letter_ranges), c);
}

bool letters_number(uint32_t c)
{
    return within(number_ranges, COUNTOF(number_ranges), c);
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
    return within(mark_ranges, COUNTOF(mark_ranges), c);
}

bool letters_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
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

static bool newline(uint32_t c)
{
    return c == '\r' || c == '\n';
}

static bool other(uint32_t c)
{
    return !letters_space(c) && !letters_letter(c) && !letters_number(c);
}

/* Code points behind `at` that are of a class. */
static size_t run(const uint32_t *text, size_t n, size_t at, bool (*is)(uint32_t c))
{
    size_t end = at;
    while (end < n && is(text[end]))
        end++;
    return end - at;
}

static uint32_t lower(uint32_t c)
{
    return c == 0x17f ? 's' : c >= 'A' && c <= 'Z' ? c + 32 : c; /* the long s, too */
}

/* The length of 's, 't, 're, 've, 'm, 'll or 'd at `at`; 0: none. */
static size_t ending(const uint32_t *text, size_t n, size_t at, bool any_case)
{
    static const char *const endings[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    if (text[at] != '\'')
        return 0;
    for (size_t i = 0; i < COUNTOF(endings); i++) {
        size_t k = 0;
        while (endings[i][k] && at + 1 + k < n &&
               (any_case ? lower(text[at + 1 + k]) : text[at + 1 + k]) == (uint32_t)endings[i][k])
            k++;
        if (!endings[i][k])
            return k + 1;
    }
    return 0;
}

/* White space: up to its last newline where `lines`; else all but the last before a word. */
static size_t spaces(const uint32_t *text, size_t n, size_t at, bool lines)
{
    size_t count = run(text, n, at, letters_space);
    for (size_t i = count; lines && i > 0; i--)
        if (newline(text[at + i - 1]))
            return i;
    return at + count < n && count > 1 ? count - 1 : count;
}

static size_t gpt2_word(const uint32_t *text, size_t n, size_t at)
{
    static bool (*const classes[])(uint32_t c) = {letters_letter, letters_number, other};
    size_t length = ending(text, n, at, false);
    size_t before = text[at] == ' ';
    for (size_t i = 0; !length && i < COUNTOF(classes); i++) {
        size_t count = run(text, n, at + before, classes[i]);
        length = count ? before + count : 0;
    }
    return length ? length : spaces(text, n, at, false);
}

static size_t later_word(const uint32_t *text, size_t n, size_t at, size_t digits)
{
    uint32_t c = text[at];
    size_t length = ending(text, n, at, true);
    if (length)
        return length;
    size_t before = !newline(c) && !letters_letter(c) && !letters_number(c);
    size_t count = run(text, n, at + before, letters_letter);
    if (count)
        return before + count;
    count = run(text, n, at, letters_number);
    if (count)
        return count < digits ? count : digits;
    before = c == ' ';
    count = run(text, n, at + before, other);
    if (count)
        return before + count + run(text, n, at + before + count, newline);
    return spaces(text, n, at, true);
}

size_t letters_word_end(enum letters_split split, const uint32_t *text, size_t n, size_t at)
{
    if (split == SPLIT_LLAMA3 || split == SPLIT_QWEN2)
        return at + later_word(text, n, at, split == SPLIT_LLAMA3 ? 3 : 1);
    if (split == SPLIT_DIGITS) {
        if (letters_number(text[at]))
            return at + 1;
        size_t end = at;
        while (end < n && !letters_number(text[end]))
            end++;
        n = end; /* what follows is another text */
    }
    return at + gpt2_word(text, n, at);
}
