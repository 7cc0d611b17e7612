#include "kernel/matmul_mixed.h"

bool matmul_is_mixed(const struct caps *caps, const struct matmul_problem *problem)
{
    struct caps able = *caps;
    able.without = NO_KERNELS;
    return problem->a_type == VKA_F16 && problem->b_type == VKA_F16 && !problem->hidden &&
           !kernel_missing(KERNEL_matmul_tile_mixed, &able) &&
           !kernel_missing(KERNEL_matmul_few_mixed, &able);
}
