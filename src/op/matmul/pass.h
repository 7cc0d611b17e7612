/* One pass of a matrix product: its kernel, its grid and its work. */
#ifndef VKA_OP_MATMUL_PASS_H
#define VKA_OP_MATMUL_PASS_H

#include "op/matmul/product.h"

/* Chooses a self-tested kernel for the product. */
enum vka_status matmul_choose(struct vka_plan *plan, const struct matmul_op *op,
                              struct matmul_choice *choice);

/* Workgroups per axis, and the blocks of rows, 1 unless B is packed. */
void matmul_grid(const struct caps *caps, const struct matmul_op *op,
                 const struct matmul_choice *choice, uint64_t groups[3], uint32_t *n_block);

/* Work of the pass. */
struct work matmul_work(const struct matmul_op *op, const struct matmul_choice *choice);

/* Adds one pass of any size; plan_add_pass reports what does not fit. */
matmul_add matmul_add_pass;

#endif
