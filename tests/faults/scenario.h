/* What the fault tests do to the library: one pass through most of its calls, each tried again
 * where it failed. */
#ifndef TESTS_FAULTS_SCENARIO_H
#define TESTS_FAULTS_SCENARIO_H

#include <vkattn/vkattn.h>

#define SCENARIO_FLOATS (2 * 5 * 16) /* of the output */
#define SCENARIO_MAX_FAILURES 8

enum scenario_kind {
    SCENARIO_MAPPED = 0, /* mapped memory, timeline semaphores, timestamps, a paged cache */
    SCENARIO_STAGED,     /* copies through staging, fences */
    SCENARIO_CUT,        /* runs of several submits */
    SCENARIO_KIND_COUNT, /* of those that run, with no self-test of kernels */
    SCENARIO_BUILT =
        SCENARIO_KIND_COUNT, /* plans of every kind of pass, which are not run: no output */
    SCENARIO_TESTED          /* one that runs, with the self-test */
};

struct scenario {
    float output[SCENARIO_FLOATS];
    bool complete; /* the output is there */
    size_t n_failure;
    enum vka_status failures[SCENARIO_MAX_FAILURES]; /* of the calls that failed, in order */
    const char *calls[SCENARIO_MAX_FAILURES];
    char error[512]; /* the sentence of the first failure */
};

/* Runs until the end, or until a call fails twice. Destroys all it made. */
void scenario_run(enum scenario_kind kind, struct scenario *scenario);

/* Runs so, but recovers a device that is lost and does the rest on what was there before.
 * before_recovery may be NULL; a recovery that fails is tried once more. */
void scenario_run_recovering(enum scenario_kind kind, struct scenario *scenario,
                             void (*before_recovery)(void));

#endif
