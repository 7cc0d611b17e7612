/* Plans of layers with a state, in the sizes of Qwen's models. */
#ifndef TESTS_STATE_PROBLEMS_H
#define TESTS_STATE_PROBLEMS_H

#include <plan/plan.h>
#include <vkattn/vkattn_model.h>

/* A convolution of n rows of 8192 channels, 4 wide, and its state. */
enum vka_status plan_conv_problem(struct vka_plan *plan, enum vka_dtype dtype, uint32_t n);

/* Its gradients. */
enum vka_status plan_conv_gradients(struct vka_plan *plan, enum vka_dtype dtype, uint32_t n);

/* n tokens of 48 states of 128x128, 16 heads of keys. rule: GATED or GATED_DELTA. */
enum vka_status plan_linear_attention_problem(struct vka_plan *plan, enum vka_dtype dtype,
                                              enum vka_rule rule, bool key_decay, uint32_t n);

/* The gradients of n tokens of 16 states of 128x128 by the gated delta rule. */
enum vka_status plan_linear_backward_problem(struct vka_plan *plan, enum vka_dtype dtype,
                                             bool key_decay, uint32_t n);

#endif
