/* What the readers and writers of vkattn_io share: sentences, sizes. */
#ifndef VKA_IO_IO_H
#define VKA_IO_IO_H

#include "core/format.h"

#include <vkattn/vkattn_io.h>

/* Formats a name in a sentence, cut: names come from files and may be megabytes long. */
#define VKA_IO_NAME "%.100s"

/* Writes "path: sentence" to error[VKA_IO_ERROR_SIZE] and returns status. error and path may be
 * NULL. Control characters and invalid UTF-8, which names in files may hold, become '?'. */
enum vka_status vka_io_fail(char *error, enum vka_status status, const char *path,
                            const char *format, ...) FORMAT_PRINTF(4, 5);

/* Writes the sentence of a system call that failed: "path: cannot VERB: text of errno". */
enum vka_status vka_io_fail_errno(char *error, const char *path, const char *verb);

/* Bytes of the UTF-8 character at the beginning of text[size], size at least 1; 0 if it is invalid:
 * incomplete, overlong, a surrogate, or above U+10FFFF. Never reads past a terminating 0, so the
 * size of a text that has one may be SIZE_MAX. */
size_t vka_io_utf8_length(const char *text, size_t size);

bool vka_io_is_utf8(const char *text, size_t size);

/* An unsigned number in bytes[size], little-endian; size is at most 8. */
uint64_t vka_io_little(const void *bytes, size_t size);

/* Makes room for one more item after `count` of them. The room is always the smallest power of two
 * that holds them, so it need not be stored. False if there is no memory. */
bool vka_io_make_room(void **items, size_t count, size_t size);

/* The type with this safetensors name or npy descr; VKA_IO_DTYPE_COUNT if there is none. */
enum vka_io_dtype vka_io_dtype_named(const char *name);
enum vka_io_dtype vka_io_dtype_described(const char *descr, size_t length);

/* The npy descr of a type; NULL if it has none. */
const char *vka_io_dtype_descr(enum vka_io_dtype dtype);

/* Bytes of an array of a known type. False if they exceed PTRDIFF_MAX, or would without the axes of
 * length 0; so every stride fits too. */
bool vka_io_array_bytes(enum vka_io_dtype dtype, uint32_t rank, const uint64_t *shape,
                        size_t *bytes);

/* Whether a writer can write the array; if not, INVALID, and the sentence says why. */
enum vka_status vka_io_array_check(const struct vka_io_array *array, const char *path, char *error);

/* Whether a reader can be given these bytes; if not, INVALID, and the sentence says why. */
enum vka_status vka_io_data_check(const char *path, const void *data, size_t size, char *error);

#endif
