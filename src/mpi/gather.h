/* Gathers a tensor on all ranks. Each rank computes slices of it, round by round; while one round is
 * sent the next is computed. */
#ifndef VKA_MPI_GATHER_H
#define VKA_MPI_GATHER_H

#include "mpi/exchange.h"

struct gather_round {
    struct vka_plan *plan;     /* NULL: this rank computes nothing of the round */
    struct vka_tensor *output; /* the view of the target that the plan writes, or NULL */
    struct exchange slices;
};

struct gather {
    struct vka_mpi *mpi;
    struct image target;
    uint32_t n_round;
    struct gather_round *round;
    MPI_Request *request; /* [n_round] */
};

enum vka_status gather_create(struct vka_mpi *mpi, struct vka_tensor *target, uint32_t n_round,
                              struct gather **gather);

/* Adds the slice of a rank, which may be empty, after those of lower ranks. The last rank's completes
 * the round. */
enum vka_status gather_add(struct gather *gather, uint32_t round, int rank, struct slice slice);

enum vka_status gather_run(struct gather *gather, struct run *run);
void gather_destroy(struct gather **gather);

#endif
