/* Kernels are chosen here, and tested before their first use: nothing else asks for self-tests. */
#ifndef VKA_PLAN_SETTLE_H
#define VKA_PLAN_SETTLE_H

#include "plan/plan.h"

/* A choice by the rules: fills in the job's choice from caps alone, and returns the kernels that it
 * takes, a bit each. */
typedef uint64_t settle_choose(const struct caps *caps, void *job);

/* Chooses until no kernel of the choice is untested. head_dim: of attention, whose row kernels are
 * compiled for each size; 0 without. Waits for the device where a kernel is tested. */
enum vka_status plan_settle(struct vka_plan *plan, uint32_t head_dim, settle_choose *choose,
                            void *job);

/* The same where there is no choice but this kernel, which may be missing all the same. */
enum vka_status plan_settle_kernel(struct vka_plan *plan, enum kernel kernel);

/* The same for what is chosen before there is a plan. */
enum vka_status device_settle(struct vka_device *device, settle_choose *choose, void *job);

#endif
