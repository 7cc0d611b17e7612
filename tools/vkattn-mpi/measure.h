/* vkattn-mpi bench: times layers and attention over ranks. SPDX-License-Identifier: MIT */
#ifndef TOOLS_MPI_MEASURE_H
#define TOOLS_MPI_MEASURE_H

#include "model.h"

#include <vkattn/vkattn_mpi.h>

struct bench_options {
    uint32_t batch, n, n_head, n_kv_head, model_dim; /* n: positions */
    uint32_t rounds, repeat, timeout_s;
    uint32_t latency_us, gbps; /* of the network to predict for; 0: as fitted */
    bool causal, json;
    int split, dtype, path;
    const char *device;
};

#define POINTS_MAX 32

/* One measured point: a problem on a number of ranks. */
struct bench_point {
    bool weak; /* the problem grows with the ranks: heads, batch elements or positions */
    uint32_t batch, n, n_head, n_kv_head;
    struct model_point model;
    double first_ms, median_ms, min_ms;
    double gflop;                  /* of the whole problem */
    struct vka_mpi_stats *by_rank; /* [ranks], of the fastest run; on rank 0 */
    char device[256], driver[256];
};

/* The sizes of a point; flops as vkattn bench counts them. */
void bench_sizes(const struct bench_options *o, unsigned ranks, bool weak, struct bench_point *p);

/* Whether attention is split by positions over more ranks than heads: then all keys go round the
 * ranks, and each computes its rows. */
bool bench_by_rows(const struct bench_options *o, const struct bench_point *p, unsigned ranks);

/* Times a point on the first `ranks` ranks of MPI_COMM_WORLD; all ranks call it, the others wait.
 * Only the point of rank 0 is filled in. The status is the same on every rank that took part. */
enum vka_status bench_measure(const struct bench_options *o, struct bench_point *point);

#endif
