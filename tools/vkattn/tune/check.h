/* vkattn tune: checks that a kernel gives right results before it is measured.
 * SPDX-License-Identifier: MIT */
#ifndef TUNE_CHECK_H
#define TUNE_CHECK_H

#include "tuning.h"

/* Whether a kernel gives right results for small problems, compared with sums in double. Each
 * kernel is checked once; *right is also true if the rules never use it. */
enum tool_exit tune_check(struct tuning *tuning, const char *kernel, int dtype, bool *right);

#endif
