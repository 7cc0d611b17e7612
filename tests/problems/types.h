/* Loops over the element types of a kind, and draws of one: a new row of types.def is in them. */
#ifndef TESTS_TYPES_H
#define TESTS_TYPES_H

#include "core/dtype.h"
#include "rng.h"

/* The first type from number `from` on that `is` holds for; VKA_DTYPE_COUNT: none. */
static inline enum vka_dtype type_from(uint32_t from, bool (*is)(enum vka_dtype dtype))
{
    while (from < VKA_DTYPE_COUNT && !is((enum vka_dtype)from))
        from++;
    return (enum vka_dtype)from;
}

/* for (EACH_TYPE(type, dtype_is_block)): all types that a predicate holds for, in order. */
#define EACH_TYPE(type, is)                 \
    enum vka_dtype type = type_from(0, is); \
    type < VKA_DTYPE_COUNT;                 \
    type = type_from((uint32_t)type + 1, is)

/* One of these types; the first is drawn `more` times more often than each other. */
static inline enum vka_dtype type_draw_uneven(struct rng *rng, bool (*is)(enum vka_dtype dtype),
                                              uint32_t more)
{
    uint32_t n = 0;
    for (EACH_TYPE(type, is))
        n++;
    enum vka_dtype drawn = type_from(0, is);
    for (uint32_t i = rng_range(rng, 0, n - 1 + more); i > more; i--)
        drawn = type_from((uint32_t)drawn + 1, is);
    return drawn;
}

static inline enum vka_dtype type_draw(struct rng *rng, bool (*is)(enum vka_dtype dtype))
{
    return type_draw_uneven(rng, is, 0);
}

/* A float type, float32 twice as often as another. */
static inline enum vka_dtype type_draw_float(struct rng *rng)
{
    return type_draw_uneven(rng, dtype_is_float, 1);
}

/* What a cache may hold. */
static inline bool type_is_cached(enum vka_dtype dtype)
{
    return dtype_is_float(dtype) || dtype_is_scaled(dtype);
}

/* Rows that are looked up by their numbers: vka_plan_add_gather. */
static inline bool type_is_table(enum vka_dtype dtype)
{
    return dtype_is_float(dtype) || dtype_is_block(dtype);
}

#endif
