/* One pass of a matrix product: what matmul.c gives matmul_cut.c. */
#ifndef VKA_PLAN_MATMUL_PASS_H
#define VKA_PLAN_MATMUL_PASS_H

#include "plan/choose.h"
#include "plan/matmul.h"

void matmul_choose(const struct vka_plan *plan, const struct matmul_op *op,
                   struct matmul_choice *choice);

/* The grid of workgroups, and with packed B the blocks of rows. */
void matmul_grid(const struct matmul_op *op, const struct matmul_choice *choice, uint64_t groups[3],
                 uint32_t *n_block);

/* Adds the pass, whatever its size: plan_add_pass says what does not fit. */
enum vka_status matmul_add_pass(struct vka_plan *plan, const struct matmul_op *op,
                                const struct matmul_choice *choice);

#endif
