/* What a matrix product is predicted to take, and where it is cut for a submit's budget. */
#ifndef VKA_OP_MATMUL_BUDGET_H
#define VKA_OP_MATMUL_BUDGET_H

#include "op/matmul/pass.h"

#define AXIS_K 4 /* beside the axes of c, 0 to 3 */

/* The axis to halve so that a part fits the budget: of c, in whole tiles, and k where c is one
 * tile; -1 where all fits, or where the tile's k are few. */
int matmul_budget_axis(const struct vka_plan *plan, const struct matmul_op *op,
                       const struct matmul_choice *choice);

/* Measures the kernel where the product would go over the budget without. */
enum vka_status matmul_calibrate(struct vka_plan *plan, const struct matmul_op *op,
                                 const struct matmul_choice *choice);

#endif
