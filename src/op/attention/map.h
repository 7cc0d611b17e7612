/* The map of a mask: which tiles of attention_tile and attention_coop it hides, found by a pass
 * before theirs. */
#ifndef VKA_OP_ATTENTION_MAP_H
#define VKA_OP_ATTENTION_MAP_H

#include "op/attention/mask.h"

/* Whether the pass for a slice's map fits the budget; true where there is no map. */
bool attention_map_fits(const struct vka_plan *plan, const struct attention *a,
                        const struct head_slice *s);

/* Adds the pass that makes the map, in scratch, and completes parameters and bindings of the passes
 * of the slice, which follow. */
enum vka_status attention_bind_map(struct vka_plan *plan, const struct attention *a,
                                   const struct head_slice *s, struct pass *pass,
                                   struct attention_params *p, struct vka_tensor *map);

#endif
