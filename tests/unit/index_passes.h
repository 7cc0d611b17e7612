/* What the passes of a plan count in 32 bits. SPDX-License-Identifier: MIT */
#ifndef TESTS_INDEX_PASSES_H
#define TESTS_INDEX_PASSES_H

#include "plan/plan.h"

/* What all passes of a kind count together; any other pass is looked at alone. */
struct counted {
    double copied, scanned, rotated, multiplied;
    double appended; /* queries and keys, by the pass that appends keys and values */
    double around;   /* operations of vkattn_model.h */
};

/* Fails the test where a pass reaches beyond a binding, or counts further than 32 bits do. */
struct counted check_passes(const struct vka_plan *plan);

#endif
