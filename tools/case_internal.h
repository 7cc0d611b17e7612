/* Shared by the case*.c files alone. SPDX-License-Identifier: MIT */
#ifndef CASE_INTERNAL_H
#define CASE_INTERNAL_H

#include "case.h"

/* Where a refusal goes: the file it names and the caller's sentence (NULL: nobody asks). */
struct case_where {
    const char *path;
    char *error;
};

/* Writes "PATH: " and the rest to the sentence, on one line whatever the file's names hold. Returns
 * VKA_IO. */
__attribute__((format(printf, 2, 3))) enum vka_status case_refuse(const struct case_where *at,
                                                                  const char *format, ...);

/* The same for memory; returns VKA_OUT_OF_HOST_MEMORY. */
enum vka_status case_no_memory(const struct case_where *at);

/* Reads the config object. text NULL leaves the defaults. */
enum vka_status case_config_parse(const struct case_where *at, const char *text,
                                  struct case_config *config);

/* Fills the sizes of a case whose arrays are known to have the right types, and checks every shape
 * and every length against them. */
enum vka_status case_check_shapes(const struct case_where *at, struct case_file *c);

#endif
