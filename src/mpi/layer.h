/* A rank's share of a layer's weights. */
#ifndef VKA_MPI_LAYER_H
#define VKA_MPI_LAYER_H

#include "mpi/comm.h"
#include "mpi/split.h"

struct vka_mpi_layer {
    struct vka_mpi *mpi;
    uint32_t number; /* of this object's layers, from 1: the same on all ranks */
    enum vka_mpi_split split;
    struct vka_layer_info info; /* of the whole, defaults filled in; no host pointers */
    bool has_output;            /* a projection of the concatenated heads */
    uint32_t n_piece;
    struct vka_layer **piece;     /* [n_piece]; HEADS: without the output projection, NULL where the
                                      piece has no heads; BATCH: the whole layer */
    struct vka_mpi_range columns; /* HEADS: of the output, this rank's */
    struct vka_tensor *weight; /* [columns.count][n_head * value_dim], of the output projection */
    struct vka_tensor *bias;   /* [columns.count] */
};

/* The heads of a piece on a rank. */
struct share layer_share(const struct vka_mpi_layer *layer, int rank, uint32_t piece);

#endif
