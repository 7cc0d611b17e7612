/* Element and block types, shared by C and GLSL. */
#ifndef VKA_PARAMS_TYPES_H
#define VKA_PARAMS_TYPES_H

#include "params/begin.h"

/* Element types, as enum vka_dtype. */
#define TYPE_F32 0
#define TYPE_F16 1
#define TYPE_BF16 2
#define TYPE_I32 3
#define TYPE_BOOL 4
#define TYPE_I8 5
#define TYPE_Q8_0 6 /* block types: this and all up to TYPE_I4_G128 */
#define TYPE_Q4_0 7
#define TYPE_Q4_1 8
#define TYPE_Q5_0 9
#define TYPE_Q4_K 10
#define TYPE_Q6_K 11
#define TYPE_MXFP4 12
#define TYPE_I4_G128 13
#define TYPE_F8_E4M3 14 /* of caches alone */
/* Quantised activations, beside the API's types: a block is MATMUL_BLOCK neighbours along k in 48
 * words: int8, 4 a word; for each 16 of them a float32 scale, then for each the sum of the integers.
 * Scales have 12 significant bits. Rows are padded to whole blocks with 0. */
#define ACTIVATION_VALUES 128u
#define ACTIVATION_BYTES 192u
#define ACTIVATION_SCALE 32u /* words before the scales, and before the sums */
#define ACTIVATION_SUM 40u
/* Values and bytes of a block; I8 is read as blocks of one. */
#define BLOCK_VALUES(type)                               \
    ((type) == TYPE_I8                            ? 1u   \
     : (type) == TYPE_Q4_K || (type) == TYPE_Q6_K ? 256u \
     : (type) == TYPE_I4_G128                     ? 128u \
                                                  : 32u)
#define BLOCK_BYTES(type)          \
    ((type) == TYPE_I8      ? 1u   \
     : (type) == TYPE_Q8_0  ? 34u  \
     : (type) == TYPE_Q4_0  ? 18u  \
     : (type) == TYPE_Q4_1  ? 20u  \
     : (type) == TYPE_Q5_0  ? 22u  \
     : (type) == TYPE_Q4_K  ? 144u \
     : (type) == TYPE_Q6_K  ? 210u \
     : (type) == TYPE_MXFP4 ? 17u  \
                            : 68u)
/* A run is 64 values of a row, of types whose runs are whole words where the row begins with one: see
 * lib/runs.glsl. Words of two runs; 0: not such a type. */
#define RUN_VALUES 64u
#define RUN_PAIR_WORDS(type)        \
    ((type) == TYPE_Q8_0      ? 34u \
     : (type) == TYPE_Q4_0    ? 18u \
     : (type) == TYPE_Q4_1    ? 20u \
     : (type) == TYPE_Q5_0    ? 22u \
     : (type) == TYPE_Q4_K    ? 18u \
     : (type) == TYPE_I4_G128 ? 17u \
                              : 0u)

#include "params/end.h"
#endif
