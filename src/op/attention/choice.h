/* The path and the kernel of an attention, chosen once, before any pass is added. */
#ifndef VKA_OP_ATTENTION_CHOICE_H
#define VKA_OP_ATTENTION_CHOICE_H

#include "op/attention/problem.h"

/* The type in which rotated or normalised queries and new keys enter the scores: that of all operands,
 * where matrix units take it; else float32. */
enum vka_dtype attention_turned_dtype(const struct vka_plan *plan, const struct attention *a,
                                      const struct attention_inputs *in);

/* Chooses path and kernel, and tests untested kernels: fills in fused and choice. Succeeds without
 * a usable kernel. */
enum vka_status attention_choose(struct vka_plan *plan, struct attention *a,
                                 const struct attention_inputs *in);

/* Types, sizes and alignment of the operands, for the kernel of the fused path. */
struct attention_operands attention_operands_of(const struct attention *a);

#endif
