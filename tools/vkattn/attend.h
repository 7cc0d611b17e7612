/* Runs one problem of host arrays, a case or a layer with its inputs, on a device.
 * SPDX-License-Identifier: MIT */
#ifndef TOOLS_ATTEND_H
#define TOOLS_ATTEND_H

#include "case/contents.h"
#include "common/device.h"

enum attend_result {
    ATTEND_OUTPUT = 0, /* in the layout of the config */
    ATTEND_SCORES,
    ATTEND_PRESENT_KEY,
    ATTEND_PRESENT_VALUE,
    ATTEND_RESULT_COUNT
};

struct attend {
    /* Inputs, weights, sizes and config, which are checked already. Scores are returned iff
     * config.scores asks for them. */
    const struct case_file *problem;
    enum vka_path path;
    bool convert;            /* convert inputs and weights to dtype; else they keep their types */
    enum vka_dtype dtype;    /* never applied to the mask */
    enum vka_dtype quantise; /* of a layer's weights, see vka_layer_info; F32: they are not */
    bool present;            /* return present keys and values; needs kind CASE_SDPA */
    enum vka_dtype result_dtype[ATTEND_RESULT_COUNT];
    bool count_nonfinite;

    /* After attend_run: the dense values and their number; NULL: not returned. */
    double *values[ATTEND_RESULT_COUNT];
    size_t count[ATTEND_RESULT_COUNT];
    struct vka_nonfinite_info nonfinite[ATTEND_RESULT_COUNT]; /* the first n_nonfinite */
    size_t n_nonfinite;
};

/* Runs the problem. After a failure the sentence is in d->sentence, unless host memory ran out
 * here. */
enum vka_status attend_run(struct tool_device *d, struct attend *a);
void attend_free(struct attend *a);

/* The name of a result: "output", "scores", ... */
const char *attend_result_name(enum attend_result result);

#endif
