/* vkattn: training. Gradients of the operations of vkattn.h and vkattn_model.h, losses and optimisers.
 * SPDX-License-Identifier: MIT
 *
 * Each function adds an operation to a plan, and all that vkattn_model.h says of its own holds here.
 * There is no tape: the caller adds the backward of each operation, last first, and names the
 * gradients that it wants. So one recorded plan is a whole step: forward, loss, backward, optimiser;
 * one submit runs it, and nothing is read unless it is wanted. Gradients are sums in a fixed order,
 * without atomics on floats: the bits are the same in each run, however the plan is cut.
 *
 * One step of a classifier, x float32 [64][784], labels I32 [64], and `adam` a struct
 * vka_optimiser_op that holds w, its gradient dw and two moments, set to 0:
 *
 *     vka_plan_add_linear(plan, VKA_INFO(vka_linear_op, .input = x, .weight = w, .output = y));
 *     vka_plan_add_cross_entropy(plan, VKA_INFO(vka_cross_entropy_op, .logits = y,
 *                                               .labels = labels, .loss = loss, .gradient = y));
 *     vka_plan_add_linear_backward(plan, VKA_INFO(vka_linear_backward_op, .input = x, .weight = w,
 *                                                 .output_gradient = y,
 *                                                 .weight_gradient.tensor = dw));
 *     vka_plan_add_optimiser(plan, &adam);
 *
 * Tensors are F32, F16 or BF16 but where a type is named; quantised weights have no gradient and are
 * INVALID. A gradient shares no element with an input, nor with another gradient, unless it is said
 * that it may. Statuses of all functions are those of vkattn_model.h. A gradient of what was broadcast
 * is UNSUPPORTED too where 2,048 terms of one sum reach further than a binding.
 */
#ifndef VKATTN_TRAIN_H
#define VKATTN_TRAIN_H

#include <vkattn/vkattn_model.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Gradients of operations ----------------------------------------------------------------- */

/* Where a gradient goes. */
struct vka_gradient {
    struct vka_tensor *tensor; /* of the shape of what it is the gradient of; NULL: not wanted */
    bool accumulate;           /* add it to what the tensor holds; if false, replace that */
};

/* The gradients of vka_plan_add_linear: output = f(input) weight^T + bias. Needs input for
 * weight_gradient, and with relu_input for input_gradient; weight for input_gradient. Sums run over
 * all leading axes. */
struct vka_linear_backward_op {
    size_t struct_size;
    struct vka_tensor *input;            /* [...][in], as it was in the forward */
    struct vka_tensor *weight;           /* [out][in] */
    struct vka_tensor *output_gradient;  /* [...][out] */
    bool relu_input;                     /* as in the forward: elements up to 0 have gradient 0 */
    struct vka_gradient input_gradient;  /* [...][in] */
    struct vka_gradient weight_gradient; /* [out][in] */
    struct vka_gradient bias_gradient;   /* [out] */
};

/* UNSUPPORTED: a bias_gradient where 2,048 rows of output_gradient reach further than a binding; or all
 * rows, if no one stride steps from each to the next. */
VKA_API enum vka_status vka_plan_add_linear_backward(struct vka_plan *plan,
                                                     const struct vka_linear_backward_op *op);

/* The gradients of vka_plan_add_activation: output = f(input) * multiplier. The gradient of what
 * was broadcast is summed over the axes in which it repeats. ReLU's at 0 is 0. The derivative is
 * exact as the function is (vkattn_model.h), but to a fraction of the sum of the magnitudes of the
 * product rule's two terms, which cancel where it is 0. At -Inf and Inf it is its limit. */
struct vka_activation_backward_op {
    size_t struct_size;
    enum vka_activation kind;
    float alpha;                   /* of VKA_SILU; 0: 1 */
    struct vka_tensor *input;      /* as it was in the forward */
    struct vka_tensor *multiplier; /* NULL: none */
    struct vka_tensor *output_gradient;
    struct vka_gradient input_gradient; /* may be in place of output_gradient if it is of its type
                                           and shape and no other gradient is wanted */
    struct vka_gradient multiplier_gradient;
};
VKA_API enum vka_status
vka_plan_add_activation_backward(struct vka_plan *plan,
                                 const struct vka_activation_backward_op *op);

