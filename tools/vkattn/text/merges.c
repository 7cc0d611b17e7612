/* Texts by merges of neighbours: byte-level BPE, and SentencePiece's BPE.
 * SPDX-License-Identifier: MIT */
#include "merges.h"

#include <stdlib.h>

/* Merges what list holds from `first` on. */
static void join(const struct text *t, struct list *list, size_t first)
{
    size_t n = list->n - first;
    if (!n)
        return;
    list->failed |= !vocabulary_join(&t->vocabulary, list->ids + first, &n);
    list->n = first + n;
}

#define MOST_WRITTEN 4 /* bytes of a letter */

/* A word that byte-level BPE makes, as its letters are one token. -1: it is none. written: room for
 * the longest token and MOST_WRITTEN bytes. */
static int32_t whole_word(const struct text *t, const char *word, size_t size, char *written)
{
    size_t n = 0;
    for (size_t i = 0; i < size; i++) {
        if (n > t->vocabulary.longest)
            return -1;
        n += letters_write(text_letter_of_byte((unsigned char)word[i]), written + n);
    }
    return vocabulary_find(&t->vocabulary, written, n);
}

void pairs_encode(const struct text *t, const struct letters *l, struct list *list)
{
    size_t *ends = malloc((l->n + 1) * sizeof *ends), n = 0;
    char *written = malloc((size_t)t->vocabulary.longest + MOST_WRITTEN);
    list->failed |= !ends || !written || !splits_cut(t->splits, l->points, l->n, ends, &n);
    for (size_t i = 0, at = 0; i < n && !list->failed; at = ends[i++]) {
        const char *word = l->utf8 + l->starts[at];
        size_t size = l->starts[ends[i]] - l->starts[at], first = list->n;
        int32_t whole = t->splits->whole_words ? whole_word(t, word, size, written) : -1;
        if (whole >= 0) {
            list_push(list, whole);
            continue;
        }
        list_push_bytes(t, word, size, list);
        join(t, list, first);
    }
    free(ends);
    free(written);
}

/* A letter of SentencePiece: its token, else those of its bytes, else the unknown one, once. */
static void push_letter(const struct text *t, const char *letter, size_t size, struct list *list)
{
    int32_t id = vocabulary_find(&t->vocabulary, letter, size);
    bool bytes = id < 0;
    for (size_t i = 0; i < size; i++)
        bytes &= t->bytes[(unsigned char)letter[i]] >= 0;
    if (bytes)
        list_push_bytes(t, letter, size, list);
    else if (id >= 0)
        list_push(list, id);
    else if (t->unknown >= 0 && !(list->n && list->ids[list->n - 1] == t->unknown))
        list_push(list, t->unknown);
}

void scores_encode(const struct text *t, const struct letters *l, struct list *list)
{
    size_t first = list->n;
    if (t->prefix)
        push_letter(t, TEXT_SPACE, 3, list);
    for (size_t i = 0; i < l->n; i++) {
        const char *letter = l->utf8 + l->starts[i];
        size_t size = l->starts[i + 1] - l->starts[i];
        push_letter(t, *letter == ' ' ? TEXT_SPACE : letter, *letter == ' ' ? 3 : size, list);
    }
    join(t, list, first);
}
