/* A cost model of runs over ranks: two straight lines, fitted to measured runs. The time of the
 * device depends on its slice of the work; the rest depends on the bytes received and on the
 * doublings of the ranks. SPDX-License-Identifier: MIT */
#ifndef TOOLS_MPI_MODEL_H
#define TOOLS_MPI_MODEL_H

#include <stdbool.h>
#include <stddef.h>

/* A rank's slice of a run, and its time. */
struct model_point {
    unsigned ranks;
    double gflop;      /* of the slowest rank's slice */
    double mib;        /* received from other ranks */
    double contention; /* ranks that share a device or a core; at least 1 */
    double compute_ms, total_ms;
};

struct model {
    double start_ms, ms_per_gflop; /* compute = start + work * contention */
    double hop_ms, ms_per_mib;     /* the rest = hop * log2(ranks) + bytes; 0 on one rank */
};

/* Least squares of relative errors, no coefficient below 0. False with fewer than two points, or
 * none of more than one rank. */
bool model_fit(const struct model_point *points, size_t n, struct model *model);

/* Predicts the milliseconds of a run; does not use its measured times. */
double model_predict(const struct model *model, const struct model_point *point);

/* |predicted - measured| / measured. */
double model_error(const struct model *model, const struct model_point *point);

#endif
