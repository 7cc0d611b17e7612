/* What passes are predicted to take, and how they share the submits of a plan: none is to be
 * predicted over the plan's budget. Pure functions, tested without a GPU. */
#ifndef VKA_PLAN_BUDGET_H
#define VKA_PLAN_BUDGET_H

#include "gpu/caps.h"

/* What a dispatch has to do, in operations: a multiply-add counts 2, all else WORK_ below. */
struct work {
    double ops;     /* of all workgroups */
    double longest; /* of the longest workgroup: no faster on a large device than on a small one */
    double loops;   /* iterations of its longest invocation, of all loops; at least as many */
};

#define WORK_MOVE 8.0     /* an element that is read, converted and written */
#define WORK_PLACE 32.0   /* one that moves to or from a place that the device works out */
#define WORK_SCORE 64.0   /* what the softmax does to a score */
#define WORK_GENERAL 64.0 /* what mask, softcap and biases add to that */
#define WORK_DRAW 256.0   /* and what a draw of dropout does */

/* The kernel that is measured for this one: itself, or `copy` for all that only move data. */
enum kernel budget_class(enum kernel kernel);

/* A rate that every device of the type exceeds that runs these kernels at all. */
struct rate budget_cautious(const struct caps *caps);

/* Whether the rate of a kernel has been measured. */
bool budget_is_measured(const struct rates *rates, enum kernel kernel);

/* Nanoseconds that a dispatch is predicted to take: by the measured rate with a margin, or by one
 * that devices of its type exceed. */
double budget_time(const struct caps *caps, const struct rates *rates, enum kernel kernel,
                   const struct work *work);

/* Whether a dispatch may go as it is: it takes the budget at most, and no invocation loops further
 * than the driver goes. */
bool budget_fits(const struct caps *caps, const struct rates *rates, enum kernel kernel,
                 const struct work *work, double budget);

/* Iterations, of all its loops together, that an invocation may make. */
double budget_max_loops(const struct caps *caps);

/* Cuts n passes of `time` nanoseconds each into submits in order: first[i] is the first pass of
 * submit i. None takes longer than the budget, but for a pass that does alone. Returns their
 * number; first has room for n. */
size_t budget_group(const double *time, size_t n, double budget, size_t *first);

/* Parts into which something is cut so that each takes the budget at most; from 1 to `most`. */
uint32_t budget_parts(double time, double budget, uint32_t most);

#endif
