/* How a folder of sentence-transformers makes a vector of rows. SPDX-License-Identifier: MIT */
#ifndef EMBED_POOLING_H
#define EMBED_POOLING_H

#include "source.h"

/* Reads modules.json of a folder, where it has one, into source->first_row. What it says and this does
 * not compute is refused. */
enum vka_status pooling_read(struct source *source, const char *folder);

#endif
