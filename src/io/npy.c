/* The npy reader and writer. SPDX-License-Identifier: MIT
 *
 * A file is "\x93NUMPY", two version bytes, the header length (u16 in version 1, u32 in 2 and 3,
 * little-endian), the header, and the elements without any gap.
 */
#include "io/file.h"
#include "io/npy_header.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC "\x93NUMPY"
#define MAGIC_SIZE 6
#define DATA_ALIGNMENT 64 /* of the elements in the files that we write, as numpy does */
/* Three keys, eight axes of 20 digits and the padding are below 400 bytes. */
#define HEADER_SIZE_MAX 512

struct vka_npy {
    struct vka_io_map map; /* empty if the caller owns the bytes */
    void *owned;           /* the elements in C order, if the file has them in Fortran order */
    struct vka_io_array array;
};

/* Finds the header: *offset is where it begins, *length its bytes. The elements follow it. */
static enum vka_status split(const char *path, const unsigned char *data, size_t size, char *error,
                             size_t *offset, size_t *length)
{
    if (size < MAGIC_SIZE + 2 || memcmp(data, MAGIC, MAGIC_SIZE) != 0)
        return vka_io_fail(error, VKA_IO, path, "not a npy file");
    if (data[6] < 1 || data[6] > 3 || data[7] != 0)
        return vka_io_fail(error, VKA_IO, path, "npy version %d.%d is not supported", data[6],
                           data[7]);
    *offset = data[6] == 1 ? 10 : 12;
    if (size < *offset)
        return vka_io_fail(error, VKA_IO, path, "the file ends within the header length");
    *length = (size_t)vka_io_little(data + MAGIC_SIZE + 2, *offset - MAGIC_SIZE - 2);
    if (*length > size - *offset)
        return vka_io_fail(error, VKA_IO, path, "the header length %zu exceeds the file", *length);
    return VKA_OK;
}

/* Copies from[], whose first axis is contiguous, to to[], whose last axis is. */
static void reorder(const struct vka_io_array *array, const char *from, char *to)
{
    const size_t element = vka_io_dtype_size(array->dtype);
    size_t stride[VKA_IO_MAX_RANK]; /* bytes in from */
    uint64_t index[VKA_IO_MAX_RANK] = {0};
    size_t next = element;

    for (uint32_t i = 0; i < array->rank; i++) {
        stride[i] = next;
        next *= (size_t)array->shape[i];
    }
    for (size_t done = 0; done < array->size; done += element) {
        memcpy(to + done, from, element);
        for (uint32_t axis = array->rank; axis-- > 0;) {
            from += stride[axis];
            if (++index[axis] < array->shape[axis])
                break;
            from -= stride[axis] * (size_t)array->shape[axis];
            index[axis] = 0;
        }
    }
}

/* Checks the bytes of the elements against the shape, and sets the array's data. */
static enum vka_status take_data(struct vka_npy *file, const char *path, const char *data,
                                 size_t size, bool fortran_order, char *error)
{
    struct vka_io_array *array = &file->array;

    if (!vka_io_array_bytes(array->dtype, array->rank, array->shape, &array->size))
        return vka_io_fail(error, VKA_IO, path, "the shape overflows");
    if (array->size != size)
        return vka_io_fail(error, VKA_IO, path,
                           "%zu bytes follow the header, but its shape needs %zu", size,
                           array->size);
    array->data = data;
    array->type = vka_io_dtype_name(array->dtype);
    if (!fortran_order || array->rank < 2 || size == 0)
        return VKA_OK;
    file->owned = malloc(size);
    if (!file->owned)
        return vka_io_fail(error, VKA_OUT_OF_HOST_MEMORY, path, "out of memory");
    reorder(array, data, file->owned);
    array->data = file->owned;
    return VKA_OK;
}

enum vka_status vka_npy_parse(const char *path, const void *data, size_t size, char *error,
                              struct vka_npy **file)
{
    struct vka_npy_header header;
    struct vka_npy *made;
    size_t offset = 0, length = 0;
    enum vka_status status;
    const char *wrong;

