/* The header of a safetensors file. SPDX-License-Identifier: MIT
 *
 *     {"__metadata__": {"key": "value"},
 *      "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}
 */
#include "io/safetensors_header.h"
#include "io/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct parser {
    const struct vka_io_source *source;
    struct vka_io_json json;
};

/* What has been read of the object of a tensor. */
struct entry {
    struct vka_io_array *array;
    const char *dtype;
    uint64_t begin, end; /* bytes in the region */
};

static enum vka_status not_json(const struct parser *p)
{
    return vka_io_fail(p->source->error, VKA_IO, p->source->path,
                       "the header is malformed: %s (byte %zu)", p->json.wrong,
                       (size_t)(p->json.at - p->json.begin));
}

static enum vka_status no_memory(const struct parser *p)
{
    return vka_io_fail(p->source->error, VKA_OUT_OF_HOST_MEMORY, p->source->path, "out of memory");
}

/* Writes a sentence about a tensor that holds nothing but its name. */
static enum vka_status bad_tensor(const struct parser *p, const char *name, const char *wrong)
{
    return vka_io_fail(p->source->error, VKA_IO, p->source->path, "tensor '" VKA_IO_NAME "' %s",
                       name, wrong);
}

/* Reads a key and its colon. */
static bool take_key(struct parser *p, const char **key)
{
    if (!vka_io_json_string(&p->json, key))
        return false;
    if (!vka_io_json_take(&p->json, ':'))
        p->json.wrong = "a colon is missing";
    return !p->json.wrong;
}

static enum vka_status read_metadata(struct parser *p, struct vka_io_header *header)
{
    bool first = true;

    if (vka_io_json_null(&p->json)) /* as safetensors writes none */
        return VKA_OK;
    if (!vka_io_json_take(&p->json, '{'))
        return vka_io_fail(p->source->error, VKA_IO, p->source->path,
                           VKA_IO_METADATA " is not an object");
    while (vka_io_json_next(&p->json, '}', &first)) {
        struct vka_io_metadata *item;
        void *items = header->metadata;

        if (!vka_io_make_room(&items, header->metadata_count, sizeof *header->metadata))
            return no_memory(p);
        header->metadata = items;
        item = &header->metadata[header->metadata_count++];
        if (!take_key(p, &item->key))
            return not_json(p);
        if (!vka_io_json_string(&p->json, &item->value))
            return vka_io_fail(p->source->error, VKA_IO, p->source->path,
                               VKA_IO_METADATA " '" VKA_IO_NAME "': %s", item->key, p->json.wrong);
    }
    return p->json.wrong ? not_json(p) : VKA_OK;
}

static enum vka_status read_dtype(struct parser *p, struct entry *entry)
{
    return vka_io_json_string(&p->json, &entry->dtype)
               ? VKA_OK
               : bad_tensor(p, entry->array->name, "has a dtype that is not a string");
}

static enum vka_status read_shape(struct parser *p, struct entry *entry)
{
    struct vka_io_array *array = entry->array;
    bool first = true;

    if (!vka_io_json_take(&p->json, '['))
        return bad_tensor(p, array->name, "has a shape that is not an array");
    while (vka_io_json_next(&p->json, ']', &first)) {
        if (array->rank == VKA_IO_MAX_RANK)
            return bad_tensor(p, array->name, "has a shape of more than 8 axes");
        if (!vka_io_json_number(&p->json, &array->shape[array->rank++]))
            return bad_tensor(p, array->name,
                              "has a shape that is not of whole numbers below 2^64");
    }
    return p->json.wrong ? not_json(p) : VKA_OK;
}

static enum vka_status read_offsets(struct parser *p, struct entry *entry)
{
    struct vka_io_json *json = &p->json;

    if (!vka_io_json_take(json, '[') || !vka_io_json_number(json, &entry->begin) ||
        !vka_io_json_take(json, ',') || !vka_io_json_number(json, &entry->end) ||
        !vka_io_json_take(json, ']'))
        return bad_tensor(p, entry->array->name, "has data_offsets that are not two whole numbers");
    return VKA_OK;
}

/* Checks what needs the whole entry: that it lies in the data, and has the bytes that shape and type need. Of
 * a type that is not known the file alone says how many they are. */
static enum vka_status check_entry(const struct parser *p, const struct entry *entry)
{
    const struct vka_io_source *source = p->source;
    struct vka_io_array *array = entry->array;

