/* Random blocks of quantised types. */
#ifndef TESTS_QUANTISED_H
#define TESTS_QUANTISED_H

#include "core/block.h"
#include "rng.h"
#include "types.h"

#include <math.h>
#include <string.h>

#include <reference/reference.h>

/* Sets the scale of a block of iq1_m, which is in four places. */
static inline void quantised_scale_iq1_m(uint16_t bits, uint8_t *block)
{
    for (int i = 0; i < 4; i++)
        block[49 + 2 * i] = (uint8_t)((block[49 + 2 * i] & 15) | (bits >> 4 * i & 15) << 4);
}

/* One random block whose scales are about `size` / 16. */
static inline void quantised_draw(struct rng *rng, enum vka_dtype dtype, double size,
                                  uint8_t *block)
{
    const struct block_layout *layout = block_layout(dtype);
    for (uint32_t i = 0; i < (layout ? layout->bytes : 1); i++)
        block[i] = (uint8_t)rng_range(rng, 0, 255);
    for (int j = 0; layout && j < 2 && layout->scale_at[j] >= 0; j++) {
        double scale = fmin(size, 0x1p15) / 16 * rng_uniform(rng, 0.5, 1);
        uint16_t bits = ref_to_f16(rng_chance(rng, 30) ? -scale : scale);
        memcpy(block + layout->scale_at[j], &bits, sizeof bits);
    }
    if (dtype == VKA_MXFP4)
        block[0] = (uint8_t)rng_range(rng, size > 1 ? 140 : 120, size > 1 ? 150 : 126);
    for (int j = 0; j < 4 && dtype == VKA_NVFP4; j++) /* below 1, subnormal ones too, or any */
        block[j] = (uint8_t)rng_range(rng, 0, size > 1 ? 255 : 55);
    if (dtype == VKA_IQ1_M) {
        double scale = fmin(size, 0x1p15) / 16 * rng_uniform(rng, 0.5, 1);
        quantised_scale_iq1_m(ref_to_f16(rng_chance(rng, 30) ? -scale : scale), block);
    }
    if (dtype_is_block(dtype) && !dtype_has_integers(dtype)) { /* a float32 scale, and no NaN */
        const double most = dtype == VKA_F8_E4M3_G64 ? 256 : dtype == VKA_F8_E5M2_G64 ? 0x1p14 : 1;
        const float scale = (float)(size / most * rng_uniform(rng, 0.5, 1));
        memcpy(block, &scale, sizeof scale);
        for (uint32_t i = 4; i < layout->bytes && dtype != VKA_NF4_G64; i++)
            if ((block[i] & 0x7c) == 0x7c)
                block[i] ^= 0x40;
    }
    if (dtype == VKA_I4_G128)
        block[67] = 0, block[66] &= 15;
}

#endif
