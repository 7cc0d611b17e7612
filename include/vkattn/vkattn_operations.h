/* The operations of a plan, as a table: VKA_OPERATION(noun, struct) for each function
 *
 *     enum vka_status vka_plan_add_NOUN(struct vka_plan *plan, const struct STRUCT *op);
 *
 * and VKA_OPERATION_ALIKE(noun, struct) where an operation above has the struct, too. Whoever wants to
 * do something for each of them, such as a binding of another language, defines the first macro, or
 * both, and includes this file, which undefines them; it may be included again.
 * SPDX-License-Identifier: MIT
 *
 * In the library, tests/operations has one valid, answered example of each, which every generic test
 * iterates. A row without an example does not build. */
#include <vkattn/vkattn_model.h>
#include <vkattn/vkattn_train.h>

#ifndef VKA_OPERATION
#define VKA_OPERATION(noun, type)
#endif
#ifndef VKA_OPERATION_ALIKE
#define VKA_OPERATION_ALIKE(noun, type) VKA_OPERATION(noun, type)
#endif
VKA_OPERATION(linear, vka_linear_op)
VKA_OPERATION(attention, vka_attention_op)
VKA_OPERATION(layer, vka_layer_op)
VKA_OPERATION(norm, vka_norm_op)
VKA_OPERATION(merge, vka_merge_op)
VKA_OPERATION(activation, vka_activation_op)
VKA_OPERATION(binary, vka_binary_op)
VKA_OPERATION(conv1d, vka_conv1d_op)
VKA_OPERATION(gather, vka_gather_op)
VKA_OPERATION(scatter, vka_scatter_op)
VKA_OPERATION(rotary, vka_rotary_op)
VKA_OPERATION(argmax, vka_argmax_op)
VKA_OPERATION(sample, vka_sample_op)
VKA_OPERATION(pool, vka_pool_op)
VKA_OPERATION(causal_conv, vka_causal_conv_op)
VKA_OPERATION(linear_attention, vka_linear_attention_op)
VKA_OPERATION(linear_backward, vka_linear_backward_op)
VKA_OPERATION(activation_backward, vka_activation_backward_op)
VKA_OPERATION(causal_conv_backward, vka_causal_conv_backward_op)
VKA_OPERATION(binary_backward, vka_binary_backward_op)
VKA_OPERATION(norm_backward, vka_norm_backward_op)
VKA_OPERATION(gather_backward, vka_gather_backward_op)
VKA_OPERATION_ALIKE(rotary_backward, vka_rotary_op)
VKA_OPERATION(attention_backward, vka_attention_backward_op)
VKA_OPERATION(linear_attention_backward, vka_linear_attention_backward_op)
VKA_OPERATION(layer_backward, vka_layer_backward_op)
VKA_OPERATION(cross_entropy, vka_cross_entropy_op)
VKA_OPERATION(square_error, vka_square_error_op)
VKA_OPERATION(optimiser, vka_optimiser_op)
VKA_OPERATION(clip, vka_clip_op)
#undef VKA_OPERATION
#undef VKA_OPERATION_ALIKE
