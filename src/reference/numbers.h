/* What the oracle is made of besides attention: projections, norms, rotation, the random generator,
 * storage types and the measure of error. SPDX-License-Identifier: MIT */
#ifndef VKA_REFERENCE_NUMBERS_H
#define VKA_REFERENCE_NUMBERS_H

#include <vkattn/vkattn.h>

/* The steps before the scores, on x[rows][dim] in place. RMS norm: x / sqrt(mean(x^2) + epsilon)
 * times weight[dim]. Rotation: row r has the position first + r; the error is
 * at most 3e-7 if the position is within 2^31 and base is at least 1. */
void ref_rms_norm(double *x, size_t rows, size_t dim, const double *weight, double epsilon);
void ref_rope(double *x, size_t rows, size_t dim, const struct vka_rope *rope, int64_t first);

/* Philox4x32-10: four words for one counter. */
void ref_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* y[rows][out] = (relu ? max(x, 0) : x)[rows][in] w[out][in]^T + bias[out]; bias may be NULL. */
void ref_linear(const double *x, const double *w, const double *bias, size_t rows, size_t in,
                size_t out, bool relu, double *y);

/* The normalised squared error of the worst row: the largest |got - want|^2 / max(|want|^2, tiny)
 * of the rows, each of `width` elements. Non-finite values must match (NaN with NaN, infinities of
 * the same sign) and then count as 0; otherwise the result is infinite. tiny is 1e-60, so it only
 * matters for rows that should be 0. *worst_row, if worst_row is not NULL, becomes the index of
 * that row. */
double ref_row_nmse(const double *got, const double *want, size_t rows, size_t width,
                    size_t *worst_row);

/* Converts storage types: to wider ones exactly, to narrower ones rounding to nearest, ties to
 * even. */
double ref_from_f16(uint16_t h);
double ref_from_bf16(uint16_t b);
uint16_t ref_to_f16(double x);
uint16_t ref_to_bf16(double x);

#endif
