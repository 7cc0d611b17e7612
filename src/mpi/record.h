/* A plan over all ranks, and how the plans of this rank's device that it runs are recorded. */
#ifndef VKA_MPI_RECORD_H
#define VKA_MPI_RECORD_H

#include "mpi/comm.h"
#include "mpi/slice.h"

struct gather;
struct sequence;

struct vka_mpi_plan {
    struct vka_mpi *mpi;
    uint32_t number;               /* of this plan in the object, from 1; the same on all ranks */
    struct vka_mpi_plan_info info; /* defaults filled in */
    uint32_t n_head, n_kv_head;    /* of the whole problem: kernels are chosen by these, as a slice
                                      of it must not use others */
    uint32_t n_q;                  /* of the whole problem if it is split by rows; else 0 */
    struct vka_tensor *context;    /* HEADS: the concatenated heads before their projection */
    struct gather *stage[2];       /* run one after the other; NULL: none */
    struct sequence *sequence;     /* SEQUENCE: used instead of stages */
    struct vka_mpi_stats stats;
};

/* The slice of a problem by heads or batch elements, of which there are `batch`, that is a round of a
 * rank. */
struct problem_slice mpi_plan_slice(const struct vka_mpi_plan *plan, uint32_t batch,
                                    uint32_t n_round, int rank, uint32_t round);

/* Makes an empty plan for a slice of the whole problem. */
enum vka_status mpi_plan_begin(struct vka_mpi_plan *plan, struct vka_plan **begun);

/* Makes a finished plan with one operation: exactly one of the three is given. */
enum vka_status mpi_plan_record(struct vka_mpi_plan *plan, const struct vka_layer_op *layer,
                                const struct vka_attention_op *attention,
                                const struct vka_linear_op *linear, struct vka_plan **recorded);

#endif
