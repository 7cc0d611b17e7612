/* All of a GGUF file before its data. SPDX-License-Identifier: MIT
 *
 * The file is a magic, a version (u32), the numbers of tensors and of keys (u64 each), metadata,
 * the tensors, padding, and the data region. A tensor is a name, its rank (u32), its axes (u64
 * each, the fastest first), its type (u32) and its offset in the region (u64).
 */
#include "io/gguf_header.h"
#include "io/gguf_types.h"
#include "io/gguf_value.h"

#include <inttypes.h>
#include <string.h>

#define LEAST_VALUE 14  /* bytes: a key of 1, a value of 1 */
#define LEAST_TENSOR 25 /* bytes: a name of 1, no axes */

static enum vka_status no_memory(const struct vka_gguf_reader *r)
{
    return vka_io_fail(r->error, VKA_OUT_OF_HOST_MEMORY, r->path, "out of memory");
}

/* Checks that this is a file whose header can be read. */
static enum vka_status check_version(const struct vka_gguf_reader *r)
{
    const size_t size = (size_t)(r->end - r->begin);
    uint32_t version;

    if (size < 4 || memcmp(r->begin, VKA_GGUF_MAGIC, 4) != 0)
        return VKA_GGUF_REFUSE(r, "not a GGUF file: it does not begin with " VKA_GGUF_MAGIC);
    if (size < VKA_GGUF_HEADER_SIZE)
        return VKA_GGUF_REFUSE(r, "%zu bytes are too few for a GGUF file", size);
    version = (uint32_t)vka_io_little(r->begin + 4, 4);
    if (version && !(version & 0xffff))
        return VKA_GGUF_REFUSE(r, "the file is big-endian, which is not supported");
    if (version != 2 && version != VKA_GGUF_VERSION)
        return VKA_GGUF_REFUSE(r, "GGUF version %u is not supported, but 2 and 3 are",
                               (unsigned)version);
    return VKA_OK;
}

/* Reads the numbers of tensors and keys; the file must have room for them. */
static enum vka_status take_counts(struct vka_gguf_reader *r, uint64_t *tensors, uint64_t *values)
{
    uint64_t room;

    r->at = r->begin + 8;
    vka_gguf_take(r, 8, tensors);
    vka_gguf_take(r, 8, values);
    room = (uint64_t)(r->end - r->at);
    if (*values > room / LEAST_VALUE)
        return VKA_GGUF_REFUSE(r, "%" PRIu64 " keys do not fit in the file", *values);
    if (*tensors > (room - *values * LEAST_VALUE) / LEAST_TENSOR)
        return VKA_GGUF_REFUSE(r, "%" PRIu64 " tensors do not fit in the file", *tensors);
    return VKA_OK;
}

static enum vka_status read_values(struct vka_gguf_reader *r, uint64_t count, struct vka_gguf *file)
{
    enum vka_status status = VKA_OK;

    while (!status && file->value_count < count) {
        void *items = file->values;

        if (!vka_io_make_room(&items, file->value_count, sizeof *file->values))
            return no_memory(r);
        file->values = items;
        status = vka_gguf_read_value(r, file->value_count, &file->values[file->value_count]);
        file->value_count += !status;
    }
    return status;
}

/* Whether a key is the one that gives the alignment. */
static bool is_alignment(const char *key)
{
    const size_t size = strlen(VKA_GGUF_ALIGNMENT_KEY);

    return vka_gguf_name_size(key) == size && memcmp(key, VKA_GGUF_ALIGNMENT_KEY, size) == 0;
}

static enum vka_status set_alignment(struct vka_gguf_reader *r, const struct vka_gguf *file)
{
    r->alignment = VKA_GGUF_ALIGNMENT;
    for (size_t i = 0; i < file->value_count; i++) {
        const struct vka_gguf_value *value = &file->values[i];

        if (!is_alignment(value->key))
            continue;
        if (value->type != VKA_GGUF_U32)
            return VKA_GGUF_REFUSE(r, VKA_GGUF_ALIGNMENT_KEY " is of type %s, not u32",
                                   vka_gguf_type_name(value->type));
        r->alignment = (uint32_t)vka_io_little(value->data, 4);
        if (r->alignment < 8 || r->alignment & (r->alignment - 1))
            return VKA_GGUF_REFUSE(
                r, VKA_GGUF_ALIGNMENT_KEY " is %" PRIu32 ", not a power of two from 8 up",
                r->alignment);
    }
    return VKA_OK;
}

/* ---- Tensors --------------------------------------------------------------------------------- */

static enum vka_status ends_within(const struct vka_gguf_reader *r, const char *name)
{
    return VKA_GGUF_REFUSE(r, "the file ends within the description of tensor " VKA_GGUF_NAME,
                           VKA_GGUF_SHOWN(name));
}

static enum vka_status take_shape(struct vka_gguf_reader *r, struct vka_gguf_tensor *tensor)
{
    uint64_t rank;

    if (!vka_gguf_take(r, 4, &rank))
        return ends_within(r, tensor->name);
    if (rank > VKA_MAX_RANK)
        return VKA_GGUF_REFUSE(
            r, "tensor " VKA_GGUF_NAME " has %" PRIu64 " axes, but at most %d were expected",
            VKA_GGUF_SHOWN(tensor->name), rank, VKA_MAX_RANK);
    tensor->rank = (uint32_t)rank;
    for (uint32_t i = tensor->rank; i-- > 0;) {
        if (!vka_gguf_take(r, 8, &tensor->shape[i]))
            return ends_within(r, tensor->name);
    }
    return VKA_OK;
}

