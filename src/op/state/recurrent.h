/* Linear attention: the problem, and passes of linear_recurrent, or of linear_weights and linear_chunked. */
#ifndef VKA_OP_STATE_RECURRENT_H
#define VKA_OP_STATE_RECURRENT_H

#include "op/state/recurrent_problem.h"

/* Checks an operation, but its cache, and sets *linear. */
enum vka_status linear_check(struct vka_plan *plan, const char *caller,
                             const struct vka_linear_attention_op *op, struct linear *linear);

/* Binds what a slice [sequence][state][token] reads, and y, to the slots of linear_params, and sets these
 * parameters, the types and the flags of what stands in front. States and parameters are not bound.
 * written: what the pass writes; NULL: it writes y. */
void linear_fill_pass(const struct vka_plan *plan, const struct linear *linear,
                      const struct slice *slice, const struct vka_tensor *written,
                      struct pass *pass, struct linear_params *p);

/* Sequences of LINEAR_CHUNK rows and more go by chunks, where these fit, shorter ones token by token; a
 * plan's whole_n_q stands for the rows of all. UNSUPPORTED where no tile fits the device. */
enum vka_status plan_recurrent(struct vka_plan *plan, const char *caller, struct linear *linear);

#endif