/* The gradients of vka_plan_add_causal_conv. `forward` is its op, of which output and present are not
 * read: sums are made again. Rows from a length on have gradient 0 and are read into nothing.
 * Gradients of weight and bias are sums over batch and rows, in splits of at most 256 rows that are
 * added in order. With an activation it takes float32 scratch of twice the size of output. */
struct vka_causal_conv_backward_op {
    size_t struct_size;
    const struct vka_causal_conv_op *forward; /* read by this call */
    struct vka_tensor *output_gradient;       /* [batch][n][channels] */
    /* [batch][channels][(width - 1) * dilation]: the gradient of present. NULL: 0. */
    struct vka_tensor *present_gradient;
    struct vka_gradient input_gradient;  /* [batch][n][channels] */
    struct vka_gradient weight_gradient; /* [channels][width] */
    struct vka_gradient bias_gradient;   /* [channels] */
    struct vka_gradient past_gradient;   /* [batch][channels][(width - 1) * dilation] */
};

/* INVALID: also a present in place of the past, which is gone then. UNSUPPORTED: q_start, a cache, what
 * vka_plan_add_causal_conv does not support, and with an activation an output that exceeds an allocation
 * in float32. */
VKA_API enum vka_status
vka_plan_add_causal_conv_backward(struct vka_plan *plan,
                                  const struct vka_causal_conv_backward_op *op);

/* The gradients of vka_plan_add_binary. That of what was broadcast is summed over the axes in which
 * it repeats. A product needs b for a_gradient and a for b_gradient; a sum neither. */
struct vka_binary_backward_op {
    size_t struct_size;
    enum vka_binary kind;
    struct vka_tensor *a, *b; /* as they were in the forward; NULL: not needed */
    struct vka_tensor *output_gradient;
    struct vka_gradient a_gradient, b_gradient;
};
VKA_API enum vka_status vka_plan_add_binary_backward(struct vka_plan *plan,
                                                     const struct vka_binary_backward_op *op);

/* The gradients of vka_plan_add_norm. A residual passes its gradient on: where the sum of the
 * forward goes on as the residual stream, let input_gradient accumulate to the stream's, which is
 * then that of both the input and the residual. */
struct vka_norm_backward_op {
    size_t struct_size;
    enum vka_norm kind;
    uint32_t axes; /* as in the forward; given and epsilon too */
    uint32_t given;
    float epsilon;
    struct vka_tensor *input;  /* what was normalised: the sum, where there was a residual */
    struct vka_tensor *weight; /* the last `axes` axes of input; NULL: 1 */
    struct vka_tensor *output_gradient; /* as input */
    struct vka_gradient input_gradient;
    struct vka_gradient weight_gradient; /* the last `axes` axes of input */
    struct vka_gradient bias_gradient;   /* the same */
};

/* UNSUPPORTED: a row that reaches further than a binding, or is too long for the driver's loops; a
 * weight_gradient or bias_gradient where 2,048 rows of input or output_gradient reach further than a
 * binding, or all rows, if no one stride steps from each to the next. */
VKA_API enum vka_status vka_plan_add_norm_backward(struct vka_plan *plan,
                                                   const struct vka_norm_backward_op *op);

/* The gradient of vka_plan_add_gather: row r of the table's gradient is scale times the sum of
 * those rows of output_gradient whose id is r, in the order of the ids; 0 where there is none. */
struct vka_gather_backward_op {
    size_t struct_size;
    struct vka_tensor *ids;             /* I32, of rank 1 to 3 */
    struct vka_tensor *output_gradient; /* the axes of ids, then [width] */
    uint32_t given;                     /* VKA_GIVEN_SCALE */
    float scale;                        /* 0: 1, unless given */
    struct vka_gradient table_gradient; /* [n][width] */
};

