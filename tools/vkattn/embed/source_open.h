/* Opens the files of a BERT, and refuses those whose metadata ask for what is not computed.
 * SPDX-License-Identifier: MIT */
#ifndef EMBED_SOURCE_OPEN_H
#define EMBED_SOURCE_OPEN_H

#include "source.h"

/* Opens what path names. On failure *why says it; source_close accepts what was opened. */
enum vka_status source_open(struct vka_device *device, const char *path, char *why,
                            struct source *source);

#endif
