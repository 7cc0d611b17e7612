/* How a mask tensor lies over [batch][n_head][n_q][n_kv]. */
#ifndef VKA_CORE_MASK_H
#define VKA_CORE_MASK_H

#include "core/shape.h"

/* Aligns mask to the right of size[4] and gives rank-4 strides, 0 where it broadcasts. n_kv is how
 * many keys the mask speaks of; those beyond are hidden. Returns NULL, or what does not fit. */
const char *mask_broadcast(const struct shape *mask, const uint32_t size[4], uint64_t stride[4],
                           uint32_t *n_kv);

#endif
