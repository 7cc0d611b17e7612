/* How byte-level BPE splits a text into words, by a name: the rows of splits.def.
 * SPDX-License-Identifier: MIT */
#ifndef TEXT_SPLITS_H
#define TEXT_SPLITS_H

#include "pattern.h"

enum { SPLITS_MOST = 6 };

struct splits {
    bool normalised;  /* texts are wanted in the normal form C */
    bool whole_words; /* a word that is a token is that one, whatever the merges */
    bool adds_bos;    /* where no key says it */
    size_t n;
    struct pattern patterns[SPLITS_MOST]; /* each cuts what the one before left */
};

/* NULL: there is none of this name, of n bytes, or no memory, for which *known is true. */
struct splits *splits_of(const char *name, size_t n, bool *known);

/* Writes where the words of n code points end, at most n of them, and how many; false: no memory. */
bool splits_cut(const struct splits *splits, const uint32_t *points, size_t n, size_t *ends,
                size_t *n_word);

#endif
