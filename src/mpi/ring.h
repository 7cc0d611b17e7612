/* For more ranks than heads: keys and values go round all ranks in blocks (key chunks), in the
 * order of the keys, and each rank computes its own rows. A rank has its own positions and one
 * block on the device, and two or more blocks on the host, which are sent while the one before is
 * computed. */
#ifndef VKA_MPI_RING_H
#define VKA_MPI_RING_H

#include "mpi/rows.h"

struct ring;

/* n_kv: the key positions of all ranks. UNSUPPORTED, without a log message, if attention over all
 * keys would not be one fused pass on this rank's device: then every rank must receive all keys. */
enum vka_status ring_create(struct vka_mpi_plan *plan, const struct rows *rows,
                            const struct vka_attention_op *op, uint32_t n_kv, struct ring **ring);
enum vka_status ring_run(struct ring *ring, struct run *run);
void ring_destroy(struct ring **ring);

#endif
