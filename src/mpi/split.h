/* Who computes what: plain arithmetic, the same on every rank. */
#ifndef VKA_MPI_SPLIT_H
#define VKA_MPI_SPLIT_H

#include <vkattn/vkattn_mpi.h>

/* The index-th of `count` parts of n, which differ by one at most. */
struct vka_mpi_range split_even(uint32_t n, uint32_t count, uint32_t index);

/* The query heads of a piece, and the key heads that they read. */
struct share {
    struct vka_mpi_range query, key;
};

/* The heads of rank `rank` of `size`, divided into `pieces` in the same way again. */
struct share split_heads(uint32_t n_head, uint32_t n_kv_head, int size, int rank, uint32_t pieces,
                         uint32_t piece);

/* Pieces of each rank's share of `units` (key heads, batch elements): what the caller wants, or, as
 * he has left it open (0), two where every rank has as many units. One rank has nobody to send
 * to. */
uint32_t split_pieces(uint32_t wanted, uint32_t units, int size);

#endif
