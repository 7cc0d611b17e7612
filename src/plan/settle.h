/* Chooses kernels and tests them before their first use: the only place that starts self-tests. */
#ifndef VKA_PLAN_SETTLE_H
#define VKA_PLAN_SETTLE_H

#include "plan/plan.h"

/* Makes a job's choice from caps alone; returns the chosen kernels. */
typedef struct kernel_set settle_choose(const struct caps *caps, void *job);

/* Chooses until no kernel of the choice is untested. head_dim: of attention, whose row kernels are
 * compiled for each size; else 0. Waits for the device where a kernel is tested. */
enum vka_status plan_settle(struct vka_plan *plan, uint32_t head_dim, settle_choose *choose,
                            void *job);

/* plan_settle for a fixed kernel, which may still be missing. */
enum vka_status plan_settle_kernel(struct vka_plan *plan, enum kernel kernel);

/* plan_settle for choices made before there is a plan. */
enum vka_status device_settle(struct vka_device *device, settle_choose *choose, void *job);

#endif
