/* Gradients of norms within an operation. */
#ifndef VKA_OP_TRAIN_NORM_H
#define VKA_OP_TRAIN_NORM_H

#include <vkattn/vkattn_train.h>

#include "plan/plan.h"

/* vka_plan_add_norm_backward within an operation: checks and counts nothing. */
enum vka_status plan_norm_backward(struct vka_plan *plan, const struct vka_norm_backward_op *op);

#endif
