/* One of the kernels of linear attention with its tile: the weights of its chunks, and its work. */
#ifndef VKA_OP_STATE_RECURRENT_WORK_H
#define VKA_OP_STATE_RECURRENT_WORK_H

#include "op/state/recurrent_problem.h"

#define AXIS_TOKEN 2 /* of a slice: sequences, states, tokens */

struct recurrent {
    struct linear *l;
    enum kernel kernel; /* linear_recurrent, or a linear_chunked */
    struct recurrent_choice tile;
    uint32_t least, most;      /* rows of the sequences that it takes */
    struct vka_tensor weights; /* see LINEAR_WEIGHTS, LINEAR_COOP_WEIGHTS, LINEAR_ADDRESS_WEIGHTS */
    struct vka_tensor *carry;  /* the state between passes over spans of tokens */
};

bool recurrent_is_chunked(const struct recurrent *r);
bool recurrent_has_matrices(const struct recurrent *r);
bool recurrent_is_by_address(const struct recurrent *r);

/* Chunks that a slice has weights of. *own: those for each sequence; 0: for all rows together. */
uint64_t recurrent_slots(const struct recurrent *r, const uint32_t size[4], uint32_t *own);

/* Bytes of weights, beyond which a pass takes fewer tokens or sequences: one chunk at least. */
uint64_t recurrent_most_weights(const struct vka_plan *plan, const struct recurrent *r);

uint64_t recurrent_weights(const struct recurrent *r, const uint32_t size[4]);

struct work recurrent_work(const struct recurrent *r, const uint32_t size[4]);

#endif
