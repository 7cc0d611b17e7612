/* The choice of a kernel: what was measured on this very device where that is known, else the rules
 * of tune.h. */
#ifndef VKA_KERNEL_CHOOSE_H
#define VKA_KERNEL_CHOOSE_H

#include "kernel/tune.h"

/* Both fill in choice->problem, the problem's name: all that a measured choice depends on. */
void choose_matmul(const struct caps *caps, const struct matmul_problem *problem,
                   struct matmul_choice *choice);
void choose_attention(const struct caps *caps, const struct attention_problem *problem,
                      struct attention_choice *choice);

#endif
