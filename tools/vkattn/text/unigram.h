/* Ids by scores of tokens. SPDX-License-Identifier: MIT */
#ifndef TEXT_UNIGRAM_H
#define TEXT_UNIGRAM_H

#include "kinds.h"

/* What a file says beyond the vocabulary. */
enum vka_status unigram_read(struct text *t, const char *path, char *why);
void unigram_encode(const struct text *t, const struct letters *letters, struct list *list);

#endif
