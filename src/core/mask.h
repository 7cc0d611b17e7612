/* Broadcasts the shape of a mask to [batch][n_head][n_q][n_kv]. */
#ifndef VKA_CORE_MASK_H
#define VKA_CORE_MASK_H

#include "core/shape.h"

/* Aligns the mask's shape right with size[4] and sets stride[4], 0 on axes that broadcast. *n_kv becomes the
 * number of keys that the mask covers; keys beyond are hidden. Returns NULL, or what does not
 * fit. */
const char *mask_broadcast(const struct shape *shape, const uint32_t size[4], uint64_t stride[4],
                           uint32_t *n_kv);

#endif
