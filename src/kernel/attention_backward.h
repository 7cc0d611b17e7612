/* The kernel of attention's gradients without a buffer of scores: its tiles, specialization and
 * cost. */
#ifndef VKA_KERNEL_ATTENTION_BACKWARD_H
#define VKA_KERNEL_ATTENTION_BACKWARD_H

#include "kernel/tune.h"

#define BACKWARD_STAGES 3 /* BACKWARD_SUMS, _QUERIES, _KEYS */

/* What a workgroup does, see attention_backward_params. */
struct backward_tile {
    uint32_t lanes_x, lanes_y, rows, depth4, part;
    uint32_t a4, b4, n_chunk; /* vec4 of the results in a workgroup; workgroups that share them */
};

struct backward_choice {
    bool usable;    /* false: see reason */
    bool preferred; /* VKA_PATH_AUTO takes it; else products over buffers of scores */
    uint32_t head4, value4;
    uint32_t batch; /* loads of an invocation at a time */
    struct backward_tile tiles[BACKWARD_STAGES];
    const char *reason;
};

void tune_attention_backward(const struct caps *caps, uint32_t head_dim, uint32_t value_dim,
                             struct backward_choice *choice);

/* What a pipeline needs to know of the operands. */
struct backward_operands {
    enum vka_dtype q_type, k_type, v_type, dy_type;
    uint32_t vecs; /* BACKWARD_Q_VEC and so on */
    bool general;
};
void tune_backward_key(const struct backward_choice *choice, uint32_t stage,
                       const struct backward_operands *operands, struct pipeline_key *key);

/* Rows that a workgroup owns, and rows of the other side in a step. */
static inline uint32_t backward_own(const struct backward_tile *tile)
{
    return tile->lanes_y * tile->rows;
}

static inline uint32_t backward_others(const struct backward_tile *tile)
{
    return 4 * tile->lanes_x;
}

/* Loop iterations of an invocation in a unit, an upper bound; see tune_attention_loops. */
double tune_backward_loops(const struct backward_choice *choice, uint32_t stage);

/* Bytes of shared memory of a workgroup. */
uint64_t tune_backward_shared(const struct backward_tile *tile, uint32_t stage);

#endif
