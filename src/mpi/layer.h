/* A layer whose weights, or the batches of whose input, are divided between ranks. */
#ifndef VKA_MPI_LAYER_H
#define VKA_MPI_LAYER_H

#include "mpi/comm.h"
#include "mpi/slice.h"

/* A rank's slice of the weights of a layer. */
struct vka_mpi_layer {
    struct vka_mpi *mpi;
    uint32_t number; /* of this layer in the object, from 1; the same on all ranks */
    enum vka_mpi_split split;
    struct vka_layer_info info; /* of the whole layer, defaults filled in; without host pointers */
    bool has_output;            /* the concatenated heads are projected */
    uint32_t n_round;
    struct vka_layer **round;     /* [n_round]; HEADS: without the output projection, NULL if the
                                      round has no heads; BATCH: the whole layer */
    struct vka_mpi_range columns; /* HEADS: this rank's columns of the output */
    struct vka_tensor *weight; /* [columns.count][n_head * value_dim], of the output projection */
    struct vka_tensor *bias;   /* [columns.count] */
};

/* The heads of a round on a rank. */
struct head_ranges layer_head_ranges(const struct vka_mpi_layer *layer, int rank, uint32_t round);

#endif
