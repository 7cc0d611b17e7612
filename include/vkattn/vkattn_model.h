/* vkattn: the operations that whole transformer models have around attention and linear layers.
 * SPDX-License-Identifier: MIT
 *
 * Each function adds an operation to a plan, as vka_plan_add_linear does, and all that is said there
 * holds here: operations run in the order in which they were added, F32, F16 and BF16 tensors mix
 * freely, arithmetic is float32, in which devices may take numbers below 2^-126 for 0, NaN is written
 * as the quiet NaN without a payload, and the bits do not depend on how the plan is cut. Tensors have
 * any strides; views (slice, permute, reshape) copy nothing. So the halves of a fused projection are
 * two slices of one tensor, and heads are a reshape and a permutation of rows.
 *
 * A block of a Llama from its second norm on, x and the others float16 [batch][n][width]:
 *
 *     vka_plan_add_norm(plan, VKA_INFO(vka_norm_op, .input = attended, .residual = x, .sum = x,
 *                                      .weight = norm_weight, .output = normed));
 *     vka_plan_add_linear(plan, VKA_INFO(vka_linear_op, .input = normed, .weight = gate_weight,
 *                                        .output = gate));
 *     vka_plan_add_linear(plan, VKA_INFO(vka_linear_op, .input = normed, .weight = up_weight,
 *                                        .output = up));
 *     vka_plan_add_activation(plan, VKA_INFO(vka_activation_op, .input = gate, .multiplier = up,
 *                                            .kind = VKA_SILU, .output = gate));
 *
 * Statuses of all functions: INVALID (the sentence names the argument); UNSUPPORTED (it names the
 * limit of the device); DEVICE_LOST; TIMEOUT; memory statuses. On failure nothing was added. Where
 * an output may lie in place of an input, it is that tensor, or a view with the same elements at the
 * same indices; otherwise outputs share no element with an input.
 */
#ifndef VKATTN_MODEL_H
#define VKATTN_MODEL_H

#include <vkattn/vkattn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Norms ----------------------------------------------------------------------------------- */

/* Functions of one element; alpha is 1 but where an operation has another. */
enum vka_activation {
    VKA_IDENTITY = 0,
    VKA_GELU,      /* x (1 + erf(x / sqrt(2))) / 2 */
    VKA_GELU_TANH, /* its approximation by tanh */
    VKA_SILU,      /* x / (1 + exp(-alpha x)): swish */
    VKA_RELU,      /* max(x, 0) */
    VKA_TANH,
    VKA_SIGMOID, /* 1 / (1 + exp(-x)) */
    VKA_ACTIVATION_COUNT
};

enum vka_norm {
    VKA_RMS_NORM = 0, /* x / sqrt(mean(x^2) + epsilon) */
    VKA_LAYER_NORM,   /* (x - mean) / sqrt(mean((x - mean)^2) + epsilon) */
    VKA_NORM_COUNT
};

/* Norm of rows, as ONNX's RMSNormalization and LayerNormalization: output = norm(input + residual)
 * * weight + bias. With a sum, what is normalised is input + residual as the sum's type holds it, so
 * the result is that of an addition followed by a norm. Finite rows may be of any size: where their
 * squares would leave float32, they are scaled by a power of two first. */
struct vka_norm_op {
    size_t struct_size;
    enum vka_norm kind;
    /* A row is the last `axes` axes; 0: 1. ONNX's `axis` is the rank less this. */
    uint32_t axes;
    uint32_t given;              /* VKA_GIVEN_EPSILON */
    float epsilon;               /* 0: 1e-5, unless given */
    struct vka_tensor *input;    /* of any rank */
    struct vka_tensor *residual; /* as input; NULL: none */
    struct vka_tensor *sum; /* receives input + residual; may be in place of either; NULL: none */
    struct vka_tensor *weight; /* the last `axes` axes of input; NULL: 1 */
    struct vka_tensor *bias;   /* the same; NULL: 0 */
    /* A gated norm, in place of residual and sum: output is multiplied by f(gate), or with gate_first
     * input is, before the norm, where these products have to be finite. */
    struct vka_tensor *gate;             /* as input; NULL: none */
    enum vka_activation gate_activation; /* f */
    bool gate_first;
    /* Groups of a row, which are normalised each alone; 0: 1. With more, a row is the last axis, which
     * they divide. weight and bias are of a whole row all the same. */
    uint32_t groups;
    struct vka_tensor *output; /* as input; may be in place of it, if the sum is not */
};

