/* Block types: quantised weights and cached keys, where `values` neighbours of a row share scales. */
#ifndef VKA_CORE_BLOCK_H
#define VKA_CORE_BLOCK_H

#include <vkattn/vkattn.h>

#define MOST_BLOCK_VALUES 256

/* How a block type lies in memory. Every decoded value is exact in float32, but where the
 * last step rounds, the addition of an offset or the product with a float32 scale; so kernels and host
 * give the same bits. */
struct block_layout {
    uint32_t values, bytes;
    void (*decode)(const uint8_t *block, float *x); /* x[values] */
    int32_t scale_at[2];                            /* bytes of float16 scales; -1: none */
};

/* The values of iq4_nl and iq4_xs by their 4 bits. */
extern const int8_t block_nonlinear[16];

/* The layout of a block type; NULL for other types. */
const struct block_layout *block_layout(enum vka_dtype dtype);

/* Finds the first block with a scale, or a value of 8 bits, that is NaN or infinite. */
bool block_find_nonfinite(enum vka_dtype dtype, const void *blocks, size_t n_block, size_t *at);

#endif
