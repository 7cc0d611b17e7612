/* What stands in a cache at and behind the lengths of its sequences, which no result may depend on:
 * NaN, the largest number of the type, or what another sequence might have left. */
#ifndef TESTS_CACHE_SOIL_H
#define TESTS_CACHE_SOIL_H

#include <vkattn/vkattn.h>

#include "compare.h"

enum soil { SOIL_NAN = 0, SOIL_LARGEST, SOIL_LIVE, SOIL_COUNT };

/* Writes it to each row of each layer, in every page, that no sequence holds. No run may be in
 * flight. */
enum vka_status cache_soil(struct vka_cache *cache, enum soil soil);

/* Soils a new cache, in a way that differs from call to call. Ends the program on failure. */
void cache_soil_new(struct vka_cache *cache);

/* State and page table of a cache before a run; NULL where memory ends. The caller frees it. */
void *cache_before(struct vka_cache *cache);

/* Takes the cache back to `before`, soils it and runs the plan once more, for each kind of soil. False,
 * with the reason in why, where the outputs have other bits than the run after `before` left in
 * them. The cache is then as after that run. */
bool cache_soil_compare(struct vka_device *device, struct vka_cache *cache, const void *before,
                        struct vka_plan *plan, struct operand *const *outputs, size_t n,
                        char why[WHY]);

#endif
