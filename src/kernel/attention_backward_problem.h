/* A problem of attention's gradients without a buffer of scores, the kernel that is chosen for it, and
 * the operands of its pipelines. */
#ifndef VKA_KERNEL_ATTENTION_BACKWARD_PROBLEM_H
#define VKA_KERNEL_ATTENTION_BACKWARD_PROBLEM_H

#include "kernel/tune.h"

#define BACKWARD_STAGES 3 /* BACKWARD_SUMS, _QUERIES, _KEYS */

/* What a workgroup does, see attention_backward_params. */
struct backward_tile {
    uint32_t lanes_x, lanes_y; /* lanes of a row; rows, or with `rows` some of them */
    uint32_t lane_others;      /* rows of the other side that a lane scores in a step */
    uint32_t rows, at_once; /* attention_backward: rows of a lane; others that it adds at a time */
    uint32_t depth4, subgroups; /* vec4 of both sides in shared memory */
    uint32_t form;              /* attention_backward_coop: BACKWARD_BY_DEPTH and so on */
    uint32_t a4, b4,
        n_feature_tile; /* vec4 of the results in a workgroup; workgroups that share them */
};

struct backward_choice {
    enum kernel kernel;
    bool usable;    /* false: see reason */
    bool preferred; /* VKA_PATH_AUTO takes it; else products over buffers of scores */
    uint32_t head4, value4;
    uint32_t batch;          /* loads of an invocation at a time */
    struct matrix_size size; /* of attention_backward_coop */
    struct backward_tile tiles[BACKWARD_STAGES];
    const char *reason;
};

struct backward_problem {
    uint32_t head_dim, value_dim;
    /* The one type of all operands and gradients; VKA_F32 where they differ. Gradients that are asked
     * for in float32 are not made of weights rounded to 16 bits. */
    enum vka_dtype type;
};

/* What a pipeline needs to know of the operands. */
struct backward_operands {
    enum vka_dtype q_type, k_type, v_type, dy_type;
    uint32_t vecs; /* BACKWARD_Q_VEC and so on: rows of whole, aligned vectors of backward_vector */
    bool general;
    uint32_t n_q, n_kv;
};

/* Elements of a row that a lane loads at once. */
static inline uint32_t backward_vector(const struct backward_choice *choice)
{
    return choice->kernel == KERNEL_attention_backward ? 4 : 8;
}

/* Rows that a workgroup owns, and rows of the other side in a step. */
static inline uint32_t backward_own(const struct backward_tile *tile)
{
    return tile->lanes_y * tile->rows;
}

static inline uint32_t backward_others(const struct backward_tile *tile)
{
    return tile->lane_others * tile->lanes_x;
}

#endif
