/* A whole layer, its weights and inputs the same on every rank. */
#ifndef TESTS_MPI_LAYER_PROBLEM_H
#define TESTS_MPI_LAYER_PROBLEM_H

#include "ranks.h"

struct layer_problem {
    char name[160];
    struct vka_layer_info info; /* arrays are owned by the problem or lie in its file */
    struct vka_layer_op op;     /* tensors on the rank's device, owned by the problem */
    void *owned[8];
    struct vka_tensor *tensors[10];
    size_t n_owned, n_tensors;
    void *file;
};

/* A seed case; false where the file is no layer. */
bool layer_problem_open(struct vka_mpi *mpi, const char *path, struct layer_problem *problem);

/* Any layer that the contract allows: sizes, types, layouts, grouping, heads interleaved or not,
 * every mask, window, offset, rope, norm, sink, slope and dropout. */
void layer_problem_draw(struct vka_mpi *mpi, uint64_t seed, struct layer_problem *problem);
void layer_problem_destroy(struct layer_problem *problem);

/* Runs it on this rank's device alone and over all ranks, by heads and by batch elements in
 * `rounds` rounds, twice each: the bits must be the same. */
void layer_problem_check(struct vka_mpi *mpi, const struct layer_problem *problem, uint32_t rounds);

#endif
