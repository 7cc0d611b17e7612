#include "operand.h"

#include <reference/reference.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TAIL 67 /* canary elements after the last */

struct layout layout_dense(void)
{
    return (struct layout){.order = {0, 1, 2, 3}, .step = 1};
}

struct layout layout_random(struct rng *rng, uint32_t rank)
{
    struct layout layout = layout_dense();
    uint32_t swaps = rng_range(rng, 0, 3); /* 0: row-major, as often as not */
    for (uint32_t i = 0; i < swaps; i++) {
        uint32_t a = rng_range(rng, 0, rank - 1), b = rng_range(rng, 0, rank - 1);
        uint32_t axis = layout.order[a];
        layout.order[a] = layout.order[b];
        layout.order[b] = axis;
    }
    for (uint32_t i = 0; i < rank; i++)
        layout.gap[i] = rng_chance(rng, 25) ? rng_range(rng, 1, 5) : 0;
    layout.step = rng_chance(rng, 10) ? rng_range(rng, 2, 3) : 1;
    layout.offset = rng_chance(rng, 50) ? 16 * rng_range(rng, 0, 2) : rng_range(rng, 1, 37);
    return layout;
}

static void set_strides(const struct layout *layout, struct operand *o)
{
    uint64_t stride = layout->step;
    for (uint32_t i = o->rank; i-- > 0;) {
        uint32_t axis = layout->order[i];
        o->stride[axis] = stride;
        stride *= o->size[axis] + layout->gap[axis];
    }
}

enum vka_status operand_create_empty(struct vka_device *device, enum vka_dtype dtype, uint32_t rank,
                                     const uint32_t *size, const struct layout *layout,
                                     struct operand *o)
{
    *o = (struct operand){.dtype = dtype, .rank = rank, .offset = layout->offset, .count = 1};
    memcpy(o->size, size, rank * sizeof *size);
    set_strides(layout, o);
    uint64_t n = o->offset + 1 + TAIL;
    for (uint32_t i = 0; i < rank; i++) {
        o->count *= size[i];
        n += (size[i] - 1) * o->stride[i];
    }
    o->bytes = (size_t)n * vka_dtype_size(dtype);
    if (n > UINT32_MAX)
        return VKA_UNSUPPORTED; /* more than an axis takes */
    enum vka_status status =
        vka_tensor_create(device, dtype, 1, (const uint32_t[]){(uint32_t)n}, &o->base);
    if (status == VKA_OK)
        status = vka_tensor_strided(o->base, o->offset, rank, size, o->stride, &o->view);
    return status;
}

enum vka_status operand_create(struct vka_device *device, enum vka_dtype dtype, uint32_t rank,
                               const uint32_t *size, const struct layout *layout, struct operand *o)
{
    enum vka_status status = operand_create_empty(device, dtype, rank, size, layout, o);
    if (status != VKA_OK)
        return status;
    o->values = calloc(o->count, sizeof *o->values);
    o->image = calloc(o->bytes, 1);
    o->got = calloc(o->bytes, 1);
    return o->values && o->image && o->got ? VKA_OK : VKA_OUT_OF_HOST_MEMORY;
}

void operand_destroy(struct operand *o)
{
    vka_tensor_destroy(&o->view);
    vka_tensor_destroy(&o->base);
    free(o->values);
    free(o->image);
    free(o->got);
    *o = (struct operand){0};
}

/* Where element i of the row-major order lies in base, in elements. */
static uint64_t element_at(const struct operand *o, size_t i)
{
    uint64_t at = o->offset;
    for (uint32_t axis = o->rank; axis-- > 0;) {
        at += i % o->size[axis] * o->stride[axis];
        i /= o->size[axis];
    }
    return at;
}

