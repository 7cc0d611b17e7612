/* Operations over all ranks. */
#ifndef VKA_MPI_PLAN_H
#define VKA_MPI_PLAN_H

#include "mpi/gather.h"
#include "mpi/layer.h"

struct sequence;

struct vka_mpi_plan {
    struct vka_mpi *mpi;
    uint32_t number;               /* of this object's plans, from 1: the same on all ranks */
    struct vka_mpi_plan_info info; /* defaults filled in */
    uint32_t n_head, n_kv_head;    /* of the whole, by which kernels are chosen: a share of it must
                                      not take others */
    uint32_t n_q;                  /* by rows: likewise; else 0 */
    struct vka_tensor *context;    /* HEADS: the concatenated heads, F32, before their projection */
    struct gather *stage[2];       /* run one after the other; NULL where there is none */
    struct sequence *sequence;     /* SEQUENCE: instead of stages */
    struct vka_mpi_stats stats;
};

/* Finds out what differs between ranks, makes the plan by `build` on each, and agrees again. */
typedef enum vka_status mpi_plan_build(struct vka_mpi_plan *plan, struct vka_mpi_layer *layer,
                                       const void *op);
enum vka_status mpi_plan_make(struct vka_mpi *mpi, const char *caller, enum vka_status checked,
                              const struct terms *terms, const struct vka_mpi_plan_info *info,
                              mpi_plan_build *build, struct vka_mpi_layer *layer, const void *op,
                              struct vka_mpi_plan **out);

/* Checks what both kinds of plan are given; *filled is info, or its defaults where that is NULL. */
enum vka_status mpi_plan_check_info(struct vka_mpi *mpi, const char *caller,
                                    const struct vka_mpi_plan_info *info,
                                    struct vka_mpi_plan **plan, struct vka_mpi_plan_info *filled);

/* An empty plan for a share of the whole. */
enum vka_status mpi_plan_begin(struct vka_mpi_plan *plan, struct vka_plan **begun);

/* A recorded plan of one operation, of exactly one of the kinds. */
enum vka_status mpi_plan_record(struct vka_mpi_plan *plan, const struct vka_layer_op *layer,
                                const struct vka_attention_op *attention,
                                const struct vka_linear_op *linear, struct vka_plan **recorded);

#endif
