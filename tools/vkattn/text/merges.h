/* Ids by merges of neighbours. SPDX-License-Identifier: MIT */
#ifndef TEXT_MERGES_H
#define TEXT_MERGES_H

#include "kinds.h"

/* Pushes the ids of a text of one letter or more: by byte-level BPE, by SentencePiece's. */
void pairs_encode(const struct text *t, const struct letters *letters, struct list *list);
void scores_encode(const struct text *t, const struct letters *letters, struct list *list);

#endif
