/* A slice: some batch elements (axis 0) and key heads (axis 1) of a problem, attended as
 * a separate problem where an intermediate result of the whole would exceed an allocation. */
#ifndef VKA_OP_ATTENTION_SLICE_H
#define VKA_OP_ATTENTION_SLICE_H

#include "op/attention/problem.h"
#include "plan/cut.h"

/* Options for a slice, and the tensors that they point to. Must not be copied. */
struct sliced_options {
    struct vka_attention_options options;
    struct vka_tensor mask, kv_length, query_offset, scores, log_sum_exp, sink, alibi;
};

/* group: query heads of a key head. */
void attention_slice_options(const struct vka_attention_options *options, const struct slice *slice,
                             uint32_t group, struct sliced_options *sliced);

/* Whether every intermediate result of a slice fits an allocation. True also where the operation
 * must not be cut. */
bool attention_slice_fits(const struct vka_plan *plan, const struct attention *a,
                          const struct attention_inputs *in, const struct slice *slice);

/* A slice with all that it points to. Must not be copied. */
struct sliced_attention {
    struct attention attention;
    struct attention_inputs inputs;
    struct sliced_options options;
    struct vka_tensor tensors[6];
};
void attention_take_slice(const struct attention *a, const struct attention_inputs *in,
                          const struct slice *slice, struct sliced_attention *sliced);

#endif
