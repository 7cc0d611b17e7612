/* vkattn bench: what is timed, and how. SPDX-License-Identifier: MIT */
#ifndef TOOLS_BENCH_H
#define TOOLS_BENCH_H

#include "device.h"

#include <jansson.h>

enum bench_op { BENCH_LAYER = 0, BENCH_ATTENTION, BENCH_MATMUL, BENCH_DECODE, BENCH_OP_COUNT };

/* Sizes that the operation does not have are 0. */
struct bench_options {
    enum bench_op op;
    uint32_t batch, n_q, n_head, n_kv_head, head_dim, value_dim, model_dim;
    uint32_t n_kv; /* layer: 0 for self-attention until the problem is made */
    uint32_t m, n, k;
    uint32_t repeat; /* timed runs; 0: as many as pay, see BENCH_RUNS and BENCH_SECONDS */
    bool cross;      /* layer: keys and values come from an input of their own */
    bool causal, json, passes, explain;
    bool warm;       /* with the cache of compiled pipelines, that first_ms is else without */
    int dtype, path; /* enum vka_dtype, enum vka_path */
    struct device_options device;
};

/* Without --repeat: so many runs, or fewer if they take longer than this together. */
#define BENCH_RUNS 20
#define BENCH_SECONDS 5.0

/* The tensors of one operation, filled; sized by the options. */
struct bench_problem {
    const struct bench_options *options;
    struct vka_tensor *input[3]; /* layer: query, key; attention: q, k, v; matmul: A, B */
    struct vka_tensor *output;
    struct vka_layer *layer;
    struct vka_cache *cache; /* decode: n_kv positions, all but the last of them filled */
    double flops;            /* 2 per multiply-add, causal attention at half of the score square */
    double bytes;            /* of all inputs, weights and outputs, each moved once */
};

/* Prints why it cannot; destroy it either way. */
enum tool_exit bench_problem_create(struct tool_device *d, const struct bench_options *options,
                                    struct bench_problem *problem);
enum vka_status bench_problem_add(const struct bench_problem *problem, struct vka_plan *plan);
/* Before each run: decode forgets the token of the run before. */
enum vka_status bench_problem_rewind(const struct bench_problem *problem);
void bench_problem_destroy(struct bench_problem *problem);

/* Milliseconds. */
struct bench_times {
    uint32_t repeat;    /* runs after the first one */
    double first;       /* from the start of recording to the first result */
    double median, min; /* of runs without timestamps wherever those would count */
    double gpu;         /* median over runs of the passes' sum; negative: not measured */
};

/* Records the problem on a device that has compiled nothing yet, runs it and leaves the plan.
 * Prints why it cannot; destroy the plan either way. */
enum tool_exit bench_time(struct tool_device *d, const struct bench_problem *problem,
                          struct vka_plan **plan, struct bench_times *times);

/* Prints the result as the options ask. */
enum tool_exit bench_report(struct tool_device *d, const struct bench_problem *problem,
                            struct vka_plan *plan, const struct bench_times *times);

#endif
