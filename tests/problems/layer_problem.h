/* A layer around an attention problem, its forward and its gradients, on a device and by the oracle. */
#ifndef TESTS_LAYER_PROBLEM_H
#define TESTS_LAYER_PROBLEM_H

#include "problem_data.h"

#include <reference/train.h>

/* Which inputs are one tensor. */
enum layer_sharing {
    SHARE_NONE = 0,
    SHARE_KEY,       /* value NULL: it is the key */
    SHARE_SELF,      /* key and value NULL: they are the query */
    SHARE_QUERY_KEY, /* key has the handle of query */
    SHARE_ENDS,      /* value has the handle of query */
    SHARE_COUNT
};

enum { QUERY = 0, KEY, VALUE, OUTPUT, PROJECTIONS };

/* Gradients, by index: inputs, weights, biases, options. */
enum {
    GRADIENT_X = 0,
    GRADIENT_W = 3,
    GRADIENT_B = 7,
    GRADIENT_SINK = 11,
    GRADIENT_MASK,
    GRADIENT_Q_NORM,
    GRADIENT_K_NORM,
    GRADIENTS
};

struct layer_problem {
    struct problem p; /* sizes and options; queries, keys and values are projected */
    enum layer_sharing sharing;
    uint32_t in[PROJECTIONS], out[PROJECTIONS]; /* columns and rows of weights */
    unsigned biases;                            /* a bit a projection */
    bool interleaved, sequence_first, in_tensors, no_output, cut;
    enum vka_dtype x, w, y; /* of inputs, weights, and output and its gradient */
};

void layer_problem_draw(struct layer_problem *l, uint64_t seed);

/* On one line. */
const char *layer_problem_text(const struct layer_problem *l, char text[PROBLEM_TEXT]);

/* Whether the device agrees with the oracle; the reason where not. */
bool layer_problem_check(struct vka_device *device, const struct layer_problem *l,
                         struct worst *worst, char why[WHY]);

#endif