/* UNSUPPORTED: a row that reaches further than a binding, or is too long for the driver's loops; groups of
 * a tensor of rank 4. */
VKA_API enum vka_status vka_plan_add_norm(struct vka_plan *plan, const struct vka_norm_op *op);

/* ---- Slices of attention --------------------------------------------------------------------- */

/* The most slices of vka_merge_op. */
#define VKA_MERGE_SLICES 1024

/* Merges attention over slices of the keys, such as a prefix that sequences share and what each has of
 * its own, or the keys of several devices, into attention over all of them:
 * output = sum of slice_i e^(l_i) / sum of e^(l_i), where l_i are the log_sum_exp of the slices, see
 * vka_attention_options. A slice whose l_i is -inf contributes nothing, even if it holds NaN; where all
 * are -inf the output is 0. A NaN among the l_i gives NaN. A sink belongs to one slice alone, whose
 * rows have to see a key. Masks, positions and key lengths of a slice count its own keys, so
 * query_offset is that of all keys less the number of keys before the slice. */
struct vka_merge_op {
    size_t struct_size;
    uint32_t n_slice;                       /* 1 to VKA_MERGE_SLICES */
    struct vka_tensor *const *slices;       /* [n_slice], each as output; read by this call */
    struct vka_tensor *const *log_sum_exps; /* [n_slice], each F32 [...] */
    struct vka_tensor *output;              /* [...][value_dim], of rank 2 to 4 */
    struct vka_tensor *log_sum_exp;         /* F32 [...], of all keys; NULL: none */
};
VKA_API enum vka_status vka_plan_add_merge(struct vka_plan *plan, const struct vka_merge_op *op);

/* ---- Element by element ---------------------------------------------------------------------- */

/* output = f(input), or f(input) * multiplier: with VKA_SILU SwiGLU, with VKA_GELU GeGLU. Where both
 * factors are the halves of one tensor, slice it. The functions are exact to 1e-6 of the
 * result, VKA_GELU_TANH to 2e-5, where the result is at least 1e-30: for each finite input, and each
 * alpha of 2e-6 or more in magnitude. VKA_GELU, VKA_GELU_TANH and VKA_SILU of -Inf (of Inf where alpha is
 * negative) are NaN, as Inf times 0 is and as PyTorch has it; VKA_TANH of -0 is 0. */
struct vka_activation_op {
    size_t struct_size;
    enum vka_activation kind;
    float alpha; /* of VKA_SILU; 0: 1 */
    struct vka_tensor *input;
    struct vka_tensor *multiplier; /* NULL: none */
    struct vka_tensor *output;     /* may be in place of an input of its shape */
};

/* input and multiplier broadcast, aligned right, to the shape of output: an axis that one of them
 * lacks, or in which its size is 1, repeats. */
VKA_API enum vka_status vka_plan_add_activation(struct vka_plan *plan,
                                                const struct vka_activation_op *op);

enum vka_binary { VKA_ADD = 0, VKA_MULTIPLY, VKA_BINARY_COUNT };

/* output = a + b or a * b; a and b broadcast as above. */
struct vka_binary_op {
    size_t struct_size;
    enum vka_binary kind;
    struct vka_tensor *a;
    struct vka_tensor *b;
    struct vka_tensor *output; /* may be in place of an input of its shape */
};
VKA_API enum vka_status vka_plan_add_binary(struct vka_plan *plan, const struct vka_binary_op *op);

/* ---- Convolution ----------------------------------------------------------------------------- */

/* Convolution along the rows of input, as PyTorch's Conv1d, with features as the last axis:
 * output[b][t] = f(bias + sum over j of weight[...][j] input[b][t * stride + j - padding_before]).
 * Rows of padding are zeros. It is a linear operation on overlapping rows, with the same sums. */
