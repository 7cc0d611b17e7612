/* Tensors of a large attention problem. Shared by large_attention.c and large_judge.c. */
#ifndef TESTS_LARGE_ATTENTION_H
#define TESTS_LARGE_ATTENTION_H

#include "large_known.h"

enum {
    AT_Q = 0,
    AT_K,
    AT_V,
    AT_PAST_K,
    AT_PAST_V,
    AT_MASK,
    AT_LENGTH,
    AT_OFFSET,
    AT_SINK,
    AT_ALIBI,
    AT_Q_START,
    AT_KV_START,
    AT_OUTPUT, /* from here on written by the plan */
    AT_SCORES,
    AT_PRESENT_K,
    AT_PRESENT_V,
    AT_TENSORS
};

struct large_whole {
    const struct large_attention *a;
    struct large_known known;
    struct large_tensor t[AT_TENSORS]; /* view NULL: not part of the problem */
    uint32_t n_sequence;               /* of a ragged batch, else the batch */
};

/* Reads the outputs and compares them with what is known. */
bool large_judge_whole(struct vka_device *device, struct large_whole *r,
                       struct large_result *result);
bool large_judge_nonfinite(struct vka_plan *plan, const struct large_attention *a,
                           struct large_result *result);

#endif
