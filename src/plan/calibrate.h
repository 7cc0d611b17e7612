/* Measures the speed of a kernel on this device, once, when a plan would exceed its budget by the
 * cautious rate. */
#ifndef VKA_PLAN_CALIBRATE_H
#define VKA_PLAN_CALIBRATE_H

#include "plan/plan.h"

/* Adds a pass of about n workgroups to an empty plan, over scratch with any contents. */
typedef enum vka_status calibrate_add(struct vka_plan *plan, const void *problem, uint32_t n);

/* Measures the rate of a kernel, once: where the plan with this pass would exceed the budget of a
 * submit by the cautious rate. Waits for the device, some 20 ms where it is idle. */
enum vka_status calibrate(struct vka_plan *plan, enum kernel kernel, const struct work *work,
                          calibrate_add *add, const void *problem);

/* n, or fewer workgroups where n times `bytes` of scratch exceed the device's limits. */
uint32_t calibrate_groups(const struct vka_plan *plan, uint64_t bytes, uint32_t n);

#endif
