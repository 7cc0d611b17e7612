/* Attention split by positions: ranks exchange positions for heads and back; with more ranks than
 * heads, all keys and values go to all ranks. */
#ifndef VKA_MPI_SEQUENCE_H
#define VKA_MPI_SEQUENCE_H

#include "mpi/agree.h"
#include "mpi/record.h"
#include "mpi/run.h"

struct sequence;

/* Checks what a rank can check by itself. */
enum vka_status sequence_check(struct vka_mpi *mpi, const struct vka_attention_op *op);

/* Adds what must be the same on all ranks, and this rank's positions. */
void sequence_describe(const struct vka_attention_op *op, struct terms *terms);

/* Call it after the agreement on these terms. */
enum vka_status sequence_create(struct vka_mpi_plan *plan, const struct vka_attention_op *op);
enum vka_status sequence_run(struct sequence *sequence, struct run *run);
void sequence_destroy(struct sequence **sequence);

#endif
