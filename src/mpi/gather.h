/* Gathers a tensor on all ranks. Each rank computes boxes of it, piece by piece; while one piece is
 * sent the next is computed. */
#ifndef VKA_MPI_GATHER_H
#define VKA_MPI_GATHER_H

#include "mpi/image.h"

struct gather_piece {
    struct vka_plan *plan;    /* NULL: this rank computes nothing of the piece */
    struct box *box;          /* [size] of the target */
    struct vka_tensor **view; /* [size] of the target; NULL if the box is empty */
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

/* Makes the views and the host memory, after the boxes of all pieces and ranks have been set. */
enum vka_status gather_finish(struct gather *gather);

/* Where this rank's plan for the piece writes; NULL: it has none. */
struct vka_tensor *gather_output(const struct gather *gather, uint32_t piece);

enum vka_status gather_run(struct gather *gather, struct run *run);
void gather_destroy(struct gather **gather);

#endif
