/* The tiles of the kernels of linear attention. */
#ifndef VKA_KERNEL_STATE_H
#define VKA_KERNEL_STATE_H

#include "kernel/tune.h"

/* A workgroup of linear_recurrent, or of a kernel of chunks, see linear_params. */
struct recurrent_choice {
    uint32_t lanes, splits, fours, tokens;
    uint32_t columns;        /* of four values */
    struct matrix_size size; /* of linear_chunked_coop; else 0 */
};

/* decay: DECAY_NONE, DECAY_HEAD or DECAY_KEY. The order of sums follows from head_dim and the type of
 * device. False where a token does not fit in shared memory. */
bool tune_recurrent(const struct caps *caps, uint32_t head_dim, uint32_t value_dim, uint32_t decay,
                    struct recurrent_choice *choice);

/* Whether chunks are faster than going token by token, for as many rows as a chunk. On a CPU driver they are
 * with linear_chunked_address alone: with 4 heads of 128 and 512 tokens linear_chunked took 1.2 times the
 * processor time, with heads of 64 2.6 times. */
bool tune_gains_by_chunks(const struct caps *caps);

/* Tiles of linear_chunked_address. False where it does not take the decay, or the device is not for it. */
bool tune_chunked_address(const struct caps *caps, uint32_t head_dim, uint32_t decay,
                          struct recurrent_choice *choice);

/* Tiles of linear_chunked. False where it does not take the decay, or state and rows do not fit in shared
 * memory. */
bool tune_chunked(const struct caps *caps, uint32_t head_dim, uint32_t value_dim, uint32_t decay,
                  struct recurrent_choice *choice);

/* Tiles of linear_chunked_coop for q and k of these types. False where it takes neither these nor the decay,
 * or where linear_chunked is the better one. */
bool tune_chunked_coop(const struct caps *caps, enum vka_dtype q, enum vka_dtype k,
                       uint32_t head_dim, uint32_t value_dim, uint32_t decay,
                       struct recurrent_choice *choice);

/* A workgroup of linear_backward, see linear_backward_params. */
struct linear_backward_choice {
    uint32_t lanes, features, fours;
};

/* False where a lane would hold too many features, or sums over lanes do not fit in shared memory. */
bool tune_linear_backward(const struct caps *caps, uint32_t head_dim, uint32_t value_dim,
                          struct linear_backward_choice *choice);

#endif
