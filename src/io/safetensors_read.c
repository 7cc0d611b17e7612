/* The safetensors reader. SPDX-License-Identifier: MIT
 *
 * A file is a header length (u64, little-endian), a JSON header, and the data region:
 *     {"__metadata__": {"key": "value"},
 *      "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}
 * Offsets count from the start of the data region, which the arrays cover exactly, each byte once.
 */
#include "io/io.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX_SIZE 8             /* the header length */
#define HEADER_SIZE_MAX 100000000 /* bytes, as the format says */
#define METADATA "__metadata__"

struct vka_safetensors {
    struct vka_io_map map;               /* empty where the caller owns the bytes */
    json_t *header;                      /* owns the names and the metadata */
    struct vka_io_array *arrays;         /* [count], by offset */
    const struct vka_io_array **by_name; /* [count], by strcmp */
    size_t count;
};

/* The bytes being read, and where complaints go. */
struct input {
    const char *path;
    char *error;
    const char *header; /* [header_size], trailing spaces cut off */
    size_t header_size;
    const char *region; /* the data, [region_size] */
    size_t region_size;
};

static enum vka_status split(struct input *in, const char *data, size_t size)
{
    uint64_t length = 0;

    if (size < PREFIX_SIZE)
        return vka_io_fail(in->error, VKA_IO, in->path,
                           "%zu bytes are too few for a safetensors file", size);
    for (int i = PREFIX_SIZE - 1; i >= 0; i--)
        length = length << 8 | (unsigned char)data[i];
    if (length > HEADER_SIZE_MAX || length > size - PREFIX_SIZE)
        return vka_io_fail(in->error, VKA_IO, in->path,
                           "the header length %" PRIu64 " passes the end of the file or the "
                           "limit of %d bytes",
                           length, HEADER_SIZE_MAX);
    in->header = data + PREFIX_SIZE;
    in->header_size = (size_t)length;
    in->region = in->header + length;
    in->region_size = size - PREFIX_SIZE - (size_t)length;
    while (in->header_size && in->header[in->header_size - 1] == ' ')
        in->header_size--;
    if (in->header_size < 2 || in->header[0] != '{' || in->header[in->header_size - 1] != '}')
        return vka_io_fail(in->error, VKA_IO, in->path,
                           "the header is not a JSON object between { and }");
    return VKA_OK;
}

/* No header nests deeper than an offset in it, nor holds a minus sign. Knowing that before parsing
 * bounds the parser's recursion and refuses -0, which it would take for 0. */
static bool is_plain(const char *text, size_t size)
{
    bool quoted = false;
    long depth = 0;

    for (size_t i = 0; i < size; i++) {
        char c = text[i];

        if (quoted) {
            quoted = c != '"';
            i += c == '\\'; /* over what is escaped */
        } else if (c == '"') {
            quoted = true;
        } else if (c == '{' || c == '[') {
            if (++depth > 3)
                return false;
        } else if (c == '}' || c == ']') {
            depth--;
        } else if (c == '-') {
            return false;
        }
    }
    return true;
}

static enum vka_status parse_header(const struct input *in, json_t **header)
{
    json_error_t reason;

    if (!is_plain(in->header, in->header_size))
        return vka_io_fail(in->error, VKA_IO, in->path,
                           "the header nests too deep or holds a negative number");
    *header = json_loadb(in->header, in->header_size, JSON_REJECT_DUPLICATES, &reason);
    if (*header)
        return VKA_OK;
    /* jansson says nothing where memory ran out, or calls it an invalid token. */
    if (reason.text[0] == '\0' || json_error_code(&reason) == json_error_out_of_memory)
        return vka_io_fail(in->error, VKA_OUT_OF_HOST_MEMORY, in->path, "out of memory");
    return vka_io_fail(in->error, VKA_IO, in->path, "the header is not valid JSON: %s (byte %d)",
                       reason.text, reason.position);
}

