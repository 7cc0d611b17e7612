/* The sentences of refusals, for the files of this folder. SPDX-License-Identifier: MIT */
#ifndef CASE_REFUSE_H
#define CASE_REFUSE_H

#include "core/format.h"

#include <vkattn/vkattn_io.h>

/* For refusals: the file to name, and the caller's room for the sentence (NULL: none wanted). */
struct case_where {
    const char *path;
    char *error;
};

/* Writes "PATH: " and the rest to the sentence, as a single line even if names in the file hold
 * newlines. Returns VKA_IO. */
FORMAT_PRINTF(2, 3)
enum vka_status case_refuse(const struct case_where *at, const char *format, ...);

/* Writes the sentence of a lack of memory; returns VKA_OUT_OF_HOST_MEMORY. */
enum vka_status case_no_memory(const struct case_where *at);

#endif
