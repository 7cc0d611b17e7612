#include "turns.h"

#include "params/types.h"

#include <stdlib.h>

/* By the questions that shaders ask of a type. What q6_K, q3_K and q2_K differ by are their scales. */
uint32_t turn_decoder(enum vka_dtype dtype)
{
    const uint32_t type = (uint32_t)dtype;
    const uint32_t bundles = BUNDLE_PAIR_WORDS(type) != 0;
    return bundles | (uint32_t)HAS_SIXES(type) << 1 | (uint32_t)HAS_GRID(type) << 2 |
           (uint32_t)HAS_BYTES(type) << 3 | (uint32_t)IS_TERNARY(type) << 4 |
           (uint32_t)(bundles && HAS_OFFSET(type)) << 5 | (uint32_t)IS_NONLINEAR(type) << 6 |
           (uint32_t)HAS_TABLE(type) << 7 | (uint32_t)HAS_FLOATS(type) << 8 |
           (uint32_t)(type == TYPE_I4_G128) << 9 | (uint32_t)(type == TYPE_I8) << 10 |
           (uint32_t)!IS_QUANT(type) << 11;
}

/* The number, or NULL. */
static const char *given(void)
{
    const char *text = getenv("VKATTN_TEST_TURN");
    return text && *text ? text : NULL;
}

uint32_t turn_of(uint32_t n)
{
    return given() ? (uint32_t)(strtoul(given(), NULL, 10) % n) : n;
}

bool turn_takes(enum vka_dtype dtype, bool (*is)(enum vka_dtype dtype))
{
    uint32_t before = 0, n = 0; /* types of its family */
    if (!given() || dtype_is_float(dtype))
        return true;
    if (!is(dtype))
        return false; /* no type of its family may be one of `is` */
    for (EACH_TYPE(type, is)) {
        const bool same = turn_decoder(type) == turn_decoder(dtype);
        n += same;
        before += same && type < dtype;
    }
    return before == turn_of(n);
}