static enum vka_status check_metadata(const struct input *in, json_t *metadata)
{
    const char *key;
    json_t *value;

    if (!json_is_object(metadata))
        return vka_io_fail(in->error, VKA_IO, in->path, METADATA " is not an object");
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            return vka_io_fail(in->error, VKA_IO, in->path,
                               METADATA " '" VKA_IO_NAME "' is not a string", key);
    }
    return VKA_OK;
}

/* Whether value is an integer of at least 0; is_plain has refused every minus sign. */
static bool read_count(const json_t *value, uint64_t *count)
{
    if (!json_is_integer(value))
        return false;
    *count = (uint64_t)json_integer_value(value);
    return true;
}

static enum vka_status read_shape(const struct input *in, const json_t *shape,
                                  struct vka_io_array *array)
{
    if (!json_is_array(shape) || json_array_size(shape) > VKA_IO_MAX_RANK)
        return vka_io_fail(in->error, VKA_IO, in->path,
                           "the shape of tensor '" VKA_IO_NAME
                           "' is not an array of at most %d integers",
                           array->name, VKA_IO_MAX_RANK);
    array->rank = (uint32_t)json_array_size(shape);
    for (uint32_t i = 0; i < array->rank; i++) {
        if (!read_count(json_array_get(shape, i), &array->shape[i]))
            return vka_io_fail(in->error, VKA_IO, in->path,
                               "the shape of tensor '" VKA_IO_NAME
                               "' holds something that is not an integer",
                               array->name);
    }
    if (!vka_io_array_bytes(array->dtype, array->rank, array->shape, &array->size))
        return vka_io_fail(in->error, VKA_IO, in->path,
                           "the shape of tensor '" VKA_IO_NAME "' overflows", array->name);
    return VKA_OK;
}

static enum vka_status read_offsets(const struct input *in, const json_t *offsets,
                                    struct vka_io_array *array)
{
    uint64_t begin, end;

    if (!json_is_array(offsets) || json_array_size(offsets) != 2 ||
        !read_count(json_array_get(offsets, 0), &begin) ||
        !read_count(json_array_get(offsets, 1), &end))
        return vka_io_fail(in->error, VKA_IO, in->path,
                           "data_offsets of tensor '" VKA_IO_NAME "' are not two integers",
                           array->name);
    if (begin > end || end > in->region_size)
        return vka_io_fail(in->error, VKA_IO, in->path,
                           "data_offsets [%" PRIu64 ", %" PRIu64 "] of tensor '" VKA_IO_NAME
                           "' do not lie within the %zu bytes of data",
                           begin, end, array->name, in->region_size);
    if (end - begin != array->size)
        return vka_io_fail(in->error, VKA_IO, in->path,
                           "tensor '" VKA_IO_NAME "' has %" PRIu64
                           " bytes where its shape needs %zu",
                           array->name, end - begin, array->size);
    array->data = in->region + begin;
    return VKA_OK;
}

static enum vka_status read_array(const struct input *in, const json_t *entry,
                                  struct vka_io_array *array)
{
    enum vka_status status;
    const char *dtype;

    /* Three keys, no key twice, these three present: exactly these three. */
    if (!json_is_object(entry) || json_object_size(entry) != 3 ||
        !json_object_get(entry, "shape") || !json_object_get(entry, "data_offsets") ||
        !json_object_get(entry, "dtype"))
        return vka_io_fail(in->error, VKA_IO, in->path,
                           "tensor '" VKA_IO_NAME "' is not an object of exactly dtype, shape and "
                           "data_offsets",
                           array->name);
    dtype = json_string_value(json_object_get(entry, "dtype"));
    array->dtype = dtype ? vka_io_dtype_named(dtype) : VKA_IO_DTYPE_COUNT;
    if (array->dtype == VKA_IO_DTYPE_COUNT)
        return vka_io_fail(in->error, VKA_IO, in->path,
                           "tensor '" VKA_IO_NAME "' has dtype '%.40s', which is not supported",
                           array->name, dtype ? dtype : "(not a string)");
    status = read_shape(in, json_object_get(entry, "shape"), array);
    return status ? status : read_offsets(in, json_object_get(entry, "data_offsets"), array);
}

