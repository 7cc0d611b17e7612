/* Operations over all ranks. */
#ifndef VKA_MPI_PLAN_H
#define VKA_MPI_PLAN_H

#include "mpi/exchange.h"

struct sequence;

/* A rank's part of the weights of a layer. */
struct vka_mpi_layer {
    struct vka_mpi *mpi;
    uint32_t number; /* of this layer in the object, from 1; the same on all ranks */
    enum vka_mpi_split split;
    struct vka_layer_info info; /* of the whole layer, defaults filled in; without host pointers */
    bool has_output;            /* the concatenated heads are projected */
    uint32_t n_piece;
    struct vka_layer **piece;     /* [n_piece]; HEADS: without the output projection, NULL if the
                                      piece has no heads; BATCH: the whole layer */
    struct vka_mpi_range columns; /* HEADS: this rank's columns of the output */
    struct vka_tensor *weight; /* [columns.count][n_head * value_dim], of the output projection */
    struct vka_tensor *bias;   /* [columns.count] */
};

/* The heads of a piece on a rank. */
struct share layer_share(const struct vka_mpi_layer *layer, int rank, uint32_t piece);

struct vka_mpi_plan {
    struct vka_mpi *mpi;
    uint32_t number;               /* of this plan in the object, from 1; the same on all ranks */
    struct vka_mpi_plan_info info; /* defaults filled in */
    uint32_t n_head, n_kv_head;    /* of the whole problem: kernels are chosen by these, as a part
                                      of it must not use others */
    uint32_t n_q;                  /* of the whole problem if it is split by rows; else 0 */
    struct vka_tensor *context;    /* HEADS: the concatenated heads before their projection */
    struct gather *stage[2];       /* run one after the other; NULL: none */
    struct sequence *sequence;     /* SEQUENCE: used instead of stages */
    struct vka_mpi_stats stats;
};

/* What plans of layers and of attention do in their own way. layer: NULL for attention. */
struct plan_kind {
    const char *caller;
    enum vka_status (*check)(const struct vka_mpi_plan *plan, const struct vka_mpi_layer *layer,
                             const void *op);
    void (*describe)(const struct vka_mpi_plan *plan, const struct vka_mpi_layer *layer,
                     const void *op, struct terms *terms);
    enum vka_status (*build)(struct vka_mpi_plan *plan, const struct vka_mpi_layer *layer,
                             const void *op);
};

/* Checks the arguments, compares those of all ranks, makes the plan on each, and agrees on the
 * result. */
enum vka_status mpi_plan_make(struct vka_mpi *mpi, const struct plan_kind *kind,
                              const struct vka_mpi_layer *layer, const void *op,
                              const struct vka_mpi_plan_info *info, struct vka_mpi_plan **out);

/* The part of a problem by heads or batch elements, of which there are `batch`, that is a piece of a
 * rank. */
struct part mpi_plan_part(const struct vka_mpi_plan *plan, uint32_t batch, uint32_t n_piece,
                          int rank, uint32_t piece);

/* Makes an empty plan for a part of the whole problem. */
enum vka_status mpi_plan_begin(struct vka_mpi_plan *plan, struct vka_plan **begun);

/* Makes a finished plan with one operation: exactly one of the three is given. */
enum vka_status mpi_plan_record(struct vka_mpi_plan *plan, const struct vka_layer_op *layer,
                                const struct vka_attention_op *attention,
                                const struct vka_linear_op *linear, struct vka_plan **recorded);

/* For more ranks than heads: every rank computes its own rows, over all keys or block by block. */

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
                            const struct vka_attention_op *op, const struct share *share,
                            struct vka_tensor *k, struct vka_tensor *v,
                            const struct rows_block *block, uint64_t *count,
                            struct vka_plan **recorded);

/* Computes the offsets of the halves. Call it before each run: the caller may have changed the
 * offsets. */
void rows_move(const struct rows *rows, struct run *run);
void rows_destroy(struct rows *rows);

/* For more ranks than heads: keys and values go round all ranks in blocks (key chunks), in the
 * order of the keys, and each rank computes its own rows. A rank has its own positions and one
 * block on the device, and two or more blocks on the host, which are sent while the one before is
 * computed. */

struct ring;

/* n_kv: the key positions of all ranks. UNSUPPORTED, without a log message, if attention over all
 * keys would not be one fused pass on this rank's device: then every rank must receive all keys. */
enum vka_status ring_create(struct vka_mpi_plan *plan, const struct rows *rows,
                            const struct vka_attention_op *op, uint32_t n_kv, struct ring **ring);
enum vka_status ring_run(struct ring *ring, struct run *run);
void ring_destroy(struct ring **ring);

/* Attention split by positions: ranks exchange positions for heads and back; with more ranks than
 * heads, all keys and values go to all ranks. */

/* Checks what a rank can check by itself. */
enum vka_status sequence_check(struct vka_mpi *mpi, const struct vka_attention_op *op);

/* Adds what must be the same on all ranks, and this rank's positions. */
void sequence_describe(const struct vka_attention_op *op, struct terms *terms);

/* Call it after the agreement on these terms. */
enum vka_status sequence_create(struct vka_mpi_plan *plan, const struct vka_attention_op *op);
enum vka_status sequence_run(struct sequence *sequence, struct run *run);
void sequence_destroy(struct sequence **sequence);

#endif
