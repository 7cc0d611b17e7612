/* Tensors of a large attention problem. Shared by large_attention.c and large_judge.c. */
#ifndef TESTS_LARGE_ATTENTION_H
#define TESTS_LARGE_ATTENTION_H

#include "large_known.h"

struct large_whole {
    const struct large_attention *a;
    struct large_known known;
    struct large_tensor t[OPERAND_COUNT]; /* view NULL: not of the problem */
    uint32_t n_sequence;                  /* of a ragged batch, else the batch */
};

/* Reads the outputs and compares them with what is known. */
bool large_judge_whole(struct vka_device *device, struct large_whole *r,
                       struct large_result *result);
bool large_judge_nonfinite(struct vka_plan *plan, const struct large_attention *a,
                           struct large_result *result);

#endif
