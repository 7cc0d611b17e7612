/* BERT's WordPiece: a text becomes words, a word the longest tokens that it begins with.
 * SPDX-License-Identifier: MIT */
#include "words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_LETTERS 100 /* of a word that is not unknown */

/* A word that grows, and where its ids go. */
struct word {
    const struct text *text;
    struct list *list;
    char bytes[4 * MOST_LETTERS];
    size_t starts[MOST_LETTERS + 1], n; /* letters; more than MOST_LETTERS: too many */
};

/* The token of letters first .. end - 1; -1: none. */
static int32_t token_of(const struct word *w, size_t first, size_t end)
{
    char written[8 + sizeof w->bytes];
    const char *before = first ? w->text->goes_on : w->text->begins;
    size_t n = strlen(before), size = w->starts[end] - w->starts[first];
    memcpy(written, before, n);
    memcpy(written + n, w->bytes + w->starts[first], size);
    return vocabulary_find(&w->text->vocabulary, written, n + size);
}

static void end_word(struct word *w)
{
    size_t begin = w->list->n, at = 0;
    bool known = w->n <= MOST_LETTERS;
    while (known && at < w->n) {
        size_t end = w->n;
        int32_t id = token_of(w, at, end);
        while (id < 0 && end > at + 1)
            id = token_of(w, at, --end);
        known = id >= 0;
        list_push(w->list, id);
        at = end;
    }
    if (!known) {
        w->list->n = begin;
        list_push(w->list, w->text->unknown);
    }
    w->n = 0;
}

static void add_letter(struct word *w, uint32_t c)
{
    if (w->n < MOST_LETTERS) {
        size_t start = w->n ? w->starts[w->n] : 0;
        w->starts[w->n] = start;
        w->starts[w->n + 1] = start + letters_write(c, w->bytes + start);
    }
    w->n += w->n <= MOST_LETTERS;
}

/* Ideographs are words, one each. */
static bool is_chinese(uint32_t c)
{
    static const uint32_t ranges[][2] = {
        {0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},   {0x20000, 0x2a6df},
        {0x2a700, 0x2b81f}, {0x2b920, 0x2ceaf}, {0x2f800, 0x2fa1f},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i][0] && c <= ranges[i][1])
            return true;
    return false;
}

static bool is_mark(uint32_t c)
{
    bool plain = c <= ' ' || c > '~' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
                 (c >= 'a' && c <= 'z');
    return !plain || letters_punctuation(c);
}

/* Adds what a letter is to the words; marks are words, one each. */
static void add(struct word *w, uint32_t c)
{
    bool alone = is_mark(c) || is_chinese(c);
    if (alone && w->n)
        end_word(w);
    add_letter(w, c);
    if (alone)
        end_word(w);
}

enum vka_status words_encode(const struct text *t, const struct letters *letters, struct list *list,
                             char *why)
{
    struct word word = {.text = t, .list = list};
    uint32_t before = 0;
    for (size_t i = 0; i < letters->n; i++) {
        uint32_t c = letters->points[i], to[3] = {c};
        bool space = c == '\t' || c == '\n' || c == '\r';
        if (!space && (!c || c == 0xfffd || letters_control(c)))
            continue;
        bool ends = space || letters_space(c) || is_chinese(c);
        if (ends && word.n)
            end_word(&word);
        size_t n = space || letters_space(c) ? 0 : t->lowercase ? letters_stripped(c, to) : 1;
        if (n && t->lowercase && letters_ordered(to[0]) && letters_ordered(before)) {
            snprintf(why, VKA_IO_ERROR_SIZE,
                     "the text has U+%04X behind another mark, whose order is not known here; "
                     "give --ids",
                     (unsigned)c);
            return VKA_UNSUPPORTED;
        }
        for (size_t k = 0; k < n; k++)
            add(&word, t->lowercase ? letters_small(to[k]) : to[k]);
        if (ends && word.n)
            end_word(&word);
        before = n ? to[n - 1] : ends ? 0 : before;
    }
    if (word.n)
        end_word(&word);
    return VKA_OK;
}

/* Whether a token that begins a word has a capital letter. */
static bool has_capital(const struct text *t, const struct token *token)
{
    size_t at = strlen(t->begins);
    uint32_t c;
    if (token->size < at || memcmp(token->text, t->begins, at) != 0)
        return false;
    while (at < token->size && letters_read(token->text, token->size, &at, &c))
        if (letters_small(c) != c)
            return true;
    return false;
}

enum vka_status words_read(struct text *t, const char *path, char *why)
{
    const struct vocabulary *v = &t->vocabulary;
    bool cased = false;
    t->begins = TEXT_SPACE;
    t->goes_on = "";
    for (uint32_t i = 0; i < v->n && !cased; i++)
        cased = has_capital(t, &v->tokens[i]);
    t->lowercase = text_flag(t, "normalizer.lowercase", !cased);
    t->unknown = text_id(t, "unknown_token_id");
    if (t->unknown < 0)
        t->unknown = vocabulary_find(v, "[UNK]", 5);
    if (t->unknown >= 0)
        return VKA_OK;
    snprintf(why, VKA_IO_ERROR_SIZE, "%.400s: expected tokenizer.ggml.unknown_token_id", path);
    return VKA_INVALID;
}
