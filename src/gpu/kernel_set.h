/* Sets of kernels, as values, of as many words as there are kernels. */
#ifndef VKA_GPU_KERNEL_SET_H
#define VKA_GPU_KERNEL_SET_H

#include "gpu/kernels.h"

#ifndef KERNEL_SET_MEMBERS /* a test has sets of more members than there are kernels */
#define KERNEL_SET_MEMBERS KERNEL_COUNT
#endif
#define KERNEL_SET_WORDS ((KERNEL_SET_MEMBERS + 63) / 64)

/* {0} is the empty set. Bits from KERNEL_SET_MEMBERS on are 0, so sets are equal where words are. */
struct kernel_set {
    uint64_t words[KERNEL_SET_WORDS]; /* member k: bit k % 64 of word k / 64 */
};

static inline bool set_has(struct kernel_set set, uint32_t kernel)
{
    return set.words[kernel / 64] >> kernel % 64 & 1;
}

static inline void set_add(struct kernel_set *set, uint32_t kernel)
{
    set->words[kernel / 64] |= UINT64_C(1) << kernel % 64;
}

/* Adds all members of another set. */
static inline void set_join(struct kernel_set *set, struct kernel_set other)
{
    for (uint32_t i = 0; i < KERNEL_SET_WORDS; i++)
        set->words[i] |= other.words[i];
}

static inline struct kernel_set set_union(struct kernel_set a, struct kernel_set b)
{
    set_join(&a, b);
    return a;
}

#define NO_KERNELS ((struct kernel_set){{0}})

static inline struct kernel_set set_of(const uint32_t *kernels, size_t n)
{
    struct kernel_set set = NO_KERNELS;
    for (size_t i = 0; i < n; i++)
        set_add(&set, kernels[i]);
    return set;
}

/* The set of these kernels, such as KERNEL_SET(KERNEL_copy, KERNEL_map). */
#define KERNEL_SET(...)                     \
    set_of((const uint32_t[]){__VA_ARGS__}, \
           sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

/* Those of a set that are not in another. */
static inline struct kernel_set set_minus(struct kernel_set set, struct kernel_set other)
{
    for (uint32_t i = 0; i < KERNEL_SET_WORDS; i++)
        set.words[i] &= ~other.words[i];
    return set;
}

static inline struct kernel_set set_all_but(struct kernel_set set)
{
    struct kernel_set all = NO_KERNELS;
    for (uint32_t k = 0; k < KERNEL_SET_MEMBERS; k++)
        set_add(&all, k);
    return set_minus(all, set);
}

static inline bool set_is_equal(struct kernel_set a, struct kernel_set b)
{
    for (uint32_t i = 0; i < KERNEL_SET_WORDS; i++)
        if (a.words[i] != b.words[i])
            return false;
    return true;
}

static inline bool set_is_empty(struct kernel_set set)
{
    return set_is_equal(set, NO_KERNELS);
}

/* Whether two sets have a member in common. */
static inline bool set_meets(struct kernel_set a, struct kernel_set b)
{
    return !set_is_equal(set_minus(a, b), a);
}

#endif