/* UNSUPPORTED: an output_gradient that reaches further than a binding. */
VKA_API enum vka_status vka_plan_add_gather_backward(struct vka_plan *plan,
                                                     const struct vka_gather_backward_op *op);

/* The gradient of vka_plan_add_rotary, with its struct: input is the gradient of its output, and
 * output receives that of its input, in place of it if wanted. All else is as in the forward. */
VKA_API enum vka_status vka_plan_add_rotary_backward(struct vka_plan *plan,
                                                     const struct vka_rotary_op *op);

/* The gradients of vka_plan_add_attention. `forward` is its op, whose options.log_sum_exp holds
 * what it wrote; its output is not read. Masks, lengths, rotation, norms and dropout apply again.
 * The weights of a fully masked row are constants, so it gives a gradient to values alone. A hidden
 * key or value has the gradient 0, even if it is NaN, unless a norm of keys reads it.
 *
 * Scores are made again. VKA_PATH_FUSED stores none: it takes 16 bytes of scratch a row of q, and
 * VKA_PATH_AUTO takes it on GPUs, where no mask's gradient is wanted. Where operands and gradients
 * have one 16-bit type and nothing is rotated or normalised, it uses matrix units: weights and
 * gradients of scores are rounded to that type, float16 ones scaled by row; all sums are float32.
 * VKA_PATH_UNFUSED makes scores and their gradients in slices of queries, as many heads at a time
 * as workspace_limit holds, and one at least: up to 32 MiB if n_kv is up to 2^22. The queries of a
 * slice follow from n_kv alone, and the spans of a fused sum from the sizes, so the order of sums
 * and the bits do not depend on limits. On both paths a gradient also takes float32 scratch of its
 * size where it is accumulated, rotated, normalised, or (fused) not float32 in contiguous rows, or
 * (unfused) sums several slices or query heads. */
struct vka_attention_backward_op {
    size_t struct_size;
    const struct vka_attention_op *forward; /* read by this call */
    struct vka_tensor *output_gradient;     /* [batch][n_head][n_q][value_dim] */
    struct vka_gradient q_gradient;         /* [batch][n_head][n_q][head_dim] */
    struct vka_gradient k_gradient;         /* [batch][n_kv_head][n_kv][head_dim] */
    struct vka_gradient v_gradient;         /* [batch][n_kv_head][n_kv][value_dim] */
    struct vka_gradient sink_gradient;      /* [n_head] */
    struct vka_gradient mask_gradient;      /* as the mask, which is not BOOL; sums over the axes in
                                               which it repeats; 0 where it hides */
    struct vka_gradient q_norm_gradient, k_norm_gradient; /* [head_dim] */
};

/* INVALID: also a BOOL mask's gradient. UNSUPPORTED: past, present, cache, key chunks, ragged batches;
 * on VKA_PATH_FUSED a mask's gradient, or a device without the kernel. */
VKA_API enum vka_status vka_plan_add_attention_backward(struct vka_plan *plan,
                                                        const struct vka_attention_backward_op *op);

/* The gradients of vka_plan_add_linear_attention. `forward` is its op; past_state holds what it held
 * before it, and output and present_state are not read. Gradients of q and k are sums over the states that
 * a head serves, in order. Rows from a length on are not read and have the gradient 0.
 *
 * States are made again, 64 tokens at a time, from those in front of each 64. The scratch of a sequence's
 * state is that of 64 states, of one for every 64 tokens, and for every 16 values the gradients of 64 to
 * 512 tokens: as many sequences and states are taken at a time as workspace_limit holds, and one at least.
 * Beside that the gradient of all states is kept, in past_state_gradient where that is float32.
 * A gradient also takes float32 scratch of its size where it is accumulated or not float32; of q and k that
 * are divided by their length two or three times that; of decay_log, decay_bias and skip that of all their
 * terms. */