struct vka_conv1d_op {
    size_t struct_size;
    struct vka_tensor *input; /* [batch][length][in] */
    /* [out][width][in], whose last two axes are contiguous: a permuted copy of PyTorch's
     * [out][in][width]. */
    struct vka_tensor *weight;
    struct vka_tensor *bias; /* [out]; NULL: none */
    uint32_t stride;         /* 0: 1 */
    uint32_t padding_before, padding_after;
    enum vka_activation activation; /* f; it takes what output holds, in place */
    /* [batch][rows][out]: rows is (length + padding_before + padding_after - width) / stride + 1,
     * rounded down */
    struct vka_tensor *output;
};
VKA_API enum vka_status vka_plan_add_conv1d(struct vka_plan *plan, const struct vka_conv1d_op *op);

/* ---- Rows by number -------------------------------------------------------------------------- */

/* output[...] = scale * table[ids[...]], the rows of an embedding. An id outside the table gives a
 * row of zeros, so -1 is a place for padding. */
struct vka_gather_op {
    size_t struct_size;
    struct vka_tensor *table; /* [n][width]: F32, F16, BF16, or a block type with contiguous rows */
    struct vka_tensor *ids;   /* I32, of rank 1 to 3 */
    uint32_t given;           /* VKA_GIVEN_SCALE */
    float scale;              /* 0: 1, unless given */
    struct vka_tensor *output; /* the axes of ids, then [width] */
};

/* UNSUPPORTED: a row of the table or of output that reaches further than a binding. */
VKA_API enum vka_status vka_plan_add_gather(struct vka_plan *plan, const struct vka_gather_op *op);

/* Writes update into output, in place, as ONNX's TensorScatter: element j along `axis` goes to place
 * positions[b] + j, b being the index along axis 0. All else of output stays as it is. */
struct vka_scatter_op {
    size_t struct_size;
    struct vka_tensor *update;
    struct vka_tensor *positions; /* I32 [size of axis 0 of update]; NULL: 0 */
    uint32_t axis;                /* from 1 on */
    /* Places wrap around the end of the axis, on which update may not be longer than output. If
     * false, elements whose place is outside are dropped. */
    bool circular;
    struct vka_tensor *output; /* as update, but longer or shorter along `axis` */
};

/* UNSUPPORTED: what output holds along `axis` reaches further than a binding. */
VKA_API enum vka_status vka_plan_add_scatter(struct vka_plan *plan,
                                             const struct vka_scatter_op *op);

/* ---- Rotary embedding ------------------------------------------------------------------------ */

/* Turns the features of each head by an angle that grows with the position: pair (x, y) becomes
 * (x cos - y sin, x sin + y cos). Heads in rows [batch][n][n_head * head_dim] are a reshape and a
 * permutation. Angles are those of base or frequencies times the position, exact at any position; or
 * cos and sin hold their cosines and sines, as for ONNX's RotaryEmbedding. */
struct vka_rotary_op {
    size_t struct_size;
    struct vka_tensor *input; /* [batch][n_head][n][head_dim] */
    /* I32 [batch][n], or [1][n] for all; NULL: row i stands at position i. */
    struct vka_tensor *positions;
    uint32_t dim;     /* the first features, which are turned; even; 0: head_dim */
    bool interleaved; /* pairs are (2i, 2i + 1); if false, (i, i + dim / 2) */
    float base;       /* frequency i is base^(-2i / dim), base at least 1; 0: 10000 */
    /* In place of base: [dim / 2], radians a position, in magnitude at most 1. Read by this call. */
    const double *frequencies;
    float attention_factor; /* multiplies cosines and sines; above 0, or 0 for 1 */
    /* In place of angles, both or none: with positions [n_position][dim / 2], of which a position
     * outside gives NaN; without [batch][n][dim / 2], or [1][n][dim / 2] for all. */
    struct vka_tensor *cos, *sin;
    struct vka_tensor *output; /* as input; may be in place of it */
};

/* UNSUPPORTED: a row, or a table by positions, that reaches further than a binding. */
VKA_API enum vka_status vka_plan_add_rotary(struct vka_plan *plan, const struct vka_rotary_op *op);

/* What the config.json of a model says of rotary embedding, in its words: the members are keys of
 * rope_scaling or rope_parameters (rope_type, rope_theta, ...). Those of other types than `type` are
 * not read. */
