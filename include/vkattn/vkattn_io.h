/* vkattn_io: strict readers and writers of safetensors and npy files. SPDX-License-Identifier: MIT
 *
 * Statuses. VKA_INVALID: an argument is wrong, or is NULL where that is not allowed. VKA_IO: a file
 * cannot be read or written, or breaks a rule of its format; files are not trusted, and every size
 * is checked against the file before anything is allocated. VKA_OUT_OF_HOST_MEMORY: any function
 * that allocates may return it. A function that fails writes one sentence to error, an array of
 * VKA_IO_ERROR_SIZE characters or NULL. The sentence names the file and, if there is one, the
 * tensor; it is a single line even if names in the file hold newlines. No function needs Vulkan.
 * All of them: any thread.
 *
 * Reading. Open files are mapped into memory: if another program shortens an open file, reading its
 * data crashes the process (SIGBUS).
 *
 * Writing. A file is written under another name beside its path and then renamed, so that path is
 * whole or untouched, and programs that have the old file open keep it. The new file has the
 * permissions of the old one. It replaces only a regular file, or the symbolic link to one.
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

/* Bytes of one element; 0 for an unknown type. */
VKA_API size_t vka_io_dtype_size(enum vka_io_dtype dtype);

/* The name in safetensors files: "F32", "BOOL", ...; "?" for an unknown type. */
VKA_API const char *vka_io_dtype_name(enum vka_io_dtype dtype);

/* A dense little-endian array in row-major order. An axis may have length 0; then the array has no
 * bytes. The product of the other axes and the element size is at most PTRDIFF_MAX even then. */
struct vka_io_array {
    const char *name; /* npy: NULL */
    enum vka_io_dtype dtype;
    uint32_t rank; /* 0: a scalar */
    uint64_t shape[VKA_IO_MAX_RANK];
    const void *data; /* may be unaligned: use memcpy */
    size_t size;      /* bytes */
};

struct vka_io_metadata {
    const char *key, *value;
};

/* ---- safetensors ----------------------------------------------------------------------------- */

struct vka_safetensors; /* an open file; its arrays point into the mapped file */

/* Opens a file; close it by vka_safetensors_close. IO; INVALID; OUT_OF_HOST_MEMORY. */
VKA_API enum vka_status vka_safetensors_open(const char *path, char *error,
                                             struct vka_safetensors **file);

/* The same for a file in memory. data must outlive the object; path is only used in sentences. */
VKA_API enum vka_status vka_safetensors_parse(const char *path, const void *data, size_t size,
                                              char *error, struct vka_safetensors **file);
VKA_API void vka_safetensors_close(struct vka_safetensors **file);

/* The number of arrays, the array at an index, and the array of a name; NULL past the end, or if
 * there is no such name. Arrays are in the order of their data in the file; empty arrays come
 * before the one that begins at the same place, in the order of their names. The pointers are valid
 * until the file is closed. */
VKA_API size_t vka_safetensors_count(const struct vka_safetensors *file);
VKA_API const struct vka_io_array *vka_safetensors_at(const struct vka_safetensors *file,
                                                      size_t index);
VKA_API const struct vka_io_array *vka_safetensors_find(const struct vka_safetensors *file,
                                                        const char *name);

/* The value of a key of __metadata__; NULL if there is no such key. Valid until the file is
 * closed. */
VKA_API const char *vka_safetensors_metadata(const struct vka_safetensors *file, const char *key);

/* Writes a file with the arrays in this order. Names and metadata must be UTF-8; names must differ
 * from each other and from "__metadata__". */
VKA_API enum vka_status vka_safetensors_write(const char *path, const struct vka_io_array *arrays,
                                              size_t count, const struct vka_io_metadata *metadata,
                                              size_t metadata_count, char *error);

/* ---- npy ------------------------------------------------------------------------------------- */

/* An open file of version 1, 2 or 3, little-endian. Its array is in C order; one in Fortran order
 * is copied. Objects, strings, complex numbers and records are not supported (VKA_IO). */
struct vka_npy;

/* As vka_safetensors_open, vka_safetensors_parse and vka_safetensors_close. The array is valid
 * until the file is closed. */
VKA_API enum vka_status vka_npy_open(const char *path, char *error, struct vka_npy **file);
VKA_API enum vka_status vka_npy_parse(const char *path, const void *data, size_t size, char *error,
                                      struct vka_npy **file);
VKA_API void vka_npy_close(struct vka_npy **file);
VKA_API const struct vka_io_array *vka_npy_array(const struct vka_npy *file);

/* Writes a file of version 1.0. BF16 has no npy type: INVALID. */
VKA_API enum vka_status vka_npy_write(const char *path, const struct vka_io_array *array,
                                      char *error);

/* ---- Other files ----------------------------------------------------------------------------- */

/* Writes any bytes, for example a pipeline cache, as a file that is whole or untouched. */
VKA_API enum vka_status vka_file_write(const char *path, const void *data, size_t size,
                                       char *error);

#ifdef __cplusplus
}
#endif
#endif
