/* What vkattn bench times: options, and the tensors of one operation. SPDX-License-Identifier: MIT */
#ifndef BENCH_PROBLEM_H
#define BENCH_PROBLEM_H

#include "common/device.h"

enum bench_op {
    BENCH_LAYER = 0,
    BENCH_ATTENTION,
    BENCH_MATMUL,
    BENCH_DECODE,
    BENCH_LINEAR,
    BENCH_OP_COUNT
};

/* The options of vkattn bench. Sizes that the operation does not have are 0. */
struct bench_options {
    enum bench_op op;
    uint32_t batch, n_q, n_head, n_kv_head, head_dim, value_dim, model_dim;
    uint32_t n_kv; /* layer: 0 means self-attention, until the problem is made */
    uint32_t m, n, k;
    uint32_t repeat; /* timed runs; 0: see BENCH_RUNS and BENCH_SECONDS */
    bool cross;      /* layer: keys and values have an input of their own */
    bool causal, json, passes, explain;
    bool warm;          /* use the pipeline cache; without this first_ms includes all compilation */
    int dtype, path;    /* enum vka_dtype, enum vka_path */
    int weights;        /* linear: enum vka_dtype */
    int activations;    /* linear: quantised, if not 0 */
    const char *kernel; /* "NAME" or "NAME,VARIANT": forced; NULL: by the rules */
    const char *kv;     /* decode: types of the cache as given; NULL: dtype, see bench_key_dtype */
    enum vka_dtype key_dtype, value_dtype;
    struct device_options device;
};

/* Types of the cache of a decoding step. */
static inline enum vka_dtype bench_key_dtype(const struct bench_options *o)
{
    return o->kv ? o->key_dtype : (enum vka_dtype)o->dtype;
}
static inline enum vka_dtype bench_value_dtype(const struct bench_options *o)
{
    return o->kv ? o->value_dtype : (enum vka_dtype)o->dtype;
}

/* The tensors of one operation, filled; sized by the options. */
struct bench_problem {
    const struct bench_options *options;
    struct vka_tensor *input[3]; /* layer: query, key; attention: q, k, v; matmul, linear: A, B
                                    and, of int8, its scale */
    struct vka_tensor *output;
    struct vka_layer *layer;
    struct vka_cache *cache; /* decode: n_kv positions, all but the last filled */
    double flops; /* 2 for each multiply-add; causal attention counts half of the scores */
    double bytes; /* of all inputs, weights and outputs, each counted once */
    double made;  /* milliseconds in which layer or cache were made, which tests kernels */
};

/* Makes the tensors. Prints why it fails; destroy the problem after a failure too. */
enum tool_exit bench_problem_create(struct tool_device *d, const struct bench_options *options,
                                    struct bench_problem *problem);
enum vka_status bench_problem_add(const struct bench_problem *problem, struct vka_plan *plan);
/* Call it before each run: decode removes the token of the run before. */
enum vka_status bench_problem_rewind(const struct bench_problem *problem);
void bench_problem_destroy(struct bench_problem *problem);

#endif