void operand_encode(enum vka_dtype dtype, double x, uint8_t *to)
{
    const float f = (float)x;
    const int32_t integer = dtype == VKA_I32 ? (int32_t)x : 0;
    const uint16_t half = dtype == VKA_F16 ? ref_to_f16(x) : ref_to_bf16(x);
    if (dtype == VKA_F32)
        memcpy(to, &f, sizeof f);
    else if (dtype == VKA_F16 || dtype == VKA_BF16)
        memcpy(to, &half, sizeof half);
    else if (dtype == VKA_I32)
        memcpy(to, &integer, sizeof integer);
    else if (dtype == VKA_BOOL)
        *to = (uint8_t)x;
    else if (dtype == VKA_I8)
        *to = (uint8_t)(int8_t)x;
    else
        abort(); /* no operand is quantised */
}

double operand_decode(enum vka_dtype dtype, const uint8_t *from)
{
    float f;
    int32_t integer;
    uint16_t half;
    if (dtype == VKA_F32)
        return (double)*(float *)memcpy(&f, from, sizeof f);
    if (dtype == VKA_F16)
        return ref_from_f16(*(uint16_t *)memcpy(&half, from, sizeof half));
    if (dtype == VKA_BF16)
        return ref_from_bf16(*(uint16_t *)memcpy(&half, from, sizeof half));
    if (dtype == VKA_I32)
        return *(int32_t *)memcpy(&integer, from, sizeof integer);
    if (dtype == VKA_BOOL)
        return *from;
    if (dtype == VKA_I8)
        return (int8_t)*from;
    abort(); /* no operand is quantised */
}

double operand_round(enum vka_dtype dtype, double x)
{
    uint8_t bytes[4] = {0};
    operand_encode(dtype, x, bytes);
    return operand_decode(dtype, bytes);
}

/* NaN in every float type; "visible" in a mask; a length and an offset that would show. */
static double poison(enum vka_dtype dtype)
{
    return dtype == VKA_I32 ? 1000003 : dtype == VKA_BOOL ? 1 : (double)NAN;
}

enum vka_status operand_write(struct operand *o)
{
    size_t size = vka_dtype_size(o->dtype);
    for (size_t i = 0; i < o->bytes; i += size)
        operand_encode(o->dtype, poison(o->dtype), o->image + i);
    for (size_t i = 0; i < o->count; i++) {
        uint8_t *to = o->image + element_at(o, i) * size;
        operand_encode(o->dtype, o->values[i], to);
        o->values[i] = operand_decode(o->dtype, to);
    }
    return vka_tensor_write(o->base, o->image, o->bytes);
}

enum vka_status operand_write_noise(struct operand *o, struct rng *rng)
{
    for (size_t i = 0; i < o->bytes; i++)
        o->image[i] = (uint8_t)rng_next(rng);
    return vka_tensor_write(o->base, o->image, o->bytes);
}

enum vka_status operand_read(struct operand *o)
{
    size_t size = vka_dtype_size(o->dtype);
    enum vka_status status = vka_tensor_read(o->base, o->got, o->bytes);
    for (size_t i = 0; status == VKA_OK && i < o->count; i++)
        o->values[i] = operand_decode(o->dtype, o->got + element_at(o, i) * size);
    return status;
}

size_t operand_damage(const struct operand *o)
{
    size_t size = vka_dtype_size(o->dtype), first = SIZE_MAX;
    uint8_t *inside = calloc(o->bytes, 1);
    if (!inside)
        return 0;
    for (size_t i = 0; i < o->count; i++)
        memset(inside + element_at(o, i) * size, 1, size);
    for (size_t i = o->bytes; i-- > 0;)
        if (!inside[i] && o->got[i] != o->image[i])
            first = i;
    free(inside);
    return first;
}

size_t operand_broadcast(const struct operand *o, const struct operand *y, size_t i)
{
    size_t at = 0, step = 1;
    for (uint32_t axis = y->rank, own = o->rank; axis-- > 0 && own-- > 0;) {
        at += o->size[own] == 1 ? 0 : i % y->size[axis] * step;
        step *= o->size[own];
        i /= y->size[axis];
    }
    return at;
}
