/* A cache in itself: its life, and where its bytes, scales, lengths and positions lie. */
#ifndef VKA_OP_CACHE_CACHE_H
#define VKA_OP_CACHE_CACHE_H

#include "op/cache/state.h"

void cache_unref(struct vka_cache *cache);

/* Lengths [batch] in host memory. */
uint32_t *cache_length_words(const struct vka_cache *cache);

/* Lengths and old lengths, I32 [batch]. */
struct vka_tensor cache_lengths(const struct vka_cache *cache);
struct vka_tensor cache_positions(const struct vka_cache *cache);
/* Rows that each sequence keeps of the last step, I32 [batch]. */
struct vka_tensor cache_kept(const struct vka_cache *cache);

#endif
