/* How vkattn bench times a problem. SPDX-License-Identifier: MIT */
#ifndef BENCH_TIMING_H
#define BENCH_TIMING_H

#include "problem.h"

/* Without --repeat: so many runs, or fewer if together they take longer than BENCH_SECONDS. */
#define BENCH_RUNS 20
#define BENCH_SECONDS 5.0

/* The results of a bench, in milliseconds. */
struct bench_times {
    uint32_t repeat; /* runs after the first one */
    double
        first; /* of making layer or cache, and from the start of recording to the first result */
    double median, min; /* of runs without timestamps if timestamps would take long */
    double gpu;         /* median over runs of the sum of all passes; negative: not measured */
};

/* Records the problem on a device that has compiled nothing yet, runs it, and returns the plan.
 * Prints why it fails; destroy the plan after a failure too. */
enum tool_exit bench_time(struct tool_device *d, const struct bench_problem *problem,
                          struct vka_plan **plan, struct bench_times *times);

#endif
