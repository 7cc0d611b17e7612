/* The operands of a layer's problem, and what the oracle says of them. Shared by the layer_problem*.c
 * files. */
#ifndef TESTS_LAYER_PROBLEM_DATA_H
#define TESTS_LAYER_PROBLEM_DATA_H

#include "layer_problem.h"

struct trial {
    struct vka_device *device;
    const struct layer_problem *l;
    struct rng rng;
    struct problem_data d;
    struct operand x[3], w[PROJECTIONS], b[PROJECTIONS], y, dy, gradients[GRADIENTS];
    struct vka_layer *layer;
    double *want_y, *want[GRADIENTS];
    double terms[GRADIENTS]; /* sizes of elements before terms cancel */
};

/* The input that is this one. */
int layer_problem_owner(enum layer_sharing sharing, int i);

/* Fills in want_y, want and terms. */
enum vka_status layer_problem_oracle(struct trial *t);

#endif
