/* Case files, version 1: one attention problem with its expected answer, in a safetensors file.
 * SPDX-License-Identifier: MIT
 *
 * case_open refuses everything that is not exactly as the format says, so an open case needs no
 * further check of shapes or types. A refusal is VKA_IO (or VKA_OUT_OF_HOST_MEMORY) and one
 * sentence in error[VKA_IO_ERROR_SIZE] that names the file, the tensor or key, and what was
 * expected. */
#ifndef CASE_H
#define CASE_H

#include "contents.h"

/* Opens a case, or parses one in memory. The memory must outlive the object; path is then only used
 * in sentences. */
enum vka_status case_open(const char *path, char *error, struct case_file **c);
enum vka_status case_parse(const char *path, const void *data, size_t size, char *error,
                           struct case_file **c);

/* Opens a weight file: q_proj, k_proj, v_proj and optionally o_proj, or out_proj. Other tensors are
 * refused, but for those that a case file has besides. A `config` in the metadata is read as strictly
 * as that of a case, but every key is optional. Only the arrays of the projections and config are
 * filled in. */
enum vka_status case_open_layer(const char *path, char *error, struct case_file **c);

void case_close(struct case_file **c);

#endif
