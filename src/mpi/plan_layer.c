/* Plans of layers, split by heads or batch elements. */
#include "mpi/plan.h"

static const char caller[] = "vka_mpi_plan_layer";

static uint32_t batch_axis(const struct vka_layer_op *op)
{
    return op->layout == VKA_SEQUENCE_FIRST;
}

static enum vka_status check(struct vka_mpi *mpi, const struct vka_mpi_layer *layer,
                             const struct vka_layer_op *op)
{
    struct log *log = &mpi->log;
    ENSURE_ARG(layer && layer->mpi == mpi, "%s: layer is NULL or belongs to another object",
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
    ENSURE_ARG(!op->cache || (layer->split == VKA_MPI_HEADS && layer->n_piece == 1),
               "%s: cache is given, but the layer is not split by heads with pieces 1", caller);
    uint32_t axis = batch_axis(op), batch = vka_tensor_shape(op->query, axis);
    ENSURE(slice_check(log, caller, "key", op->key, axis, batch));
    ENSURE(slice_check(log, caller, "value", op->value, axis, batch));
    return slice_check_options(log, caller, &op->attention, batch, layer->info.n_head);
}

/* Whether a rank has a cache; HEADLESS: it has no heads and needs none. */
enum { HEADLESS = 0, WITHOUT_CACHE, WITH_CACHE };

static void describe(const struct vka_mpi_layer *layer, const struct vka_mpi_plan_info *info,
                     const struct vka_layer_op *op, struct terms *terms)
{
    bool heads =
        layer->split == VKA_MPI_BATCH || layer_share(layer, layer->mpi->rank, 0).query.count;
    terms->each[0] = !heads ? HEADLESS : op->cache ? WITH_CACHE : WITHOUT_CACHE;
    terms_add(terms, "layer: %u", layer->number);
    terms_add_tensor(terms, "query", op->query);
    terms_add_tensor(terms, "key", op->key);
    terms_add_tensor(terms, "value", op->value);
    terms_add_tensor(terms, "output", op->output);
    terms_add(terms, "layout: %d", (int)op->layout);
    terms_add(terms, "path: %d", (int)info->path);
    terms_add(terms, "pieces: %u", info->pieces);
    terms_add(terms, "workspace_limit: %llu", (unsigned long long)info->workspace_limit);
    terms_add_options(terms, &op->attention);
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

/* Computes the contexts of the heads of each piece, directly in their columns of `target`. */
static enum vka_status build_context(struct vka_mpi_plan *plan, const struct vka_mpi_layer *layer,
                                     const struct vka_layer_op *op, struct vka_tensor *target)
{
    struct vka_mpi *mpi = plan->mpi;
    enum vka_status status = VKA_OK;
    struct views views = {0};
    uint32_t dim = layer->info.value_dim, batch = vka_tensor_shape(op->query, batch_axis(op));
    TRY(gather_create(mpi, target, layer->n_piece, &plan->stage[0]));
    struct gather *gather = plan->stage[0];
    for (uint32_t p = 0; p < layer->n_piece; p++)
        for (int rank = 0; rank < mpi->size; rank++) {
            struct vka_mpi_range heads = layer_share(layer, rank, p).query;
            gather->piece[p].box[rank] =
                box_along(target, 2, (struct vka_mpi_range){heads.first * dim, heads.count * dim});
        }
    TRY(gather_finish(gather));
    for (uint32_t p = 0; p < layer->n_piece; p++) {
        struct part part = {{0, batch}, layer_share(layer, mpi->rank, p)};
        struct vka_layer_op own = *op;
        own.layer = layer->piece[p];
        own.output = gather_output(gather, p);
        if (!own.output)
            continue;
        TRY(comm_device_error(mpi, slice_options(&views, &op->attention, &part, &own.attention)));
        TRY(mpi_plan_record(plan, &own, NULL, NULL, &gather->piece[p].plan));
        views_destroy(&views);
    }
fail:
    views_destroy(&views);
    return status;
}

/* Computes this rank's columns of the output, in pieces of whole rows. */
static enum vka_status build_output(struct vka_mpi_plan *plan, const struct vka_mpi_layer *layer,
                                    const struct vka_layer_op *op)
{
    struct vka_mpi *mpi = plan->mpi;
    enum vka_status status = VKA_OK;
    struct views views = {0};
    uint32_t axis = vka_tensor_shape(op->output, 1) > vka_tensor_shape(op->output, 0);
    uint32_t rows = vka_tensor_shape(op->output, axis);
    uint32_t n_piece = layer->n_piece < rows ? layer->n_piece : rows;
    TRY(gather_create(mpi, op->output, n_piece, &plan->stage[1]));
    struct gather *gather = plan->stage[1];
    for (uint32_t p = 0; p < n_piece; p++)
        for (int rank = 0; rank < mpi->size; rank++) {
            struct vka_mpi_range part = split_even(rows, n_piece, p);
            struct vka_mpi_range columns =
                split_even(layer->info.output_dim, (uint32_t)mpi->size, (uint32_t)rank);
            struct box *box = &gather->piece[p].box[rank];
            *box = box_along(op->output, 2, columns);
            box->first[axis] = part.first;
            box->count[axis] = part.count;
        }
    TRY(gather_finish(gather));
    for (uint32_t p = 0; p < n_piece; p++) {
        struct vka_linear_op own = {.struct_size = sizeof own,
                                    .weight = layer->weight,
                                    .bias = layer->bias,
                                    .output = gather_output(gather, p)};
        if (!own.output)
            continue;
        TRY(comm_device_error(mpi, views_slice(&views, plan->context, axis,
                                               split_even(rows, n_piece, p), &own.input)));
        TRY(mpi_plan_record(plan, NULL, NULL, &own, &gather->piece[p].plan));
    }
fail:
    views_destroy(&views);
    return status;
}

static enum vka_status build_heads(struct vka_mpi_plan *plan, struct vka_mpi_layer *layer,
                                   const void *data)
{
    const struct vka_layer_op *op = data;
    plan->n_head = layer->info.n_head;
    plan->n_kv_head = layer->info.n_kv_head;
    ENSURE(check_caches(plan->mpi));
    if (!layer->has_output)
        return build_context(plan, layer, op, op->output);
    const uint32_t shape[] = {vka_tensor_shape(op->output, 0), vka_tensor_shape(op->output, 1),
                              layer->info.n_head * layer->info.value_dim};
    ENSURE(comm_device_error(
        plan->mpi, vka_tensor_create(plan->mpi->device, VKA_F32, 3, shape, &plan->context)));
    ENSURE(build_context(plan, layer, op, plan->context));
    return build_output(plan, layer, op);
}

/* The batch elements of a piece of a rank. */
static struct vka_mpi_range batch_piece(uint32_t batch, int size, int rank, uint32_t n_piece,
                                        uint32_t piece)
{
    struct vka_mpi_range all = vka_mpi_batch(batch, size, rank);
    struct vka_mpi_range part = split_even(all.count, n_piece, piece);
    part.first += all.first;
    return part;
}

static enum vka_status build_batch(struct vka_mpi_plan *plan, struct vka_mpi_layer *layer,
                                   const void *data)
{
    const struct vka_layer_op *op = data;
    struct vka_mpi *mpi = plan->mpi;
    enum vka_status status = VKA_OK;
    struct views views = {0};
    uint32_t axis = batch_axis(op), batch = vka_tensor_shape(op->query, axis);
    uint32_t n_piece = split_pieces(plan->info.pieces, batch, mpi->size);
    TRY(gather_create(mpi, op->output, n_piece, &plan->stage[0]));
    struct gather *gather = plan->stage[0];
    for (uint32_t p = 0; p < n_piece; p++)
        for (int rank = 0; rank < mpi->size; rank++)
            gather->piece[p].box[rank] =
                box_along(op->output, axis, batch_piece(batch, mpi->size, rank, n_piece, p));
    TRY(gather_finish(gather));
    for (uint32_t p = 0; p < n_piece; p++) {
        struct part part = {.batch = batch_piece(batch, mpi->size, mpi->rank, n_piece, p),
                            .heads = {{0, layer->info.n_head}, {0, layer->info.n_kv_head}}};
        struct vka_layer_op own = *op;
        own.layer = layer->piece[0];
        own.output = gather_output(gather, p);
        if (!own.output)
            continue;
        TRY(comm_device_error(mpi, views_slice(&views, op->query, axis, part.batch, &own.query)));
        TRY(comm_device_error(mpi, views_slice(&views, op->key, axis, part.batch, &own.key)));
        TRY(comm_device_error(mpi, views_slice(&views, op->value, axis, part.batch, &own.value)));
        TRY(comm_device_error(mpi, slice_options(&views, &op->attention, &part, &own.attention)));
        TRY(mpi_plan_record(plan, &own, NULL, NULL, &gather->piece[p].plan));
        views_destroy(&views);
    }
fail:
    views_destroy(&views);
    return status;
}

enum vka_status vka_mpi_plan_layer(struct vka_mpi *mpi, struct vka_mpi_layer *layer,
                                   const struct vka_layer_op *op,
                                   const struct vka_mpi_plan_info *info, struct vka_mpi_plan **plan)
{
    if (plan)
        *plan = NULL;
    if (!mpi)
        return VKA_INVALID;
    struct vka_mpi_plan_info filled;
    struct terms terms = {0};
    enum vka_status status = mpi_plan_check_info(mpi, caller, info, plan, &filled);
    if (status == VKA_OK)
        status = check(mpi, layer, op);
    if (status == VKA_OK)
        describe(layer, &filled, op, &terms);
    bool batch = status == VKA_OK && layer->split == VKA_MPI_BATCH;
    return mpi_plan_make(mpi, caller, status, &terms, &filled, batch ? build_batch : build_heads,
                         layer, op, plan);
}
