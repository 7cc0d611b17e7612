/* What a case file holds: kinds, config, operations, tensors and sizes. SPDX-License-Identifier: MIT */
#ifndef CASE_CONTENTS_H
#define CASE_CONTENTS_H

#include <vkattn/vkattn_io.h>
#include <vkattn/vkattn_model.h>

enum case_kind { CASE_SDPA = 0, CASE_LAYER, CASE_OP, CASE_KIND_COUNT };

enum case_layout {
    CASE_LAYOUT_NONE = 0, /* not given; only in weight files */
    CASE_BHSD,            /* sdpa: [batch][n_head][n][dim] */
    CASE_BSD,             /* [batch][n][width] */
    CASE_SBD,             /* layer: [n][batch][width] */
    CASE_LAYOUT_COUNT
};

/* The `config` object of the metadata. A missing key has the default given here, else zero. */
struct case_config {
    enum case_layout layout;
    uint32_t num_heads;    /* 0: not given (only in weight files) */
    uint32_t num_kv_heads; /* 0: num_heads */
    /* These are the options of struct vka_attention_options, 0 where the file has no key for one. */
#define OPTION(kind, type, wide, name) wide name;
#include "../../src/attention_options.def"
#undef OPTION
    enum vka_scores scores;
    bool interleaved;      /* heads are interleaved in the outputs of projections */
    struct vka_rope rope;  /* dim 0: none */
    int softmax_precision; /* ONNX type number: 1 f32 (default), 10 f16, 11 f64, 16 bf16 */
};

/* weight [out][in], bias [out] or NULL. Both NULL: no such projection (output only). */
struct case_linear {
    const struct vka_io_array *weight, *bias;
};

enum case_operation {
    CASE_LINEAR = 0, /* with quantised weights */
    /* Operations of ONNX, by their names there. */
    CASE_RMS_NORMALIZATION,
    CASE_LAYER_NORMALIZATION,
    CASE_ROTARY_EMBEDDING,
    CASE_GELU,
    CASE_SWISH,
    CASE_SWIGLU,
    CASE_TENSOR_SCATTER,
    CASE_CAUSAL_CONV, /* and those after it: with a state, which is output 1 */
    CASE_LINEAR_ATTENTION,
    CASE_OPERATION_COUNT
};

#define CASE_INPUTS 6

/* A case of kind op. ONNX's operations have inputs by index, NULL where there is none, with shapes
 * that fit; I64 elements fit an int32. */
struct case_op {
    enum case_operation operation;
    const struct vka_io_array *inputs[CASE_INPUTS];
    uint32_t axis; /* counted from the first */
    uint32_t num_heads, rotary_dim;
    double epsilon, alpha;
    bool interleaved, tanh, circular, silu;
    enum vka_rule rule;
    uint32_t q_heads, k_heads, state_heads;
    double scale; /* 0: the default */

    /* What Linear has. */
    enum vka_dtype weight_type;
    const struct vka_io_array *input;         /* [rows][in] */
    const struct vka_io_array *blocks;        /* U8 [out][bytes of a row] */
    const struct vka_io_array *bias;          /* [out]; NULL: none */
    const struct vka_io_array *expect_weight; /* [out][in] */

    const struct vka_io_array *expect;       /* of Linear [rows][out] */
    const struct vka_io_array *expect_state; /* NULL: not in the file */
};

/* An open case. Arrays are valid until it is closed and NULL if the file does not have them. Floats
 * are F32, F16 or BF16, expected arrays also F64. All weights and biases have one type. */
struct case_file {
    struct vka_safetensors *file;
    enum case_kind kind;
    const char *name, *source; /* of the metadata; NULL for a weight file */
    double rtol, atol;
    struct case_op op; /* of kind op; all below is of the other kinds */
    struct case_config config;

    /* In the layout of config. A layer without key and value is self-attention. */
    const struct vka_io_array *query, *key, *value;
    const struct vka_io_array *past_key;     /* [batch][n_kv_head][n_past][head_dim] */
    const struct vka_io_array *past_value;   /* [batch][n_kv_head][n_past][value_dim] */
    const struct vka_io_array *mask;         /* BOOL or float, rank 1 to 4 */
    const struct vka_io_array *kv_length;    /* I64 [batch] or [1], each fits an int32 */
    const struct vka_io_array *query_offset; /* the same */
    struct case_linear q_proj, k_proj, v_proj, o_proj;

    const struct vka_io_array *expect_output;        /* in the layout of config */
    const struct vka_io_array *expect_scores;        /* [batch][n_head][n_q][n_kv] */
    const struct vka_io_array *expect_present_key;   /* [batch][n_kv_head][n_kv][head_dim] */
    const struct vka_io_array *expect_present_value; /* [batch][n_kv_head][n_kv][value_dim] */

    /* Sizes, each at least 1 except n_past; n_kv = n_past + n_new. */
    uint32_t batch, n_head, n_kv_head, n_q, n_new, n_past, n_kv, head_dim, value_dim;
    /* Widths of a layer's inputs and its output; without o_proj, n_head * value_dim. */
    uint32_t query_dim, key_dim, value_input_dim, output_dim;
};

#endif
