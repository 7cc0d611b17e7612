/* The kernels of fused attention: which is chosen, its tiles, specialization and cost. */
#ifndef VKA_KERNEL_ATTENTION_H
#define VKA_KERNEL_ATTENTION_H

#include "kernel/attention_problem.h"

void tune_attention(const struct caps *caps, const struct attention_problem *problem,
                    struct attention_choice *choice);

/* Sets the kernel and all its specialization constants but one: tune_state_spec, which holds the
 * STATE_ bits of params.h and differs between the spans of a chain. */
void tune_attention_key(const struct attention_choice *choice,
                        const struct attention_operands *operands, struct pipeline_key *key);
uint32_t tune_state_spec(enum kernel kernel);

/* Loop iterations of an invocation that takes `keys` keys, an upper bound for drivers that unroll
 * loops of four and loops with a hint. Each loop counts one iteration more, for its last test. */
double tune_attention_loops(const struct attention_choice *choice,
                            const struct attention_operands *operands, double keys);

/* Bytes of shared memory of a workgroup; 0: the kernel uses none. */
uint64_t tune_attention_shared(const struct attention_choice *choice);

/* Floats of the softmax state of a row, which a span leaves to the next. */
uint32_t attention_state_pitch(const struct attention_choice *choice);

/* Whether a kernel takes tiles of rows in shared memory. */
bool tune_takes_tiles(enum kernel kernel);

#endif
