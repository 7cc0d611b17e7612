/* Gradients of attention without a buffer of scores. */
#ifndef VKA_OP_TRAIN_ATTENTION_FUSED_H
#define VKA_OP_TRAIN_ATTENTION_FUSED_H

#include "op/train/attention_sums.h"

/* Chooses the path: fills in fused and choice. UNSUPPORTED where the plan wants the fused path and the
 * device, or the gradient of a mask, does not allow it. */
enum vka_status attention_backward_choose(struct vka_plan *plan, struct attention_backward *b);

/* Adds all products without a buffer of scores. Sums are float32 with contiguous rows; of `mask`
 * there is none. */
enum vka_status attention_add_fused(struct vka_plan *plan, const struct attention_backward *b);

#endif
