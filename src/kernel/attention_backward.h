/* The kernels of attention's gradients without a buffer of scores: their tiles, specialization and
 * cost. */
#ifndef VKA_KERNEL_ATTENTION_BACKWARD_H
#define VKA_KERNEL_ATTENTION_BACKWARD_H

#include "kernel/attention_backward_problem.h"

void tune_attention_backward(const struct caps *caps, const struct backward_problem *problem,
                             struct backward_choice *choice);

void tune_backward_key(const struct backward_choice *choice, uint32_t stage,
                       const struct backward_operands *operands, struct pipeline_key *key);

/* Loop iterations of an invocation in a span, an upper bound; see tune_attention_loops. */
double tune_backward_loops(const struct backward_choice *choice, uint32_t stage);

/* Bytes of shared memory of a workgroup. */
uint64_t tune_backward_shared(const struct backward_choice *choice, uint32_t stage);

#endif
