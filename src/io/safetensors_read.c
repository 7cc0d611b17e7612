/* The safetensors reader. SPDX-License-Identifier: MIT
 *
 * A file is a header length (u64, little-endian), a JSON header, and the data region. Offsets count
 * from the start of the data region; the arrays cover each byte of it exactly once.
 */
#include "io/file.h"
#include "io/safetensors_header.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct vka_safetensors {
    struct vka_io_map map;               /* empty if the caller owns the bytes */
    struct vka_io_header header;         /* arrays by offset, metadata by key */
    const struct vka_io_array **by_name; /* [header.count], by strcmp */
};

static enum vka_status split(struct vka_io_source *in, const char *data, size_t size)
{
    uint64_t length;

    if (size < VKA_IO_PREFIX_SIZE)
        return vka_io_fail(in->error, VKA_IO, in->path,
                           "%zu bytes are too few for a safetensors file", size);
    length = vka_io_little(data, VKA_IO_PREFIX_SIZE);
    if (length > VKA_IO_HEADER_SIZE_MAX || length > size - VKA_IO_PREFIX_SIZE)
        return vka_io_fail(in->error, VKA_IO, in->path,
                           "the header length %" PRIu64 " passes the end of the file or the "
                           "limit of %d bytes",
                           length, VKA_IO_HEADER_SIZE_MAX);
    in->header = data + VKA_IO_PREFIX_SIZE;
    in->header_size = (size_t)length;
    in->region = in->header + length;
    in->region_size = size - VKA_IO_PREFIX_SIZE - (size_t)length;
    while (in->header_size && in->header[in->header_size - 1] == ' ')
        in->header_size--;
    if (in->header_size < 2 || in->header[0] != '{' || in->header[in->header_size - 1] != '}')
        return vka_io_fail(in->error, VKA_IO, in->path,
                           "the header is not a JSON object between { and }");
    return VKA_OK;
}

