/* Steps of a plan that appends to a cache, and its reports of runs without room. */
#ifndef VKA_OP_CACHE_ROOM_H
#define VKA_OP_CACHE_ROOM_H

#include "op/cache/state.h"

/* INVALID where the use does not go with the earlier operations of its step. */
enum vka_status plan_check_step(struct vka_plan *plan, const char *caller,
                                const struct cache_use *use);

/* Begins a step, unless the use belongs to one: keeps the cache as long as the plan, whose waits
 * report when it had no room, and adds to the lengths. plan_end_step notes that the operation was
 * added. */
enum vka_status plan_begin_step(struct vka_plan *plan, const struct cache_use *use);
void plan_end_step(struct vka_plan *plan, const struct cache_use *use);

/* Discards what earlier runs reported of a sequence. No run may be in flight. */
void cache_change(struct vka_cache *cache, uint32_t sequence);

#endif
