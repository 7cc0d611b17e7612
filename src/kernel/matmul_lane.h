/* The kernels of matrix products for CPU drivers: whether they are taken, and how weights are best kept
 * for them. */
#ifndef VKA_KERNEL_MATMUL_LANE_H
#define VKA_KERNEL_MATMUL_LANE_H

#include "kernel/matmul_problem.h"

/* Whether matmul_lane takes products whose B is not packed. */
bool matmul_uses_lanes(const struct caps *caps);

/* The kernel for packed B; KERNEL_COUNT: none. */
enum kernel tune_packed_kernel(const struct caps *caps);

/* Columns of a tile if weights are best kept packed (params.h); 0: not packed. */
uint32_t tune_weight_tile(const struct caps *caps);

/* Whether unpacked weights are best kept as [in][out]. */
bool tune_transposes_weights(const struct caps *caps);

#endif
