/* Element and block types, shared by C and GLSL. */
#ifndef VKA_PARAMS_TYPES_H
#define VKA_PARAMS_TYPES_H

#include "params/begin.h"

#include "types.def"

/* Quantised activations, beside the API's types: a block is MATMUL_BLOCK neighbours along k in 48
 * words: int8, 4 a word; for each 16 of them a float32 scale, then for each the sum of the integers.
 * Scales have 12 significant bits. Rows are padded to whole blocks with 0. */
#define ACTIVATION_VALUES 128u
#define ACTIVATION_BYTES 192u
#define ACTIVATION_SCALE 32u /* words before the scales, and before the sums */
#define ACTIVATION_SUM 40u

#include "params/end.h"
#endif
