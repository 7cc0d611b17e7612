/* What norms and their gradients share. */
#ifndef VKA_OP_NORM_H
#define VKA_OP_NORM_H

#include <vkattn/vkattn_model.h>

#include "plan/plan.h"

/* vka_plan_add_norm within an operation: checks and counts nothing. */
enum vka_status plan_norm(struct vka_plan *plan, const struct vka_norm_op *op);

/* *vector: the elements of a weight or bias as a tensor of rank 1, copied where no stride describes
 * them. Does nothing where t is NULL. */
enum vka_status plan_norm_vector(struct vka_plan *plan, const char *caller, const char *name,
                                 const struct vka_tensor *t, struct vka_tensor *vector);

/* Elements of a row: of the last `inner` axes of four. */
uint64_t norm_row_length(const struct shape *shape, uint32_t inner);

#endif
