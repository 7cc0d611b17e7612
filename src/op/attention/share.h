/* A share of an attention problem, as a problem of its own: where what lies between its passes
 * would not fit one allocation. */
#ifndef VKA_OP_ATTENTION_SHARE_H
#define VKA_OP_ATTENTION_SHARE_H

#include "op/attention/attention.h"

/* Batch elements (axis 0) or key heads with their query heads (axis 1). */
struct share {
    uint32_t axis, first, count;
    uint32_t group; /* query heads of a key head */
};

/* Options for a share, and the parts of tensors that they point to: not to be copied. */
struct share_options {
    struct vka_attention_options options;
    struct vka_tensor mask, kv_length, query_offset, scores, sink, alibi;
};
void share_options(const struct vka_attention_options *o, const struct share *share,
                   struct share_options *part);

/* The axis to halve so that no intermediate result passes an allocation; -1 where none does, or it
 * cannot be halved. */
int attention_axis_to_share(const struct vka_plan *plan, const struct attention *a,
                            const struct attention_inputs *in);

/* A share as a problem of its own, with all that it points to: not to be copied. */
struct attention_share {
    struct attention attention;
    struct attention_inputs inputs;
    struct share_options options;
    struct vka_tensor parts[6];
};
void attention_take_share(const struct attention *a, const struct attention_inputs *in,
                          const struct share *share, struct attention_share *part);

#endif
