/* The problem of linear attention. */
#ifndef VKA_OP_STATE_RECURRENT_PROBLEM_H
#define VKA_OP_STATE_RECURRENT_PROBLEM_H

#include "kernel/state.h"
#include "op/state/front.h"
#include "op/state/rows.h"

/* A problem of linear attention. Tensors are of rank 4, [batch][head][n][feature]; storage NULL: none. */
struct linear {
    struct vka_tensor q, k, v, decay, beta, past, present, y;
    struct front front;
    struct state_rows rows;
    uint32_t n_state, n, head_dim, value_dim;
    uint32_t decay_kind; /* DECAY_NONE, DECAY_HEAD or DECAY_KEY */
    float scale;
};

/* Query heads that read each state. */
uint32_t linear_group(const struct linear *linear);

#endif
