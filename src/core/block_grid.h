/* The block types of vkattn.h whose values stand in grids: see shaders/grids. */
#ifndef VKA_CORE_BLOCK_GRID_H
#define VKA_CORE_BLOCK_GRID_H

#include <vkattn/vkattn.h>

#include <stdbool.h>
#include <stdint.h>

/* Each decodes a block to 256 values. */
void decode_iq1_s(const uint8_t *block, float *x);
void decode_iq1_m(const uint8_t *block, float *x);
void decode_iq2_xxs(const uint8_t *block, float *x);
void decode_iq2_xs(const uint8_t *block, float *x);
void decode_iq2_s(const uint8_t *block, float *x);
void decode_iq3_xxs(const uint8_t *block, float *x);
void decode_iq3_s(const uint8_t *block, float *x);

/* The bits of the float16 scale of a block of iq1_m, of which four words have four each. */
uint16_t block_scale_iq1_m(const uint8_t *block);

/* The grid of a type, of 4 * GRID_VECTORS words; NULL: it has none. */
const uint32_t *block_grid(enum vka_dtype dtype);

#endif
