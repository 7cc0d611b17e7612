/* Passes over cached rows: lengths advanced, rows quantised, pages gathered. */
#ifndef VKA_OP_CACHE_PASSES_H
#define VKA_OP_CACHE_PASSES_H

#include "op/cache/state.h"

/* Adds to the lengths. full: u32 [batch][2], ticket of the first run without room for a sequence, see
 * ticket_of_words; 0: none. */
enum vka_status plan_cache_advance(struct vka_plan *plan, const struct cache_use *use,
                                   struct storage *full);

/* Quantises keys or values into a cache of a type with scales, at the old lengths. */
enum vka_status plan_cache_quantise(struct vka_plan *plan, const struct cache_use *use,
                                    const struct vka_tensor *rows,
                                    const struct cached_rows *cached);

/* The slice of cached rows that a pass reads or writes: pages of a paged cache are not the sequences',
 * packed rows are of any sequence, and rows lie in a cache where the device says. */
struct vka_tensor cached_slice(const struct vka_cache *cache, bool packed,
                               const struct vka_tensor *rows, const struct slice *slice);

/* Lengths of each axis down to which passes over rows of this size are cut for the budget. */
void cache_least_slice(const uint32_t size[4], uint32_t multiple[4]);

/* Copies keys or values of a paged cache to dense scratch [batch][n_kv_head][capacity][dim]. */
enum vka_status plan_cache_gather(struct vka_plan *plan, struct vka_cache *cache,
                                  const struct vka_tensor *cached, struct vka_tensor *dense);

#endif
