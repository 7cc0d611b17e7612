/* Sentences, element types and sizes of vkattn_io. SPDX-License-Identifier: MIT */
#include "io/io.h"
#include "core/os.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The most bytes of a path in a sentence, so that the reason always fits after it. */
#define PATH_SIZE 250

static const struct {
    const char *name;  /* safetensors */
    const char *descr; /* npy; NULL: none */
    size_t size;       /* bytes */
} dtypes[] = {
    [VKA_IO_F32] = {"F32", "<f4", 4},        [VKA_IO_F16] = {"F16", "<f2", 2},
    [VKA_IO_BF16] = {"BF16", NULL, 2},       [VKA_IO_F64] = {"F64", "<f8", 8},
    [VKA_IO_BOOL] = {"BOOL", "|b1", 1},      [VKA_IO_U8] = {"U8", "|u1", 1},
    [VKA_IO_I8] = {"I8", "|i1", 1},          [VKA_IO_U16] = {"U16", "<u2", 2},
    [VKA_IO_I16] = {"I16", "<i2", 2},        [VKA_IO_U32] = {"U32", "<u4", 4},
    [VKA_IO_I32] = {"I32", "<i4", 4},        [VKA_IO_U64] = {"U64", "<u8", 8},
    [VKA_IO_I64] = {"I64", "<i8", 8},        [VKA_IO_F8_E4M3] = {"F8_E4M3", NULL, 1},
    [VKA_IO_F8_E5M2] = {"F8_E5M2", NULL, 1}, [VKA_IO_F8_E8M0] = {"F8_E8M0", NULL, 1},
};
static_assert(sizeof(dtypes) / sizeof(dtypes[0]) == VKA_IO_DTYPE_COUNT, "a row for every type");

static bool known(enum vka_io_dtype dtype)
{
    return (unsigned)dtype < VKA_IO_DTYPE_COUNT;
}

size_t vka_io_dtype_size(enum vka_io_dtype dtype)
{
    return known(dtype) ? dtypes[dtype].size : 0;
}

const char *vka_io_dtype_name(enum vka_io_dtype dtype)
{
    return known(dtype) ? dtypes[dtype].name : "?";
}

const char *vka_io_dtype_descr(enum vka_io_dtype dtype)
{
    return known(dtype) ? dtypes[dtype].descr : NULL;
}

enum vka_io_dtype vka_io_dtype_named(const char *name)
{
    int i = 0;

    while (i < VKA_IO_DTYPE_COUNT && strcmp(dtypes[i].name, name) != 0)
        i++;
    return (enum vka_io_dtype)i;
}

enum vka_io_dtype vka_io_dtype_described(const char *descr, size_t length)
{
    int i = 0;

    /* Every descr is three characters. */
    while (i < VKA_IO_DTYPE_COUNT &&
           !(length == 3 && dtypes[i].descr && memcmp(dtypes[i].descr, descr, 3) == 0))
        i++;
    return (enum vka_io_dtype)i;
}

bool vka_io_array_bytes(enum vka_io_dtype dtype, uint32_t rank, const uint64_t *shape,
                        size_t *bytes)
{
    uint64_t total = vka_io_dtype_size(dtype);
    bool empty = false;

    for (uint32_t i = 0; i < rank; i++) {
        if (shape[i] == 0) {
            empty = true;
        } else {
            if (shape[i] > (uint64_t)PTRDIFF_MAX / total)
                return false;
            total *= shape[i];
        }
    }
    *bytes = empty ? 0 : (size_t)total;
    return true;
}

enum vka_status vka_io_data_check(const char *path, const void *data, size_t size, char *error)
{
    if (path && (data || size == 0) && size <= PTRDIFF_MAX)
        return VKA_OK;
    return vka_io_fail(error, VKA_INVALID, path,
                       "path or data is NULL, or size exceeds PTRDIFF_MAX");
}

