/* A cache in itself: its life, and where its bytes, scales, lengths and positions lie. */
#ifndef VKA_OP_CACHE_CACHE_H
#define VKA_OP_CACHE_CACHE_H

#include "op/cache/state.h"

void cache_unref(struct vka_cache *cache);

/* All bytes of quantised rows, their scales included. */
struct vka_tensor cache_bytes(const struct cached_rows *cached);

/* Where kernels find the scales from key head `head` on; of blocks those of all heads. */
uint32_t cache_scales_from(const struct cached_rows *cached, uint32_t head);

/* Lengths [batch] in host memory. */
uint32_t *cache_length_words(const struct vka_cache *cache);

/* Lengths and old lengths, I32 [batch]. */
struct vka_tensor cache_lengths(const struct vka_cache *cache);
struct vka_tensor cache_positions(const struct vka_cache *cache);
/* Rows that each sequence keeps of the last step, I32 [batch]. */
struct vka_tensor cache_kept(const struct vka_cache *cache);

#endif
