/* The GGUF writer. SPDX-License-Identifier: MIT */
#include "io/gguf_header.h"
#include "io/gguf_read.h"
#include "io/gguf_types.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ALIGNMENT (1 << 20) /* bytes; ggml reads no more */

/* What is being written. */
struct output {
    const char *path;
    char *error;
    const struct vka_gguf_tensor *tensors; /* [count] */
    const struct vka_gguf_value *values;   /* [value_count] */
    size_t count, value_count;
    uint32_t alignment;
};

static enum vka_status no_memory(const struct output *out)
{
    return vka_io_fail(out->error, VKA_OUT_OF_HOST_MEMORY, out->path, "out of memory");
}

/* ---- Checks: of what the header that is read back cannot show -------------------------------- */

/* Whether bytes[size] are `count` strings, each after its length. */
static bool are_strings(const char *bytes, size_t size, uint64_t count)
{
    while (count > 0 && size >= 8) {
        const uint64_t length = vka_io_little(bytes, 8);

        if (length > size - 8)
            return false;
        bytes += 8 + length;
        size -= 8 + (size_t)length;
        count--;
    }
    return count == 0 && size == 0;
}

static bool has_its_size(const struct vka_gguf_value *value)
{
    const enum vka_gguf_type item = value->type == VKA_GGUF_ARRAY ? value->item : value->type;
    const size_t size = vka_gguf_type_size(item);

    if (value->type == VKA_GGUF_STRING)
        return true;
    if (item == VKA_GGUF_STRING)
        return are_strings(value->data, value->size, value->count);
    return size && value->size % size == 0 &&
           value->size / size == (value->type == VKA_GGUF_ARRAY ? value->count : 1);
}

static enum vka_status check_values(const struct output *out)
{
    for (size_t i = 0; i < out->value_count; i++) {
        const struct vka_gguf_value *value = &out->values[i];

        if (!value->key)
            return vka_io_fail(out->error, VKA_INVALID, out->path, "key %zu is NULL", i);
        if ((!value->data && value->size) || !has_its_size(value))
            return vka_io_fail(out->error, VKA_INVALID, out->path,
                               "the type and count of key '" VKA_IO_NAME
                               "' do not give its %zu bytes",
                               value->key, value->size);
    }
    return VKA_OK;
}

static uint64_t align(uint64_t bytes, uint32_t alignment)
{
    return (bytes + alignment - 1) / alignment * alignment;
}

static enum vka_status check_tensors(const struct output *out)
{
    uint64_t total = 0;

    for (size_t i = 0; i < out->count; i++) {
        const struct vka_gguf_tensor *tensor = &out->tensors[i];

        if (!tensor->name || !tensor->data)
            return vka_io_fail(out->error, VKA_INVALID, out->path,
                               "the name or data of tensor %zu is NULL", i);
        if (tensor->rank > VKA_MAX_RANK)
            return vka_io_fail(out->error, VKA_INVALID, out->path,
                               "tensor '" VKA_IO_NAME "' has %" PRIu32
                               " axes, but at most %d were expected",
                               tensor->name, tensor->rank, VKA_MAX_RANK);
        if (vka_gguf_layout_number(tensor) == UINT32_MAX)
            return vka_io_fail(out->error, VKA_INVALID, out->path,
                               "tensor '" VKA_IO_NAME "' has no type of GGUF", tensor->name);
        /* Neither side of || overflows: total is at most PTRDIFF_MAX. */
        if (tensor->size > PTRDIFF_MAX ||
            align(total + tensor->size, out->alignment) > (uint64_t)PTRDIFF_MAX)
            return vka_io_fail(out->error, VKA_INVALID, out->path,
                               "the sizes overflow at tensor '" VKA_IO_NAME "'", tensor->name);
        total = align(total + tensor->size, out->alignment);
    }
    return VKA_OK;
}

/* ---- The header ------------------------------------------------------------------------------ */

/* Bytes that are counted, and written if `to` is set. */
struct bytes {
    unsigned char *to; /* NULL: the bytes are only counted */
    size_t size;
};

static void put(struct bytes *bytes, const void *from, size_t size)
{
    if (bytes->to && size)
        memcpy(bytes->to + bytes->size, from, size);
    bytes->size += size;
}

static void put_number(struct bytes *bytes, uint64_t number, size_t size)
{
    unsigned char little[8];

    for (size_t i = 0; i < 8; i++)
        little[i] = (unsigned char)(number >> 8 * i);
    put(bytes, little, size);
}

static void put_string(struct bytes *bytes, const char *text, size_t size)
{
    put_number(bytes, size, 8);
    put(bytes, text, size);
}

static void put_value(struct bytes *bytes, const struct vka_gguf_value *value)
{
    put_string(bytes, value->key, strlen(value->key));
    put_number(bytes, (uint64_t)value->type, 4);
    if (value->type == VKA_GGUF_ARRAY) {
        put_number(bytes, (uint64_t)value->item, 4);
        put_number(bytes, value->count, 8);
    } else if (value->type == VKA_GGUF_STRING) {
        put_number(bytes, value->size, 8);
    }
    put(bytes, value->data, value->size);
}

