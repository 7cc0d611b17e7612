/* Gradients of attention: the problem, and where its gradients are summed. Types alone. */
#ifndef VKA_OP_TRAIN_ATTENTION_SUMS_H
#define VKA_OP_TRAIN_ATTENTION_SUMS_H

#include <vkattn/vkattn_train.h>

#include "kernel/attention_backward.h"
#include "op/attention/attention.h"
#include "op/common/axes.h"
#include "params/train.h"

/* Where the sums of a gradient go: itself, or float32 scratch that is added to it, or taken back
 * through rotation and norm, in the end. Storage NULL: not wanted. */
struct attention_backward {
    struct attention a; /* q and k as they enter the scores, past and cache absent */
    const struct vka_attention_backward_op *op;
    uint32_t group;
    uint32_t n_slice_q;       /* queries of a slice, but the last */
    struct vka_tensor dy;     /* [batch][n_head][n_q][value_dim] */
    struct vka_tensor dq;     /* [batch][n_head][n_q][head_dim] */
    struct vka_tensor dk, dv; /* [batch][n_kv_head][n_kv][...] */
    struct vka_tensor sinks;  /* [batch][n_head][n_q][1], what each row adds to the gradient */
    struct vka_tensor mask;   /* the mask's shape at rank 4 */
    bool add_mask;            /* to what `mask` holds before the first slice */
    bool fused;
    struct backward_choice choice; /* of the fused path */
};

/* Queries n_query from `query` on of those query heads that are member `member` of their groups; of
 * batch elements and key heads. */
struct attention_rows {
    uint32_t batch, n_batch, head, n_head, query, n_query, member;
};

#endif
