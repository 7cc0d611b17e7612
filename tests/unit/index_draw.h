/* Plans on huge devices, tensors of random shapes for them, and a count of what was made.
 * SPDX-License-Identifier: MIT */
#ifndef TESTS_INDEX_DRAW_H
#define TESTS_INDEX_DRAW_H

#include "huge_devices.h"

struct vka_plan *new_plan(struct vka_device *device, bool count);

/* Made, or refused with a sentence of why. */
bool is_made(struct vka_device *device, enum vka_status status);

/* Plans that were made, and the most elements that one was for. */
struct made {
    unsigned n;
    uint64_t largest;
};

void add_made(struct made *made, const struct vka_tensor *t);

/* Whether the test met what it is for. */
void check_made(const struct made *made);

/* Sizes of four axes whose product is between 2^low and 2^high. */
void draw_shape(uint32_t size[4], unsigned low, unsigned high);

/* A tensor of such elements: axes in any order, rows at times further apart; or, where it is only
 * read, with one element for a whole axis. NULL: more than an allocation. */
struct vka_tensor *draw_tensor(struct vka_device *device, enum vka_dtype dtype,
                               const uint32_t size[4], bool read);

/* Draws an operation for the plan, adds it, and looks at the passes. t: for its tensors, all NULL,
 * which are destroyed afterwards. */
typedef void draw_plan(struct vka_device *device, struct vka_plan *plan, struct vka_tensor *t[4],
                       struct made *made);

/* Does so n times, each on one of the huge devices, and checks what was made. count: NaN and Inf are
 * counted. */
void draw_plans(unsigned n, bool count, draw_plan *draw);

#endif
