/* The word that a misspelt one was meant to be. SPDX-License-Identifier: MIT */
#ifndef TOOLS_NEAREST_H
#define TOOLS_NEAREST_H

#include <stddef.h>

/* Compares words of up to 31 bytes: begin with {.word = word}, offer each known word, then read best,
 * which is NULL where none is near: a third of the word may differ. */
struct nearest {
    const char *word, *best;
    size_t distance; /* of best */
};

void nearest_offer(struct nearest *n, const char *known);

#endif
