/* Ids by WordPiece. SPDX-License-Identifier: MIT */
#ifndef TEXT_WORDS_H
#define TEXT_WORDS_H

#include "kinds.h"

/* What a file says beyond the vocabulary. */
enum vka_status words_read(struct text *t, const char *path, char *why);
enum vka_status words_encode(const struct text *t, const struct letters *letters, struct list *list,
                             char *why);

#endif
