/* The passes of a slice of fused attention. */
#ifndef VKA_OP_ATTENTION_PASS_H
#define VKA_OP_ATTENTION_PASS_H

#include "op/attention/budget.h"

/* Adds the passes of a slice that attention_cut has cut. */
enum vka_status attention_add_passes(struct vka_plan *plan, const struct attention *a,
                                     const struct head_slice *s, const struct attention_cuts *cuts);

#endif
