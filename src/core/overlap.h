/* Tells whether strided views share memory. The answer is exact for slices and permutations of one
 * tensor, for contiguous rows at even distances, and for everything else that takes at most 16,384
 * trials (some milliseconds); beyond that it is the safe one. */
#ifndef VKA_CORE_OVERLAP_H
#define VKA_CORE_OVERLAP_H

#include "core/shape.h"

/* A shape in memory. */
struct placed_shape {
    const struct shape *shape; /* its offset is included in `first` */
    uint64_t first;            /* byte of the first element, from the same origin for both */
    uint64_t size;             /* bytes of an element */
};

/* Whether they share a byte; true if excluding it would take too long. */
bool shape_overlaps(const struct placed_shape *a, const struct placed_shape *b);

/* Whether no two indices share an element; false if proving it would take too long. */
bool shape_is_distinct(const struct shape *shape);

#endif
