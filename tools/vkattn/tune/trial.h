/* vkattn tune: runs candidates on the device. Each is forced by a tuning profile of its own, so
 * that everything uses the public API. SPDX-License-Identifier: MIT */
#ifndef TUNE_TRIAL_H
#define TUNE_TRIAL_H

#include "tuning.h"

#include "vkattn/bench/problem.h"

#define TUNE_PROBLEMS 16 /* the most problems of a plan */
#define TUNE_DETAIL 128  /* bytes of a pass's detail */

/* One plan, run on a device with the profile so far. */
struct trial {
    const char *lines; /* in: lines before those of the profile; "" for none */
    bool inputs;       /* in: read the inputs back */
    /* The least time of some runs in ms, and the results. Status UNSUPPORTED: the device cannot run
     * it; other failures are those of the kernel. */
    enum vka_status status;
    double ms;
    double *data[4]; /* inputs, output; NULL: not read */
    size_t count[4];
    /* The passes that have a problem name. */
    size_t n_problem;
    char problem[TUNE_PROBLEMS][TUNE_NAME], kernel[TUNE_PROBLEMS][TUNE_NAME];
    char detail[TUNE_PROBLEMS][TUNE_DETAIL];
};

/* Runs a trial; a run that takes more than `worst` ms is the last one. Fails if nothing more can be
 * measured: no memory, no device, or a device that does not finish. */
enum tool_exit trial_run(struct tuning *tuning, const struct bench_options *work, double worst,
                         struct trial *trial);
void trial_free(struct trial *trial);

/* Whether two outputs agree within the precision of the element type; rows of `width`. */
bool trial_agrees(const double *got, const double *want, size_t count, size_t width, int dtype);

#endif
