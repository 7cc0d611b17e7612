/* How byte-level BPE splits a text into words. SPDX-License-Identifier: MIT */
#include "splits.h"
#include "letters.h"

#include <stdlib.h>
#include <string.h>

static const struct row {
    const char *names; /* each between spaces */
    bool normalised, whole_words, adds_bos;
    const char *patterns[SPLITS_MOST];
} rows[] = {
#define SPLIT(...) {__VA_ARGS__},
#include "splits.def"
#undef SPLIT
};

static bool is_named(const struct row *row, const char *name, size_t n)
{
    for (const char *at = row->names; *at; at += strcspn(at, " "), at += *at == ' ')
        if (strcspn(at, " ") == n && !memcmp(at, name, n))
            return true;
    return false;
}

struct splits *splits_of(const char *name, size_t n, bool *known)
{
    size_t i = 0;
    while (i < sizeof rows / sizeof *rows && !is_named(&rows[i], name, n))
        i++;
    *known = n && i < sizeof rows / sizeof *rows;
    struct splits *s = *known ? calloc(1, sizeof *s) : NULL;
    if (!s)
        return NULL;
    s->normalised = rows[i].normalised;
    s->whole_words = rows[i].whole_words;
    s->adds_bos = rows[i].adds_bos;
    for (; s->n < SPLITS_MOST && rows[i].patterns[s->n]; s->n++)
        if (!pattern_read(rows[i].patterns[s->n], &s->patterns[s->n])) {
            *known = false; /* a row that pattern.c cannot read, which a test would see */
            free(s);
            return NULL;
        }
    return s;
}

/* The words so far. */
struct words {
    size_t *ends, n;
};

/* Cuts a text from `begin` on by the patterns from `first` on: what fits one, and what is between. */
static void cut(const struct splits *s, size_t first, const struct pattern_text *text, size_t begin,
                struct words *words)
{
    if (first == s->n) {
        words->ends[words->n++] = text->n;
        return;
    }
    struct pattern_text slice = *text;
    size_t at = begin;
    while (at < text->n) {
        size_t n = pattern_match(&s->patterns[first], text, at);
        if (!n) {
            at++;
            continue;
        }
        slice.n = at;
        if (begin < at)
            cut(s, first + 1, &slice, begin, words);
        slice.n = at + n;
        cut(s, first + 1, &slice, at, words);
        begin = at += n;
    }
    if (begin < text->n)
        cut(s, first + 1, text, begin, words);
}

bool splits_cut(const struct splits *splits, const uint32_t *points, size_t n, size_t *ends,
                size_t *n_word)
{
    uint16_t *kinds = malloc((n + 1) * sizeof *kinds);
    struct words words = {ends, 0};
    if (!kinds)
        return false;
    for (size_t i = 0; i < n; i++)
        kinds[i] = (uint16_t)letters_kinds(points[i]);
    if (n)
        cut(splits, 0, &(struct pattern_text){points, kinds, n}, 0, &words);
    free(kinds);
    *n_word = words.n;
    return true;
}