/* A type that is not known is named by its number; about the size of the other, programs disagree. */
static enum vka_status refuse_type(const struct vka_gguf_reader *r, uint64_t number,
                                   const struct vka_gguf_layout *layout, const char *name)
{
    char known[256];

    vka_gguf_print_weight_types(known, sizeof known);
    if (layout)
        return VKA_GGUF_REFUSE(r,
                               "tensor " VKA_GGUF_NAME
                               " has type %s, which is not supported: make a file of other types "
                               "by llama-quantize (%s)",
                               VKA_GGUF_SHOWN(name), layout->name, known);
    return VKA_GGUF_REFUSE(r,
                           "tensor " VKA_GGUF_NAME " has the unknown type %" PRIu64
                           ": make a file of other types by llama-quantize (%s)",
                           VKA_GGUF_SHOWN(name), number, known);
}

/* Sets type and bytes by the number of a type. */
static enum vka_status set_type(const struct vka_gguf_reader *r, uint64_t number,
                                struct vka_gguf_tensor *tensor)
{
    const struct vka_gguf_layout *layout = vka_gguf_layout(number);
    const uint64_t row = tensor->rank ? tensor->shape[tensor->rank - 1] : 1;
    uint64_t total;
    bool empty = false;

    if (!layout || !layout->size)
        return refuse_type(r, number, layout, tensor->name);
    if (row % layout->values)
        return VKA_GGUF_REFUSE(
            r, "tensor " VKA_GGUF_NAME " has rows of %" PRIu64 ", but blocks of %s hold %" PRIu32,
            VKA_GGUF_SHOWN(tensor->name), row, layout->name, layout->values);
    tensor->type = layout->name;
    tensor->dtype = vka_gguf_layout_dtype(layout);
    total = layout->size;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        const uint64_t blocks = i + 1 == tensor->rank ? row / layout->values : tensor->shape[i];

        empty |= tensor->shape[i] == 0;
        if (blocks > (uint64_t)PTRDIFF_MAX / total)
            return VKA_GGUF_REFUSE(r, "tensor " VKA_GGUF_NAME " has a shape that overflows",
                                   VKA_GGUF_SHOWN(tensor->name));
        total *= blocks ? blocks : 1;
    }
    tensor->size = empty ? 0 : (size_t)total;
    return VKA_OK;
}

static enum vka_status read_tensor(struct vka_gguf_reader *r, uint64_t index,
                                   struct vka_gguf_tensor *tensor)
{
    enum vka_status status;
    uint64_t type;

    *tensor = (struct vka_gguf_tensor){0};
    status = vka_gguf_take_name(r, "tensor", index, VKA_GGUF_NAME_MAX, &tensor->name);
    if (!status)
        status = take_shape(r, tensor);
    if (status)
        return status;
    if (!vka_gguf_take(r, 4, &type))
        return ends_within(r, tensor->name);
    status = set_type(r, type, tensor);
    if (status)
        return status;
    if (!vka_gguf_take(r, 8, &tensor->offset))
        return ends_within(r, tensor->name);
    if (tensor->offset % r->alignment)
        return VKA_GGUF_REFUSE(
            r, "tensor " VKA_GGUF_NAME " has offset %" PRIu64 ", not a multiple of %" PRIu32,
            VKA_GGUF_SHOWN(tensor->name), tensor->offset, r->alignment);
    return VKA_OK;
}

static enum vka_status read_tensors(struct vka_gguf_reader *r, uint64_t count,
                                    struct vka_gguf *file)
{
    enum vka_status status = VKA_OK;

    while (!status && file->count < count) {
        void *items = file->tensors;

        if (!vka_io_make_room(&items, file->count, sizeof *file->tensors))
            return no_memory(r);
        file->tensors = items;
        status = read_tensor(r, file->count, &file->tensors[file->count]);
        file->count += !status;
    }
    return status;
}

/* Checks that the tensors lie in the data region, and makes their offsets those in the file. Empty ones
 * lie anywhere, as files need no padding behind the last tensor; behind the end they count as there. */
static enum vka_status place(const struct vka_gguf_reader *r, struct vka_gguf *file)
{
    const uint64_t used = (uint64_t)(r->at - r->begin);
    const uint64_t region = (used + r->alignment - 1) / r->alignment * r->alignment;

    bool any = false;

    for (size_t i = 0; i < file->count; i++)
        any |= file->tensors[i].size > 0;
    if (any && region >= r->file_size)
        return VKA_GGUF_REFUSE(
            r, "the data would begin at byte %" PRIu64 ", but the file has %" PRIu64, region,
            r->file_size);
    for (size_t i = 0; i < file->count; i++) {
        struct vka_gguf_tensor *tensor = &file->tensors[i];

        if (!tensor->size) {
            const uint64_t left = region < r->file_size ? r->file_size - region : 0;

            tensor->offset = tensor->offset < left ? tensor->offset + region : r->file_size;
            continue;
        }
        if (tensor->offset > r->file_size - region ||
            tensor->size > r->file_size - region - tensor->offset)
            return VKA_GGUF_REFUSE(r,
                                   "tensor " VKA_GGUF_NAME " has %zu bytes at offset %" PRIu64
                                   ", which pass the %" PRIu64 " bytes of data",
                                   VKA_GGUF_SHOWN(tensor->name), tensor->size, tensor->offset,
                                   r->file_size - region);
        tensor->offset += region;
    }
    return VKA_OK;
}

enum vka_status vka_gguf_read_header(struct vka_gguf_reader *r, struct vka_gguf *file)
{
    uint64_t tensors, values;
    enum vka_status status = check_version(r);

    if (!status)
        status = take_counts(r, &tensors, &values);
    if (!status)
        status = read_values(r, values, file);
    if (!status)
        status = set_alignment(r, file);
    if (!status)
        status = read_tensors(r, tensors, file);
    return status ? status : place(r, file);
}
