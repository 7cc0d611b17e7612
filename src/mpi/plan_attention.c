/* Plans of attention, split by heads, batch elements or positions. */
#include "mpi/gather.h"
#include "mpi/plan.h"
#include "mpi/sequence.h"

static const char caller[] = "vka_mpi_plan_attention";

/* Checks that everything with key heads has the same batch and number of key heads. */
static enum vka_status check_keys(struct log *log, const struct vka_attention_op *op,
                                  uint32_t batch, uint32_t n_kv)
{
    const struct {
        const char *name;
        const struct vka_tensor *tensor;
    } rows[] = {{"k", op->k},
                {"v", op->v},
                {"past_key", op->past_key},
                {"past_value", op->past_value},
                {"present_key", op->present_key},
                {"present_value", op->present_value}};
    for (size_t i = 0; i < COUNTOF(rows); i++) {
        ENSURE(slice_check(log, caller, rows[i].name, rows[i].tensor, 0, batch));
        ENSURE(slice_check(log, caller, rows[i].name, rows[i].tensor, 1, n_kv));
    }
    return VKA_OK;
}

static enum vka_status check(const struct vka_mpi_plan *plan, const struct vka_mpi_layer *layer,
                             const void *given)
{
    (void)layer;
    const struct vka_attention_op *op = given;
    struct log *log = &plan->mpi->log;
    const struct vka_tensor *four[] = {op ? op->q : NULL, op ? op->k : NULL, op ? op->v : NULL,
                                       op ? op->output : NULL};
    ENSURE_ARG(op && op->struct_size == sizeof *op, "%s: op is NULL or its struct_size is not %zu",
               caller, sizeof *op);
    if (op->cache || op->q_start || op->kv_start || op->n_key || op->state)
        return log_error(log, VKA_UNSUPPORTED,
                         "%s: a cache, a ragged batch and key chunks are not supported", caller);
    if (plan->info.split == VKA_MPI_SEQUENCE)
        return sequence_check(plan->mpi, op);
    for (size_t i = 0; i < COUNTOF(four); i++)
        ENSURE_ARG(four[i] && vka_tensor_rank(four[i]) == 4,
                   "%s: q, k, v or output is NULL or not of rank 4", caller);
    uint32_t batch = vka_tensor_shape(op->q, 0), n_head = vka_tensor_shape(op->q, 1);
    uint32_t n_kv = vka_tensor_shape(op->k, 1);
    ENSURE_ARG(n_head % n_kv == 0, "%s: q has %u heads, not a multiple of the %u of k", caller,
               n_head, n_kv);
    ENSURE_ARG(vka_tensor_shape(op->output, 0) == batch &&
                   vka_tensor_shape(op->output, 1) == n_head,
               "%s: output does not have the batch and heads of q", caller);
    ENSURE(check_keys(log, op, batch, n_kv));
    return slice_check_options(log, caller, &op->options, batch, n_head);
}

static void describe(const struct vka_mpi_plan *plan, const struct vka_mpi_layer *layer,
                     const void *given, struct terms *terms)
{
    (void)layer;
    const struct vka_attention_op *op = given;
    const struct vka_mpi_plan_info *info = &plan->info;
    terms_add(terms, "split: %d", (int)info->split);
    terms_add(terms, "path: %d", (int)info->path);
    terms_add(terms, "rounds: %u", info->rounds);
    terms_add(terms, "workspace_limit: %llu", (unsigned long long)info->workspace_limit);
    if (info->split == VKA_MPI_SEQUENCE) {
        sequence_describe(op, terms);
    } else {
        terms_add_tensor(terms, "q", op->q);
        terms_add_tensor(terms, "k", op->k);
        terms_add_tensor(terms, "v", op->v);
        terms_add_tensor(terms, "output", op->output);
        terms_add_tensor(terms, "past_key", op->past_key);
        terms_add_tensor(terms, "past_value", op->past_value);
        terms_add_tensor(terms, "present_key", op->present_key);
        terms_add_tensor(terms, "present_value", op->present_value);
    }
    terms_add_options(terms, &op->options, vka_tensor_shape(op->q, vka_tensor_rank(op->q) - 1));
}

static enum vka_status build(struct vka_mpi_plan *plan, const struct vka_mpi_layer *layer,
                             const void *given)
{
    (void)layer;
    const struct vka_attention_op *op = given;
    if (plan->info.split == VKA_MPI_SEQUENCE)
        return sequence_create(plan, op);
    struct vka_mpi *mpi = plan->mpi;
    enum vka_status status = VKA_OK;
    struct views views = {0};
    bool heads = plan->info.split == VKA_MPI_HEADS;
    uint32_t batch = vka_tensor_shape(op->q, 0);
    plan->n_head = vka_tensor_shape(op->q, 1);
    plan->n_kv_head = vka_tensor_shape(op->k, 1);
    uint32_t n_round = split_rounds(plan->info.rounds, heads ? plan->n_kv_head : batch, mpi->size);
    TRY(gather_create(mpi, op->output, n_round, &plan->stage[0]));
    for (uint32_t p = 0; p < n_round; p++) {
        struct gather_round *round = &plan->stage[0]->round[p];
        struct problem_slice mine = mpi_plan_slice(plan, batch, n_round, mpi->rank, p);
        struct vka_attention_op own;
        for (int rank = 0; rank < mpi->size; rank++) {
            struct problem_slice theirs = mpi_plan_slice(plan, batch, n_round, rank, p);
            struct vka_mpi_range range = heads ? theirs.heads.query : theirs.batch;
            TRY(gather_add(plan->stage[0], p, rank, slice_along(op->output, heads, range)));
        }
        if (!round->output)
            continue;
        TRY_DEVICE(slice_attention(&views, op, &mine, &own));
        own.output = round->output;
        TRY(mpi_plan_record(plan, NULL, &own, NULL, &round->plan));
        views_destroy(&views);
    }
fail:
    views_destroy(&views);
    return status;
}

enum vka_status vka_mpi_plan_attention(struct vka_mpi *mpi, const struct vka_attention_op *op,
                                       const struct vka_mpi_plan_info *info,
                                       struct vka_mpi_plan **plan)
{
    static const struct plan_kind kind = {caller, check, describe, build};
    return mpi_plan_make(mpi, &kind, NULL, op, info, plan);
}
