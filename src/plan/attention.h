/* Attention on checked tensors, and the check. */
#ifndef VKA_PLAN_ATTENTION_H
#define VKA_PLAN_ATTENTION_H

#include "plan/matmul.h"

/* An attention problem: sizes and rank-4 operands; masks and options as the caller gave them. */
struct attention {
    uint32_t batch, n_head, n_kv_head, n_q, n_kv, n_past, head_dim, value_dim;
    struct vka_tensor q;      /* [batch][n_head][n_q][head_dim] */
    struct vka_tensor k;      /* [batch][n_kv_head][n_kv][head_dim], past included */
    struct vka_tensor v;      /* [batch][n_kv_head][n_kv][value_dim] */
    struct vka_tensor output; /* [batch][n_head][n_q][value_dim] */
    float scale;
    const struct vka_attention_options *options;
};

/* Checks options against the sizes of *a; caller names the public function. */
enum vka_status attention_check_options(struct vka_plan *plan, const char *caller,
                                        const struct attention *a);

/* Scores, softmax and weighted sum as passes of their own, slice by slice. */
enum vka_status plan_attention_unfused(struct vka_plan *plan, const struct attention *a);

/* The whole operation after all checks: norms and rotation, past and present, then a path.
 * new_k and new_v are the new keys and values; past and present may be NULL. */
struct attention_inputs {
    const struct vka_tensor *new_k, *new_v, *past_k, *past_v, *present_k, *present_v;
};
enum vka_status plan_attention(struct vka_plan *plan, struct attention *a,
                               const struct attention_inputs *inputs);

/* What an operation reads through its options, for the overlap check; NULL where absent. */
#define OPTION_INPUTS 7
void attention_option_inputs(const struct vka_attention_options *o,
                             const struct vka_tensor *inputs[OPTION_INPUTS]);

#endif
