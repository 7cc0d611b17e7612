/* Products of quantised activations, for callers that tell their kernels from others. */
#ifndef VKA_KERNEL_MATMUL_DOT_H
#define VKA_KERNEL_MATMUL_DOT_H

#include "kernel/matmul_problem.h"

/* Whether a kernel takes quantised activations. */
bool matmul_is_dot(enum kernel kernel);

#endif
