/* The GGUF reader. SPDX-License-Identifier: MIT */
#include "io/gguf_read.h"
#include "io/gguf_header.h"
#include "io/gguf_types.h"
#include "io/gguf_value.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int compare_place(const void *left, const void *right)
{
    const struct vka_gguf_tensor *const *a = left, *const *b = right;

    return ((*a)->offset > (*b)->offset) - ((*a)->offset < (*b)->offset);
}

static int compare_name(const void *left, const void *right)
{
    const struct vka_gguf_tensor *const *a = left, *const *b = right;

    return strcmp((*a)->name, (*b)->name);
}

static int compare_key(const void *left, const void *right)
{
    const struct vka_gguf_value *const *a = left, *const *b = right;

    return strcmp((*a)->key, (*b)->key);
}

/* Copies a name of the file to names[], which has room. */
static char *copy_name(char *names, const char **name)
{
    const size_t size = vka_gguf_name_size(*name);

    memcpy(names, *name, size);
    names[size] = '\0';
    *name = names;
    return names + size + 1;
}

static bool copy_names(struct vka_gguf *file)
{
    size_t size = 1;
    char *to;

    /* No sum overflows: a name and its length take more bytes in the file. */
    for (size_t i = 0; i < file->count; i++)
        size += vka_gguf_name_size(file->tensors[i].name) + 1;
    for (size_t i = 0; i < file->value_count; i++)
        size += vka_gguf_name_size(file->values[i].key) + 1;
    file->names = to = malloc(size);
    if (!to)
        return false;
    for (size_t i = 0; i < file->count; i++)
        to = copy_name(to, &file->tensors[i].name);
    for (size_t i = 0; i < file->value_count; i++)
        to = copy_name(to, &file->values[i].key);
    return true;
}

const struct vka_gguf_tensor **vka_gguf_by_name(const struct vka_gguf_tensor *tensors, size_t count)
{
    const struct vka_gguf_tensor **by_name = malloc((count + 1) * sizeof *by_name);

    for (size_t i = 0; by_name && i < count; i++)
        by_name[i] = &tensors[i];
    if (by_name)
        qsort(by_name, count, sizeof *by_name, compare_name);
    return by_name;
}

enum vka_status vka_gguf_sort_names(struct vka_gguf_reader *r, struct vka_gguf *file)
{
    file->by_key = malloc((file->value_count + 1) * sizeof *file->by_key);
    if (file->by_key && copy_names(file))
        file->by_name = vka_gguf_by_name(file->tensors, file->count);
    if (!file->by_name)
        return vka_io_fail(r->error, VKA_OUT_OF_HOST_MEMORY, r->path, "out of memory");
    for (size_t i = 0; i < file->value_count; i++)
        file->by_key[i] = &file->values[i];
    qsort(file->by_key, file->value_count, sizeof *file->by_key, compare_key);
    for (size_t i = 1; i < file->count; i++) {
        if (compare_name(&file->by_name[i - 1], &file->by_name[i]) == 0)
            return VKA_GGUF_REFUSE(r, "the name '" VKA_IO_NAME "' occurs twice",
                                   file->by_name[i]->name);
    }
    for (size_t i = 1; i < file->value_count; i++) {
        if (compare_key(&file->by_key[i - 1], &file->by_key[i]) == 0)
            return VKA_GGUF_REFUSE(r, "the key '" VKA_IO_NAME "' occurs twice",
                                   file->by_key[i]->key);
    }
    return VKA_OK;
}

/* Checks that no tensors share bytes. */
static enum vka_status check_overlap(const struct vka_gguf_reader *r, const struct vka_gguf *file)
{
    const struct vka_gguf_tensor **by_place = malloc((file->count + 1) * sizeof *by_place);
    enum vka_status status = VKA_OK;
    size_t count = 0; /* of tensors with bytes */

    if (!by_place)
        return vka_io_fail(r->error, VKA_OUT_OF_HOST_MEMORY, r->path, "out of memory");
    for (size_t i = 0; i < file->count; i++)
        if (file->tensors[i].size)
            by_place[count++] = &file->tensors[i];
    qsort(by_place, count, sizeof *by_place, compare_place);
    for (size_t i = 1; i < count && !status; i++) {
        const struct vka_gguf_tensor *last = by_place[i - 1], *next = by_place[i];

        if (next->offset - last->offset < last->size)
            status = VKA_GGUF_REFUSE(
                r, "tensors '" VKA_IO_NAME "' and '" VKA_IO_NAME "' overlap at byte %" PRIu64,
                last->name, next->name, next->offset);
    }
    free(by_place);
    return status;
}

