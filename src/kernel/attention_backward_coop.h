/* attention_backward_coop, for attention_backward.c. */
#ifndef VKA_KERNEL_ATTENTION_BACKWARD_COOP_H
#define VKA_KERNEL_ATTENTION_BACKWARD_COOP_H

#include "kernel/attention_backward_problem.h"

/* False leaves *choice as it was. */
bool backward_coop_choose(const struct caps *caps, const struct backward_problem *problem,
                          struct backward_choice *choice);
void backward_coop_key(const struct backward_choice *choice, uint32_t stage,
                       const struct backward_operands *operands, struct pipeline_key *key);
double backward_coop_loops(const struct backward_choice *choice, uint32_t stage);
uint64_t backward_coop_shared(const struct backward_choice *choice, uint32_t stage);

#endif