struct vka_linear_attention_backward_op {
    size_t struct_size;
    const struct vka_linear_attention_op *forward; /* read by this call */
    struct vka_tensor *output_gradient;            /* as forward->output */
    struct vka_tensor *present_state_gradient; /* [batch][n_state][head_dim][value_dim]; NULL: 0 */
    struct vka_gradient q_gradient;            /* as what they are of */
    struct vka_gradient k_gradient;
    struct vka_gradient v_gradient;
    struct vka_gradient decay_gradient; /* of what is in its place, as beta_gradient */
    struct vka_gradient beta_gradient;
    struct vka_gradient decay_log_gradient;
    struct vka_gradient decay_bias_gradient;
    struct vka_gradient skip_gradient;
    struct vka_gradient past_state_gradient;
};

/* INVALID: also the gradient of what forward has not; a present_state in place of past_state. UNSUPPORTED:
 * cache, q_start; a head_dim above 1,024, on some devices 512; a state whose scratch exceeds a binding. */
VKA_API enum vka_status
vka_plan_add_linear_attention_backward(struct vka_plan *plan,
                                       const struct vka_linear_attention_backward_op *op);

/* Gradients of a projection's weights, which need not lie in tensors themselves. */
struct vka_linear_gradients {
    struct vka_gradient weight; /* [out][in] */
    struct vka_gradient bias;   /* [out]; of a projection that has one */
};

/* The gradients of vka_plan_add_layer. `forward` is its op; its output, scores and log_sum_exp are
 * neither read nor written. Inputs and weights are as they were in the forward: take an optimiser's
 * step after this.
 *
 * Projections, attention and its log-sum-exp are made again, in float32 scratch: for each of the
 * three inputs and the context two tensors as wide as the heads, and what
 * vka_plan_add_attention_backward takes. That is linear in the number of rows. It takes most of the
 * time of a forward, which separate operations save that keep queries, keys, values and context.
 * Gradients of inputs and weights are those of vka_plan_add_linear_backward.
 *
 * One tensor has one gradient: where key or value is NULL or the handle of an input before it, the
 * gradient of that input is the sum over all that it serves, and key_gradient or value_gradient is
 * not given. Handles of two views of a tensor have a gradient each. */
struct vka_layer_backward_op {
    size_t struct_size;
    const struct vka_layer_op *forward; /* read by this call */
    struct vka_tensor *output_gradient; /* as forward->output, and may be that tensor */
    struct vka_gradient query_gradient, key_gradient, value_gradient; /* as the inputs */
    struct vka_linear_gradients query_weights, key_weights, value_weights, output_weights;
    struct vka_gradient sink_gradient, mask_gradient; /* see vka_attention_backward_op */
    struct vka_gradient q_norm_gradient, k_norm_gradient;
};

/* INVALID: also a layer of block weights. UNSUPPORTED: a cache; rows of all batch elements that exceed
 * an allocation in float32; what the backward of attention and of linear maps does not support. */
VKA_API enum vka_status vka_plan_add_layer_backward(struct vka_plan *plan,
                                                    const struct vka_layer_backward_op *op);

/* ---- Losses ---------------------------------------------------------------------------------- */

/* loss = mean over the rows of -log(softmax(logits)[label]), as PyTorch's: rows whose label is -100
 * do not count, and without any that do the loss is NaN. Any other label outside the classes gives a
 * loss of NaN, and gradients of NaN in its row. With smoothing s, the target of a row is 1 - s of its
 * label and s / n_class of each class. A plan made with count_nonfinite counts the loss too. */
struct vka_cross_entropy_op {
    size_t struct_size;
    struct vka_tensor *logits; /* [n_class] to [..][..][..][n_class] */
    struct vka_tensor *labels; /* I32, the axes of logits but the last; [1] if there is none */
    float smoothing;           /* 0 to 1 */
    struct vka_tensor *loss;   /* F32 [1] */
    /* Has the shape of logits, and may be in place of them. Receives the gradient of
     * gradient_scale * loss, 0 in rows that do not count. NULL: not wanted. */
    struct vka_tensor *gradient;
    uint32_t given;       /* VKA_GIVEN_GRADIENT_SCALE */
    float gradient_scale; /* 0: 1, unless given. For gradients accumulated over n plans 1 / n. */
};

