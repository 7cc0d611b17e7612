/* Small problems whose results are known, one for each way in which plans use kernels. */
#ifndef VKA_SELFTEST_KNOWN_PROBLEM_H
#define VKA_SELFTEST_KNOWN_PROBLEM_H

#include "gpu/device.h"

/* Of heads, where nothing asks for another: CPU drivers compile for seconds, or a minute, where it
 * is 64. */
#define KNOWN_HEAD_DIM 8u

/* Solves a problem with the kernels that the rules choose without those of a bit each in `without`,
 * and tells whether the result is right.
 * right NULL: the kernels are only chosen. Statuses of vka_plan_add_... and vka_plan_run. */
enum vka_status known_problem_solve(struct vka_device *device, enum known_problem problem,
                                    uint64_t without, uint32_t head_dim, bool *right);

#endif
