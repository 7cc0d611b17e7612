/* Splits the keys of few rows over workgroups: for the families of attention. */
#ifndef VKA_KERNEL_ATTENTION_SPLIT_H
#define VKA_KERNEL_ATTENTION_SPLIT_H

#include "kernel/attention_problem.h"

/* Sets n_split and split_keys, so that the assumed number of processors has work. The choice has
 * tile and keys. */
void attention_split_keys(const struct caps *caps, const struct attention_problem *problem,
                          struct attention_choice *choice);

/* The variant of a step: 0, or with a cache 1 where another is measured than the rules prefer. */
uint32_t attention_step_variant(const struct attention_problem *problem);

#endif
