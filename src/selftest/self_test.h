/* The self-test: a kernel solves a small known problem before a plan first uses it on a device. One
 * that gets it wrong is not used, and the rules choose another. */
#ifndef VKA_SELFTEST_SELF_TEST_H
#define VKA_SELFTEST_SELF_TEST_H

#include "plan/plan.h"

/* Tests a kernel that is untested. head_dim 0: any. */
test_kernel_function self_test_kernel;

#endif
