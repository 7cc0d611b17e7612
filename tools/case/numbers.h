/* Numbers of case files: widening, narrowing and the comparison. SPDX-License-Identifier: MIT */
#ifndef CASE_NUMBERS_H
#define CASE_NUMBERS_H

#include <vkattn/vkattn_io.h>

/* The number of elements. */
size_t case_count(const struct vka_io_array *array);

/* `count` elements of any type as double; 64-bit integers beyond 2^53 round. BOOL gives 0 or 1. */
void case_widen(enum vka_io_dtype dtype, const void *data, size_t count, double *out);

/* The whole array as double; NULL if memory ran out. The caller frees it. */
double *case_doubles(const struct vka_io_array *array);

/* Converts `count` numbers to a tensor's element type, rounding to nearest, ties to even; BOOL is
 * x != 0. For I32 they must fit, as kv_length and query_offset of an open case do. */
void case_narrow(const double *x, size_t count, enum vka_dtype dtype, void *out);

/* The element type for an array's values on a device: I32 for I64, F32 for F64. */
enum vka_dtype case_dtype(enum vka_io_dtype dtype);

struct case_result {
    bool pass;       /* every element: |got - want| <= atol + rtol * |want| */
    double max_abs;  /* largest |got - want|; infinite if a NaN or infinity does not match */
    double max_rel;  /* largest |got - want| / |want| with want != 0; infinite in the same cases */
    double row_nmse; /* |got - want|^2 / |want|^2 of the worst row */
    size_t worst; /* index of the element that exceeds its tolerance most, or comes nearest to it */
    double got, want; /* that element */
};

/* Compares count elements; count is a multiple of width, the length of a row. */
void case_compare(const double *got, const double *want, size_t count, size_t width, double rtol,
                  double atol, struct case_result *result);

#endif