/* Empty arrays come before the one that begins at the same place. */
static int compare_place(const void *left, const void *right)
{
    const struct vka_io_array *a = left, *b = right;

    if (a->data != b->data)
        return (const char *)a->data < (const char *)b->data ? -1 : 1;
    if (a->size != b->size)
        return a->size < b->size ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int compare_name(const void *left, const void *right)
{
    const struct vka_io_array *const *a = left, *const *b = right;

    return strcmp((*a)->name, (*b)->name);
}

/* Checks that the arrays follow each other from the first byte of the region to its last. */
static enum vka_status check_cover(const struct vka_io_source *in,
                                   const struct vka_io_header *header)
{
    const char *next = in->region;

    for (size_t i = 0; i < header->count; i++) {
        const struct vka_io_array *array = &header->arrays[i];

        if (array->data != next)
            return vka_io_fail(in->error, VKA_IO, in->path,
                               "tensor '" VKA_IO_NAME "' begins at byte %zu of the data where %zu "
                               "was expected",
                               array->name, (size_t)((const char *)array->data - in->region),
                               (size_t)(next - in->region));
        next += array->size;
    }
    if (next != in->region + in->region_size)
        return vka_io_fail(in->error, VKA_IO, in->path,
                           "the tensors take %zu of the %zu bytes of data",
                           (size_t)(next - in->region), in->region_size);
    return VKA_OK;
}

static int compare_key(const void *left, const void *right)
{
    const struct vka_io_metadata *a = left, *b = right;

    return strcmp(a->key, b->key);
}

/* Sorts the metadata; no key may occur twice. */
static enum vka_status sort_metadata(const struct vka_io_source *in, struct vka_io_header *header)
{
    struct vka_io_metadata *items = header->metadata;

    if (header->metadata_count)
        qsort(items, header->metadata_count, sizeof *items, compare_key);
    for (size_t i = 1; i < header->metadata_count; i++) {
        if (strcmp(items[i].key, items[i - 1].key) == 0)
            return vka_io_fail(in->error, VKA_IO, in->path,
                               VKA_IO_METADATA " '" VKA_IO_NAME "' occurs twice", items[i].key);
    }
    return VKA_OK;
}

/* Sorts the arrays by place and by name; no name may occur twice. */
static enum vka_status sort_arrays(const struct vka_io_source *in, struct vka_safetensors *file)
{
    const size_t count = file->header.count;

    if (!count)
        return VKA_OK;
    file->by_name = malloc(count * sizeof *file->by_name);
    if (!file->by_name)
        return vka_io_fail(in->error, VKA_OUT_OF_HOST_MEMORY, in->path, "out of memory");
    qsort(file->header.arrays, count, sizeof *file->header.arrays, compare_place);
    for (size_t i = 0; i < count; i++)
        file->by_name[i] = &file->header.arrays[i];
    qsort(file->by_name, count, sizeof *file->by_name, compare_name);
    for (size_t i = 1; i < count; i++) {
        if (compare_name(&file->by_name[i - 1], &file->by_name[i]) == 0)
            return vka_io_fail(in->error, VKA_IO, in->path,
                               "the name '" VKA_IO_NAME "' occurs twice", file->by_name[i]->name);
    }
    return VKA_OK;
}

enum vka_status vka_safetensors_parse(const char *path, const void *data, size_t size, char *error,
                                      struct vka_safetensors **file)
{
    struct vka_io_source in = {.path = path, .error = error};
    struct vka_safetensors *made;
    enum vka_status status;

    if (!file)
        return vka_io_fail(error, VKA_INVALID, path, "the out-parameter file is NULL");
    *file = NULL;
    status = vka_io_data_check(path, data, size, error);
    if (status)
        return status;
    made = calloc(1, sizeof *made);
    if (!made)
        return vka_io_fail(error, VKA_OUT_OF_HOST_MEMORY, path, "out of memory");
    status = split(&in, data, size);
    if (status)
        goto fail;
    status = vka_io_header_parse(&in, &made->header);
    if (status)
        goto fail;
    status = sort_metadata(&in, &made->header);
    if (status)
        goto fail;
    status = sort_arrays(&in, made);
    if (status)
        goto fail;
    status = check_cover(&in, &made->header);
    if (status)
        goto fail;
    *file = made;
    return VKA_OK;
fail:
    vka_safetensors_close(&made);
    return status;
}

enum vka_status vka_safetensors_open(const char *path, char *error, struct vka_safetensors **file)
{
    struct vka_io_map map;
    enum vka_status status;

    if (file)
        *file = NULL;
    status = vka_io_map_open(&map, path, file, error);
    if (status)
        return status;
    status = vka_safetensors_parse(path, map.data, map.size, error, file);
    if (status)
        vka_io_map_close(&map);
    else
        (*file)->map = map;
    return status;
}

void vka_safetensors_close(struct vka_safetensors **file)
{
    if (!file || !*file)
        return;
    vka_io_map_close(&(*file)->map);
    vka_io_header_free(&(*file)->header);
    free((*file)->by_name);
    free(*file);
    *file = NULL;
}

size_t vka_safetensors_count(const struct vka_safetensors *file)
{
    return file ? file->header.count : 0;
}

const struct vka_io_array *vka_safetensors_at(const struct vka_safetensors *file, size_t index)
{
    return file && index < file->header.count ? &file->header.arrays[index] : NULL;
}

const struct vka_io_array *vka_safetensors_find(const struct vka_safetensors *file,
                                                const char *name)
{
    const struct vka_io_array key = {.name = name}, *wanted = &key;
    const struct vka_io_array **found;

    if (!file || !name || !file->header.count)
        return NULL;
    found =
        bsearch(&wanted, file->by_name, file->header.count, sizeof *file->by_name, compare_name);
    return found ? *found : NULL;
}

const char *vka_safetensors_metadata(const struct vka_safetensors *file, const char *key)
{
    const struct vka_io_metadata wanted = {.key = key}, *found;

    if (!file || !key || !file->header.metadata_count)
        return NULL;
    found = bsearch(&wanted, file->header.metadata, file->header.metadata_count,
                    sizeof *file->header.metadata, compare_key);
    return found ? found->value : NULL;
}

size_t vka_safetensors_metadata_count(const struct vka_safetensors *file)
{
    return file ? file->header.metadata_count : 0;
}

const struct vka_io_metadata *vka_safetensors_metadata_at(const struct vka_safetensors *file,
                                                          size_t index)
{
    return file && index < file->header.metadata_count ? &file->header.metadata[index] : NULL;
}
