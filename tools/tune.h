/* vkattn tune: candidates on the actual device. Each is forced by a verdict of its own, so that all
 * goes through what the library offers everyone. SPDX-License-Identifier: MIT */
#ifndef TOOLS_TUNE_H
#define TOOLS_TUNE_H

#include "bench.h"

#define TUNE_VARIANTS 4  /* of a kernel that are tried: 0 .. 3 */
#define TUNE_PROBLEMS 16 /* problems of one plan at most */
#define TUNE_KERNELS 64
#define TUNE_SEEN 256
#define TUNE_DETAIL 128  /* bytes of a pass's detail */
#define TUNE_NAME 64     /* bytes of a problem's or kernel's name with its end */
#define TUNE_CHECKED 256 /* kernels times types */

/* The verdict as it grows, and what is known of this device. */
struct tuning {
    struct device_options device;
    struct vka_device_properties properties;
    char *text;     /* the verdict so far: its two first lines, then the decided ones */
    char index[16]; /* of the device, for --device */
    char kernel[TUNE_KERNELS][TUNE_NAME];  /* that the device can run */
    char checked[TUNE_CHECKED][TUNE_NAME]; /* "KERNEL TYPE" that passed */
    char seen[TUNE_SEEN][TUNE_NAME];       /* problems that are decided */
    size_t n_kernel, n_checked, n_seen;
};

/* One plan, run on a device with the verdict so far. */
struct trial {
    const char *lines; /* in: put before the verdict's own; "" for none */
    bool inputs;       /* in: read the inputs back */
    /* The least time of some runs in ms, and what came out. Status UNSUPPORTED where the device
     * cannot do it; other failures are the kernel's. */
    enum vka_status status;
    double ms;
    double *data[4]; /* inputs, output; NULL where not read */
    size_t count[4];
    /* Of the passes that were chosen for a problem. */
    size_t n_problem;
    char problem[TUNE_PROBLEMS][TUNE_NAME], kernel[TUNE_PROBLEMS][TUNE_NAME];
    char detail[TUNE_PROBLEMS][TUNE_DETAIL];
};

/* Runs it; a run that takes more than `worst` ms is the last one. Fails where nothing more can be
 * measured: no memory, no device, a device that does not come to an end. */
enum tool_exit trial_run(struct tuning *tuning, const struct bench_options *work, double worst,
                         struct trial *trial);
void trial_free(struct trial *trial);

/* Whether two outputs agree as far as the element type lets them; rows of `width`. */
bool trial_agrees(const double *got, const double *want, size_t count, size_t width, int dtype);

/* Whether a kernel gives right results: small problems against sums in double. Checked once; *right
 * is also set where the rules never take it. */
enum tool_exit tune_check(struct tuning *tuning, const char *kernel, int dtype, bool *right);

/* Appends a line to the verdict. */
__attribute__((format(printf, 2, 3))) enum tool_exit tune_append(struct tuning *tuning,
                                                                 const char *format, ...);

#endif