enum vka_status vka_io_array_check(const struct vka_io_array *array, const char *path, char *error)
{
    const char *name = array->name ? array->name : "";
    size_t bytes;

    if (!known(array->dtype))
        return vka_io_fail(error, VKA_INVALID, path, "array '" VKA_IO_NAME "' has no known dtype",
                           name);
    if (array->rank > VKA_IO_MAX_RANK)
        return vka_io_fail(error, VKA_INVALID, path,
                           "array '" VKA_IO_NAME "' has rank %u, but at most %d is possible", name,
                           (unsigned)array->rank, VKA_IO_MAX_RANK);
    if (!vka_io_array_bytes(array->dtype, array->rank, array->shape, &bytes))
        return vka_io_fail(error, VKA_INVALID, path,
                           "the shape of array '" VKA_IO_NAME "' overflows", name);
    if (array->size != bytes)
        return vka_io_fail(error, VKA_INVALID, path,
                           "array '" VKA_IO_NAME "' has %zu bytes, but its shape needs %zu", name,
                           array->size, bytes);
    if (!array->data && bytes)
        return vka_io_fail(error, VKA_INVALID, path, "array '" VKA_IO_NAME "' has no data", name);
    return VKA_OK;
}

size_t vka_io_utf8_length(const char *at, size_t size)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *text = (const unsigned char *)at;
    size_t length = text[0] < 0x80   ? 1
                    : text[0] < 0xc0 ? 0
                    : text[0] < 0xe0 ? 2
                    : text[0] < 0xf0 ? 3
                                     : 4;
    uint32_t c = text[0] & (0xffu >> (length + 1));

    if (length == 1)
        return 1;
    if (text[0] >= 0xf8)
        return 0;
    for (size_t i = 1; i < length; i++) {
        if (i >= size || (text[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (text[i] & 0x3f);
    }
    return c < least[length] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff) ? 0 : length;
}

bool vka_io_is_utf8(const char *text, size_t size)
{
    size_t length = 1;

    for (size_t at = 0; at < size && length; at += length)
        length = vka_io_utf8_length(text + at, size - at);
    return length != 0;
}

uint64_t vka_io_little(const void *bytes, size_t size)
{
    const unsigned char *from = bytes;
    uint64_t number = 0;

    while (size-- > 0)
        number = number << 8 | from[size];
    return number;
}

bool vka_io_make_room(void **items, size_t count, size_t size)
{
    void *moved;

    if (count & (count - 1)) /* not 0 and not a power of two */
        return true;
    if (count > SIZE_MAX / 2 / size)
        return false;
    moved = realloc(*items, (count ? 2 * count : 1) * size);
    if (moved)
        *items = moved;
    return moved;
}

/* A name that is cut in the middle of a character ends in '?' too. */
static void make_one_line(char *text)
{
    while (*text) {
        size_t length = vka_io_utf8_length(text, SIZE_MAX);

        if (length == 0 || (unsigned char)*text < 0x20 || *text == 0x7f) {
            *text = '?';
            length = 1;
        }
        text += length;
    }
}

enum vka_status vka_io_fail(char *error, enum vka_status status, const char *path,
                            const char *format, ...)
{
    int used = 0;
    va_list args;

    if (!error)
        return status;
    if (path)
        used = snprintf(error, VKA_IO_ERROR_SIZE, "%.*s: ", PATH_SIZE, path);
    if (used < 0)
        used = 0;
    va_start(args, format);
    if (vsnprintf(error + used, VKA_IO_ERROR_SIZE - (size_t)used, format, args) < 0)
        error[used] = '\0';
    va_end(args);
    make_one_line(error);
    return status;
}

enum vka_status vka_io_fail_errno(char *error, const char *path, const char *verb)
{
    int code = errno;
    char reason[128];

    os_error_text(code, reason, sizeof reason);
    return vka_io_fail(error, code == ENOMEM ? VKA_OUT_OF_HOST_MEMORY : VKA_IO, path,
                       "cannot %s: %s", verb, reason);
}
