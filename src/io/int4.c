/* GPTQ's and AWQ's weights of 4 bits as blocks of i4_g128. SPDX-License-Identifier: MIT */
#include "io/io.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A block: 128 values of 4 bits in order, the float16 scale, the zero point in 16 bits. */
enum { VALUES = 128, BYTES = 68, SCALE_AT = 64, ZERO_AT = 66, PER_WORD = 8 };

/* Where in a word of AWQ column j of eight lies. */
static const unsigned awq_place[PER_WORD] = {0, 4, 1, 5, 2, 6, 3, 7};

struct sizes {
    uint64_t out, in, group;
};

static const char *name_of(const struct vka_io_array *array)
{
    return array->name ? array->name : "";
}

static enum vka_status refuse(char *error, const struct vka_io_array *array, const char *why)
{
    return vka_io_fail(error, VKA_IO, NULL, "array '" VKA_IO_NAME "': %s", name_of(array), why);
}

static enum vka_status check_array(const struct vka_io_array *array, enum vka_io_dtype dtype,
                                   uint32_t rank, char *error)
{
    enum vka_status status = vka_io_array_check(array, NULL, error);
    if (status)
        return status;
    if (array->dtype != dtype || array->rank != rank)
        return vka_io_fail(error, VKA_IO, NULL,
                           "array '" VKA_IO_NAME "': expected %s of %u axes, got %s of %u",
                           name_of(array), vka_io_dtype_name(dtype), (unsigned)rank,
                           vka_io_dtype_name(array->dtype), (unsigned)array->rank);
    for (uint32_t i = 0; i < rank; i++)
        if (array->shape[i] == 0)
            return refuse(error, array, "an axis is empty");
    return VKA_OK;
}

static enum vka_status check_arrays(const struct vka_int4 *w, char *error)
{
    enum vka_status status;
    if (!w || !w->qweight || !w->qzeros || !w->scales)
        return vka_io_fail(error, VKA_INVALID, NULL, "weight, qweight, qzeros or scales is NULL");
    if ((unsigned)w->format >= VKA_INT4_FORMAT_COUNT)
        return vka_io_fail(error, VKA_INVALID, NULL, "format %d is unknown", (int)w->format);
    if ((status = check_array(w->qweight, VKA_IO_I32, 2, error)) ||
        (status = check_array(w->qzeros, VKA_IO_I32, 2, error)) ||
        (status = check_array(w->scales, VKA_IO_F16, 2, error)))
        return status;
    if (w->g_idx && (status = check_array(w->g_idx, VKA_IO_I32, 1, error)))
        return status;
    return w->g_idx && w->format == VKA_INT4_AWQ ? refuse(error, w->g_idx, "AWQ has no g_idx")
                                                 : VKA_OK;
}

/* A word of 32 bits holds 8 zero points, or the bits are other ones than 4. */
static enum vka_status check_bits(const struct vka_int4 *w, uint64_t out, char *error)
{
    const uint64_t columns = w->qzeros->shape[1];
    for (uint64_t bits = 1; bits <= 32; bits++)
        if (bits != 4 && out % 8 == 0 && columns == out / 8 * bits / 4 && out / 8 * bits % 4 == 0)
            return vka_io_fail(error, VKA_IO, NULL,
                               "array '" VKA_IO_NAME "': %" PRIu64
                               " bits a value are not supported, only 4",
                               name_of(w->qzeros), bits);
    if (out % PER_WORD || columns != out / PER_WORD)
        return vka_io_fail(error, VKA_IO, NULL,
                           "array '" VKA_IO_NAME "': %" PRIu64 " columns do not fit %" PRIu64
                           " columns of scales at 4 bits",
                           name_of(w->qzeros), columns, out);
    return VKA_OK;
}

/* Groups of a power of two or any other size: whole multiples of 128, or all inputs. */
static enum vka_status find_group(const struct vka_int4 *w, struct sizes *s, char *error)
{
    const uint64_t groups = w->scales->shape[0];
    s->group = w->group_size ? w->group_size : s->in / groups;
    if (s->group == 0 || (s->in + s->group - 1) / s->group != groups ||
        (!w->group_size && s->in % groups))
        return vka_io_fail(error, VKA_IO, NULL,
                           "array '" VKA_IO_NAME "': %" PRIu64 " groups do not divide %" PRIu64
                           " inputs into groups of %" PRIu64,
                           name_of(w->scales), groups, s->in, s->group);
    if (s->group % VALUES)
        return vka_io_fail(error, VKA_IO, NULL,
                           "array '" VKA_IO_NAME "': groups of %" PRIu64
                           " inputs are not supported, only multiples of %d",
                           name_of(w->scales), s->group, VALUES);
    return VKA_OK;
}

