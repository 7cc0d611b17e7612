/* One pass of a matrix product, and the functions that matmul.c, cut.c and long.c share. */
#ifndef VKA_OP_MATMUL_PASS_H
#define VKA_OP_MATMUL_PASS_H

#include "kernel/choose.h"
#include "op/matmul/matmul.h"
#include "plan/cut.h"

/* Chooses a self-tested kernel for the product. */
enum vka_status matmul_choose(struct vka_plan *plan, const struct matmul_op *op,
                              struct matmul_choice *choice);

/* Workgroups per axis, and the blocks of rows, 1 unless B is packed. */
void matmul_grid(const struct matmul_op *op, const struct matmul_choice *choice, uint64_t groups[3],
                 uint32_t *n_block);

/* Work of the pass. */
struct work matmul_work(const struct matmul_op *op, const struct matmul_choice *choice);

/* Adds a product, or a part of one. */
typedef enum vka_status matmul_add(struct vka_plan *plan, const struct matmul_op *op,
                                   const struct matmul_choice *choice);

/* Adds one pass of any size; plan_add_pass reports what does not fit. */
matmul_add matmul_add_pass;

/* Adds a product whose k is one chain of sums, packed and cut for the device and the budget. */
matmul_add matmul_add_chain;

#define AXIS_K CUT_AXES /* beside the axes of c, 0 to 3 */

/* The axis along which a product is halved, of c or AXIS_K; CUT_FITS: it is added as it is. */
typedef int matmul_judge(const struct vka_plan *plan, const struct matmul_op *op,
                         const struct matmul_choice *choice);

/* A way of cutting products, and what is done with a part. */
struct matmul_way {
    matmul_judge *judge;
    matmul_add *add;
    calibrate_add *probe; /* of a struct matmul_job; NULL: no rate is asked for */
};

struct matmul_job {
    const struct matmul_op *op;
    const struct matmul_choice *choice;
    const struct matmul_way *way;
};

/* Adds a product in parts: of whole groups of heads, and of whole tiles where there are more than
 * one. */
enum vka_status matmul_cut(struct vka_plan *plan, const struct matmul_op *op,
                           const struct matmul_choice *choice, const struct matmul_way *way);

/* Quantises a of the op, after relu, into scratch that replaces it. */
enum vka_status matmul_quantise_a(struct vka_plan *plan, struct matmul_op *op);

/* The op for k first .. first + count - 1. */
struct matmul_op matmul_part_of_k(const struct matmul_op *op, uint32_t first, uint32_t count);

#endif
