/* Products of two matrices of float16 by matmul_tile_mixed and matmul_few_mixed, whose sums have bits of
 * their own: rows are the same by both, so both are taken or neither. */
#ifndef VKA_KERNEL_MATMUL_MIXED_H
#define VKA_KERNEL_MATMUL_MIXED_H

#include "kernel/matmul_problem.h"

/* Whether they are for this product. One that is only switched off, for a test of the other, counts as
 * there. */
bool matmul_is_mixed(const struct caps *caps, const struct matmul_problem *problem);

#endif
