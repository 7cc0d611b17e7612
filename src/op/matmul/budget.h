/* Cuts matrix products for the budget of a submit, and measures their kernels. */
#ifndef VKA_OP_MATMUL_BUDGET_H
#define VKA_OP_MATMUL_BUDGET_H

#include "op/matmul/product.h"

/* The first axis of c that is longer than what is not cut, `rows` along m; CUT_FITS: none. */
int matmul_first_axis(const struct matmul_op *op, const struct matmul_choice *choice,
                      uint32_t rows);

/* The axis to halve so that a slice fits the budget: of c, in whole tiles, and k where c is one
 * tile; CUT_FITS where all fits, or where the tile's k are few. */
matmul_judge matmul_budget_axis;

/* AXIS_K, or the first axis of c where the sums of all of it would not fit, which are two floats a result;
 * CUT_FITS where k cannot be halved. */
int matmul_axis_of_k(const struct vka_plan *plan, const struct matmul_op *op,
                     const struct matmul_choice *choice);

/* Adds n tiles that share A and B, of a kernel that is measured. */
calibrate_add matmul_probe;

/* Fewest k of a slice. */
uint32_t matmul_least_k(const struct matmul_op *op, const struct matmul_choice *choice);

#endif
