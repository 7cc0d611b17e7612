/* Attention as an operation, and within other operations. */
#ifndef VKA_OP_ATTENTION_ATTENTION_H
#define VKA_OP_ATTENTION_ATTENTION_H

#include "op/attention/problem.h"

/* Adds the checked operation: choice, norms and rotation, past and present, then a path. */
enum vka_status plan_attention(struct vka_plan *plan, struct attention *a,
                               const struct attention_inputs *inputs);

#endif
