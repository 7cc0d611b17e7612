/* The kernels of matrix products: which is chosen, its tiles, specialization and cost. */
#ifndef VKA_KERNEL_MATMUL_H
#define VKA_KERNEL_MATMUL_H

#include "kernel/matmul_problem.h"

void tune_matmul(const struct caps *caps, const struct matmul_problem *problem,
                 struct matmul_choice *choice);

/* Sets the kernel and its specialization constants. */
void tune_matmul_key(const struct matmul_choice *choice, const struct matmul_operands *operands,
                     struct pipeline_key *key);

/* Loop iterations of an invocation for a chain of k, unrolled ones included. */
double tune_matmul_loops(const struct matmul_choice *choice, double k);

#endif
