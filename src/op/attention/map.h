/* What a mask does to the tiles of attention_tile and attention_coop, told before them. */
#ifndef VKA_OP_ATTENTION_MAP_H
#define VKA_OP_ATTENTION_MAP_H

#include "op/attention/attention.h"
#include "kernel/attention.h"

/* Whether the pass for a slice's map fits the budget, where there is one. */
bool attention_map_fits(const struct vka_plan *plan, const struct attention *a,
                        const struct slice *s);

/* Before the passes of a slice are added: adds the map's, in scratch, and completes their
 * parameters and bindings. */
enum vka_status attention_bind_map(struct vka_plan *plan, const struct attention *a,
                                   const struct slice *s, struct pass *pass,
                                   struct attention_params *p, struct vka_tensor *map);

#endif
