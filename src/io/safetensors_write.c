/* The safetensors writer. SPDX-License-Identifier: MIT */
#include "io/file.h"
#include "io/safetensors_header.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_ALIGNMENT 8 /* of the data region in the file, as other writers do */

/* What is being written. */
struct output {
    const char *path;
    char *error;
    const struct vka_io_array *arrays;      /* [count] */
    const struct vka_io_metadata *metadata; /* [metadata_count] */
    size_t count, metadata_count;
};

static enum vka_status no_memory(const struct output *out)
{
    return vka_io_fail(out->error, VKA_OUT_OF_HOST_MEMORY, out->path, "out of memory");
}

/* ---- Checks ---------------------------------------------------------------------------------- */

static int compare_names(const void *left, const void *right)
{
    const char *const *a = left, *const *b = right;

    return strcmp(*a, *b);
}

/* Checks that names[count], which are sorted, are UTF-8 and differ from each other. */
static enum vka_status check_names(const struct output *out, const char **names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!names[i] || !vka_io_is_utf8(names[i], strlen(names[i])))
            return vka_io_fail(out->error, VKA_INVALID, out->path,
                               "the name '" VKA_IO_NAME "' is not UTF-8",
                               names[i] ? names[i] : "(NULL)");
    }
    qsort(names, count, sizeof *names, compare_names);
    for (size_t i = 1; i < count; i++) {
        if (strcmp(names[i - 1], names[i]) == 0)
            return vka_io_fail(out->error, VKA_INVALID, out->path,
                               "the name '" VKA_IO_NAME "' occurs twice", names[i]);
    }
    return VKA_OK;
}

/* Checks the names of the tensors, then the keys of the metadata. */
static enum vka_status check_all_names(const struct output *out)
{
    const size_t most = out->count > out->metadata_count ? out->count : out->metadata_count;
    const char **names = calloc(most + 1, sizeof *names);
    enum vka_status status;

    if (!names)
        return no_memory(out);
    for (size_t i = 0; i < out->count; i++)
        names[i] = out->arrays[i].name;
    status = check_names(out, names, out->count);
    for (size_t i = 0; i < out->metadata_count; i++)
        names[i] = out->metadata[i].key;
    if (!status)
        status = check_names(out, names, out->metadata_count);
    free(names);
    return status;
}

static enum vka_status check_values(const struct output *out)
{
    size_t total = 0;

    for (size_t i = 0; i < out->metadata_count; i++) {
        const char *value = out->metadata[i].value;

        if (!value || !vka_io_is_utf8(value, strlen(value)))
            return vka_io_fail(out->error, VKA_INVALID, out->path,
                               "the metadata of '" VKA_IO_NAME "' is not UTF-8",
                               out->metadata[i].key);
    }
    for (size_t i = 0; i < out->count; i++) {
        const struct vka_io_array *array = &out->arrays[i];
        enum vka_status status = vka_io_array_check(array, out->path, out->error);

        if (status)
            return status;
        if (strcmp(array->name, VKA_IO_METADATA) == 0)
            return vka_io_fail(out->error, VKA_INVALID, out->path,
                               "no tensor may have the name '" VKA_IO_METADATA "'");
        if (array->size > PTRDIFF_MAX - total)
            return vka_io_fail(out->error, VKA_INVALID, out->path,
                               "the sizes overflow at tensor '" VKA_IO_NAME "'", array->name);
        total += array->size;
    }
    return VKA_OK;
}

/* ---- The header ------------------------------------------------------------------------------ */

/* Text that is counted, and written if `to` is set. */
struct text {
    char *to; /* NULL: the text is only counted */
    size_t size;
};

static void put(struct text *text, const char *from, size_t size)
{
    if (text->to)
        memcpy(text->to + text->size, from, size);
    text->size += size;
}

static void put_plain(struct text *text, const char *plain)
{
    put(text, plain, strlen(plain));
}

static void put_number(struct text *text, const char *before, uint64_t number)
{
    char digits[24];

    put_plain(text, before);
    put(text, digits, (size_t)snprintf(digits, sizeof digits, "%" PRIu64, number));
}