enum vka_rope_type {
    VKA_ROPE_DEFAULT = 0, /* base^(-2i / dim) */
    VKA_ROPE_LINEAR,      /* divided by factor */
    VKA_ROPE_LLAMA3,      /* divided by factor where fewer than low_freq_factor turns fit the
                           * original length, blended up to high_freq_factor turns */
    VKA_ROPE_YARN,        /* the same by a ramp over the pairs, beta_slow to beta_fast turns */
    VKA_ROPE_LONGROPE,    /* divided by short_factor[i] or long_factor[i] */
    VKA_ROPE_TYPE_COUNT
};

struct vka_rope_info {
    size_t struct_size;
    enum vka_rope_type type;
    uint32_t dim;  /* features that rotate: head_dim, or partial_rotary_factor times it; even */
    double base;   /* rope_theta, at least 1; 0: 10000 */
    double factor; /* at least 1; of LONGROPE the extension of the original length */
    uint32_t original_max_position_embeddings; /* of LLAMA3, YARN and LONGROPE */
    double low_freq_factor, high_freq_factor;  /* of LLAMA3: low < high */
    double beta_fast, beta_slow;               /* of YARN; 0: 32 and 1 */
    double mscale, mscale_all_dim;             /* of YARN; used if both are given */
    bool no_truncate; /* of YARN: the ends of the ramp are not rounded to pairs */
    /* LONGROPE divides frequencies by these, [dim / 2]; by long_factor where `length` exceeds the
     * original length. */
    const double *short_factor, *long_factor;
    uint32_t length; /* of LONGROPE: positions that sequences may reach */
    /* 0: of YARN 1 + 0.1 log(factor), or the ratio of its mscales; of LONGROPE
     * sqrt(1 + log(factor) / log(original_max_position_embeddings)); else 1. */
    double attention_factor;
};

#define VKA_ROPE_ERROR_SIZE 512

/* Computes frequencies[dim / 2] and the attention factor, for vka_rotary_op and vka_rope. Needs no
 * device. INVALID, also for frequencies above 1, which those do not take: error, VKA_ROPE_ERROR_SIZE
 * characters or NULL, receives a sentence. Any thread. */
VKA_API enum vka_status vka_rope_frequencies(const struct vka_rope_info *info, double *frequencies,
                                             float *attention_factor,
                                             char error[VKA_ROPE_ERROR_SIZE]);

/* ---- The end of a model ---------------------------------------------------------------------- */

/* output = index of the largest element of each row; of equal ones the first. NaN counts as the
 * largest, and -0 equals 0. */
struct vka_argmax_op {
    size_t struct_size;
    struct vka_tensor *input;  /* [...][n] */
    struct vka_tensor *output; /* I32 [...]; [1] if input has one axis */
};
VKA_API enum vka_status vka_plan_add_argmax(struct vka_plan *plan, const struct vka_argmax_op *op);

/* Draws an index from each row by softmax(logits / temperature). In this order, elements are left out
 * that are below the top_k-th largest; that are below the least one of the fewest largest whose
 * weights add up to top_p of what is left; whose weight is below min_p times the largest. Elements
 * equal to such a bound stay. NaN and -inf are never drawn; a row without others gives -1.
 *
 * The draw is u = (w >> 8) / 2^24, where w is the first word of Philox4x32-10 of the counter
 * {step, row, 0, 0}, with a step of each row {step[row], 0, 0, 0}, and the key {low word, high word}
 * of the seed. So rows with steps and seeds of their own draw alike wherever they stand. The index is
 * the first at which the sum of the weights so far, in the order of the indices, exceeds u times their
 * sum. */
struct vka_sample_op {
    size_t struct_size;
    struct vka_tensor *logits; /* [n] or [rows][n], n at most 2^24 */
    float temperature;         /* 0: the largest logit, of equal ones the first */
    uint32_t top_k;            /* 0: all */
    float top_p;               /* 0 or 1: all */
    float min_p;               /* 0: all */
    uint64_t seed;
    /* I32 [1], or [rows] for a step of each row: to which each run adds 1 after it drew, so that one
     * recorded plan draws other numbers each time. NULL: step 0 in each run. With two rows or more
     * the two kinds draw differently. Contiguous. */
    struct vka_tensor *step;
    /* I32 [rows][2]: low and high word of each row's seed, in place of seed. NULL: seed for all. */
    struct vka_tensor *seeds;
    struct vka_tensor *output; /* I32 [1] or [rows] */
};

