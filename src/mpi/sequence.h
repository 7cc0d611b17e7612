/* Attention over positions that lie on different ranks: exchanged for heads, and back; where ranks
 * outnumber heads, all keys and values go to all ranks. */
#ifndef VKA_MPI_SEQUENCE_H
#define VKA_MPI_SEQUENCE_H

#include "mpi/plan.h"

struct sequence;

/* What one rank can check alone. */
enum vka_status sequence_check(struct vka_mpi *mpi, const struct vka_attention_op *op);

/* What of the tensors is the same on all ranks, and each rank's positions. */
void sequence_describe(const struct vka_attention_op *op, struct terms *terms);

/* After the agreement on those terms. */
enum vka_status sequence_create(struct vka_mpi_plan *plan, const struct vka_attention_op *op);
enum vka_status sequence_run(struct sequence *sequence, struct run *run);
void sequence_destroy(struct sequence **sequence);

#endif