static enum vka_status find_sizes(const struct vka_int4 *w, struct sizes *s, char *error)
{
    enum vka_status status = check_arrays(w, error);
    if (status)
        return status;
    const bool awq = w->format == VKA_INT4_AWQ;
    const uint64_t *shape = w->qweight->shape;
    s->out = w->scales->shape[1];
    if ((status = check_bits(w, s->out, error)))
        return status;
    if (shape[1] != (awq ? s->out / PER_WORD : s->out))
        return refuse(error, w->qweight, "its columns do not fit those of scales");
    if (shape[0] > UINT32_MAX / PER_WORD || s->out > UINT32_MAX)
        return refuse(error, w->qweight, "an axis exceeds 2^32 - 1");
    s->in = awq ? shape[0] : shape[0] * PER_WORD;
    if (s->in % VALUES)
        return vka_io_fail(error, VKA_IO, NULL,
                           "array '" VKA_IO_NAME "': %" PRIu64 " inputs are not whole blocks of %d",
                           name_of(w->qweight), s->in, VALUES);
    if ((status = find_group(w, s, error)))
        return status;
    if (w->qzeros->shape[0] != w->scales->shape[0])
        return refuse(error, w->qzeros, "it has other groups than scales");
    if (w->g_idx && w->g_idx->shape[0] != s->in)
        return refuse(error, w->g_idx, "it has not one group for each input");
    if (s->in / VALUES * BYTES > (uint64_t)PTRDIFF_MAX / s->out)
        return refuse(error, w->qweight, "its blocks exceed the memory");
    return VKA_OK;
}

static uint32_t word_at(const struct vka_io_array *array, uint64_t index)
{
    return (uint32_t)vka_io_little((const char *)array->data + 4 * index, 4);
}

static enum vka_status check_contents(const struct vka_int4 *w, const struct sizes *s, char *error)
{
    for (uint64_t i = 0; w->g_idx && i < s->in; i++)
        if (word_at(w->g_idx, i) != i / s->group)
            return vka_io_fail(error, VKA_IO, NULL,
                               "array '" VKA_IO_NAME "': input %" PRIu64 " is not of group %" PRIu64
                               ": g_idx in the order of activations (desc_act) is not supported",
                               name_of(w->g_idx), i, i / s->group);
    for (uint64_t i = 0; i < w->scales->shape[0] * s->out; i++) {
        const unsigned char *half = (const unsigned char *)w->scales->data + 2 * i;
        if ((half[1] & 0x7c) == 0x7c)
            return vka_io_fail(error, VKA_IO, NULL,
                               "array '" VKA_IO_NAME "': the scale of group %" PRIu64
                               ", column %" PRIu64 " is NaN or infinite",
                               name_of(w->scales), i / s->out, i % s->out);
    }
    return VKA_OK;
}

/* Scales and zero points of all blocks. */
static void write_scales(const struct vka_int4 *w, const struct sizes *s, unsigned char *blocks)
{
    const uint64_t per_row = s->in / VALUES, per_group = s->group / VALUES;
    for (uint64_t o = 0; o < s->out; o++)
        for (uint64_t b = 0; b < per_row; b++) {
            unsigned char *to = blocks + (o * per_row + b) * BYTES;
            const uint64_t group = b / per_group;
            const unsigned place =
                w->format == VKA_INT4_AWQ ? awq_place[o % PER_WORD] : (unsigned)(o % PER_WORD);
            const uint32_t word = word_at(w->qzeros, (group * s->out + o) / PER_WORD);
            memcpy(to + SCALE_AT, (const char *)w->scales->data + 2 * (group * s->out + o), 2);
            to[ZERO_AT] =
                (unsigned char)((word >> 4 * place & 15) + (w->format == VKA_INT4_GPTQ ? 1 : 0));
            to[ZERO_AT + 1] = 0;
        }
}

