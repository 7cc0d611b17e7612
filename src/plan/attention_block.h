/* Attention over keys that come block by block, see vka_attention_op.state. */
#ifndef VKA_PLAN_ATTENTION_BLOCK_H
#define VKA_PLAN_ATTENTION_BLOCK_H

#include "plan/attention.h"
#include "plan/tune.h"

/* Where op has blocks: that they fit the problem, into *a, whose n_kv becomes that of all keys. */
enum vka_status attention_check_block(struct vka_plan *plan, const char *caller,
                                      const struct vka_attention_op *op, struct attention *a);

/* Whether the operation writes its output: all but the blocks before the last do. */
bool attention_is_last(const struct attention *a);

/* The kernel for the problem; of attention_fused.c. */
void attention_choose(const struct vka_plan *plan, const struct attention *a,
                      struct attention_choice *choice);

/* Adds the pass for a block. UNSUPPORTED where there is no such pass for all keys. */
enum vka_status attention_add_block(struct vka_plan *plan, const struct attention *a,
                                    const struct attention_choice *choice);

#endif
