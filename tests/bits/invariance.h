/* test_invariance: what must not change a bit of a result. */
#ifndef TESTS_INVARIANCE_H
#define TESTS_INVARIANCE_H

#include "problems/problem_data.h"

#define N_THREADS 4

struct invariance {
    struct vka_device *device;
    struct vka_device *small; /* the same one with lowered limits, staging and fences */
    struct vka_device *threaded[N_THREADS]; /* the same one with other numbers of threads */
    struct vka_device *busy;                /* the device that a failing call was made on */
    uint64_t n_run;                /* runs that were compared with the first one of their problem */
    uint64_t n_limited, n_refused; /* of those with lowered limits; problems that pass one */
    uint64_t n_key_chunks;         /* problems whose keys came by key chunks */
    bool sample;                   /* two numbers of threads a problem, the others in the next */
    char why[WHY];                 /* of a failure */
};

/* A random attention problem: again, with its batch elements alone and elsewhere among others, in
 * slices of another size, within drawn budgets and limits, on the small device and with other
 * numbers of threads. False where a bit differs or a call fails. */
bool invariant_attention(struct invariance *t, uint64_t seed, enum vka_path path);

/* A random fused problem: all keys at once, and by key chunks within a drawn budget. */
bool invariant_keys(struct invariance *t, uint64_t seed);

/* A random prompt into a cache: at once, and in steps within a drawn budget. */
bool invariant_prompt(struct invariance *t, uint64_t seed, enum vka_path path);

/* Any problem of problem_draw, with the pipelines of others. */
void invariance_draw(struct problem *p, uint64_t seed, enum vka_path path);

/* Nanoseconds of a submit: from what cuts everything to its smallest spans to what cuts nothing. */
uint64_t invariance_budget(struct rng *rng);

#endif
