/* Types of quantised weights by turns: what all types share is tested of one of each family at a
 * landing, of all of them in full. */
#ifndef TESTS_TURNS_H
#define TESTS_TURNS_H

#include "types.h"

/* A family: types that kernels decode by the same branches, so that a fault of one shows in each. */
uint32_t turn_decoder(enum vka_dtype dtype);

/* Whether a test takes the type. Those of a family for which `is` holds are taken in turn, by the number
 * in $VKATTN_TEST_TURN, others not; without a number all are. */
bool turn_takes(enum vka_dtype dtype, bool (*is)(enum vka_dtype dtype));

/* That number modulo n, for what else is taken in turn; n: there is none, and all are taken. */
uint32_t turn_of(uint32_t n);

/* The first type from number `from` on that is taken; VKA_DTYPE_COUNT: none. */
static inline enum vka_dtype turn_from(uint32_t from, bool (*is)(enum vka_dtype dtype))
{
    enum vka_dtype type = type_from(from, is);
    while (type < VKA_DTYPE_COUNT && !turn_takes(type, is))
        type = type_from((uint32_t)type + 1, is);
    return type;
}

/* for (EACH_TURN(type, dtype_is_block)): the types that are taken, in order. */
#define EACH_TURN(type, is)                 \
    enum vka_dtype type = turn_from(0, is); \
    type < VKA_DTYPE_COUNT;                 \
    type = turn_from((uint32_t)type + 1, is)

#endif
