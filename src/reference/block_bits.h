/* Fields of a block, as bits of it. SPDX-License-Identifier: MIT */
#ifndef VKA_REFERENCE_BLOCK_BITS_H
#define VKA_REFERENCE_BLOCK_BITS_H

#include <reference/numbers.h>

#include <stddef.h>
#include <stdint.h>

/* `count` bits from bit `first` on, lowest first. */
static inline unsigned bits(const uint8_t *block, size_t first, unsigned count)
{
    unsigned x = 0;
    for (unsigned i = 0; i < count; i++)
        x |= (unsigned)(block[(first + i) / 8] >> (first + i) % 8 & 1) << i;
    return x;
}

static inline double half(const uint8_t *block, size_t byte)
{
    return ref_from_f16((uint16_t)bits(block, 8 * byte, 16));
}

#endif
