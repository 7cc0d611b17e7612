/* What each rank computes: arithmetic only, with the same result on every rank. */
#ifndef VKA_MPI_SPLIT_H
#define VKA_MPI_SPLIT_H

#include <vkattn/vkattn_mpi.h>

/* Part `index` of `count` parts of n; the parts differ by at most one. */
struct vka_mpi_range split_even(uint32_t n, uint32_t count, uint32_t index);

/* The query heads of a piece and the key heads that they read. */
struct share {
    struct vka_mpi_range query, key;
};

/* The heads of piece `piece` of `pieces` of a rank: the rank's heads are divided in the same way as
 * those of the problem are between ranks. */
struct share split_heads(uint32_t n_head, uint32_t n_kv_head, int size, int rank, uint32_t pieces,
                         uint32_t piece);

/* The number of pieces of each rank's part of `units` (key heads or batch elements): what the
 * caller wants, or, if that is 0, two if every rank has two units. A single rank has one piece, as
 * it sends to nobody. */
uint32_t split_pieces(uint32_t wanted, uint32_t units, int size);

#endif
