/* Self-tests: a kernel solves a small known problem before its first use on a device. A kernel that
 * fails is not used, and the rules choose another. */
#ifndef VKA_SELFTEST_SELF_TEST_H
#define VKA_SELFTEST_SELF_TEST_H

#include "plan/plan.h"

/* Tests a kernel that is untested. head_dim 0: any. */
test_kernel_function self_test_kernel;

#endif
