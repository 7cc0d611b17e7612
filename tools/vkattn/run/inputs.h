/* The files of vkattn run, read and checked before a device is opened.
 * SPDX-License-Identifier: MIT */
#ifndef TOOLS_RUN_INPUTS_H
#define TOOLS_RUN_INPUTS_H

#include "case/contents.h"
#include "common/options.h"
#include "tokens.h"

enum run_input { RUN_QUERY = 0, RUN_KEY, RUN_VALUE, RUN_MASK, RUN_LENGTHS, RUN_INPUT_COUNT };

struct run_options {
    const char *layer;
    const char *input[RUN_INPUT_COUNT]; /* paths; NULL: not given */
    const char *output, *scores, *html;
    const char *tokens;       /* a file; NULL: not given */
    uint32_t heads, kv_heads; /* 0: what the layer file says */
    bool causal, count_nonfinite;
    int64_t window[2]; /* RUN_NO_WINDOW in [0]: what the layer file says */
    int layout;        /* 0 bsd, 1 sbd; negative: what the layer file says, else bsd */
    int dtype;         /* enum vka_dtype; negative: the types of the files */
    int weights;       /* 0: q8_0, 1: q4_0; negative: as dtype says */
    int path;          /* enum vka_path */
    struct device_options device;
};

#define RUN_NO_WINDOW INT64_MIN

/* The layer and its inputs as one complete, checked problem of kind CASE_LAYER. */
struct run_inputs {
    struct case_file *problem;
    struct vka_npy *npy[RUN_INPUT_COUNT];
    json_t *tokens; /* NULL: not given */
};

/* Reads and checks the files. Prints what is wrong; free the inputs after a failure too. */
enum tool_exit run_inputs_open(const struct run_options *options, struct run_inputs *inputs);
void run_inputs_free(struct run_inputs *inputs);

#endif
