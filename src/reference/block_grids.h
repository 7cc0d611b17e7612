/* Values of blocks of iq1, iq2 and iq3. SPDX-License-Identifier: MIT */
#ifndef VKA_REFERENCE_BLOCK_GRIDS_H
#define VKA_REFERENCE_BLOCK_GRIDS_H

#include <vkattn/vkattn.h>

/* Value i of a block of one of these types; NaN for other types. */
double ref_grid_value(enum vka_dtype dtype, const uint8_t *block, size_t i);

#endif
