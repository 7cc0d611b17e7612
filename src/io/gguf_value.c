/* Names and metadata of GGUF files. SPDX-License-Identifier: MIT
 *
 * A name, key or string is its length (u64) and its bytes. Metadata is a key, a type (u32) and a
 * value; an array is the type of its items (u32), their number (u64), and the items.
 */
#include "io/gguf_value.h"
#include "io/gguf_types.h"

#include <inttypes.h>
#include <string.h>

size_t vka_gguf_name_size(const char *name)
{
    return (size_t)vka_io_little(name - 8, 8);
}

bool vka_gguf_take(struct vka_gguf_reader *r, size_t size, uint64_t *number)
{
    if ((size_t)(r->end - r->at) < size)
        return false;
    *number = vka_io_little(r->at, size);
    r->at += size;
    return true;
}

/* Steps over a string. */
static bool take_string(struct vka_gguf_reader *r, uint64_t *size)
{
    if (!vka_gguf_take(r, 8, size) || *size > (uint64_t)(r->end - r->at))
        return false;
    r->at += *size;
    return true;
}

enum vka_status vka_gguf_take_name(struct vka_gguf_reader *r, const char *what, uint64_t index,
                                   uint32_t most, const char **name)
{
    uint64_t size;

    if (!vka_gguf_take(r, 8, &size))
        return VKA_GGUF_REFUSE(r, "the file ends before the name of %s %" PRIu64, what, index);
    if (size < 1 || size > most)
        return VKA_GGUF_REFUSE(
            r, "the name of %s %" PRIu64 " has %" PRIu64 " bytes, but 1 to %u were expected", what,
            index, size, (unsigned)most);
    if (size > (uint64_t)(r->end - r->at))
        return VKA_GGUF_REFUSE(r, "the file ends within the name of %s %" PRIu64, what, index);
    *name = (const char *)r->at;
    r->at += size;
    if (!vka_io_is_utf8(*name, (size_t)size) || memchr(*name, 0, (size_t)size))
        return VKA_GGUF_REFUSE(
            r, "the name " VKA_GGUF_NAME " of %s %" PRIu64 " is not UTF-8, or has a 0 byte",
            VKA_GGUF_SHOWN(*name), what, index);
    return VKA_OK;
}

static enum vka_status ends_within(const struct vka_gguf_reader *r, const char *key)
{
    return VKA_GGUF_REFUSE(r, "the file ends within the value of key " VKA_GGUF_NAME,
                           VKA_GGUF_SHOWN(key));
}

/* Reads a type into *type; what: whose type it is. */
static enum vka_status take_type(struct vka_gguf_reader *r, const char *key, const char *what,
                                 enum vka_gguf_type *type)
{
    uint64_t number;

    if (!vka_gguf_take(r, 4, &number))
        return ends_within(r, key);
    if (number >= VKA_GGUF_TYPE_COUNT)
        return VKA_GGUF_REFUSE(
            r, "key " VKA_GGUF_NAME " has %s of type %" PRIu64 ", but 0 to %d were expected",
            VKA_GGUF_SHOWN(key), what, number, VKA_GGUF_TYPE_COUNT - 1);
    *type = (enum vka_gguf_type)number;
    return VKA_OK;
}

/* Steps over the items, at least 8 bytes a string. */
static enum vka_status take_strings(struct vka_gguf_reader *r, const struct vka_gguf_value *value)
{
    uint64_t size;

    for (uint64_t i = 0; i < value->count; i++) {
        if (!take_string(r, &size))
            return VKA_GGUF_REFUSE(
                r, "the file ends within string %" PRIu64 " of %" PRIu64 " of key " VKA_GGUF_NAME,
                i, value->count, VKA_GGUF_SHOWN(value->key));
    }
    return VKA_OK;
}

static enum vka_status take_numbers(struct vka_gguf_reader *r, const struct vka_gguf_value *value)
{
    const size_t size = vka_gguf_type_size(value->item);
    const unsigned char *first = r->at;

