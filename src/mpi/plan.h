/* Makes a plan over all ranks: what those of layers and of attention have in common. */
#ifndef VKA_MPI_PLAN_H
#define VKA_MPI_PLAN_H

#include "mpi/agree.h"
#include "mpi/record.h"

struct vka_mpi_layer;

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

#endif
