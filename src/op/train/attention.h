/* Gradients of attention: the problem, and where its gradients are summed. */
#ifndef VKA_OP_TRAIN_ATTENTION_H
#define VKA_OP_TRAIN_ATTENTION_H

#include "kernel/attention_backward.h"
#include "op/attention/attention.h"
#include "op/train/gradient.h"

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
    struct vka_tensor sinks;  /* [batch][n_head][n_q][1], each row's part of the gradient */
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

/* Scores and gradients of weights of some rows, float32 [n_batch][n_head][n_query][n_kv] with rows
 * SLOPES_PITCH apart, and numbers of a row, float32 [n_batch][n_head][n_query][SLOPES_ROW_PITCH]: see
 * softmax_backward_params. */
struct attention_slopes {
    struct vka_tensor scores, slopes, rows;
};

/* Adds a stage of softmax_backward, SLOPES_: the sums of the rows, or what scores and slopes become. */
enum vka_status attention_add_slopes(struct vka_plan *plan, const struct attention_backward *b,
                                     const struct attention_rows *r,
                                     const struct attention_slopes *s, uint32_t stage);

/* Adds all products, slice by slice in an order that follows from shapes alone. */
enum vka_status attention_add_backward(struct vka_plan *plan, const struct attention_backward *b);

/* Chooses the path: fills in fused and choice. UNSUPPORTED where the plan wants the fused path and the
 * device, or the gradient of a mask, does not allow it. */
enum vka_status attention_backward_choose(struct vka_plan *plan, struct attention_backward *b);

/* Adds all products without a buffer of scores. Sums are float32 with contiguous rows; of `mask`
 * there is none. */
enum vka_status attention_add_fused(struct vka_plan *plan, const struct attention_backward *b);

/* vka_plan_add_attention_backward within an operation, of a checked problem that has the operands and
 * options of op->forward: checks and counts nothing. */
enum vka_status plan_attention_backward(struct vka_plan *plan,
                                        const struct vka_attention_backward_op *op,
                                        const struct attention *problem);

/* Checks the gradients of options. `function` names the public call. */
enum vka_status attention_check_option_gradients(struct vka_device *device, const char *function,
                                                 const struct vka_attention_options *o,
                                                 const struct vka_attention_backward_op *op);

/* Queries of a slice of a problem with n_kv keys. */
uint32_t attention_slice_queries(uint32_t n_q, uint32_t n_kv);

#endif