/* UNSUPPORTED: more logits than the driver's loops take: 460,000 on Mesa's CPU driver of Debian 12. */
VKA_API enum vka_status vka_plan_add_sample(struct vka_plan *plan, const struct vka_sample_op *op);

/* output[b] = mean of the rows of input[b] that count: those below lengths[b], each with its weight
 * in the mask, true being 1. A row of weight 0 may hold NaN. Zeros where no row counts. */
struct vka_pool_op {
    size_t struct_size;
    struct vka_tensor *input;   /* [batch][n][width] */
    struct vka_tensor *mask;    /* [batch][n], BOOL or a float type; NULL: all rows */
    struct vka_tensor *lengths; /* I32 [batch]; NULL: n */
    struct vka_tensor *output;  /* [batch][width] */
};

/* UNSUPPORTED: more rows than the driver's loops take: 100,000 on Mesa's CPU driver of Debian 12. */
VKA_API enum vka_status vka_plan_add_pool(struct vka_plan *plan, const struct vka_pool_op *op);

/* ---- Layers with a state --------------------------------------------------------------------- */

/* Depthwise causal convolution, as ONNX's CausalConvWithState:
 * output[t][c] = f(bias[c] + sum over j of weight[c][j] * input[t - (width - 1 - j) * dilation][c]).
 * Rows before the first are those of the past, or 0. ONNX's tensors, channels first, are permuted
 * views. Rows of other sequences, and those from a length on, are read into nothing. */
struct vka_causal_conv_op {
    size_t struct_size;
    struct vka_tensor *input;       /* [batch][n][channels] */
    struct vka_tensor *weight;      /* [channels][width], 1 to 16 wide */
    struct vka_tensor *bias;        /* [channels]; NULL: 0 */
    uint32_t dilation;              /* 0: 1 */
    enum vka_activation activation; /* f */
    /* [batch][channels][(width - 1) * dilation], the oldest row first: the rows before the first, and
     * the last ones of past and input together, for the next run. The second may be in place of the
     * first. NULL: 0; not wanted. */
    struct vka_tensor *past, *present;
    /* In place of past and present, the rows that a layer of a cache holds, of which a sequence keeps
     * those that the step keeps: see vkattn_cache.h. NULL: none. */
    struct vka_cache *cache;
    uint32_t cache_layer;
    /* I32 [batch], or [1] for all, read on the device: each sequence has only its first rows, clamped to
     * 0 .. n; rows of output from there on are 0. NULL: n. */
    struct vka_tensor *lengths;
    /* I32 [n_sequence + 1], read on the device, in place of lengths: batch is 1, and its rows are those
     * of packed sequences, s from q_start[s] to q_start[s + 1] - 1, as vka_attention_op says. past and
     * present have n_sequence in place of batch. With a cache lengths may be given too: each sequence
     * keeps so many of its rows, and those behind are 0 in output. */
    struct vka_tensor *q_start;
    struct vka_tensor *output; /* as input */
};

/* UNSUPPORTED: a convolution more than 16 wide, a dilation above 2^20; rows of input that together exceed
 * max_buffer_range, where they are packed, or kept behind lengths or by a cache; packed sequences whose
 * number, times the smaller of `dilation` and all rows, exceeds 2^31; on a driver with a limit of loop
 * iterations, more kept rows than these. */
VKA_API enum vka_status vka_plan_add_causal_conv(struct vka_plan *plan,
                                                 const struct vka_causal_conv_op *op);

/* How a token changes a state S, with f = e^decay, and writes u for v. */
enum vka_rule {
    VKA_RULE_LINEAR = 0,  /* S + k v^T */
    VKA_RULE_GATED,       /* f S + k v^T */
    VKA_RULE_DELTA,       /* S + k u^T, u = beta (v - S^T k) */
    VKA_RULE_GATED_DELTA, /* f S + k u^T, u = beta (v - (f S)^T k) */
    VKA_RULE_COUNT
};

