/* Small problems whose results are known, one for each way in which plans use kernels. */
#ifndef VKA_PLAN_KNOWN_PROBLEM_H
#define VKA_PLAN_KNOWN_PROBLEM_H

#include "gpu/device.h"

enum known_problem {
    KNOWN_LOOPS = 0, /* as far as an invocation may go */
    KNOWN_COPY,
    KNOWN_NONFINITE,
    KNOWN_MATMUL, /* of float32, with packed B where the rules pack it */
    KNOWN_MATMUL_FEW,
    KNOWN_MATMUL_F16,
    KNOWN_MATMUL_BF16,
    KNOWN_MATMUL_LONG, /* k in pieces */
    KNOWN_SOFTMAX,
    KNOWN_FUSED,
    KNOWN_FUSED_F16,
    KNOWN_FUSED_BF16,
    KNOWN_FUSED_FEW, /* one query and keys for several pieces */
    KNOWN_MASK,
    KNOWN_ROPE,
    KNOWN_CACHE,
    KNOWN_PAGES,
    KNOWN_PROBLEM_COUNT
};

/* Of heads, where nothing asks for another: CPU drivers compile for seconds, or a minute, where it
 * is 64. */
#define KNOWN_HEAD_DIM 8u

/* Solves a problem with the kernels that the rules choose, and tells whether the result is right.
 * right NULL: the kernels are only chosen. Statuses of vka_plan_add_... and vka_plan_run. */
enum vka_status known_problem_solve(struct vka_device *device, enum known_problem problem,
                                    uint32_t head_dim, bool *right);

#endif