    if (value->count > (uint64_t)(r->end - r->at) / size)
        return ends_within(r, value->key);
    r->at += value->count * size;
    if (value->item != VKA_GGUF_BOOL)
        return VKA_OK;
    while (first < r->at && *first <= 1)
        first++;
    return first == r->at
               ? VKA_OK
               : VKA_GGUF_REFUSE(r,
                                 "key " VKA_GGUF_NAME " has a bool of %d, but 0 or 1 was expected",
                                 VKA_GGUF_SHOWN(value->key), *first);
}

/* Reads what stands between the type and the items of an array. */
static enum vka_status take_array(struct vka_gguf_reader *r, struct vka_gguf_value *value)
{
    enum vka_status status = take_type(r, value->key, "items", &value->item);

    if (status)
        return status;
    if (value->item == VKA_GGUF_ARRAY)
        return VKA_GGUF_REFUSE(
            r, "key " VKA_GGUF_NAME " has an array of arrays, which is not supported",
            VKA_GGUF_SHOWN(value->key));
    return vka_gguf_take(r, 8, &value->count) ? VKA_OK : ends_within(r, value->key);
}

enum vka_status vka_gguf_read_value(struct vka_gguf_reader *r, uint64_t index,
                                    struct vka_gguf_value *value)
{
    enum vka_status status;

    *value = (struct vka_gguf_value){.count = 1};
    status = vka_gguf_take_name(r, "key", index, VKA_GGUF_KEY_MAX, &value->key);
    if (!status)
        status = take_type(r, value->key, "a value", &value->type);
    if (status)
        return status;
    value->item = value->type;
    if (value->type == VKA_GGUF_ARRAY)
        status = take_array(r, value);
    if (status)
        return status;
    value->data = r->at;
    status = value->item == VKA_GGUF_STRING ? take_strings(r, value) : take_numbers(r, value);
    if (status)
        return status;
    if (value->type == VKA_GGUF_STRING)
        value->data = (const char *)value->data + 8; /* behind its length */
    value->size = (size_t)(r->at - (const unsigned char *)value->data);
    return VKA_OK;
}

/* ---- What a value holds ---------------------------------------------------------------------- */

/* The bits of an item of a type with a size; false if there is no such item. */
static bool item_bits(const struct vka_gguf_value *value, uint64_t index, uint64_t *bits)
{
    size_t size;

    if (!value || index >= value->count)
        return false;
    size = vka_gguf_type_size(value->item);
    *bits = size ? vka_io_little((const char *)value->data + index * size, size) : 0;
    return size != 0;
}

bool vka_gguf_integer(const struct vka_gguf_value *value, uint64_t index, int64_t *number)
{
    uint64_t bits;

    if (!item_bits(value, index, &bits) || value->item == VKA_GGUF_F32 ||
        value->item == VKA_GGUF_F64 || (value->item == VKA_GGUF_U64 && bits > INT64_MAX))
        return false;
    if (value->item == VKA_GGUF_I8)
        *number = (int8_t)bits;
    else if (value->item == VKA_GGUF_I16)
        *number = (int16_t)bits;
    else if (value->item == VKA_GGUF_I32)
        *number = (int32_t)bits;
    else
        *number = (int64_t)bits;
    return true;
}

bool vka_gguf_real(const struct vka_gguf_value *value, uint64_t index, double *number)
{
    uint64_t bits;

    if (!item_bits(value, index, &bits))
        return false;
    if (value->item == VKA_GGUF_F32) {
        const uint32_t low = (uint32_t)bits;
        float narrow;

        memcpy(&narrow, &low, sizeof narrow);
        *number = (double)narrow;
    } else if (value->item == VKA_GGUF_F64) {
        memcpy(number, &bits, sizeof *number);
    } else {
        return false;
    }
    return true;
}

bool vka_gguf_string(const struct vka_gguf_value *value, size_t *at, const char **text,
                     size_t *size)
{
    if (!value || value->item != VKA_GGUF_STRING)
        return false;
    if (value->type == VKA_GGUF_STRING) {
        if (*at)
            return false;
        *at = 1;
        *text = value->data;
        *size = value->size;
        return true;
    }
    if (*at >= value->size)
        return false;
    *text = (const char *)value->data + *at + 8;
    *size = vka_gguf_name_size(*text);
    *at += 8 + *size;
    return true;
}
