/* What the passes of a plan count in 32 bits. SPDX-License-Identifier: MIT */
#ifndef TESTS_INDEX_PASSES_H
#define TESTS_INDEX_PASSES_H

#include "plan/plan.h"

struct strided_params;

/* What all passes of a kind count together; any other pass is looked at alone. */
struct counted {
    double copied, scanned, rotated, multiplied;
    double appended; /* queries and keys, by the pass that appends keys and values */
    double around;   /* operations of vkattn_model.h */
};

/* Fails the test where a pass reaches beyond a binding, or counts further than 32 bits do. */
struct counted check_passes(const struct vka_plan *plan);

/* Checks that every element that an operand's offset and strides reach lies in its binding. */
void check_operand(const struct binding *b, enum vka_dtype dtype, uint64_t offset,
                   const uint32_t size[4], const uint32_t stride[4]);
void check_strided(const struct binding *b, uint32_t dtype, const uint32_t size[4],
                   const struct strided_params *s);

/* Checks that the pass has workgroups for this many items. */
void check_items(const struct pass *pass, double items);

/* Whether pairs of neighbours along the last axis are whole words of a 16-bit type. */
bool are_words(uint32_t dtype, const uint32_t size[4], const struct strided_params *s);

/* Checks a pass of an operation of training, and returns the items that it counts; 0 for others. */
double check_train_pass(const struct vka_plan *plan, const struct pass *pass);
/* Checks a pass of an operation with a state, and returns the values that it writes; 0 for others. */
double check_state_pass(const struct vka_plan *plan, const struct pass *pass);

#endif
