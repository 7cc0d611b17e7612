/* Cuts and packs matrix products so that each pass fits the device and the budget. */
#ifndef VKA_OP_MATMUL_CUT_H
#define VKA_OP_MATMUL_CUT_H

#include "op/matmul/product.h"

/* Adds a product whose k is one chain of sums, packed and cut for the device and the budget. */
matmul_add matmul_add_chain;

/* Adds a product in slices: of whole groups of heads, and of whole tiles where there are more than
 * one. */
enum vka_status matmul_cut(struct vka_plan *plan, const struct matmul_op *op,
                           const struct matmul_choice *choice, const struct matmul_way *way);

/* The op for k first .. first + count - 1. */
struct matmul_op matmul_slice_of_k(const struct matmul_op *op, uint32_t first, uint32_t count);

#endif
