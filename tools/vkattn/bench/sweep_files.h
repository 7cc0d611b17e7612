/* The results of vkattn bench sweep, and the files of them. SPDX-License-Identifier: MIT */
#ifndef BENCH_SWEEP_FILES_H
#define BENCH_SWEEP_FILES_H

#include "timing.h"

#define SWEEP_POINTS 16 /* the most lengths */

struct sweep_point {
    uint32_t length; /* attention: queries and keys; decode: keys */
    struct bench_times times;
    double gflops, gbps;
    uint64_t workspace; /* bytes */
};

/* One line of the plot. */
struct sweep_series {
    const char *name;
    enum bench_op op;
    enum vka_path path;
    struct sweep_point points[SWEEP_POINTS]; /* by increasing length */
    size_t n;
    /* Time grows as length^exponent: fitted to all points, and between the two neighbours with the
     * largest exponent. 0 with less than two points. */
    double exponent, steepest;
};

#define SWEEP_SERIES 3

struct sweep {
    const struct bench_options *options; /* of all points, except lengths and path */
    const struct vka_device_properties *device;
    uint32_t from, to; /* the lengths double from `from` to `to` */
    struct sweep_series series[SWEEP_SERIES];
};

/* The text of a file with the results, in new memory; NULL if memory ran out. The caller frees
 * it. */
char *sweep_csv(const struct sweep *sweep);
char *sweep_svg(const struct sweep *sweep);

#endif
