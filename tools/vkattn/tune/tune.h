/* vkattn tune: runs candidates on the device. Each is forced by a tuning profile of its own, so
 * that everything uses the public API. SPDX-License-Identifier: MIT */
#ifndef TOOLS_TUNE_H
#define TOOLS_TUNE_H

#include "vkattn/bench/bench.h"

#include "core/format.h"

#define TUNE_VARIANTS 4  /* variants of a kernel that are tried: 0 .. 3 */
#define TUNE_PROBLEMS 16 /* the most problems of a plan */
#define TUNE_KERNELS 64
#define TUNE_SEEN 256
#define TUNE_DETAIL 128  /* bytes of a pass's detail */
#define TUNE_NAME 64     /* bytes of the name of a problem or kernel, with its NUL */
#define TUNE_CHECKED 256 /* kernels times types */

/* The tuning profile while it is made, and what is known about the device. */
struct tuning {
    struct device_options device;
    struct vka_device_properties properties;
    char *text;     /* the profile so far: its two first lines, then what is decided */
    char index[16]; /* of the device, for --device */
    char kernel[TUNE_KERNELS][TUNE_NAME];  /* those that the device can run */
    char checked[TUNE_CHECKED][TUNE_NAME]; /* "KERNEL TYPE" of those that passed */
    char seen[TUNE_SEEN][TUNE_NAME];       /* problems that are decided */
    size_t n_kernel, n_checked, n_seen;
};

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
    /* Of the passes that have a problem name. */
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

/* Whether a kernel gives right results for small problems, compared with sums in double. Each
 * kernel is checked once; *right is also true if the rules never use it. */
enum tool_exit tune_check(struct tuning *tuning, const char *kernel, int dtype, bool *right);

/* Appends a line to the profile. */
FORMAT_PRINTF(2, 3) enum tool_exit tune_append(struct tuning *tuning, const char *format, ...);

#endif
