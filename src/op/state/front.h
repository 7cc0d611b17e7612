/* What models have in front of linear attention. */
#ifndef VKA_OP_STATE_FRONT_H
#define VKA_OP_STATE_FRONT_H

#include "op/common/axes.h"
#include "params/state.h"

/* Tensors are of rank 4, [state][feature][1][1]; storage NULL: none. */
struct front {
    struct vka_tensor log, bias, skip;
    uint32_t flags; /* LINEAR_NORMED, LINEAR_SIGMOID, LINEAR_STEPS */
    float norm_epsilon, step_min, step_max;
};

/* Checks those fields of an operation whose other ones are well, and sets *front. */
enum vka_status front_check(struct vka_plan *plan, const char *caller,
                            const struct vka_linear_attention_op *op, struct front *front);

#endif
