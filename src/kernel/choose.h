/* Chooses a kernel: by the tuning profile of this device if it has an entry, else by the rules of
 * its family. */
#ifndef VKA_KERNEL_CHOOSE_H
#define VKA_KERNEL_CHOOSE_H

#include "kernel/attention.h"
#include "kernel/matmul.h"

/* Both set choice->problem, the name of the problem in tuning profiles. */
void choose_matmul(const struct caps *caps, const struct matmul_problem *problem,
                   struct matmul_choice *choice);
void choose_attention(const struct caps *caps, const struct attention_problem *problem,
                      struct attention_choice *choice);

#endif
