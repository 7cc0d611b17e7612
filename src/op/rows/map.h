/* Element-wise functions on checked tensors. */
#ifndef VKA_OP_MAP_H
#define VKA_OP_MAP_H

#include <vkattn/vkattn_model.h>

#include "plan/plan.h"

/* Applies a function, with an alpha of 1, in place. */
enum vka_status plan_activate(struct vka_plan *plan, enum vka_activation function,
                              const struct vka_tensor *tensor);

#endif
