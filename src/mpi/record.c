#include "mpi/record.h"

struct problem_slice mpi_plan_slice(const struct vka_mpi_plan *plan, uint32_t batch,
                                    uint32_t n_round, int rank, uint32_t round)
{
    int size = plan->mpi->size;
    struct problem_slice mine = {{0, batch}, {{0, plan->n_head}, {0, plan->n_kv_head}}};
    if (plan->info.split == VKA_MPI_HEADS) {
        mine.heads = split_heads(plan->n_head, plan->n_kv_head, size, rank, n_round, round);
    } else {
        struct vka_mpi_range all = vka_mpi_batch(batch, size, rank);
        mine.batch = split_even(all.count, n_round, round);
        mine.batch.first += all.first;
    }
    return mine;
}

enum vka_status mpi_plan_begin(struct vka_mpi_plan *plan, struct vka_plan **begun)
{
    return vka_plan_create(plan->mpi->device,
                           VKA_INFO(vka_plan_info, .path = plan->info.path,
                                    .workspace_limit = plan->info.workspace_limit,
                                    .whole_n_head = plan->n_head,
                                    .whole_n_kv_head = plan->n_kv_head, .whole_n_q = plan->n_q),
                           begun);
}

enum vka_status mpi_plan_record(struct vka_mpi_plan *plan, const struct vka_layer_op *layer,
                                const struct vka_attention_op *attention,
                                const struct vka_linear_op *linear, struct vka_plan **recorded)
{
    enum vka_status status = VKA_OK;
    TRY(mpi_plan_begin(plan, recorded));
    if (layer)
        TRY(vka_plan_add_layer(*recorded, layer));
    if (attention)
        TRY(vka_plan_add_attention(*recorded, attention));
    if (linear)
        TRY(vka_plan_add_linear(*recorded, linear));
    TRY(vka_plan_finish(*recorded));
    return VKA_OK;
fail:
    return comm_device_error(plan->mpi, status);
}
