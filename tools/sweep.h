/* vkattn bench sweep: attention and decoding at growing lengths. SPDX-License-Identifier: MIT */
#ifndef TOOLS_SWEEP_H
#define TOOLS_SWEEP_H

#include "bench.h"

#define SWEEP_POINTS 16 /* lengths at most */

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
    struct sweep_point points[SWEEP_POINTS]; /* by growing length */
    size_t n;
    /* Time grows as length^exponent: fitted to all points, and between the two neighbours where it
     * is largest. 0 below two points. */
    double exponent, steepest;
};

#define SWEEP_SERIES 3

struct sweep {
    const struct bench_options *options; /* of all points, but for the lengths and the path */
    const struct vka_device_properties *device;
    uint32_t from, to; /* lengths double from one to the other */
    struct sweep_series series[SWEEP_SERIES];
};

/* vkattn bench sweep, from its name on. */
int sweep_command(int argc, char **argv);

/* Fill in exponent and steepest. */
void sweep_fit(struct sweep_series *series);

/* The results as a file's text, in new memory; NULL without. The caller frees them. */
char *sweep_csv(const struct sweep *sweep);
char *sweep_svg(const struct sweep *sweep);

#endif
