/* Runs one problem of host arrays, a case or a layer with its inputs, on a device.
 * SPDX-License-Identifier: MIT */
#ifndef TOOLS_ATTEND_H
#define TOOLS_ATTEND_H

#include "case.h"
#include "device.h"

enum attend_result {
    ATTEND_OUTPUT = 0, /* in the layout of the config */
    ATTEND_SCORES,
    ATTEND_PRESENT_KEY,
    ATTEND_PRESENT_VALUE,
    ATTEND_RESULT_COUNT
};

struct attend {
    /* Inputs, weights, sizes and config; what is checked there is not checked again. Scores are
     * returned iff config.scores asks for them. */
    const struct case_file *problem;
    enum vka_path path;
    bool convert;         /* inputs and weights become dtype; else they stay as they are stored */
    enum vka_dtype dtype; /* the mask stays as it is either way */
    bool present;         /* return present keys and values; needs kind CASE_SDPA */
    enum vka_dtype result_dtype[ATTEND_RESULT_COUNT];
    bool count_nonfinite;

    /* After attend_run: the values, dense, and their number; NULL where not returned. */
    double *values[ATTEND_RESULT_COUNT];
    size_t count[ATTEND_RESULT_COUNT];
    struct vka_nonfinite_info nonfinite[ATTEND_RESULT_COUNT]; /* the first n_nonfinite */
    size_t n_nonfinite;
};

/* A status other than VKA_OK has its sentence in d->sentence, unless host memory ran out here. */
enum vka_status attend_run(struct tool_device *d, struct attend *a);
void attend_free(struct attend *a);

/* Name of a result: "output", "scores", ... */
const char *attend_result_name(enum attend_result result);

#endif
