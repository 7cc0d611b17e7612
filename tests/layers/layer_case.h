/* Whole layers with random weights and inputs, on a device and by the oracle. Failed calls fail the
 * running cmocka test, or end the program on a thread that runs none. */
#ifndef TESTS_LAYER_CASE_H
#define TESTS_LAYER_CASE_H

#include <vkattn/vkattn.h>

/* What NMSE a row of float32 results may have. */
#define LAYER_NMSE 1e-10

enum layer_io {
    LAYER_BATCH_FIRST = 0,
    LAYER_SEQUENCE_FIRST,
    LAYER_PERMUTED_VIEWS, /* batch-first views of sequence-first tensors */
    LAYER_IO_COUNT
};

enum { BIAS_QUERY = 1, BIAS_KEY = 2, BIAS_VALUE = 4, BIAS_OUTPUT = 8, BIAS_ALL = 15 };

/* Zeros mean what they mean in struct vka_layer_info. */
struct layer_case {
    const char *name;
    uint32_t batch, n_q;
    uint32_t n_kv; /* 0: self-attention, key and value are the query */
    uint32_t n_head, n_kv_head, head_dim, value_dim;
    uint32_t query_dim, key_dim, value_input_dim, output_dim;
    enum vka_dtype dtype; /* of the weights */
    enum vka_dtype rows;  /* of inputs and output */
    unsigned biases;
    bool interleaved, no_output_weight;
    bool value_is_key; /* value NULL beside a key */
    bool causal, lengths;
    uint32_t rope_dim; /* rotated features; 0: none */
    bool in_tensors;   /* the weights */
    bool transposed;   /* those of views [out][in] of [in][out] */
    enum layer_io io;
};

struct layer_rig {
    struct layer_case c; /* defaults filled in */
    struct vka_device *device;
    struct vka_layer *layer;
    struct vka_tensor *query, *key, *value, *output, *kv_length; /* what the operation takes */
    struct vka_tensor *output_base; /* [n_q][batch][output_dim] or [batch][n_q][output_dim] */
    double *want;                   /* [batch][n_q][output_dim], by the oracle */
};

/* A seed gives the same numbers each time. */
void rig_create(struct layer_rig *rig, struct vka_device *device, const struct layer_case *c,
                uint64_t seed);
void rig_destroy(struct layer_rig *rig);

struct vka_layer_op rig_op(const struct layer_rig *rig);

/* A finished plan of the one operation; info may be NULL. */
struct vka_plan *rig_plan(const struct layer_rig *rig, const struct vka_plan_info *info);

/* Elements of the output, which rig_read converts to float and copies to output as the operation's own layout. */
size_t rig_count(const struct layer_rig *rig);
void rig_read(const struct layer_rig *rig, float *output);

/* Fills the output with NaN, runs the plan and gives the worst row's NMSE against the oracle. */
double rig_run(const struct layer_rig *rig, struct vka_plan *plan);
double rig_error(const struct layer_rig *rig);

/* A layer of moderate size, for tests of something else. */
extern const struct layer_case layer_plain;

/* A case on a plan of its own: the NMSE. */
double layer_check(struct vka_device *device, const struct layer_case *c, uint64_t seed);

/* Whether there is a Vulkan device; else says loudly that `what` is not tested. */
bool have_device(const char *what);

#endif
