/* For more ranks than heads: every rank computes its own rows, over all keys or block by block. */
#ifndef VKA_MPI_ROWS_H
#define VKA_MPI_ROWS_H

#include "mpi/record.h"
#include "mpi/run.h"

/* One of the two ranges of positions that a rank has. */
struct rows_half {
    struct vka_mpi_range range; /* of all positions */
    uint32_t behind;            /* where it begins in the tensor of the rank */
    struct vka_tensor *offset;  /* I32: the position of its first query */
};

struct rows {
    struct vka_mpi *mpi;
    struct vka_tensor *offset; /* a view of the caller's query_offset, or NULL */
    struct rows_half half[2];
};

/* n_q: the query positions of all ranks. */
enum vka_status rows_create(struct vka_mpi *mpi, const struct vka_attention_op *op, uint32_t n_q,
                            struct rows *rows);

/* A block: keys from key_first on, of n_key, which are the first n of k and v; and the softmax state
 * of each half. */
struct rows_block {
    uint32_t key_first, n_key, n;
    struct vka_tensor *state[2];
};

/* Records attention of this rank's rows of some heads over k and v, which are all keys of the
 * heads, or over a block of them. count not NULL: only asks for the number of elements of the state
 * of each half; *recorded is then of no use. */
enum vka_status rows_record(struct vka_mpi_plan *plan, const struct rows *rows,
                            const struct vka_attention_op *op, const struct head_ranges *heads,
                            struct vka_tensor *k, struct vka_tensor *v,
                            const struct rows_block *block, uint64_t *count,
                            struct vka_plan **recorded);

/* Computes the offsets of the halves. Call it before each run: the caller may have changed the
 * offsets. */
void rows_move(const struct rows *rows, struct run *run);
void rows_destroy(struct rows *rows);

#endif
