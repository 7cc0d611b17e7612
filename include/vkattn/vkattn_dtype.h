/* vkattn: element types, their names, sizes and blocks. SPDX-License-Identifier: MIT
 *
 * A part of vkattn.h, which includes it and lists the types. Any thread may call these functions. */
#ifndef VKATTN_DTYPE_H
#define VKATTN_DTYPE_H

#include <vkattn/vkattn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of one element; 0 for block types and for an unknown type. Any thread. */
VKA_API size_t vka_dtype_size(enum vka_dtype dtype);

/* The number of values and bytes of a block; for other types 1 and vka_dtype_size. INVALID (unknown
 * type, and both are set to 0). Any thread. */
VKA_API enum vka_status vka_dtype_block(enum vka_dtype dtype, uint32_t *values, uint32_t *bytes);

/* "f32", "f16", "bf16", "i32", "bool", "i8", "q8_0", "q4_0", "q4_1", "q5_0", "q4_K", "q6_K",
 * "mxfp4", "i4_g128", "f8_e4m3", "q5_1", "q5_K", "q3_K", "q2_K", "iq4_nl", "iq4_xs", "nvfp4",
 * "tq2_0", "tq1_0", "iq3_s", "iq3_xxs", "iq2_xxs", "iq2_xs", "iq2_s", "iq1_s", "iq1_m",
 * "f8_e4m3_g64", "f8_e5m2_g64", "nf4_g64"; "unknown" for other values. Static storage. Any thread. */
VKA_API const char *vka_dtype_name(enum vka_dtype dtype);

/* Converts n_block blocks of a block type to float32 x[n_block * values], with the bits that
 * kernels compute, but that devices may take values below 2^-126 for 0, and products those of MXFP4
 * blocks with e below 2. INVALID (not a block type, NULL). Any thread. */
VKA_API enum vka_status vka_dtype_decode(enum vka_dtype dtype, const void *blocks, size_t n_block,
                                         float *x);

/* Quantises float32 x[n_block * values] to Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K or IQ4_NL.
 * Q8_0: d = max |x| / 127, q = x / d rounded to nearest, ties away from 0. Q4_0 and Q5_0: d = the x of
 * largest magnitude / -8 or -16, q = x / d + 8 or 16 rounded to nearest, at most 15 or 31. Q4_1 and
 * Q5_1: d = (max x - min x) / 15 or 31, q = (x - min x) / d rounded to nearest. These divide by d
 * before it is rounded to float16, and give the bits of ggml's reference. Q4_K, Q5_K, Q6_K and IQ4_NL:
 * what a search for the least squared error finds: 3.7, 8.6, 5.9 and 13 % less than ggml's reference
 * on normal numbers, and on the weights of all-MiniLM-L6-v2. A block does not depend on the others.
 * n_block may be 0, to ask for the type. INVALID (another type, NULL, NaN or Inf in x or beyond
 * float16). Any thread. */
VKA_API enum vka_status vka_dtype_encode(enum vka_dtype dtype, const float *x, size_t n_block,
                                         void *blocks);

#ifdef __cplusplus
}
#endif

#endif
