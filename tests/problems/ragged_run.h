/* What the files of ragged_problem share: plans of packed rows and of one sequence, and the oracle. */
#ifndef TESTS_RAGGED_RUN_H
#define TESTS_RAGGED_RUN_H

#include "problem_data.h"

#define MOST_LAYER 2u

/* Operands and plan of all sequences' packed rows, or of rows of one sequence. */
struct plan_data {
    struct problem p; /* of these rows */
    struct problem_data layers[MOST_LAYER];
    struct vka_cache *cache; /* not its own */
    struct vka_plan *plan;
};

struct run {
    struct vka_device *device;
    const struct problem *p;
    struct rng rng;
    char *why;
    struct vka_cache *cache, **alone; /* alone: [n_sequence], batch 1 */
    struct plan_data packed;
    int64_t *start, *keep, *length; /* start [n_sequence + 1]; keep, length [n_sequence] */
    bool *refused, *full;
    double *keys[MOST_LAYER], *values[MOST_LAYER];
    struct kernel_set kernels;
    struct worst *worst;
};

/* Zeroed memory; ends the program where there is none. */
void *ragged_take(size_t n, size_t size);

/* Notes the device's sentence where a call failed. */
bool ragged_done(const struct run *r, enum vka_status status, const char *what);

bool ragged_cache_open(const struct run *r, uint32_t batch, bool paged, struct vka_cache **cache);

/* Makes operands and plan of a cache with all sequences, packed, or with one. sequence, first: of a
 * sequence alone, its index and the first of its rows, for dropout. */
bool ragged_plan_open(struct run *r, struct vka_cache *cache, uint32_t n_row, bool packed,
                      uint32_t sequence, uint32_t first, struct plan_data *d);
void ragged_plan_close(struct plan_data *d);

/* Writes what is read, and noise where results go; runs the plan and reads these. */
bool ragged_plan_run(struct run *r, struct plan_data *d, const int64_t *start, const int64_t *keep,
                     bool full);

/* Solves the step that has run, and compares. length: as before the step in r, then as after it. */
bool ragged_ask(struct run *r, int64_t *length);

/* Element i of an operand's rows, counted as its values are, lies in no sequence. */
bool ragged_outside(const struct run *r, const struct operand *o, size_t i);

#endif
