/* The self-test: a kernel solves a small known problem before a plan first uses it on a device. One
 * that gets it wrong is not used, and the rules choose another. */
#ifndef VKA_PLAN_SELF_TEST_H
#define VKA_PLAN_SELF_TEST_H

#include "plan/plan.h"

/* Tests a kernel, where that has not been done and the device can run it. That it failed is no
 * failure of the call: kernel_missing tells. Waits for the device. Statuses of vka_plan_run. */
enum vka_status self_test_kernel(struct vka_device *device, enum kernel kernel);

/* The same for the kernel of a pass. */
enum vka_status self_test_pass(struct vka_device *device, const struct pipeline_key *key);

/* Whether an operation that could not be added is to be tried again, as a kernel was found to fail
 * meanwhile. */
bool self_test_again(const struct vka_plan *plan, const struct plan_mark *mark,
                     enum vka_status status);

#endif
