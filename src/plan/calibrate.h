/* How fast a kernel is on this very device, measured once, when a plan that it would not fit by the
 * cautious rate asks for it. */
#ifndef VKA_PLAN_CALIBRATE_H
#define VKA_PLAN_CALIBRATE_H

#include "plan/plan.h"

/* Adds a pass of n workgroups or so to a plan of its own, over scratch whose contents do not
 * matter. */
typedef enum vka_status calibrate_add(struct vka_plan *plan, const void *problem, uint32_t n);

/* Whether a pass added next would go over the budget of a submit, by a rate that was not
 * measured. */
bool calibrate_wanted(const struct vka_plan *plan, enum kernel kernel, const struct work *work);

/* Measures the rate of a kernel, if that is wanted before a pass of this work is added. Waits for
 * the device, some 20 ms where it is idle. */
enum vka_status calibrate(struct vka_plan *plan, enum kernel kernel, const struct work *work,
                          calibrate_add *add, const void *problem);

/* n, or fewer where so many times `bytes` of scratch are too much for the device. */
uint32_t calibrate_groups(const struct vka_plan *plan, uint64_t bytes, uint32_t n);

#endif
