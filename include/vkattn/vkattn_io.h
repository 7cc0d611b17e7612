/* vkattn_io: strict readers and writers of safetensors and npy files. SPDX-License-Identifier: MIT
 *
 * Files are not trusted: every size is checked against the file before anything is allocated, and
 * whatever is not exactly as the format says is VKA_IO (the file) or VKA_INVALID (an argument).
 * Functions that fail write one sentence to error, an array of VKA_IO_ERROR_SIZE characters or
 * NULL; it names the file and, where there is one, the tensor. It is one line whatever the file
 * holds. An argument that is NULL and may not be is VKA_INVALID; VKA_OUT_OF_HOST_MEMORY everywhere.
 * Needs no Vulkan. Any thread.
 *
 * Open files are mapped: one that another program shortens meanwhile faults when it is read. The
 * writers here never do that to a reader; they put a new file, of the old one's permissions, in the
 * place of the old one, or of the link to it.
 */
#ifndef VKATTN_IO_H
#define VKATTN_IO_H

#include <vkattn/vkattn.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VKA_IO_ERROR_SIZE 512
#define VKA_IO_MAX_RANK 8

/* Element types of files; a superset of enum vka_dtype. */
enum vka_io_dtype {
    VKA_IO_F32 = 0,
    VKA_IO_F16,
    VKA_IO_BF16,
    VKA_IO_F64,
    VKA_IO_BOOL,
    VKA_IO_U8,
    VKA_IO_I8,
    VKA_IO_U16,
    VKA_IO_I16,
    VKA_IO_U32,
    VKA_IO_I32,
    VKA_IO_U64,
    VKA_IO_I64,
    VKA_IO_DTYPE_COUNT
};

/* Bytes of an element; 0 for an unknown type. */
VKA_API size_t vka_io_dtype_size(enum vka_io_dtype dtype);

/* As safetensors spells it: "F32", "BOOL", ...; "?" for an unknown type. */
VKA_API const char *vka_io_dtype_name(enum vka_io_dtype dtype);

/* A dense little-endian array in row-major order. An axis may have length 0: no bytes then. Bytes,
 * also without the axes of length 0, stay within PTRDIFF_MAX. */
struct vka_io_array {
    const char *name; /* npy: NULL */
    enum vka_io_dtype dtype;
    uint32_t rank; /* 0: a scalar */
    uint64_t shape[VKA_IO_MAX_RANK];
    const void *data; /* aligned to nothing: use memcpy */
    size_t size;      /* bytes */
};

struct vka_io_metadata {
    const char *key, *value;
};

/* ---- safetensors ----------------------------------------------------------------------------- */

struct vka_safetensors; /* an open file, mapped; its arrays point into the mapping */

VKA_API enum vka_status vka_safetensors_open(const char *path, char *error,
                                             struct vka_safetensors **file);

/* The same over bytes in memory, which must outlive the object; path only names it in errors. */
VKA_API enum vka_status vka_safetensors_parse(const char *path, const void *data, size_t size,
                                              char *error, struct vka_safetensors **file);
VKA_API void vka_safetensors_close(struct vka_safetensors **file);

/* Arrays in the order of their data, empty ones before what begins where they do and by name. NULL
 * past the end, or where there is no such name. They live as long as the file. */
VKA_API size_t vka_safetensors_count(const struct vka_safetensors *file);
VKA_API const struct vka_io_array *vka_safetensors_at(const struct vka_safetensors *file,
                                                      size_t index);
VKA_API const struct vka_io_array *vka_safetensors_find(const struct vka_safetensors *file,
                                                        const char *name);

/* The value of a __metadata__ key; NULL where there is none. */
VKA_API const char *vka_safetensors_metadata(const struct vka_safetensors *file, const char *key);

/* Writes the arrays in this order, beside path, and renames: path is whole or untouched. Names and
 * metadata are UTF-8, no name twice, none "__metadata__". Only a regular file is replaced. */
VKA_API enum vka_status vka_safetensors_write(const char *path, const struct vka_io_array *arrays,
                                              size_t count, const struct vka_io_metadata *metadata,
                                              size_t metadata_count, char *error);

/* ---- npy ------------------------------------------------------------------------------------- */

/* An open file of version 1, 2 or 3, little-endian, its one array in C order: from Fortran's order
 * it is copied. Objects, strings, complex numbers and records are not supported (VKA_IO). */
struct vka_npy;

VKA_API enum vka_status vka_npy_open(const char *path, char *error, struct vka_npy **file);
VKA_API enum vka_status vka_npy_parse(const char *path, const void *data, size_t size, char *error,
                                      struct vka_npy **file);
VKA_API void vka_npy_close(struct vka_npy **file);
VKA_API const struct vka_io_array *vka_npy_array(const struct vka_npy *file);

/* Writes version 1.0 beside path and renames. BF16 has no npy type: INVALID. */
VKA_API enum vka_status vka_npy_write(const char *path, const struct vka_io_array *array,
                                      char *error);

/* ---- Other files ----------------------------------------------------------------------------- */

/* Writes size bytes, of a pipeline cache say, beside path and renames. */
VKA_API enum vka_status vka_file_write(const char *path, const void *data, size_t size,
                                       char *error);

#ifdef __cplusplus
}
#endif
#endif