/* A word of GPTQ is 8 neighbours of a row, from the lowest bits up: four bytes of a block. */
static void write_gptq(const struct vka_int4 *w, const struct sizes *s, unsigned char *blocks)
{
    enum { WORDS = VALUES / PER_WORD };
    const uint64_t per_row = s->in / VALUES;
    for (uint64_t b = 0; b < per_row; b++)
        for (uint64_t o = 0; o < s->out; o++)
            for (uint64_t i = 0; i < WORDS; i++)
                memcpy(blocks + (o * per_row + b) * BYTES + 4 * i,
                       (const char *)w->qweight->data + 4 * ((b * WORDS + i) * s->out + o), 4);
}

/* Two words of AWQ are 8 columns of two neighbours of a row: 8 bytes, one in each of 8 blocks. */
static void write_awq(const struct vka_int4 *w, const struct sizes *s, unsigned char *blocks)
{
    const uint64_t per_row = s->in / VALUES, words = s->out / PER_WORD;
    for (uint64_t i = 0; i < s->in; i += 2)
        for (uint64_t c = 0; c < words; c++) {
            const uint32_t low = word_at(w->qweight, i * words + c);
            const uint32_t high = word_at(w->qweight, (i + 1) * words + c);
            for (unsigned j = 0; j < PER_WORD; j++) {
                const unsigned shift = 4 * awq_place[j];
                const uint64_t block = (c * PER_WORD + j) * per_row + i / VALUES;
                blocks[block * BYTES + i % VALUES / 2] =
                    (unsigned char)((low >> shift & 15) | (high >> shift & 15) << 4);
            }
        }
}

enum vka_status vka_int4_size(const struct vka_int4 *weight, char *error, uint32_t *out,
                              uint32_t *in, size_t *size)
{
    struct sizes s = {0};
    if (!out || !in || !size)
        return vka_io_fail(error, VKA_INVALID, NULL, "an out-parameter is NULL");
    *out = *in = 0;
    *size = 0;
    enum vka_status status = find_sizes(weight, &s, error);
    if (status)
        return status;
    *out = (uint32_t)s.out;
    *in = (uint32_t)s.in;
    *size = (size_t)(s.in / VALUES * BYTES * s.out);
    return VKA_OK;
}

enum vka_status vka_int4_repack(const struct vka_int4 *weight, void *blocks, size_t size,
                                char *error)
{
    struct sizes s = {0};
    enum vka_status status = find_sizes(weight, &s, error);
    if (status)
        return status;
    if (!blocks || size != s.in / VALUES * BYTES * s.out)
        return vka_io_fail(error, VKA_INVALID, NULL,
                           "blocks is NULL, or its %zu bytes are not the %" PRIu64 " of %" PRIu64
                           " rows of %" PRIu64,
                           size, s.in / VALUES * BYTES * s.out, s.out, s.in);
    if ((status = check_contents(weight, &s, error)))
        return status;
    write_scales(weight, &s, blocks);
    if (weight->format == VKA_INT4_AWQ)
        write_awq(weight, &s, blocks);
    else
        write_gptq(weight, &s, blocks);
    return VKA_OK;
}

static enum vka_status find_named(const struct vka_safetensors *file, const char *prefix,
                                  const char *end, char *name, size_t size,
                                  const struct vka_io_array **array)
{
    snprintf(name, size, "%s.%s", prefix, end);
    *array = vka_safetensors_find(file, name);
    return *array ? VKA_OK : VKA_IO;
}

enum vka_status vka_int4_find(const struct vka_safetensors *file, const char *prefix, char *error,
                              struct vka_int4 *weight)
{
    enum vka_status status = VKA_OK;
    if (weight)
        weight->qweight = weight->qzeros = weight->scales = weight->g_idx = NULL;
    if (!file || !prefix || !weight)
        return vka_io_fail(error, VKA_INVALID, NULL, "file, prefix or weight is NULL");
    const size_t size = strlen(prefix) + sizeof ".qweight";
    char *name = malloc(size);
    if (!name)
        return vka_io_fail(error, VKA_OUT_OF_HOST_MEMORY, NULL, "out of memory");
    if (find_named(file, prefix, "qweight", name, size, &weight->qweight) ||
        find_named(file, prefix, "qzeros", name, size, &weight->qzeros) ||
        find_named(file, prefix, "scales", name, size, &weight->scales))
        status = vka_io_fail(error, VKA_IO, NULL, "there is no array '" VKA_IO_NAME "'", name);
    else if (find_named(file, prefix, "g_idx", name, size, &weight->g_idx))
        weight->g_idx = NULL;
    free(name);
    return status;
}
