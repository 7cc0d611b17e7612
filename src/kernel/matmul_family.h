/* The families of kernels for matrix products, for matmul.c. */
#ifndef VKA_KERNEL_MATMUL_FAMILY_H
#define VKA_KERNEL_MATMUL_FAMILY_H

#include "kernel/matmul_problem.h"

struct matmul_family {
    /* Fills in *choice; false, and *choice as it was, where the family does not suit. */
    bool (*choose)(const struct caps *caps, const struct matmul_problem *problem,
                   struct matmul_choice *choice);
    /* Sets n_spec and the constants that are not the same in all families. */
    void (*set_key)(const struct matmul_choice *choice, const struct matmul_operands *operands,
                    struct pipeline_key *key);
    double (*count_loops)(const struct matmul_choice *choice, double k);
};

extern const struct matmul_family matmul_lane, matmul_tile, matmul_few, matmul_coop, matmul_dot;

#endif
