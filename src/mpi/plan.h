/* Operations over all ranks. */
#ifndef VKA_MPI_PLAN_H
#define VKA_MPI_PLAN_H

#include "mpi/gather.h"
#include "mpi/layer.h"

struct sequence;

struct vka_mpi_plan {
    struct vka_mpi *mpi;
    uint32_t number;               /* of this plan in the object, from 1; the same on all ranks */
    struct vka_mpi_plan_info info; /* defaults filled in */
    uint32_t n_head, n_kv_head;    /* of the whole problem: kernels are chosen by these, as a part
                                      of it must not use others */
    uint32_t n_q;                  /* of the whole problem if it is split by rows; else 0 */
    struct vka_tensor *context;    /* HEADS: the concatenated heads before their projection, F32 */
    struct gather *stage[2];       /* run one after the other; NULL: none */
    struct sequence *sequence;     /* SEQUENCE: used instead of stages */
    struct vka_mpi_stats stats;
};

/* Compares the arguments of all ranks, makes the plan by `build` on each, and agrees on the
 * result. */
typedef enum vka_status mpi_plan_build(struct vka_mpi_plan *plan, struct vka_mpi_layer *layer,
                                       const void *op);
enum vka_status mpi_plan_make(struct vka_mpi *mpi, const char *caller, enum vka_status checked,
                              const struct terms *terms, const struct vka_mpi_plan_info *info,
                              mpi_plan_build *build, struct vka_mpi_layer *layer, const void *op,
                              struct vka_mpi_plan **out);

/* Checks the arguments that both kinds of plan have; *filled is info, or the defaults if it is
 * NULL. */
enum vka_status mpi_plan_check_info(struct vka_mpi *mpi, const char *caller,
                                    const struct vka_mpi_plan_info *info,
                                    struct vka_mpi_plan **plan, struct vka_mpi_plan_info *filled);

/* Makes an empty plan for a part of the whole problem. */
enum vka_status mpi_plan_begin(struct vka_mpi_plan *plan, struct vka_plan **begun);

/* Makes a finished plan with one operation: exactly one of the three is given. */
enum vka_status mpi_plan_record(struct vka_mpi_plan *plan, const struct vka_layer_op *layer,
                                const struct vka_attention_op *attention,
                                const struct vka_linear_op *linear, struct vka_plan **recorded);

#endif
