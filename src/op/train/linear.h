/* Gradients of linear maps within an operation. */
#ifndef VKA_OP_TRAIN_LINEAR_H
#define VKA_OP_TRAIN_LINEAR_H

#include <vkattn/vkattn_train.h>

#include "plan/plan.h"

/* vka_plan_add_linear_backward within an operation: checks and counts nothing. */
enum vka_status plan_linear_backward(struct vka_plan *plan,
                                     const struct vka_linear_backward_op *op);

#endif
