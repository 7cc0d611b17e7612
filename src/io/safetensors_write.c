/* The safetensors writer. SPDX-License-Identifier: MIT */
#include "io/io.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX_SIZE 8             /* the header length, u64 little-endian */
#define HEADER_SIZE_MAX 100000000 /* bytes, as the format says */
#define HEADER_ALIGNMENT 8        /* of the data region in the file, as other writers have it */
#define METADATA "__metadata__"

/* One file being written. */
struct output {
    const char *path;
    char *error;
};

static enum vka_status no_memory(const struct output *out)
{
    return vka_io_fail(out->error, VKA_OUT_OF_HOST_MEMORY, out->path, "out of memory");
}

/* Checks a key before it is set. */
static enum vka_status check_key(const struct output *out, const json_t *object, const char *key)
{
    if (!key || !vka_io_is_utf8(key))
        return vka_io_fail(out->error, VKA_INVALID, out->path,
                           "the name '" VKA_IO_NAME "' is not UTF-8", key ? key : "(NULL)");
    if (json_object_get(object, key))
        return vka_io_fail(out->error, VKA_INVALID, out->path,
                           "the name '" VKA_IO_NAME "' stands twice", key);
    return VKA_OK;
}

static enum vka_status add_metadata(const struct output *out, json_t *header,
                                    const struct vka_io_metadata *metadata, size_t count)
{
    json_t *object = json_object();

    if (!object || json_object_set_new_nocheck(header, METADATA, object) != 0)
        return no_memory(out);
    for (size_t i = 0; i < count; i++) {
        const char *key = metadata[i].key, *value = metadata[i].value;
        enum vka_status status = check_key(out, object, key);

        if (status)
            return status;
        if (!value || !vka_io_is_utf8(value))
            return vka_io_fail(out->error, VKA_INVALID, out->path,
                               "the metadata of '" VKA_IO_NAME "' is not UTF-8", key);
        if (json_object_set_new_nocheck(object, key, json_string_nocheck(value)) != 0)
            return no_memory(out);
    }
    return VKA_OK;
}

static json_t *describe(const struct vka_io_array *array, size_t begin)
{
    json_t *shape = json_array();

    for (uint32_t i = 0; shape && i < array->rank; i++) {
        if (json_array_append_new(shape, json_integer((json_int_t)array->shape[i])) != 0) {
            json_decref(shape);
            shape = NULL;
        }
    }
    if (!shape)
        return NULL;
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", vka_io_dtype_name(array->dtype), "shape",
                     shape, "data_offsets", (json_int_t)begin, (json_int_t)(begin + array->size));
}

static enum vka_status add_arrays(const struct output *out, json_t *header,
                                  const struct vka_io_array *arrays, size_t count)
{
    size_t begin = 0;

    for (size_t i = 0; i < count; i++) {
        enum vka_status status = check_key(out, header, arrays[i].name);

        if (!status && strcmp(arrays[i].name, METADATA) == 0)
            status = vka_io_fail(out->error, VKA_INVALID, out->path,
                                 "no tensor may have the name '" METADATA "'");
        if (!status)
            status = vka_io_array_check(&arrays[i], out->path, out->error);
        if (status)
            return status;
        if (arrays[i].size > PTRDIFF_MAX - begin)
            return vka_io_fail(out->error, VKA_INVALID, out->path,
                               "the sizes overflow at tensor '" VKA_IO_NAME "'", arrays[i].name);
        if (json_object_set_new_nocheck(header, arrays[i].name, describe(&arrays[i], begin)) != 0)
            return no_memory(out);
        begin += arrays[i].size;
    }
    return VKA_OK;
}

/* *text becomes length prefix, JSON and the spaces that align the data: *size bytes, malloc. */
static enum vka_status print_header(const struct output *out, const json_t *header, char **text,
                                    size_t *size)
{
    const size_t flags = JSON_COMPACT;
    size_t length = json_dumpb(header, NULL, 0, flags), padded;

    if (length == 0)
        return no_memory(out);
    padded = (length + HEADER_ALIGNMENT - 1) / HEADER_ALIGNMENT * HEADER_ALIGNMENT;
    if (padded > HEADER_SIZE_MAX)
        return vka_io_fail(out->error, VKA_INVALID, out->path,
                           "names and metadata need a header of %zu bytes, above %d", padded,
                           HEADER_SIZE_MAX);
    *size = PREFIX_SIZE + padded;
    *text = malloc(*size);
    if (!*text || json_dumpb(header, *text + PREFIX_SIZE, length, flags) != length)
        return no_memory(out);
    memset(*text + PREFIX_SIZE + length, ' ', padded - length);
    for (int i = 0; i < PREFIX_SIZE; i++)
        (*text)[i] = (char)((uint64_t)padded >> (8 * i) & 0xff);
    return VKA_OK;
}

enum vka_status vka_safetensors_write(const char *path, const struct vka_io_array *arrays,
                                      size_t count, const struct vka_io_metadata *metadata,
                                      size_t metadata_count, char *error)
{
    const struct output out = {path, error};
    struct vka_io_chunk *chunks = NULL; /* the header, then each array */
    json_t *header = NULL;
    char *text = NULL;
    size_t size = 0;
    enum vka_status status;

    if (!path || (!arrays && count) || (!metadata && metadata_count))
        return vka_io_fail(error, VKA_INVALID, path, "path, arrays or metadata is NULL");
    header = json_object();
    if (!header) {
        status = no_memory(&out);
        goto fail;
    }
    status = metadata_count ? add_metadata(&out, header, metadata, metadata_count) : VKA_OK;
    if (!status)
        status = add_arrays(&out, header, arrays, count);
    if (!status)
        status = print_header(&out, header, &text, &size);
    if (status)
        goto fail;
    chunks = calloc(count + 1, sizeof *chunks);
    if (!chunks) {
        status = no_memory(&out);
        goto fail;
    }
    chunks[0] = (struct vka_io_chunk){text, size};
    for (size_t i = 0; i < count; i++)
        chunks[i + 1] = (struct vka_io_chunk){arrays[i].data, arrays[i].size};
    status = vka_io_replace(path, chunks, count + 1, error);
fail:
    free(chunks);
    free(text);
    json_decref(header);
    return status;
}
