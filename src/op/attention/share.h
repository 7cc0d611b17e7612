/* A share: some batch elements (axis 0 of its box) and key heads (axis 1) of a problem, attended as
 * a separate problem where an intermediate result of the whole would exceed an allocation. */
#ifndef VKA_OP_ATTENTION_SHARE_H
#define VKA_OP_ATTENTION_SHARE_H

#include "op/attention/problem.h"
#include "plan/cut.h"

/* Options for a share, and the tensors that they point to. Must not be copied. */
struct share_options {
    struct vka_attention_options options;
    struct vka_tensor mask, kv_length, query_offset, scores, log_sum_exp, sink, alibi;
};

/* group: query heads of a key head. */
void share_options(const struct vka_attention_options *o, const struct box *share, uint32_t group,
                   struct share_options *part);

/* Whether every intermediate result of a share fits an allocation. True also where the operation
 * must not be cut. */
bool attention_share_fits(const struct vka_plan *plan, const struct attention *a,
                          const struct attention_inputs *in, const struct box *share);

/* A share with all that it points to. Must not be copied. */
struct attention_share {
    struct attention attention;
    struct attention_inputs inputs;
    struct share_options options;
    struct vka_tensor parts[6];
};
void attention_take_share(const struct attention *a, const struct attention_inputs *in,
                          const struct box *share, struct attention_share *part);

#endif
