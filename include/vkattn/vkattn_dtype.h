/* vkattn: element types, their names, sizes and blocks. SPDX-License-Identifier: MIT
 *
 * vkattn.h includes it where its types begin. Any thread may call these functions. */
#include <vkattn/vkattn.h> /* before the guard: it is what includes this file, at its place there */
#ifndef VKATTN_DTYPE_H
#define VKATTN_DTYPE_H

#ifdef __cplusplus
extern "C" {
#endif

enum vka_dtype {
    VKA_F32 = 0,
    VKA_F16,  /* IEEE binary16 */
    VKA_BF16, /* the upper half of a float32 */
    VKA_I32,  /* lengths and offsets */
    VKA_BOOL, /* one byte, 0 or not 0 */
    VKA_I8,   /* weights with a scale for each row, see vka_linear_op */
    /* Block types: quantised weights. A block is `values` neighbours along the last axis, in the
     * layout of GGUF, but for I4_G128. d and m are float16, q the stored integers. */
    VKA_Q8_0,    /* 32 values in 34 bytes: d q, q int8 */
    VKA_Q4_0,    /* 32 in 18: d (q - 8), q of 4 bits */
    VKA_Q4_1,    /* 32 in 20: d q + m */
    VKA_Q5_0,    /* 32 in 22: d (q - 16), q of 5 bits */
    VKA_Q4_K,    /* 256 in 144: d s q - m t, with s and t of 6 bits for each 32 values */
    VKA_Q6_K,    /* 256 in 210: d s (q - 32), q of 6 bits, with an int8 s for each 16 values */
    VKA_MXFP4,   /* 32 in 17: 2^(e - 127) q, q of type e2m1 */
    VKA_I4_G128, /* 128 in 68: 64 bytes of q, value 2 i in the low half of byte i; d; a zero point z
                    of 16 bits: d (q - z). The weights of GPTQ and AWQ with groups of 128. */
    VKA_F8_E4M3, /* one byte, sign, 4 bits of exponent, 3 of mantissa: up to 448, NaN, no Inf. Keys
                    and values of caches alone, see vka_cache_info */
    VKA_Q5_1,    /* 32 in 24: d q + m, q of 5 bits */
    VKA_Q5_K,    /* 256 in 176: d s q - m t as Q4_K, q of 5 bits */
    VKA_Q3_K,    /* 256 in 110: d (s - 32) (q - 4), q of 3 bits, s of 6 for each 16 values */
    VKA_Q2_K,    /* 256 in 84: d s q - m t, q of 2 bits, s and t of 4 for each 16 values */
    VKA_IQ4_NL,  /* 32 in 18: d v(q), q of 4 bits, v = -127, -104, -83, -65, -49, -35, -22, -10, 1,
                    13, 25, 38, 53, 69, 89, 113 */
    VKA_IQ4_XS,  /* 256 in 136: d (s - 32) v(q) as IQ4_NL, s of 6 bits for each 32 values */
    VKA_NVFP4,   /* 64 in 36: s q, q of type e2m1, s of type e4m3 without a sign for each 16 values,
                    but 0 of the bits 0x7f. It has no scale of the tensor. */
    VKA_TQ2_0,   /* 256 in 66: d (q - 1), q of 2 bits */
    VKA_TQ1_0,   /* 256 in 54: d (q - 1), q of 0 to 2, five of them in a byte */
    /* Numbers of entries of a grid that the format has: 4 values each, of iq1 and iq2 8. */
    VKA_IQ3_S, /* 256 in 110: d (2 s + 1) g, g of 1, 3 ... 15 with a sign, s of 4 bits for each 32 */
    VKA_IQ3_XXS, /* 256 in 98: d (s + 1/2) / 2 g, g of 4, 12 ... 52, 62 with a sign, s as IQ3_S */
    VKA_IQ2_XXS, /* 256 in 66: d (s + 1/2) / 4 g, g of 8, 25, 43 with a sign, s as IQ3_S */
    VKA_IQ2_XS,  /* 256 in 74: as IQ2_XXS, s of 4 bits for each 16 values */
    VKA_IQ2_S,   /* 256 in 82: as IQ2_XS */
    VKA_IQ1_S,   /* 256 in 50: d (2 s + 1) (g + e), g of -1, 0, 1, s of 3 bits and e 1/8 or -1/8 for
                    each 32 values */
    VKA_IQ1_M,   /* 256 in 56: as IQ1_S, s for each 16 values, e for each 8 */
    /* Floats with scales d in float32, 4 bytes that come first. No files have them: scales of a
     * tensor, of rows, or of blocks of a matrix are repeated where weights are packed. */
    VKA_F8_E4M3_G64, /* 64 in 68: d q, q of type e4m3: 1 sign, 4 bits of exponent, 0x7f is NaN */
    VKA_F8_E5M2_G64, /* 64 in 68: d q, q of type e5m2: the high byte of a float16 */
    VKA_NF4_G64,     /* 64 in 36: d v(q), q of 4 bits as NVFP4 has them, v the 16 values of nf4 that
                        bitsandbytes has, from -1 to 1 */
    VKA_DTYPE_COUNT
};

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
