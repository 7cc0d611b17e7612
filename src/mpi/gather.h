/* A tensor of which each rank computes boxes, piece by piece, and which all ranks then have whole:
 * while a piece travels the next one is computed. */
#ifndef VKA_MPI_GATHER_H
#define VKA_MPI_GATHER_H

#include "mpi/image.h"

struct gather_piece {
    struct vka_plan *plan;    /* NULL: this rank has no part of the piece */
    struct box *box;          /* [size] of the target */
    struct vka_tensor **view; /* [size] of the target; NULL where the box is empty */
    int *count, *at;          /* [size] elements in `data` */
    char *data;               /* the boxes of all ranks, each dense */
    uint64_t sent, received;  /* bytes of a run */
};

struct gather {
    struct vka_mpi *mpi;
    struct image target;
    uint32_t n_piece;
    struct gather_piece *piece;
    MPI_Request *request; /* [n_piece] */
};

enum vka_status gather_create(struct vka_mpi *mpi, struct vka_tensor *target, uint32_t n_piece,
                              struct gather **gather);

/* After the boxes of all pieces and ranks are set: makes the views and the host memory. */
enum vka_status gather_finish(struct gather *gather);

/* Where this rank's plan for the piece writes; NULL: nowhere. */
struct vka_tensor *gather_output(const struct gather *gather, uint32_t piece);

enum vka_status gather_run(struct gather *gather, struct run *run);
void gather_destroy(struct gather **gather);

#endif