    if (!file)
        return vka_io_fail(error, VKA_INVALID, path, "the out-parameter file is NULL");
    *file = NULL;
    status = vka_io_data_check(path, data, size, error);
    if (status)
        return status;
    status = split(path, data, size, error, &offset, &length);
    if (status)
        return status;
    wrong = vka_npy_header_parse((const char *)data + offset, length, &header);
    if (wrong)
        return vka_io_fail(error, VKA_IO, path, "the header %s", wrong);
    made = calloc(1, sizeof *made);
    if (!made)
        return vka_io_fail(error, VKA_OUT_OF_HOST_MEMORY, path, "out of memory");
    made->array = (struct vka_io_array){.dtype = header.dtype, .rank = header.rank};
    memcpy(made->array.shape, header.shape, sizeof header.shape);
    offset += length;
    status = take_data(made, path, (const char *)data + offset, size - offset, header.fortran_order,
                       error);
    if (status)
        vka_npy_close(&made);
    *file = made;
    return status;
}

enum vka_status vka_npy_open(const char *path, char *error, struct vka_npy **file)
{
    struct vka_io_map map;
    enum vka_status status;

    if (file)
        *file = NULL;
    status = vka_io_map_open(&map, path, file, error);
    if (status)
        return status;
    status = vka_npy_parse(path, map.data, map.size, error, file);
    if (status || (*file)->owned)
        vka_io_map_close(&map);
    if (!status)
        (*file)->map = map;
    return status;
}

void vka_npy_close(struct vka_npy **file)
{
    if (!file || !*file)
        return;
    vka_io_map_close(&(*file)->map);
    free((*file)->owned);
    free(*file);
    *file = NULL;
}

const struct vka_io_array *vka_npy_array(const struct vka_npy *file)
{
    return file ? &file->array : NULL;
}

/* Prints magic, version, length and header to text; returns their bytes, a multiple of 64. */
static size_t print_header(const struct vka_io_array *array, char text[HEADER_SIZE_MAX])
{
    const size_t first = MAGIC_SIZE + 4;
    size_t used = first, padded;

    used += (size_t)snprintf(text + used, HEADER_SIZE_MAX - used,
                             "{'descr': '%s', 'fortran_order': False, 'shape': (",
                             vka_io_dtype_descr(array->dtype));
    for (uint32_t i = 0; i < array->rank; i++)
        used += (size_t)snprintf(text + used, HEADER_SIZE_MAX - used, "%s%" PRIu64 "%s",
                                 i ? ", " : "", array->shape[i], array->rank == 1 ? "," : "");
    used += (size_t)snprintf(text + used, HEADER_SIZE_MAX - used, "), }");
    padded = (used + 1 + DATA_ALIGNMENT - 1) / DATA_ALIGNMENT * DATA_ALIGNMENT;
    memset(text + used, ' ', padded - used);
    text[padded - 1] = '\n';
    memcpy(text, MAGIC "\x01", MAGIC_SIZE + 2); /* the terminating 0 is the minor version */
    text[MAGIC_SIZE + 2] = (char)((padded - first) & 0xff);
    text[MAGIC_SIZE + 3] = (char)((padded - first) >> 8);
    return padded;
}

enum vka_status vka_npy_write(const char *path, const struct vka_io_array *array, char *error)
{
    char header[HEADER_SIZE_MAX];
    enum vka_status status;

    if (!path || !array)
        return vka_io_fail(error, VKA_INVALID, path, "path or array is NULL");
    status = vka_io_array_check(array, path, error);
    if (status)
        return status;
    if (!vka_io_dtype_descr(array->dtype))
        return vka_io_fail(error, VKA_INVALID, path, "npy has no type for %s",
                           vka_io_dtype_name(array->dtype));
    return vka_io_replace(path,
                          (const struct vka_io_extent[]){{header, print_header(array, header)},
                                                         {array->data, array->size}},
                          2, error);
}