/* Linear attention, as ONNX's LinearAttention: for each token the rule changes the state of a head,
 * float32 [head_dim][value_dim], and output = scale * S^T q.
 *
 * Heads: v has those of the states; k has a divisor of them; q has a multiple or a divisor. Output has
 * the larger number of q's and the states', n_out. Head h of the larger number belongs to head
 * h / ratio of the smaller.
 *
 * A sequence of 64 rows and more goes by chunks of 64, where the device has room for its states, the
 * decay is not of each key feature and q has no more heads than v; others go token by token, as do
 * all on CPU drivers but Mesa's from 26 on. A plan's whole_n_q stands for the rows of each. The bits of
 * a sequence are those that it has alone, in ragged and padded batches too. Those of one that comes in
 * slices, each with the state of the one before, are those of all rows at once where both go token by token, or
 * both by chunks and slices begin at multiples of 64 rows. Where nothing decays, a state is a sum of as many
 * float32 terms as there are tokens, and its rounding errors add up. Decays above 0 that sum to more than
 * 88 over rows of a chunk overflow there, even where the state is 0. Chunks of q and k of 16 bits go by
 * matrix units, where a device has some: what an Inf reaches may then be NaN, and a number below 2^-39 of
 * the greatest of a value's column, in a chunk or a state, or of a row of q or k, may count as 0. */
struct vka_linear_attention_op {
    size_t struct_size;
    enum vka_rule rule;
    struct vka_tensor *q; /* [batch][n_head][n][head_dim] */
    struct vka_tensor *k; /* [batch][n_kv_head][n][head_dim] */
    struct vka_tensor *v; /* [batch][n_state][n][value_dim] */
    /* The gated rules need it: [batch][n_state][n] of a head, or with one more axis
     * [batch][n_state][n][head_dim], of each key feature. A logarithm, as a rule at most 0. */
    struct vka_tensor *decay;
    /* The delta rules need it: [batch][n_state][n], or [batch][1][n] for all. */
    struct vka_tensor *beta;
    uint32_t given; /* VKA_GIVEN_SCALE */
    float scale;    /* 0: 1 / sqrt(head_dim), unless given */
    /* What models have in front; 0, false and NULL leave it out. Above 0, q and k are each divided by
     * sqrt(sum of their squares + norm_epsilon). */
    float norm_epsilon;
    bool beta_sigmoid; /* beta is 1 / (1 + e^-x) of the x in its place */
    /* With decay_log [n_state], the decay is -e^decay_log softplus(x + decay_bias) of the x in its place.
     * decay_bias [n_state], or [n_state][head_dim] where each key feature has an x; NULL: 0. */
    struct vka_tensor *decay_log, *decay_bias;
    /* That softplus, at least step_min and at most step_max, is a step, by which v is multiplied too:
     * Mamba-2's. Needs a decay_log, and an x of a head. step_max 0: no bound. */
    bool decay_steps;
    float step_min, step_max;
    struct vka_tensor *skip; /* [n_state]: skip * v, of v as it is given, is added to output */
    /* F32 [batch][n_state][head_dim][value_dim]: the state before the first token, and that after the
     * last. The second may be in place of the first. NULL: 0; not wanted. Where there is no present_state
     * and tokens are cut, the plan keeps one of its own, beside its workspace_limit. */
    struct vka_tensor *past_state, *present_state;
    struct vka_cache *cache; /* in place of both, as in vka_causal_conv_op */
    uint32_t cache_layer;
    /* These are as in vka_causal_conv_op, but past_state and present_state have n_sequence in place of
     * batch. Rows from a length on never reach a state. */
    struct vka_tensor *lengths, *q_start;
    struct vka_tensor *output; /* [batch][n_out][n][value_dim] */
};

/* UNSUPPORTED: a head_dim whose keys do not fit in shared memory, at least 128 and mostly 512 or more;
 * states of one sequence, or packed rows, that together exceed max_buffer_range. */
VKA_API enum vka_status vka_plan_add_linear_attention(struct vka_plan *plan,
                                                      const struct vka_linear_attention_op *op);

#ifdef __cplusplus
}
#endif
#endif
