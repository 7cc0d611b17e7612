/* Numbers of case files: widening, narrowing and the comparison. SPDX-License-Identifier: MIT */
#include "numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <reference/reference.h>

size_t case_count(const struct vka_io_array *array)
{
    return array->size / vka_io_dtype_size(array->dtype);
}

/* out[i] = element i as double; data may be unaligned. */
#define WIDEN(type)                                              \
    for (size_t i = 0; i < count; i++) {                         \
        type x;                                                  \
        memcpy(&x, (const char *)data + i * sizeof x, sizeof x); \
        out[i] = (double)x;                                      \
    }                                                            \
    break

#define WIDEN16(from)                                            \
    for (size_t i = 0; i < count; i++) {                         \
        uint16_t x;                                              \
        memcpy(&x, (const char *)data + i * sizeof x, sizeof x); \
        out[i] = from(x);                                        \
    }                                                            \
    break

/* A float of 4 bits of exponent and 3 of fraction, which has no infinities. */
static double from_e4m3(uint8_t x)
{
    const int exponent = x >> 3 & 15, fraction = x & 7;
    const double size =
        exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9); /* or subnormal */

    if ((x & 0x7f) == 0x7f)
        return NAN;
    return x & 0x80 ? -size : size;
}

void case_widen(enum vka_io_dtype dtype, const void *data, size_t count, double *out)
{
    switch (dtype) {
    case VKA_IO_F32:
        WIDEN(float);
    case VKA_IO_F16:
        WIDEN16(ref_from_f16);
    case VKA_IO_BF16:
        WIDEN16(ref_from_bf16);
    case VKA_IO_F64:
        WIDEN(double);
    case VKA_IO_BOOL:
        for (size_t i = 0; i < count; i++)
            out[i] = ((const uint8_t *)data)[i] != 0;
        break;
    case VKA_IO_U8:
        WIDEN(uint8_t);
    case VKA_IO_I8:
        WIDEN(int8_t);
    case VKA_IO_U16:
        WIDEN(uint16_t);
    case VKA_IO_I16:
        WIDEN(int16_t);
    case VKA_IO_U32:
        WIDEN(uint32_t);
    case VKA_IO_I32:
        WIDEN(int32_t);
    case VKA_IO_U64:
        WIDEN(uint64_t);
    case VKA_IO_I64:
        WIDEN(int64_t);
    case VKA_IO_F8_E4M3:
        for (size_t i = 0; i < count; i++)
            out[i] = from_e4m3(((const uint8_t *)data)[i]);
        break;
    case VKA_IO_F8_E5M2: /* the upper half of a float16 */
        for (size_t i = 0; i < count; i++)
            out[i] = ref_from_f16((uint16_t)(((const uint8_t *)data)[i] << 8));
        break;
    case VKA_IO_F8_E8M0:
        for (size_t i = 0; i < count; i++) {
            const uint8_t x = ((const uint8_t *)data)[i];
            out[i] = x == 255 ? NAN : ldexp(1, x - 127);
        }
        break;
    case VKA_IO_DTYPE_COUNT:
        break;
    }
}

double *case_doubles(const struct vka_io_array *array)
{
    size_t count = case_count(array);
    double *out = calloc(count > 0 ? count : 1, sizeof *out);
    if (out)
        case_widen(array->dtype, array->data, count, out);
    return out;
}

/* The int32 nearest to x, whatever x is. */
static int32_t to_int32(double x)
{
    if (isnan(x))
        return 0;
    return (int32_t)fmin(fmax(rint(x), INT32_MIN), INT32_MAX);
}

void case_narrow(const double *x, size_t count, enum vka_dtype dtype, void *out)
{
    for (size_t i = 0; i < count; i++) {
        if (dtype == VKA_F32)
            ((float *)out)[i] = (float)x[i];
        else if (dtype == VKA_F16)
            ((uint16_t *)out)[i] = ref_to_f16(x[i]);
        else if (dtype == VKA_BF16)
            ((uint16_t *)out)[i] = ref_to_bf16(x[i]);
        else if (dtype == VKA_I32)
            ((int32_t *)out)[i] = to_int32(x[i]);
        else if (dtype == VKA_BOOL)
            ((uint8_t *)out)[i] = x[i] != 0;
        else if (dtype == VKA_I8)
            ((int8_t *)out)[i] = (int8_t)fmin(fmax(rint(x[i]), INT8_MIN), INT8_MAX);
    }
}

enum vka_dtype case_dtype(enum vka_io_dtype dtype)
{
    switch (dtype) {
    case VKA_IO_F16:
        return VKA_F16;
    case VKA_IO_BF16:
        return VKA_BF16;
    case VKA_IO_F32:
    case VKA_IO_F64:
    case VKA_IO_F8_E4M3:
    case VKA_IO_F8_E5M2:
    case VKA_IO_F8_E8M0:
        return VKA_F32;
    case VKA_IO_BOOL:
        return VKA_BOOL;
    case VKA_IO_U8:
    case VKA_IO_I8:
    case VKA_IO_U16:
    case VKA_IO_I16:
    case VKA_IO_U32:
    case VKA_IO_I32:
    case VKA_IO_U64:
    case VKA_IO_I64:
        return VKA_I32;
    case VKA_IO_DTYPE_COUNT:
        break;
    }
    return VKA_DTYPE_COUNT;
}

void case_compare(const double *got, const double *want, size_t count, size_t width, double rtol,
                  double atol, struct case_result *result)
{
    double furthest = -1;
    *result = (struct case_result){.pass = true};
    for (size_t i = 0; i < count; i++) {
        double off, size = fabs(want[i]), excess;
        if (isfinite(got[i]) && isfinite(want[i]))
            off = fabs(got[i] - want[i]);
        else if ((isnan(got[i]) && isnan(want[i])) || got[i] == want[i])
            off = size = 0;
        else
            off = INFINITY;
        /* No match counts as more than any difference of numbers; an exact match as 0. */
        excess = off > 0 ? isinf(off) ? INFINITY : off / (atol + rtol * size) : 0;
        if (isinf(off) || off > atol + rtol * size)
            result->pass = false;
        result->max_abs = fmax(result->max_abs, off);
        if (isinf(off) || size > 0)
            result->max_rel = fmax(result->max_rel, isinf(off) ? off : off / size);
        if (excess > furthest) {
            furthest = excess;
            result->worst = i;
        }
    }
    if (count == 0)
        return;
    result->got = got[result->worst];
    result->want = want[result->worst];
    result->row_nmse = ref_row_nmse(got, want, count / width, width, NULL);
}