enum vka_status vka_gguf_parse(const char *path, const void *data, size_t size, char *error,
                               struct vka_gguf **file)
{
    const unsigned char *bytes = size ? data : (const unsigned char *)"";
    struct vka_gguf_reader r = {.path = path, .error = error, .file_size = size};
    struct vka_gguf *made;
    enum vka_status status;

    if (!file)
        return vka_io_fail(error, VKA_INVALID, path, "the out-parameter file is NULL");
    *file = NULL;
    status = vka_io_data_check(path, data, size, error);
    if (status)
        return status;
    r.begin = r.at = bytes;
    r.end = bytes + size;
    made = calloc(1, sizeof *made);
    if (!made)
        return vka_io_fail(error, VKA_OUT_OF_HOST_MEMORY, path, "out of memory");
    status = vka_gguf_read_header(&r, made);
    if (!status)
        status = vka_gguf_sort_names(&r, made);
    if (!status)
        status = check_overlap(&r, made);
    if (status) {
        vka_gguf_close(&made);
        return status;
    }
    for (size_t i = 0; i < made->count; i++)
        made->tensors[i].data = bytes + made->tensors[i].offset;
    *file = made;
    return VKA_OK;
}

enum vka_status vka_gguf_open_one(const char *path, char *error, struct vka_gguf **file)
{
    struct vka_io_map map;
    enum vka_status status;

    if (file)
        *file = NULL;
    status = vka_io_map_open(&map, path, file, error);
    if (status)
        return status;
    status = vka_gguf_parse(path, map.data, map.size, error, file);
    if (status)
        vka_io_map_close(&map);
    else
        (*file)->map = map;
    return status;
}

void vka_gguf_close(struct vka_gguf **file)
{
    if (!file || !*file)
        return;
    for (size_t i = 0; i < (*file)->rest_count; i++)
        vka_gguf_close(&(*file)->rest[i]);
    free((*file)->rest);
    vka_io_map_close(&(*file)->map);
    free((*file)->tensors);
    free((*file)->values);
    free((*file)->by_name);
    free((*file)->by_key);
    free((*file)->names);
    free(*file);
    *file = NULL;
}

size_t vka_gguf_count(const struct vka_gguf *file)
{
    return file ? file->count : 0;
}

const struct vka_gguf_tensor *vka_gguf_at(const struct vka_gguf *file, size_t index)
{
    return file && index < file->count ? &file->tensors[index] : NULL;
}

const struct vka_gguf_tensor *vka_gguf_find(const struct vka_gguf *file, const char *name)
{
    const struct vka_gguf_tensor key = {.name = name}, *wanted = &key, **found;

    if (!file || !name)
        return NULL;
    found = bsearch(&wanted, file->by_name, file->count, sizeof *file->by_name, compare_name);
    return found ? *found : NULL;
}

enum vka_status vka_gguf_check_type(const struct vka_gguf_tensor *tensor, const char *path,
                                    char *error)
{
    char known[256];

    if (!tensor)
        return vka_io_fail(error, VKA_INVALID, path, "the tensor is NULL");
    if (tensor->dtype != VKA_DTYPE_COUNT)
        return VKA_OK;
    vka_gguf_print_weight_types(known, sizeof known);
    return vka_io_fail(error, VKA_UNSUPPORTED, path,
                       "tensor '" VKA_IO_NAME "' has type %s, which is not supported: make a "
                       "file of other types by llama-quantize (%s)",
                       tensor->name, tensor->type, known);
}

enum vka_status vka_gguf_check_types(const struct vka_gguf *file, const char *path, char *error)
{
    enum vka_status status = VKA_OK;

    for (size_t i = 0; i < vka_gguf_count(file) && !status; i++) {
        if (file->tensors[i].size)
            status = vka_gguf_check_type(&file->tensors[i], path, error);
    }
    return status;
}

size_t vka_gguf_metadata_count(const struct vka_gguf *file)
{
    return file ? file->value_count : 0;
}

const struct vka_gguf_value *vka_gguf_metadata_at(const struct vka_gguf *file, size_t index)
{
    return file && index < file->value_count ? &file->values[index] : NULL;
}

const struct vka_gguf_value *vka_gguf_metadata(const struct vka_gguf *file, const char *key)
{
    const struct vka_gguf_value pattern = {.key = key}, *wanted = &pattern, **found;

    if (!file || !key)
        return NULL;
    found = bsearch(&wanted, file->by_key, file->value_count, sizeof *file->by_key, compare_key);
    return found ? *found : NULL;
}

uint64_t vka_gguf_rope_row(uint64_t row, uint32_t head_dim)
{
    const uint64_t half = head_dim / 2;
    uint64_t within;

    if (!half || head_dim % 2)
        return row;
    within = row % head_dim;
    return row - within + within % half * 2 + within / half;
}
