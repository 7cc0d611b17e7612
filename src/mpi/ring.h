/* Where ranks outnumber heads: keys and values go round all ranks block by block, in the order of
 * the keys, and each rank computes its own rows. A rank holds its own positions, one block on the
 * device, and two or more on the host: some travel while the one before them is computed. */
#ifndef VKA_MPI_RING_H
#define VKA_MPI_RING_H

#include "mpi/rows.h"

struct ring;

/* n_kv: positions of keys on all ranks. UNSUPPORTED, without a word, where this rank's device alone
 * would not take all keys in one fused pass: then they have to come to every rank. */
enum vka_status ring_create(struct vka_mpi_plan *plan, const struct rows *rows,
                            const struct vka_attention_op *op, uint32_t n_kv, struct ring **ring);
enum vka_status ring_run(struct ring *ring, struct run *run);
void ring_destroy(struct ring **ring);

#endif
