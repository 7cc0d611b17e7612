/* What the checks of linear attention and of its gradient share. */
#ifndef TESTS_CHECK_LINEAR_H
#define TESTS_CHECK_LINEAR_H

#include "check_model.h"

#include <reference/state.h>

struct linear_shape {
    uint32_t batch, n_head, n_kv_head, n_state, n, head_dim, value_dim;
};

/* Operands that the oracle takes whole; decay and beta by their shapes alone. */
struct linear_gates {
    const struct operand *decay, *beta, *log, *bias, *skip;
};

/* The oracle's problem, but for its number of rows. */
struct ref_linear linear_reference(const struct vka_linear_attention_op *op,
                                   const struct linear_shape *s, const struct linear_gates *gates);

#endif
