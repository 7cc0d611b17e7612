/* What vkattn-mpi bench prints. SPDX-License-Identifier: MIT */
#ifndef TOOLS_MPI_REPORT_H
#define TOOLS_MPI_REPORT_H

#include "measure.h"

/* Call it on rank 0. Prints what was measured, the model and its predictions, as a table or JSON
 * lines. */
bool bench_report(const struct bench_options *o, const struct bench_point *points, size_t n);

#endif
