/* What a matrix product is predicted to take, and where it is cut for a submit's budget. */
#ifndef VKA_PLAN_MATMUL_BUDGET_H
#define VKA_PLAN_MATMUL_BUDGET_H

#include "plan/matmul_pass.h"

struct work matmul_work(const struct matmul_op *op, const struct matmul_choice *choice);

/* The axis of c to halve, in whole tiles, so that a part fits the budget; -1 where all does, or where
 * it is one tile. */
int matmul_budget_axis(const struct vka_plan *plan, const struct matmul_op *op,
                       const struct matmul_choice *choice);

/* Measures the kernel where the product would go over the budget without. */
enum vka_status matmul_calibrate(struct vka_plan *plan, const struct matmul_op *op,
                                 const struct matmul_choice *choice);

#endif
