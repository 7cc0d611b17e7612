/* Small problems with known results, one for each way in which plans use kernels. */
#ifndef VKA_SELFTEST_KNOWN_PROBLEM_H
#define VKA_SELFTEST_KNOWN_PROBLEM_H

#include "plan/plan.h"

/* Default head_dim. With 64, CPU drivers compile for seconds to a minute. */
#define KNOWN_HEAD_DIM 8u

/* Solves a problem with the kernels that the rules choose, except those whose bit is set in
 * `without`; *right: the result is right. right NULL: only chooses the kernels. Statuses of
 * vka_plan_add_... and vka_plan_run. */
enum vka_status known_problem_solve(struct vka_device *device, enum known_problem problem,
                                    struct kernel_set without, uint32_t head_dim, bool *right);

#endif
