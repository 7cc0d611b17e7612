/* Counts NaN and Inf in the outputs of a plan's operations. */
#ifndef VKA_OP_NONFINITE_H
#define VKA_OP_NONFINITE_H

#include "plan/plan.h"

/* Adds the passes that count in t, if the plan counts; t is an output of the operation being added,
 * or NULL. name: the operation's argument, a static string. */
enum vka_status plan_count_nonfinite(struct vka_plan *plan, const char *name,
                                     const struct vka_tensor *tensor);

/* Words u32 [n][2], NaN and Inf, of counted output `index`; NULL past the last. */
struct storage *plan_count_words(const struct vka_plan *plan, size_t index);

#endif
