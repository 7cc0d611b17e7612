/* Plans of layers, split by heads or batch elements. */
#include "core/inner.h"
#include "mpi/gather.h"
#include "mpi/layer.h"
#include "mpi/plan.h"

static const char caller[] = "vka_mpi_plan_layer";

static uint32_t batch_axis(const struct vka_layer_op *op)
{
    return op->layout == VKA_SEQUENCE_FIRST;
}

static enum vka_status check(const struct vka_mpi_plan *plan, const struct vka_mpi_layer *layer,
                             const void *given)
{
    const struct vka_layer_op *op = given;
    struct log *log = &plan->mpi->log;
    ENSURE_ARG(layer && layer->mpi == plan->mpi, "%s: layer is NULL or belongs to another object",
               caller);
    ENSURE_ARG(op && op->struct_size == sizeof *op, "%s: op is NULL or its struct_size is not %zu",
               caller, sizeof *op);
    ENSURE_ARG(!op->layer, "%s: op->layer is given, but layer is an argument of its own", caller);
    ENSURE_ARG((unsigned)op->layout < VKA_LAYOUT_COUNT, "%s: layout %d is unknown", caller,
               (int)op->layout);
    ENSURE_ARG(op->query && vka_tensor_rank(op->query) == 3, "%s: query is NULL or not of rank 3",
               caller);
    ENSURE_ARG(op->output && vka_tensor_rank(op->output) == 3 &&
                   vka_tensor_shape(op->output, 0) == vka_tensor_shape(op->query, 0) &&
                   vka_tensor_shape(op->output, 1) == vka_tensor_shape(op->query, 1) &&
                   vka_tensor_shape(op->output, 2) == layer->info.output_dim,
               "%s: output is NULL or not [%u, %u, %u]", caller, vka_tensor_shape(op->query, 0),
               vka_tensor_shape(op->query, 1), layer->info.output_dim);
    ENSURE_ARG(!op->cache || (layer->split == VKA_MPI_HEADS && layer->n_round == 1),
               "%s: cache is given, but the layer is not split by heads with rounds 1", caller);
    uint32_t axis = batch_axis(op), batch = vka_tensor_shape(op->query, axis);
    ENSURE(slice_check(log, caller, "key", op->key, axis, batch));
    ENSURE(slice_check(log, caller, "value", op->value, axis, batch));
    return slice_check_options(log, caller, &op->attention, batch, layer->info.n_head);
}

/* Whether a rank has a cache; HEADLESS: it has no heads and needs none. */
enum { HEADLESS = 0, WITHOUT_CACHE, WITH_CACHE };

/* The type of the layer's contexts on this rank's device alone. */
static enum vka_dtype inner_of(const struct vka_mpi_layer *layer, const struct vka_layer_op *op)
{
    const struct vka_tensor *key = op->key ? op->key : op->query;
    const struct vka_tensor *value = op->value ? op->value : key;
    const enum vka_dtype rows[] = {vka_tensor_dtype(op->query), vka_tensor_dtype(key),
                                   vka_tensor_dtype(value), vka_tensor_dtype(op->output)};
    return inner_dtype_of_layer(vka_device_properties(layer->mpi->device), layer->info.dtype, rows);
}

static void describe(const struct vka_mpi_plan *plan, const struct vka_mpi_layer *layer,
                     const void *given, struct terms *terms)
{
    const struct vka_layer_op *op = given;
    const struct vka_mpi_plan_info *info = &plan->info;
    bool heads =
        layer->split == VKA_MPI_BATCH || layer_head_ranges(layer, layer->mpi->rank, 0).query.count;
    terms->each[0] = !heads ? HEADLESS : op->cache ? WITH_CACHE : WITHOUT_CACHE;
    terms->each[1] = (int32_t)inner_of(layer, op);
    terms_add(terms, "layer: %u", layer->number);
    terms_add_tensor(terms, "query", op->query);
    terms_add_tensor(terms, "key", op->key);
    terms_add_tensor(terms, "value", op->value);
    terms_add_tensor(terms, "output", op->output);
    terms_add(terms, "layout: %d", (int)op->layout);
    terms_add(terms, "path: %d", (int)info->path);
    terms_add(terms, "rounds: %u", info->rounds);
    terms_add(terms, "workspace_limit: %llu", (unsigned long long)info->workspace_limit);
    terms_add_options(terms, &op->attention, layer->info.head_dim);
}

/* Checks that either all ranks with heads have a cache or none has; the result is the same on
 * all. */
static enum vka_status check_caches(struct vka_mpi *mpi)
{
    struct log *log = &mpi->log;
    int first[WITH_CACHE + 1] = {-1, -1, -1};
    for (int rank = mpi->size; rank-- > 0;)
        first[comm_each(mpi, rank)[0]] = rank;
    ENSURE_ARG(first[WITH_CACHE] < 0 || first[WITHOUT_CACHE] < 0,
               "%s: rank %d has a cache, rank %d has none", caller, first[WITH_CACHE],
               first[WITHOUT_CACHE]);
    return VKA_OK;
}

/* The type of the contexts: that of one device which computes the layer, where all ranks' devices keep
 * them in it; else float32, which they keep for float32 contexts. */
static enum vka_dtype context_dtype(struct vka_mpi *mpi)
{
    const int32_t first = comm_each(mpi, 0)[1];
    for (int rank = 1; rank < mpi->size; rank++)
        if (comm_each(mpi, rank)[1] != first)
            return VKA_F32;
    return (enum vka_dtype)first;
}