/* Empty arrays stand before the one that begins where they do. */
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

/* The arrays, in order, must follow each other from the first byte of the region to its last. */
static enum vka_status check_cover(const struct input *in, const struct vka_safetensors *file)
{
    const char *next = in->region;

    for (size_t i = 0; i < file->count; i++) {
        const struct vka_io_array *array = &file->arrays[i];

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

static enum vka_status read_arrays(const struct input *in, struct vka_safetensors *file)
{
    size_t room = json_object_size(file->header) + 1; /* never 0; bounded by the header's bytes */
    const char *name;
    json_t *entry;

    file->arrays = calloc(room, sizeof *file->arrays);
    file->by_name = calloc(room, sizeof *file->by_name);
    if (!file->arrays || !file->by_name)
        return vka_io_fail(in->error, VKA_OUT_OF_HOST_MEMORY, in->path, "out of memory");
    json_object_foreach(file->header, name, entry)
    {
        enum vka_status status;

        if (strcmp(name, METADATA) == 0) {
            status = check_metadata(in, entry);
        } else {
            file->arrays[file->count].name = name;
            status = read_array(in, entry, &file->arrays[file->count++]);
        }
        if (status)
            return status;
    }
    qsort(file->arrays, file->count, sizeof *file->arrays, compare_place);
    for (size_t i = 0; i < file->count; i++)
        file->by_name[i] = &file->arrays[i];
    qsort(file->by_name, file->count, sizeof *file->by_name, compare_name);
    return check_cover(in, file);
}

enum vka_status vka_safetensors_parse(const char *path, const void *data, size_t size, char *error,
                                      struct vka_safetensors **file)
{
    struct input in = {.path = path, .error = error};
    struct vka_safetensors *made;
    enum vka_status status;

    if (!file)
        return vka_io_fail(error, VKA_INVALID, path, "the out-parameter file is NULL");
    *file = NULL;
    if (!path || (!data && size) || size > PTRDIFF_MAX)
        return vka_io_fail(error, VKA_INVALID, path, "path or data is NULL, or size is impossible");
    made = calloc(1, sizeof *made);
    if (!made)
        return vka_io_fail(error, VKA_OUT_OF_HOST_MEMORY, path, "out of memory");
    status = split(&in, data, size);
    if (status)
        goto fail;
    status = parse_header(&in, &made->header);
    if (status)
        goto fail;
    status = read_arrays(&in, made);
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
    if (!file || !path)
        return vka_io_fail(error, VKA_INVALID, path, "path or the out-parameter file is NULL");
    status = vka_io_map_open(&map, path, error);
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
    json_decref((*file)->header);
    vka_io_map_close(&(*file)->map);
    free((*file)->by_name);
    free((*file)->arrays);
    free(*file);
    *file = NULL;
}

size_t vka_safetensors_count(const struct vka_safetensors *file)
{
    return file ? file->count : 0;
}

const struct vka_io_array *vka_safetensors_at(const struct vka_safetensors *file, size_t index)
{
    return file && index < file->count ? &file->arrays[index] : NULL;
}

const struct vka_io_array *vka_safetensors_find(const struct vka_safetensors *file,
                                                const char *name)
{
    const struct vka_io_array key = {.name = name}, *wanted = &key;
    const struct vka_io_array **found;

    if (!file || !name)
        return NULL;
    found = bsearch(&wanted, file->by_name, file->count, sizeof *file->by_name, compare_name);
    return found ? *found : NULL;
}

const char *vka_safetensors_metadata(const struct vka_safetensors *file, const char *key)
{
    if (!file || !key)
        return NULL;
    return json_string_value(json_object_get(json_object_get(file->header, METADATA), key));
}
