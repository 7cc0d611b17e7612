/* Fused attention: its operands as the kernel reads them, in slices that fit the device and the
 * budget of a submit. */
#ifndef VKA_OP_ATTENTION_FUSED_H
#define VKA_OP_ATTENTION_FUSED_H

#include "op/attention/problem.h"

/* Adds fused attention, without a buffer of scores. UNSUPPORTED where the device has no kernel. */
enum vka_status plan_attention_fused(struct vka_plan *plan, const struct attention *a);

/* Replaces *t, where its rows are not contiguous, by a copy in scratch. whole, of keys and values: also
 * where rows are so far apart that a head exceeds a binding. */
enum vka_status attention_join_rows(struct vka_plan *plan, struct vka_tensor *t, bool whole);

#endif
