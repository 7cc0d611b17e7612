#include "mpi/plan.h"
#include "mpi/gather.h"
#include "mpi/sequence.h"

#include <stdlib.h>

/* Checks the arguments that both kinds of plan have, and copies info. */
static enum vka_status check_info(struct log *log, const char *caller,
                                  const struct vka_mpi_plan_info *info, struct vka_mpi_plan **out,
                                  struct vka_mpi_plan_info *copy)
{
    ENSURE_ARG(out, "%s: plan is NULL", caller);
    if (!info)
        return VKA_OK;
    ENSURE_ARG(info->struct_size == sizeof *info, "%s: struct_size is %zu, not %zu", caller,
               info->struct_size, sizeof *info);
    ENSURE_ARG((unsigned)info->split < VKA_MPI_SPLIT_COUNT, "%s: split %d is unknown", caller,
               (int)info->split);
    ENSURE_ARG(info->rounds <= 1024, "%s: rounds is %u, more than 1024", caller, info->rounds);
    *copy = *info;
    return VKA_OK;
}

enum vka_status mpi_plan_make(struct vka_mpi *mpi, const struct plan_kind *kind,
                              const struct vka_mpi_layer *layer, const void *op,
                              const struct vka_mpi_plan_info *info, struct vka_mpi_plan **out)
{
    if (out)
        *out = NULL;
    if (!mpi)
        return VKA_INVALID;
    struct log *log = &mpi->log;
    enum vka_status status;
    struct terms terms = {0};
    struct vka_mpi_plan *plan = calloc(1, sizeof *plan);
    CHECK_ALLOC(plan);
    *plan = (struct vka_mpi_plan){.mpi = mpi, .info.struct_size = sizeof plan->info};
    TRY(check_info(log, kind->caller, info, out, &plan->info));
    TRY(kind->check(plan, layer, op));
    kind->describe(plan, layer, op, &terms);
fail:
    status = comm_agree(mpi, kind->caller, status, &terms);
    if (status == VKA_OK)
        status = comm_agree(mpi, kind->caller, kind->build(plan, layer, op), &terms);
    if (status != VKA_OK) {
        vka_mpi_plan_destroy(&plan);
        return status;
    }
    plan->number = ++mpi->n_plan;
    *out = plan;
    return VKA_OK;
}

void vka_mpi_plan_destroy(struct vka_mpi_plan **slot)
{
    if (!slot || !*slot)
        return;
    struct vka_mpi_plan *plan = *slot;
    gather_destroy(&plan->stage[0]);
    gather_destroy(&plan->stage[1]);
    sequence_destroy(&plan->sequence);
    vka_tensor_destroy(&plan->context);
    free(plan);
    *slot = NULL;
}

enum vka_status vka_mpi_plan_run(struct vka_mpi_plan *plan, uint64_t timeout)
{
    if (!plan)
        return VKA_INVALID;
    struct run run;
    ENSURE(comm_ready(plan->mpi, __func__));
    ENSURE(run_begin(plan->mpi, timeout, plan->number, &run));
    for (int i = 0; i < 2; i++)
        if (plan->stage[i])
            ENSURE(gather_run(plan->stage[i], &run));
    if (plan->sequence)
        ENSURE(sequence_run(plan->sequence, &run));
    enum vka_status status = run_end(&run);
    plan->stats = run.stats;
    return status;
}

void vka_mpi_plan_stats(const struct vka_mpi_plan *plan, struct vka_mpi_stats *stats)
{
    if (plan && stats)
        *stats = plan->stats;
}