    array->dtype = vka_io_dtype_named(entry->dtype);
    array->type = entry->dtype;
    if (array->dtype != VKA_IO_DTYPE_COUNT &&
        !vka_io_array_bytes(array->dtype, array->rank, array->shape, &array->size))
        return bad_tensor(p, array->name, "has a shape that overflows");
    if (entry->begin > entry->end || entry->end > source->region_size)
        return vka_io_fail(source->error, VKA_IO, source->path,
                           "data_offsets [%" PRIu64 ", %" PRIu64 "] of tensor '" VKA_IO_NAME
                           "' do not lie within the %zu bytes of data",
                           entry->begin, entry->end, array->name, source->region_size);
    if (array->dtype == VKA_IO_DTYPE_COUNT)
        array->size = (size_t)(entry->end - entry->begin);
    if (entry->end - entry->begin != array->size)
        return vka_io_fail(source->error, VKA_IO, source->path,
                           "tensor '" VKA_IO_NAME "' has %" PRIu64
                           " bytes, but its shape needs %zu",
                           array->name, entry->end - entry->begin, array->size);
    array->data = source->region + entry->begin;
    return VKA_OK;
}

/* Reads an object with three keys, in any order; others, which writers may add, are passed over. */
static enum vka_status read_tensor(struct parser *p, struct vka_io_array *array)
{
    static const struct {
        const char *key;
        enum vka_status (*read)(struct parser *p, struct entry *entry);
    } members[] = {{"dtype", read_dtype}, {"shape", read_shape}, {"data_offsets", read_offsets}};
    static const char wrong[] = "is not an object with one dtype, shape and data_offsets";
    struct entry entry = {.array = array};
    bool first = true;
    unsigned seen = 0;

    if (!vka_io_json_take(&p->json, '{'))
        return bad_tensor(p, array->name, wrong);
    while (vka_io_json_next(&p->json, '}', &first)) {
        enum vka_status status;
        const char *key;
        unsigned i = 0;

        if (!take_key(p, &key))
            return not_json(p);
        while (i < 3 && strcmp(members[i].key, key) != 0)
            i++;
        if (i == 3) {
            if (!vka_io_json_skip(&p->json))
                return not_json(p);
            continue;
        }
        if (seen & 1u << i)
            return bad_tensor(p, array->name, wrong);
        seen |= 1u << i;
        status = members[i].read(p, &entry);
        if (status)
            return status;
    }
    if (p->json.wrong)
        return not_json(p);
    return seen == 7 ? check_entry(p, &entry) : bad_tensor(p, array->name, wrong);
}

/* Reads one member of the header's object. */
static enum vka_status read_member(struct parser *p, struct vka_io_header *header, bool *metadata)
{
    void *items = header->arrays;
    struct vka_io_array *array;
    const char *name;

    if (!take_key(p, &name))
        return not_json(p);
    if (strcmp(name, VKA_IO_METADATA) == 0) {
        if (*metadata)
            return vka_io_fail(p->source->error, VKA_IO, p->source->path,
                               VKA_IO_METADATA " occurs twice");
        *metadata = true;
        return read_metadata(p, header);
    }
    if (!vka_io_make_room(&items, header->count, sizeof *header->arrays))
        return no_memory(p);
    header->arrays = items;
    array = &header->arrays[header->count++];
    *array = (struct vka_io_array){.name = name};
    return read_tensor(p, array);
}

enum vka_status vka_io_header_parse(const struct vka_io_source *source,
                                    struct vka_io_header *header)
{
    struct parser p = {source, {.begin = source->header, .at = source->header}};
    bool first = true, metadata = false;

    *header = (struct vka_io_header){.strings = malloc(source->header_size)};
    if (!header->strings)
        return no_memory(&p);
    p.json.end = source->header + source->header_size;
    p.json.strings = header->strings;
    if (!vka_io_json_take(&p.json, '{'))
        p.json.wrong = "it is not an object";
    while (!p.json.wrong && vka_io_json_next(&p.json, '}', &first)) {
        enum vka_status status = read_member(&p, header, &metadata);

        if (status)
            return status;
    }
    if (!p.json.wrong && p.json.at != p.json.end)
        p.json.wrong = "something follows its object";
    return p.json.wrong ? not_json(&p) : VKA_OK;
}

void vka_io_header_free(struct vka_io_header *header)
{
    free(header->arrays);
    free(header->metadata);
    free(header->strings);
}
