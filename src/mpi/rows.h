/* Where ranks outnumber heads: every rank gets all keys and values, and computes its own rows. */
#ifndef VKA_MPI_ROWS_H
#define VKA_MPI_ROWS_H

#include "mpi/plan.h"

/* The positions of one of the two slices that a rank has. */
struct rows_half {
    struct vka_mpi_range range; /* of all positions */
    uint32_t behind;            /* where it begins in the rank's own tensor */
    struct vka_tensor *offset;  /* I32: the position of its first query */
};

struct rows {
    struct vka_mpi *mpi;
    struct vka_tensor *offset; /* a view of the caller's, or NULL */
    struct rows_half half[2];
};

/* For n_q positions on all ranks. */
enum vka_status rows_create(struct vka_mpi *mpi, const struct vka_attention_op *op, uint32_t n_q,
                            struct rows *rows);

/* Records attention of this rank's rows of some heads on k and v, which have all keys of those. */
enum vka_status rows_record(struct vka_mpi_plan *plan, const struct rows *rows,
                            const struct vka_attention_op *op, const struct share *share,
                            struct vka_tensor *k, struct vka_tensor *v, struct vka_plan **recorded);

/* Before each run: the caller may have written other offsets. */
void rows_move(const struct rows *rows, struct run *run);
void rows_destroy(struct rows *rows);

#endif
