/* Counting NaN and Inf in what a plan's operations write. */
#ifndef VKA_OP_NONFINITE_H
#define VKA_OP_NONFINITE_H

#include "plan/plan.h"

/* Adds the passes that count in a tensor which the operation being added has written, where the
 * plan is to count; t may be NULL. name: of the operation's argument, static. */
enum vka_status plan_count_nonfinite(struct vka_plan *plan, const char *name,
                                     const struct vka_tensor *t);

/* The words, u32 pairs of NaN and Inf, of counted output `index`; NULL past the last. */
struct storage *plan_count_words(const struct vka_plan *plan, size_t index);

#endif
