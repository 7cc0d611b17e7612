/* Case files, version 1: one attention problem with its expected answer, in a safetensors file.
 * SPDX-License-Identifier: MIT
 *
 * case_open refuses everything that is not exactly as the format says, so an open case needs no
 * further check of shapes or types. A refusal is VKA_IO (or VKA_OUT_OF_HOST_MEMORY) and one
 * sentence in error[VKA_IO_ERROR_SIZE] that names the file, the tensor or key, and what was
 * expected. */
#ifndef CASE_H
#define CASE_H

#include <vkattn/vkattn_io.h>

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
    double scale;          /* 0: 1 / sqrt(head_dim) */
    double softcap;        /* 0: none */
    bool causal;
    bool window;
    int32_t window_left, window_right; /* -1: unbounded */
    enum vka_masked_row masked_row;
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
    /* Of ONNX, by their names there. */
    CASE_RMS_NORMALIZATION,
    CASE_LAYER_NORMALIZATION,
    CASE_ROTARY_EMBEDDING,
    CASE_GELU,
    CASE_SWISH,
    CASE_SWIGLU,
    CASE_TENSOR_SCATTER,
    CASE_OPERATION_COUNT
};

#define CASE_INPUTS 4

/* Of kind op. Of ONNX's operations: inputs by index, NULL where there is none, with shapes that fit;
 * I64 elements fit an int32. */
struct case_op {
    enum case_operation operation;
    const struct vka_io_array *inputs[CASE_INPUTS];
    uint32_t axis; /* counted from the first */
    uint32_t num_heads, rotary_dim;
    double epsilon, alpha;
    bool interleaved, tanh, circular;

    /* Of Linear. */
    enum vka_dtype weight_type;
    const struct vka_io_array *input;         /* [rows][in] */
    const struct vka_io_array *blocks;        /* U8 [out][bytes of a row] */
    const struct vka_io_array *bias;          /* [out]; NULL: none */
    const struct vka_io_array *expect_weight; /* [out][in] */

    const struct vka_io_array *expect; /* of Linear [rows][out] */
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
    /* Of a layer: widths of its inputs and its output; without o_proj, n_head * value_dim. */
    uint32_t query_dim, key_dim, value_input_dim, output_dim;
};

/* Opens a case, or parses one in memory. The memory must outlive the object; path is then only used
 * in sentences. */
enum vka_status case_open(const char *path, char *error, struct case_file **c);
enum vka_status case_parse(const char *path, const void *data, size_t size, char *error,
                           struct case_file **c);

/* Opens a weight file: q_proj, k_proj, v_proj and optionally o_proj, or out_proj. Other tensors are
 * refused, but for those that a case file has besides. A `config` in the metadata is read as strictly
 * as that of a case, but every key is optional. Only the arrays of the projections and config are
 * filled in. */
enum vka_status case_open_layer(const char *path, char *error, struct case_file **c);

/* Fills in n_head, n_kv_head, head_dim, value_dim and the four widths of a weight file from config,
 * which the caller may have changed, and from the shapes of the weights. path is only used in
 * sentences. */
enum vka_status case_layer_sizes(struct case_file *c, const char *path, char *error);

void case_close(struct case_file **c);

/* ---- Numbers --------------------------------------------------------------------------------- */

/* The number of elements. */
size_t case_count(const struct vka_io_array *array);

/* `count` elements of any type as double; 64-bit integers beyond 2^53 round. BOOL gives 0 or 1. */
void case_widen(enum vka_io_dtype dtype, const void *data, size_t count, double *out);

/* The whole array as double; NULL if memory ran out. The caller frees it. */
double *case_doubles(const struct vka_io_array *array);

/* Converts `count` numbers to a tensor's element type, rounding to nearest, ties to even; BOOL is
 * x != 0. For I32 they must fit, as kv_length and query_offset of an open case do. */
void case_narrow(const double *x, size_t count, enum vka_dtype dtype, void *out);

/* The element type for an array's values on a device: I32 for I64, F32 for F64. */
enum vka_dtype case_dtype(enum vka_io_dtype dtype);

struct case_result {
    bool pass;       /* every element: |got - want| <= atol + rtol * |want| */
    double max_abs;  /* largest |got - want|; infinite if a NaN or infinity does not match */
    double max_rel;  /* largest |got - want| / |want| with want != 0; infinite in the same cases */
    double row_nmse; /* |got - want|^2 / |want|^2 of the worst row */
    size_t worst; /* index of the element that exceeds its tolerance most, or comes nearest to it */
    double got, want; /* that element */
};

/* Compares count elements; count is a multiple of width, the length of a row. */
void case_compare(const double *got, const double *want, size_t count, size_t width, double rtol,
                  double atol, struct case_result *result);

/* ---- The oracle ------------------------------------------------------------------------------ */

/* Computes an open case in double from its stored values. Each result may be NULL and has the shape
 * of the expected array of its name. scores are of the kind config.scores, or the weights if that
 * is NONE. VKA_OK or VKA_OUT_OF_HOST_MEMORY. */
enum vka_status case_reference(const struct case_file *c, double *output, double *scores,
                               double *present_key, double *present_value);

#endif
