/* What is left of values in quantised weights, activations and caches.
 * SPDX-License-Identifier: MIT */
#ifndef VKA_REFERENCE_BLOCKS_H
#define VKA_REFERENCE_BLOCKS_H

#include <vkattn/vkattn.h>

/* Value i of a block of a block type, of the layouts that vkattn.h names. */
double ref_block_value(enum vka_dtype dtype, const uint8_t *block, size_t i);

/* The values that a cache of type Q8_0 or Q4_0 keeps of a block of 32: y[32], as vkattn_cache.h
 * says. */
void ref_cache_block(enum vka_dtype dtype, const float x[32], double y[32]);

/* What is left of a row x[n] of float32 values where vka_linear_op.activations is I8: y[n]. */
void ref_activations(const double *x, size_t n, double *y);

/* What a cache of type F8_E4M3 keeps of x in a head with this scale. */
double ref_cache_f8(float x, float scale);

/* Multiplies a row by a Hadamard matrix on each block of `block` features, in float32 with sums in
 * the order of the features; y[dim]. */
void ref_hadamard(const float *x, size_t dim, size_t block, float *y);

#endif
