/* A problem on the stub: planned whole, planned in slices, both judged, and run. Numbers are not
 * judged, so tensors hold nothing and may be larger than the machine. */
#ifndef TESTS_STUB_TRIAL_H
#define TESTS_STUB_TRIAL_H

#include <vkattn/vkattn.h>

#include "problems/rng.h"

#define TRIAL_WHY 512
#define TRIAL_TEXT 1600
#define TRIAL_OUTPUTS 16

struct trial {
    struct vka_device *device;
    uint64_t seed;
    struct rng rng;
    bool refused;           /* beyond a limit of the device, as vkattn.h says some are */
    char why[TRIAL_WHY];    /* of a failure or a refusal */
    char text[TRIAL_TEXT];  /* the problem */
    size_t passes, submits; /* of the plans that ran */
};

/* Makes a finished plan of the job with this budget. */
typedef enum vka_status trial_plan(struct trial *t, const void *job, uint64_t budget,
                                   struct vka_plan **plan);

/* What a job's plan reads and writes; NULL where it is not there. */
struct trial_tensors {
    struct vka_tensor *inputs[4], *outputs[TRIAL_OUTPUTS];
    bool exact;   /* all inputs are read, whatever they hold; see judge_cut */
    double least; /* operations of products and attention, see judge_cut; 0: nobody knows */
};

/* The verdict. */
bool trial_run(struct trial *t, trial_plan *make, const void *job,
               const struct trial_tensors *tensors);

/* Notes why a call failed, or was refused. Whether it is no failure: OK or a refusal. */
bool trial_passed(struct trial *t, enum vka_status status);

/* Whether the device takes bindings of gigabytes, and the problem is to be that large. */
bool trial_giant(struct trial *t);

/* low .. high, evenly in its logarithm, often a power of two or beside one. */
uint32_t trial_size(struct trial *t, uint32_t low, uint32_t high);

/* The kinds of problems. */
bool trial_attention(struct trial *t);
bool trial_backward(struct trial *t);
bool trial_cache(struct trial *t);  /* ragged too */
bool trial_linear(struct trial *t); /* weights of every type */
bool trial_layer(struct trial *t);  /* with caches, quantised weights, weights in tensors */
bool trial_rows(struct trial *t);   /* norms, embeddings, ... and gradients of products */
bool trial_large(struct trial *t);  /* those of test_large */

#endif
