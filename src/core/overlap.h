/* Whether strided views share memory. Exact for what slices and permutations leave of one tensor,
 * for contiguous rows at even distances, and for all else that needs at most 16,384 trials, some
 * milliseconds; past those the answer is the careful one. */
#ifndef VKA_CORE_OVERLAP_H
#define VKA_CORE_OVERLAP_H

#include "core/shape.h"

/* A shape in memory. */
struct placed_shape {
    const struct shape *shape; /* its offset is in `first` already */
    uint64_t first;            /* byte of the first element, from where both count */
    uint64_t size;             /* bytes of an element */
};

/* Whether they share a byte; true where that would take too long to exclude. */
bool shape_overlaps(const struct placed_shape *a, const struct placed_shape *b);

/* Whether no two indices share an element; false where that would take too long to show. */
bool shape_is_distinct(const struct shape *shape);

#endif
