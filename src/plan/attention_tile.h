/* What the kernel attention_tile has around it: the map of a mask before, the merging of pieces of
 * the keys after. */
#ifndef VKA_PLAN_ATTENTION_TILE_H
#define VKA_PLAN_ATTENTION_TILE_H

#include "plan/attention.h"
#include "plan/tune.h"

/* Between tile_prepare and tile_finish of a slice. Zero where there is none. */
struct tile_scratch {
    struct vka_tensor map;     /* words of attention_map */
    struct vka_tensor partial; /* records of attention_merge */
};

/* Whether a slice's grid and scratch fit the device, and the passes around it the budget. */
bool tile_fits(const struct vka_plan *plan, const struct attention *a,
               const struct attention_choice *c, const struct slice *s);

/* Before the pass of a slice is added: adds the map's, and completes the pass's parameters and
 * bindings, the partial results in place of the output where the keys are in pieces. */
enum vka_status tile_prepare(struct vka_plan *plan, const struct attention *a,
                             const struct attention_choice *c, const struct slice *s,
                             struct pass *pass, struct attention_params *p,
                             struct tile_scratch *scratch);

/* After it: adds the merging, and gives the scratch back. */
enum vka_status tile_finish(struct vka_plan *plan, const struct attention *a,
                            const struct attention_choice *c, const struct slice *s,
                            struct tile_scratch *scratch);

#endif
