/* Index of the largest element of each row. */
#ifndef VKA_OP_ARGMAX_H
#define VKA_OP_ARGMAX_H

#include "plan/plan.h"

/* Adds the passes; both of rank 4, with equal sizes but for axis 3 of `output`, which is 1. numbers:
 * NaN and -inf do not count, and a row without others gives -1. */
enum vka_status plan_argmax(struct vka_plan *plan, const struct vka_tensor *input,
                            const struct vka_tensor *output, bool numbers);

#endif