/* Computes the slice of each round, directly in its slice of `target`: by heads, columns with their
 * contexts; by batch elements, these. */
static enum vka_status build_slices(struct vka_mpi_plan *plan, const struct vka_mpi_layer *layer,
                                    const struct vka_layer_op *op, struct vka_tensor *target)
{
    struct vka_mpi *mpi = plan->mpi;
    enum vka_status status = VKA_OK;
    struct views views = {0};
    bool batch = layer->split == VKA_MPI_BATCH;
    uint32_t elements = batch_axis(op), n = vka_tensor_shape(op->query, elements);
    uint32_t axis = batch ? elements : 2, width = batch ? 1 : layer->info.value_dim;
    uint32_t n_round = batch ? split_rounds(plan->info.rounds, n, mpi->size) : layer->n_round;
    TRY(gather_create(mpi, target, n_round, &plan->stage[0]));
    for (uint32_t p = 0; p < n_round; p++) {
        struct gather_round *round = &plan->stage[0]->round[p];
        struct problem_slice mine = mpi_plan_slice(plan, n, n_round, mpi->rank, p);
        struct vka_layer_op own = *op;
        for (int rank = 0; rank < mpi->size; rank++) {
            struct problem_slice theirs = mpi_plan_slice(plan, n, n_round, rank, p);
            struct vka_mpi_range range = batch ? theirs.batch : theirs.heads.query;
            range = (struct vka_mpi_range){range.first * width, range.count * width};
            TRY(gather_add(plan->stage[0], p, rank, slice_along(target, axis, range)));
        }
        if (!round->output)
            continue;
        own.layer = layer->round[batch ? 0 : p];
        own.output = round->output;
        TRY_DEVICE(views_slice(&views, op->query, elements, mine.batch, &own.query));
        TRY_DEVICE(views_slice(&views, op->key, elements, mine.batch, &own.key));
        TRY_DEVICE(views_slice(&views, op->value, elements, mine.batch, &own.value));
        TRY_DEVICE(slice_options(&views, &op->attention, &mine, &own.attention));
        TRY(mpi_plan_record(plan, &own, NULL, NULL, &round->plan));
        views_destroy(&views);
    }
fail:
    views_destroy(&views);
    return status;
}

/* Computes this rank's columns of the output, in rounds of whole rows. */
static enum vka_status build_output(struct vka_mpi_plan *plan, const struct vka_mpi_layer *layer,
                                    const struct vka_layer_op *op)
{
    struct vka_mpi *mpi = plan->mpi;
    enum vka_status status = VKA_OK;
    struct views views = {0};
    uint32_t axis = vka_tensor_shape(op->output, 1) > vka_tensor_shape(op->output, 0);
    uint32_t rows = vka_tensor_shape(op->output, axis);
    uint32_t n_round = layer->n_round < rows ? layer->n_round : rows;
    TRY(gather_create(mpi, op->output, n_round, &plan->stage[1]));
    for (uint32_t p = 0; p < n_round; p++) {
        struct gather_round *round = &plan->stage[1]->round[p];
        struct vka_mpi_range range = split_even(rows, n_round, p);
        struct vka_linear_op own = {
            .struct_size = sizeof own, .weight = layer->weight, .bias = layer->bias};
        for (int rank = 0; rank < mpi->size; rank++) {
            struct slice slice = slice_along(
                op->output, 2,
                split_even(layer->info.output_dim, (uint32_t)mpi->size, (uint32_t)rank));
            slice.first[axis] = range.first;
            slice.count[axis] = range.count;
            TRY(gather_add(plan->stage[1], p, rank, slice));
        }
        if (!round->output)
            continue;
        own.output = round->output;
        TRY_DEVICE(views_slice(&views, plan->context, axis, range, &own.input));
        TRY(mpi_plan_record(plan, NULL, NULL, &own, &round->plan));
    }
fail:
    views_destroy(&views);
    return status;
}

static enum vka_status build(struct vka_mpi_plan *plan, const struct vka_mpi_layer *layer,
                             const void *given)
{
    const struct vka_layer_op *op = given;
    plan->info.split = layer->split;
    plan->n_head = layer->info.n_head;
    plan->n_kv_head = layer->info.n_kv_head;
    ENSURE(check_caches(plan->mpi));
    if (layer->split == VKA_MPI_BATCH || !layer->has_output)
        return build_slices(plan, layer, op, op->output);
    const uint32_t shape[] = {vka_tensor_shape(op->output, 0), vka_tensor_shape(op->output, 1),
                              layer->info.n_head * layer->info.value_dim};
    ENSURE(
        comm_device_error(plan->mpi, vka_tensor_create(plan->mpi->device, context_dtype(plan->mpi),
                                                       3, shape, &plan->context)));
    ENSURE(build_slices(plan, layer, op, plan->context));
    return build_output(plan, layer, op);
}

enum vka_status vka_mpi_plan_layer(struct vka_mpi *mpi, struct vka_mpi_layer *layer,
                                   const struct vka_layer_op *op,
                                   const struct vka_mpi_plan_info *info, struct vka_mpi_plan **plan)
{
    static const struct plan_kind kind = {caller, check, describe, build};
    return mpi_plan_make(mpi, &kind, layer, op, info, plan);
}
