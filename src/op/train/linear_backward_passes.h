/* Gradients of linear attention: passes of linear_backward and linear_backward_sums. */
#ifndef VKA_OP_TRAIN_LINEAR_BACKWARD_PASSES_H
#define VKA_OP_TRAIN_LINEAR_BACKWARD_PASSES_H

#include "kernel/state.h"
#include "op/state/recurrent.h"

/* Float32 sums [batch][head][n][width] over blocks of values, and over as many states, or outputs of them,
 * as share a head. Storage NULL: not wanted. */
struct linear_sum {
    const char *name;
    struct vka_tensor y;
    uint32_t ratio;
};

enum linear_summed {
    SUMMED_Q,
    SUMMED_K,
    SUMMED_DECAY, /* of the x in its place */
    SUMMED_LOG,   /* terms of the gradient of the decay's logarithm */
    SUMMED_BETA,
    SUMMED_SKIP, /* terms */
    SUMMED_COUNT
};

struct linear_backward {
    struct linear l;      /* y is its gradient, q and k enter the state as they are */
    struct vka_tensor dv; /* float32 [batch][n_state][n][value_dim]; storage NULL: not wanted */
    struct vka_tensor
        carry;    /* float32 gradient of the state after the last token, and then of the first */
    bool carried; /* carry holds it; else it is 0 */
    struct linear_sum sums[SUMMED_COUNT];
};

/* Adds all passes. UNSUPPORTED where no tile fits the device. */
enum vka_status plan_linear_backward_passes(struct vka_plan *plan, const char *caller,
                                            const struct linear_backward *b);

#endif
