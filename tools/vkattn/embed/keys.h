/* Keys of config.json and of a GGUF file that nothing here reads. SPDX-License-Identifier: MIT */
#ifndef EMBED_KEYS_H
#define EMBED_KEYS_H

#include "source.h"

/* Refuse keys of the metadata that nothing reads, unless they are known to be without effect. */
enum vka_status keys_check_config(const struct source *source);
enum vka_status keys_check_gguf(const struct source *source);

#endif
