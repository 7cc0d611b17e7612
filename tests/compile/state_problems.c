/* Layers with a state, as models have them. */
#include <vkattn/vkattn_train.h>

#include "state_problems.h"

#include <vkattn/vkattn_train.h>

#define TENSORS 6

enum vka_status plan_conv_problem(struct vka_plan *plan, enum vka_dtype dtype, uint32_t n)
{
    enum vka_status status = VKA_OK;
    const uint32_t channels = 8192, rows[3] = {1, n, channels};
    struct vka_tensor *x = NULL, *w = NULL, *past = NULL, *y = NULL;
    TRY(vka_tensor_create(plan->device, dtype, 3, rows, &x));
    TRY(vka_tensor_create(plan->device, dtype, 2, (const uint32_t[]){channels, 4}, &w));
    TRY(vka_tensor_create(plan->device, dtype, 3, (const uint32_t[]){1, channels, 3}, &past));
    TRY(vka_tensor_create(plan->device, dtype, 3, rows, &y));
    TRY(vka_plan_add_causal_conv(plan, VKA_INFO(vka_causal_conv_op, .input = x, .weight = w,
                                                .activation = VKA_SILU, .past = past,
                                                .present = past, .output = y)));
fail:
    vka_tensor_destroy(&x);
    vka_tensor_destroy(&w);
    vka_tensor_destroy(&past);
    vka_tensor_destroy(&y);
    return status;
}

enum vka_status plan_conv_gradients(struct vka_plan *plan, enum vka_dtype dtype, uint32_t n)
{
    enum vka_status status = VKA_OK;
    const uint32_t channels = 8192, rows[3] = {1, n, channels}, taps[2] = {channels, 4};
    struct vka_tensor *t[TENSORS] = {NULL};
    TRY(vka_tensor_create(plan->device, dtype, 3, rows, &t[0]));
    TRY(vka_tensor_create(plan->device, dtype, 3, rows, &t[1]));
    TRY(vka_tensor_create(plan->device, dtype, 2, taps, &t[2]));
    TRY(vka_tensor_create(plan->device, dtype, 2, taps, &t[3]));
    const struct vka_causal_conv_op forward = *VKA_INFO(
        vka_causal_conv_op, .input = t[0], .weight = t[2], .activation = VKA_SILU, .output = t[1]);
    TRY(vka_plan_add_causal_conv_backward(
        plan, VKA_INFO(vka_causal_conv_backward_op, .forward = &forward, .output_gradient = t[0],
                       .input_gradient.tensor = t[1], .weight_gradient.tensor = t[3])));
fail:
    for (int i = 0; i < TENSORS; i++)
        vka_tensor_destroy(&t[i]);
    return status;
}

enum vka_status plan_linear_attention_problem(struct vka_plan *plan, enum vka_dtype dtype,
                                              enum vka_rule rule, bool key_decay, uint32_t n)
{
    enum vka_status status = VKA_OK;
    const uint32_t heads = 48, dim = 128, keys[4] = {1, 16, n, dim}, rows[4] = {1, heads, n, dim};
    const uint32_t states[4] = {1, heads, dim, dim};
    struct vka_tensor *t[TENSORS] = {NULL};
    TRY(vka_tensor_create(plan->device, dtype, 4, keys, &t[0]));
    TRY(vka_tensor_create(plan->device, dtype, 4, rows, &t[1]));
    TRY(vka_tensor_create(plan->device, dtype, key_decay ? 4 : 3, rows, &t[2]));
    TRY(vka_tensor_create(plan->device, dtype, 3, rows, &t[3]));
    TRY(vka_tensor_create(plan->device, VKA_F32, 4, states, &t[4]));
    TRY(vka_tensor_create(plan->device, dtype, 4, rows, &t[5]));
    TRY(vka_plan_add_linear_attention(
        plan, VKA_INFO(vka_linear_attention_op, .rule = rule, .q = t[0], .k = t[0], .v = t[1],
                       .decay = t[2], .beta = rule == VKA_RULE_GATED ? NULL : t[3],
                       .past_state = t[4], .present_state = t[4], .output = t[5])));
fail:
    for (int i = 0; i < TENSORS; i++)
        vka_tensor_destroy(&t[i]);
    return status;
}

enum vka_status plan_linear_backward_problem(struct vka_plan *plan, enum vka_dtype dtype,
                                             bool key_decay, uint32_t n)
{
    enum vka_status status = VKA_OK;
    const uint32_t heads = 16, dim = 128, rows[4] = {1, heads, n, dim};
    struct vka_tensor *t[8] = {NULL};
    for (int i = 0; i < 8;
         i++) /* decay and its gradient, beta; q, k and v, y, and gradients of these */
        TRY(vka_tensor_create(plan->device, dtype, i == 2 || (i < 2 && !key_decay) ? 3 : 4, rows,
                              &t[i]));
    const struct vka_linear_attention_op forward = {.struct_size = sizeof forward,
                                                    .rule = VKA_RULE_GATED_DELTA,
                                                    .q = t[3],
                                                    .k = t[3],
                                                    .v = t[3],
                                                    .decay = t[0],
                                                    .beta = t[2],
                                                    .output = t[4]};
    TRY(vka_plan_add_linear_attention_backward(
        plan,
        VKA_INFO(vka_linear_attention_backward_op, .forward = &forward, .output_gradient = t[4],
                 .q_gradient.tensor = t[5], .k_gradient.tensor = t[6], .v_gradient.tensor = t[7],
                 .decay_gradient.tensor = t[1])));
fail:
    for (int i = 0; i < 8; i++)
        vka_tensor_destroy(&t[i]);
    return status;
}
