/* Gradients of attention within an operation. */
#ifndef VKA_OP_TRAIN_ATTENTION_H
#define VKA_OP_TRAIN_ATTENTION_H

#include <vkattn/vkattn_train.h>

#include "op/attention/attention.h"

/* vka_plan_add_attention_backward within an operation, of a checked problem that has the operands and
 * options of op->forward: checks and counts nothing. */
enum vka_status plan_attention_backward(struct vka_plan *plan,
                                        const struct vka_attention_backward_op *op,
                                        const struct attention *problem);

/* Checks the gradients of options. `function` names the public call. */
enum vka_status attention_check_option_gradients(struct vka_device *device, const char *function,
                                                 const struct vka_attention_options *options,
                                                 const struct vka_attention_backward_op *op);

#endif
