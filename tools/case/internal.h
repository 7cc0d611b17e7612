/* For the case*.c files only. SPDX-License-Identifier: MIT */
#ifndef CASE_INTERNAL_H
#define CASE_INTERNAL_H

#include "case.h"

#include "core/format.h"

#include <jansson.h>

/* For refusals: the file to name, and the caller's room for the sentence (NULL: none wanted). */
struct case_where {
    const char *path;
    char *error;
};

/* Writes "PATH: " and the rest to the sentence, as a single line even if names in the file hold
 * newlines. Returns VKA_IO. */
FORMAT_PRINTF(2, 3)
enum vka_status case_refuse(const struct case_where *at, const char *format, ...);

/* The same for lack of memory; returns VKA_OUT_OF_HOST_MEMORY. */
enum vka_status case_no_memory(const struct case_where *at);

/* Reads the config object. text NULL: all defaults. */
enum vka_status case_config_parse(const struct case_where *at, const char *text,
                                  struct case_config *config);

/* Reads what a case of kind op has beside the metadata of all. */
enum vka_status case_read_op(const struct case_where *at, const char *config, struct case_file *c);

/* The same of an operation of ONNX, from the object of its config; `operation` is its name. */
enum vka_status case_read_onnx(const struct case_where *at, const char *operation,
                               const json_t *config, struct case_file *c);

/* Fills in the sizes of a case whose arrays have the right types, and checks every shape and every
 * length against them. */
enum vka_status case_check_shapes(const struct case_where *at, struct case_file *c);

#endif
