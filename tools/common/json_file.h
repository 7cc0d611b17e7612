/* Files of JSON of a model's folder. SPDX-License-Identifier: MIT */
#ifndef TOOLS_JSON_FILE_H
#define TOOLS_JSON_FILE_H

#include <jansson.h>
#include <vkattn/vkattn_io.h>

/* The bytes of a regular file of 1 to `most` bytes with a NUL behind, which the caller frees. NULL with
 * IO and a sentence that names the file. */
enum vka_status file_read_whole(const char *path, size_t most, char **bytes, size_t *size,
                                char why[VKA_IO_ERROR_SIZE]);

/* The object or array of a file of up to 64 MiB, which the caller releases; *value NULL with IO or
 * INVALID and a sentence that names the file. */
enum vka_status json_file_read(const char *path, json_t **value, char why[VKA_IO_ERROR_SIZE]);

/* The same, and OK with *value NULL where no file has the name. */
enum vka_status json_file_read_if_there(const char *path, json_t **value,
                                        char why[VKA_IO_ERROR_SIZE]);

#endif
