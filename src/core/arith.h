/* Whole numbers. */
#ifndef VKA_CORE_ARITH_H
#define VKA_CORE_ARITH_H

#include <stdint.h>

static inline uint32_t divide_up(uint32_t a, uint32_t b)
{
    return a / b + (a % b != 0); /* a + b - 1 may pass 2^32 */
}

static inline uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* A number of workgroups that may pass what any device allows. */
static inline uint32_t saturate(uint64_t n)
{
    return (uint32_t)least(n, UINT32_MAX);
}

#endif