/* UNSUPPORTED: a row of logits that reaches further than a binding, or is too long for the driver's
 * loops. */
VKA_API enum vka_status vka_plan_add_cross_entropy(struct vka_plan *plan,
                                                   const struct vka_cross_entropy_op *op);

/* loss = mean over all elements of (input - target)^2. */
struct vka_square_error_op {
    size_t struct_size;
    struct vka_tensor *input;
    struct vka_tensor *target;   /* as input */
    struct vka_tensor *loss;     /* F32 [1] */
    struct vka_tensor *gradient; /* as input, see vka_cross_entropy_op; may be in place of it */
    uint32_t given;              /* VKA_GIVEN_GRADIENT_SCALE */
    float gradient_scale;        /* 0: 1, unless given */
};
VKA_API enum vka_status vka_plan_add_square_error(struct vka_plan *plan,
                                                  const struct vka_square_error_op *op);

/* ---- Optimisers ------------------------------------------------------------------------------ */

enum vka_optimiser {
    VKA_SGD = 0,
    VKA_ADAM,  /* weight decay is added to the gradient */
    VKA_ADAMW, /* weight decay shrinks the parameter by learning_rate * weight_decay first */
    VKA_OPTIMISER_COUNT
};

/* A parameter and what its optimiser keeps of it, of one shape. Two of a list share neither parameters
 * nor moments; a gradient may serve several. */
struct vka_parameter {
    struct vka_tensor *parameter; /* F32, F16 or BF16, updated in place */
    struct vka_tensor *gradient;
    /* F32, 0 before the first step: Adam's moments; of VKA_SGD first_moment is the momentum's, and
     * NULL without one. */
    struct vka_tensor *first_moment, *second_moment;
};

/* One step of all parameters, as torch.optim.SGD, Adam and AdamW take it, in float32. Numbers are
 * doubles, as those of PyTorch are. A parameter of a 16-bit type is rounded in each step: keep one in
 * F32 for the optimiser, and copy it by vka_plan_add_activation with VKA_IDENTITY, where steps are
 * small. */
struct vka_optimiser_op {
    size_t struct_size;
    enum vka_optimiser kind;
    const struct vka_parameter *parameters; /* read by this call */
    size_t n_parameter;
    double learning_rate;
    double momentum;     /* of VKA_SGD; 0: none */
    bool nesterov;       /* of VKA_SGD: Nesterov's momentum */
    uint32_t given;      /* VKA_GIVEN_BETA1, VKA_GIVEN_BETA2, VKA_GIVEN_EPSILON */
    double beta1, beta2; /* of Adam, below 1; 0: 0.9 and 0.999, unless given */
    double epsilon;      /* of Adam; 0: 1e-8, unless given */
    double weight_decay;
    /* I32 [1]: how many steps were taken, to which each run adds 1 before it corrects the moments'
     * bias, so that one recorded plan takes them all. Write 0 before the first. Adam needs it; of
     * VKA_SGD NULL. */
    struct vka_tensor *step;
    /* F32 [1], multiplies learning_rate: a schedule that the host writes between runs. NULL: 1. */
    struct vka_tensor *rate;
};
VKA_API enum vka_status vka_plan_add_optimiser(struct vka_plan *plan,
                                               const struct vka_optimiser_op *op);

/* Gradients as torch.nn.utils.clip_grad_norm_ leaves them: norm = square root of the sum of squares of
 * all elements of all tensors; where it exceeds max_norm, each is multiplied by
 * max_norm / (norm + 1e-6). A sum of squares beyond float32 is Inf, and NaN makes all gradients NaN:
 * look at the norm. */
struct vka_clip_op {
    size_t struct_size;
    struct vka_tensor *const *gradients; /* in place, each once; read by this call */
    size_t n_gradient;
    double max_norm;         /* above 0 */
    struct vka_tensor *norm; /* F32 [1], before clipping */
};
VKA_API enum vka_status vka_plan_add_clip(struct vka_plan *plan, const struct vka_clip_op *op);

#ifdef __cplusplus
}
#endif
#endif