static void put_tensor(struct bytes *bytes, const struct vka_gguf_tensor *tensor, uint64_t offset)
{
    put_string(bytes, tensor->name, strlen(tensor->name));
    put_number(bytes, tensor->rank, 4);
    for (uint32_t i = tensor->rank; i-- > 0;)
        put_number(bytes, tensor->shape[i], 8);
    put_number(bytes, vka_gguf_layout_number(tensor), 4);
    put_number(bytes, offset, 8);
}

/* Puts the header and its padding; returns the bytes of the whole file. */
static uint64_t put_header(struct bytes *bytes, const struct output *out)
{
    uint64_t offset = 0;

    put(bytes, VKA_GGUF_MAGIC, 4);
    put_number(bytes, VKA_GGUF_VERSION, 4);
    put_number(bytes, out->count, 8);
    put_number(bytes, out->value_count, 8);
    for (size_t i = 0; i < out->value_count; i++)
        put_value(bytes, &out->values[i]);
    for (size_t i = 0; i < out->count; i++) {
        put_tensor(bytes, &out->tensors[i], offset);
        offset = align(offset + out->tensors[i].size, out->alignment);
    }
    while (bytes->size % out->alignment)
        put_number(bytes, 0, 1);
    return bytes->size + offset;
}

/* Finds the alignment. One that is wrong stays 32 here, and is refused when it is read back. */
static enum vka_status set_alignment(struct output *out)
{
    out->alignment = VKA_GGUF_ALIGNMENT;
    for (size_t i = 0; i < out->value_count; i++) {
        const struct vka_gguf_value *value = &out->values[i];
        uint32_t alignment;

        if (strcmp(value->key, VKA_GGUF_ALIGNMENT_KEY) != 0 || value->type != VKA_GGUF_U32)
            continue;
        alignment = (uint32_t)vka_io_little(value->data, 4);
        if (alignment > MOST_ALIGNMENT)
            return vka_io_fail(out->error, VKA_INVALID, out->path,
                               VKA_GGUF_ALIGNMENT_KEY " is %" PRIu32 ", more than %d", alignment,
                               MOST_ALIGNMENT);
        if (alignment >= 8 && !(alignment & (alignment - 1)))
            out->alignment = alignment;
    }
    return VKA_OK;
}

/* Reads the header back, with the sentences of a reader for what is wrong in it. */
static enum vka_status check_header(const struct output *out, const struct bytes *header,
                                    uint64_t file_size)
{
    struct vka_gguf_reader r = {
        out->path, out->error, header->to, header->to, header->to + header->size, file_size, 0};
    struct vka_gguf *back = calloc(1, sizeof *back);
    enum vka_status status;

    if (!back)
        return no_memory(out);
    status = vka_gguf_read_header(&r, back);
    if (!status)
        status = vka_gguf_sort_names(&r, back);
    for (size_t i = 0; i < out->count && !status; i++) {
        if (back->tensors[i].size != out->tensors[i].size)
            status = vka_io_fail(out->error, VKA_INVALID, out->path,
                                 "tensor '" VKA_IO_NAME "' has %zu bytes, but its shape needs %zu",
                                 out->tensors[i].name, out->tensors[i].size, back->tensors[i].size);
    }
    vka_gguf_close(&back);
    return status == VKA_IO ? VKA_INVALID : status;
}

/* Makes the header, of malloc, and its padding. */
static enum vka_status print_header(const struct output *out, struct bytes *header)
{
    struct bytes counted = {0};
    uint64_t file_size = put_header(&counted, out);

    header->to = malloc(counted.size);
    if (!header->to)
        return no_memory(out);
    put_header(header, out);
    return check_header(out, header, file_size);
}

/* Writes the header, and each tensor with its padding. */
static enum vka_status write_all(const struct output *out, const struct bytes *header)
{
    struct vka_io_extent *extents = calloc(2 * out->count + 1, sizeof *extents);
    void *zeros = calloc(1, out->alignment);
    enum vka_status status;

    if (extents && zeros) {
        extents[0] = (struct vka_io_extent){header->to, header->size};
        for (size_t i = 0; i < out->count; i++) {
            const size_t size = out->tensors[i].size;

            extents[2 * i + 1] = (struct vka_io_extent){out->tensors[i].data, size};
            extents[2 * i + 2] =
                (struct vka_io_extent){zeros, (size_t)(align(size, out->alignment) - size)};
        }
        status = vka_io_replace(out->path, extents, 2 * out->count + 1, out->error);
    } else {
        status = no_memory(out);
    }
    free(extents);
    free(zeros);
    return status;
}

enum vka_status vka_gguf_write(const char *path, const struct vka_gguf_tensor *tensors,
                               size_t count, const struct vka_gguf_value *metadata,
                               size_t metadata_count, char *error)
{
    struct output out = {path, error, tensors, metadata, count, metadata_count, 0};
    struct bytes header = {0};
    enum vka_status status;

    if (!path || (!tensors && count) || (!metadata && metadata_count))
        return vka_io_fail(error, VKA_INVALID, path, "path, tensors or metadata is NULL");
    status = check_values(&out);
    if (!status)
        status = set_alignment(&out);
    if (!status)
        status = check_tensors(&out);
    if (!status)
        status = print_header(&out, &header);
    if (!status)
        status = write_all(&out, &header);
    free(header.to);
    return status;
}
