/* What is left of values in quantised weights, activations and caches.
 * SPDX-License-Identifier: MIT */
#ifndef VKA_REFERENCE_BLOCKS_H
#define VKA_REFERENCE_BLOCKS_H

#include <vkattn/vkattn.h>

/* Value i of a block of a block type, of the layouts that vkattn.h names. */
double ref_block_value(enum vka_dtype dtype, const uint8_t *block, size_t i);

/* What a cache keeps of a row x[dim], as vkattn_cache.h says: y[dim]. dtype: whose scales lie behind
 * all rows. scale: the head's, of types that are given one. */
void ref_cache_row(enum vka_dtype dtype, float scale, const float *x, size_t dim, double *y);

/* What is left of a row x[n] of float32 values where vka_linear_op.activations is I8: y[n]. */
void ref_activations(const double *x, size_t n, double *y);

/* Multiplies a row by a Hadamard matrix on each block of `block` features, in float32 with sums in
 * the order of the features; y[dim]. */
void ref_hadamard(const float *x, size_t dim, size_t block, float *y);

#endif
