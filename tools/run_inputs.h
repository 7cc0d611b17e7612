/* The files of vkattn run, read and checked before a device is touched.
 * SPDX-License-Identifier: MIT */
#ifndef TOOLS_RUN_INPUTS_H
#define TOOLS_RUN_INPUTS_H

#include "case.h"
#include "options.h"
#include "tokens.h"

enum run_input { RUN_QUERY = 0, RUN_KEY, RUN_VALUE, RUN_MASK, RUN_LENGTHS, RUN_INPUT_COUNT };

struct run_options {
    const char *layer;
    const char *input[RUN_INPUT_COUNT]; /* paths; NULL: not given */
    const char *output, *scores, *html;
    const char *tokens;       /* of the page */
    uint32_t heads, kv_heads; /* 0: as the layer file says */
    bool causal, count_nonfinite;
    int64_t window[2]; /* RUN_NO_WINDOW in [0]: as the layer file says */
    int layout;        /* 0 bsd, 1 sbd; negative: as the layer file says, else bsd */
    int dtype;         /* enum vka_dtype; negative: as the files are stored */
    int path;          /* enum vka_path */
    struct device_options device;
};

#define RUN_NO_WINDOW INT64_MIN

/* The layer with its inputs as one problem of kind CASE_LAYER, whole and consistent. */
struct run_inputs {
    struct case_file *problem;
    struct vka_npy *npy[RUN_INPUT_COUNT];
    json_t *tokens; /* NULL: not given */
};

/* Prints what is wrong; free it either way. */
enum tool_exit run_inputs_open(const struct run_options *options, struct run_inputs *inputs);
void run_inputs_free(struct run_inputs *inputs);

#endif