static void put_string(struct text *text, const char *string)
{
    put_plain(text, "\"");
    for (const char *c = string; *c; c++) {
        char escape[8];

        if (*c == '"' || *c == '\\')
            put_plain(text, "\\");
        if ((unsigned char)*c < 0x20)
            put(text, escape, (size_t)snprintf(escape, sizeof escape, "\\u%04x", (unsigned)*c));
        else
            put(text, c, 1);
    }
    put_plain(text, "\"");
}

static void put_array(struct text *text, const struct vka_io_array *array, size_t begin)
{
    put_string(text, array->name);
    put_plain(text, ":{\"dtype\":");
    put_string(text, vka_io_dtype_name(array->dtype));
    put_plain(text, ",\"shape\":[");
    for (uint32_t i = 0; i < array->rank; i++)
        put_number(text, i ? "," : "", array->shape[i]);
    put_number(text, "],\"data_offsets\":[", begin);
    put_number(text, ",", begin + array->size);
    put_plain(text, "]}");
}

static void put_header(struct text *text, const struct output *out)
{
    size_t begin = 0;

    put_plain(text, "{");
    for (size_t i = 0; i < out->metadata_count; i++) {
        put_plain(text, i ? "," : "\"" VKA_IO_METADATA "\":{");
        put_string(text, out->metadata[i].key);
        put_plain(text, ":");
        put_string(text, out->metadata[i].value);
    }
    if (out->metadata_count)
        put_plain(text, out->count ? "}," : "}");
    for (size_t i = 0; i < out->count; i++) {
        put_plain(text, i ? "," : "");
        put_array(text, &out->arrays[i], begin);
        begin += out->arrays[i].size;
    }
    put_plain(text, "}");
}

/* Makes *bytes, of *size bytes, from malloc: the length prefix, the JSON, and the spaces that align
 * the data. */
static enum vka_status print_header(const struct output *out, char **bytes, size_t *size)
{
    struct text text = {0};
    size_t padded;

    put_header(&text, out);
    padded = (text.size + HEADER_ALIGNMENT - 1) / HEADER_ALIGNMENT * HEADER_ALIGNMENT;
    if (padded > VKA_IO_HEADER_SIZE_MAX)
        return vka_io_fail(out->error, VKA_INVALID, out->path,
                           "names and metadata need a header of %zu bytes, more than %d", padded,
                           VKA_IO_HEADER_SIZE_MAX);
    *size = VKA_IO_PREFIX_SIZE + padded;
    *bytes = malloc(*size);
    if (!*bytes)
        return no_memory(out);
    for (int i = 0; i < VKA_IO_PREFIX_SIZE; i++)
        (*bytes)[i] = (char)((uint64_t)padded >> (8 * i) & 0xff);
    memset(*bytes + VKA_IO_PREFIX_SIZE, ' ', padded);
    text = (struct text){.to = *bytes + VKA_IO_PREFIX_SIZE};
    put_header(&text, out);
    return VKA_OK;
}

enum vka_status vka_safetensors_write(const char *path, const struct vka_io_array *arrays,
                                      size_t count, const struct vka_io_metadata *metadata,
                                      size_t metadata_count, char *error)
{
    const struct output out = {path, error, arrays, metadata, count, metadata_count};
    struct vka_io_extent *extents = NULL; /* the header, then each array */
    enum vka_status status;
    char *header = NULL;
    size_t size = 0;

    if (!path || (!arrays && count) || (!metadata && metadata_count))
        return vka_io_fail(error, VKA_INVALID, path, "path, arrays or metadata is NULL");
    status = check_all_names(&out);
    if (!status)
        status = check_values(&out);
    if (!status)
        status = print_header(&out, &header, &size);
    if (status)
        return status;
    extents = calloc(count + 1, sizeof *extents);
    if (extents) {
        extents[0] = (struct vka_io_extent){header, size};
        for (size_t i = 0; i < count; i++)
            extents[i + 1] = (struct vka_io_extent){arrays[i].data, arrays[i].size};
        status = vka_io_replace(path, extents, count + 1, error);
    } else {
        status = no_memory(&out);
    }
    free(extents);
    free(header);
    return status;
}
