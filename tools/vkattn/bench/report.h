/* The results of vkattn bench, as text and JSON. SPDX-License-Identifier: MIT */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include "timing.h"

/* Prints the result as the options ask. */
enum tool_exit bench_report(struct tool_device *d, const struct bench_problem *problem,
                            struct vka_plan *plan, const struct bench_times *times);

#endif
