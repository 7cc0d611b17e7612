/* Predicts the time of passes, and splits a plan into submits, each predicted to fit the budget.
 * Pure functions, tested without a GPU. */
#ifndef VKA_PLAN_BUDGET_H
#define VKA_PLAN_BUDGET_H

#include "gpu/caps.h"

/* Work of a dispatch in operations: a multiply-add counts 2, the rest as WORK_ below. */
struct work {
    double ops;     /* of all workgroups */
    double longest; /* of the longest workgroup, which a large device runs no faster */
    double loops;   /* iterations of the longest invocation in all loops, or more */
};

#define WORK_MOVE 8.0     /* an element read, converted and written */
#define WORK_PLACE 32.0   /* an element moved to or from a place that the device computes */
#define WORK_SCORE 64.0   /* softmax of a score */
#define WORK_GENERAL 64.0 /* mask, softcap and biases of a score */
#define WORK_DRAW 256.0   /* dropout of a weight */

/* The kernel whose measured rate counts for this one: itself, or `copy` for kernels that only move
 * data. */
enum kernel budget_class(enum kernel kernel);

/* A rate that every usable device of the type exceeds. */
struct rate budget_cautious(const struct caps *caps);

/* Whether the rate of a kernel has been measured. */
bool budget_is_measured(const struct rates *rates, enum kernel kernel);

/* Predicted nanoseconds of a dispatch: by the measured rate with a margin, else by
 * budget_cautious. */
double budget_time(const struct caps *caps, const struct rates *rates, enum kernel kernel,
                   const struct work *work);

/* Whether a dispatch fits the budget, and its loops the limit of the driver. */
bool budget_fits(const struct caps *caps, const struct rates *rates, enum kernel kernel,
                 const struct work *work, double budget);

/* Most loop iterations of an invocation, in all its loops together. */
double budget_max_loops(const struct caps *caps);

/* Groups n passes, which take time[i] nanoseconds, into submits that fit the budget, in order; a
 * longer pass is a submit of its own. first[i], with room for n, is the first pass of submit i.
 * Returns the number of submits. */
size_t budget_group(const double *time, size_t n, double budget, size_t *first);

#endif
