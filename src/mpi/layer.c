#include "mpi/layer.h"
#include "core/layer_info.h"
#include "mpi/agree.h"

#include <stdlib.h>
#include <string.h>

/* Checks the whole layer, before a rank's slice is made. */
static enum vka_status check(struct vka_mpi *mpi, const struct vka_mpi_layer_info *given,
                             const struct vka_layer_info *info)
{
    static const char *const caller = "vka_mpi_layer_create";
    struct log *log = &mpi->log;
    ENSURE_ARG(given->split == VKA_MPI_HEADS || given->split == VKA_MPI_BATCH,
               "%s: split is %d, but a layer is split by heads or batch", caller,
               (int)given->split);
    ENSURE_ARG(given->rounds <= 1024, "%s: rounds is %u, more than 1024", caller, given->rounds);
    ENSURE(layer_info_check(log, caller, info));
    ENSURE_ARG(vka_dtype_size(info->dtype) != 0 && info->quantise == VKA_F32,
               "%s: quantised weights are for one device", caller);
    if (layer_info_in_tensors(info))
        return log_error(log, VKA_UNSUPPORTED, "%s: weights in tensors are for one device", caller);
    if (info->keep_weights && given->split == VKA_MPI_HEADS && info->output.weight)
        return log_error(log, VKA_UNSUPPORTED,
                         "%s: keep_weights is not supported for a layer with an output "
                         "projection that is split by heads",
                         caller);
    return VKA_OK;
}

static void describe(const struct vka_mpi_layer_info *given, const struct vka_layer_info *info,
                     struct terms *terms)
{
    terms_add(terms, "split: %d", (int)given->split);
    terms_add(terms, "rounds: %u", given->rounds);
    terms_add(terms, "n_head: %u", info->n_head);
    terms_add(terms, "n_kv_head: %u", info->n_kv_head);
    terms_add(terms, "head_dim: %u", info->head_dim);
    terms_add(terms, "value_dim: %u", info->value_dim);
    terms_add(terms, "query_dim: %u", info->query_dim);
    terms_add(terms, "key_dim: %u", info->key_dim);
    terms_add(terms, "value_input_dim: %u", info->value_input_dim);
    terms_add(terms, "output_dim: %u", info->output_dim);
    terms_add(terms, "dtype: %s", vka_dtype_name(info->dtype));
    terms_add(terms, "interleaved: %d", info->interleaved);
    terms_add(terms, "keep_weights: %d", info->keep_weights);
    terms_add(terms, "biases: query %d, key %d, value %d, output %d", !!info->query.bias,
              !!info->key.bias, !!info->value.bias, !!info->output.bias);
    terms_add(terms, "output.weight: %d", !!info->output.weight);
}

/* The rows of some heads, [n_head * dim][row bytes]; of a bias, elements. Blocked heads are
 * contiguous and not copied; interleaved heads are gathered into *copy. */
static const void *heads_of(const void *all, const struct vka_layer_info *info, uint32_t n_head,
                            uint32_t dim, struct vka_mpi_range heads, size_t row, void **copy)
{
    const char *from = all;
    if (!all || !info->interleaved || heads.count == n_head)
        return all ? from + (size_t)heads.first * dim * row : NULL;
    char *to = *copy = malloc((size_t)heads.count * dim * row);
    for (uint32_t d = 0; to && d < dim; d++)
        memcpy(to + (size_t)d * heads.count * row, from + ((size_t)d * n_head + heads.first) * row,
               heads.count * row);
    return to;
}

/* Makes the projections of some heads, as a layer whose output is their contexts. */
static enum vka_status create_round(struct vka_mpi_layer *layer, const struct vka_layer_info *whole,
                                    const struct head_ranges *heads, struct vka_layer **round)
{
    struct log *log = &layer->mpi->log;
    enum vka_status status = VKA_OK;
    size_t size = vka_dtype_size(whole->dtype);
    const struct {
        const struct vka_linear_weights *from;
        uint32_t n_head, dim, width;
        struct vka_mpi_range heads;
    } rows[3] = {
        {&whole->query, whole->n_head, whole->head_dim, whole->query_dim, heads->query},
        {&whole->key, whole->n_kv_head, whole->head_dim, whole->key_dim, heads->key},
        {&whole->value, whole->n_kv_head, whole->value_dim, whole->value_input_dim, heads->key},
    };
    struct vka_layer_info info = *whole;
    struct vka_linear_weights *to[3] = {&info.query, &info.key, &info.value};
    void *copy[6] = {NULL};
    for (int i = 0; i < 3; i++) {
        to[i]->weight = heads_of(rows[i].from->weight, whole, rows[i].n_head, rows[i].dim,
                                 rows[i].heads, rows[i].width * size, &copy[2 * i]);
        to[i]->bias = heads_of(rows[i].from->bias, whole, rows[i].n_head, rows[i].dim,
                               rows[i].heads, size, &copy[2 * i + 1]);
        CHECK_ALLOC(to[i]->weight);
        CHECK_ALLOC(to[i]->bias || !rows[i].from->bias ? to[i] : NULL);
    }
    info.n_head = heads->query.count;
    info.n_kv_head = heads->key.count;
    info.output = (struct vka_linear_weights){NULL, NULL};
    info.output_dim = 0;
    TRY(comm_device_error(layer->mpi, vka_layer_create(layer->mpi->device, &info, round)));
fail:
    for (size_t i = 0; i < COUNTOF(copy); i++)
        free(copy[i]);
    return status;
}

/* Makes this rank's rows of the output projection. CPU drivers read weights fastest as [in][out]
 * with the columns in whole fours; for other drivers they are not changed. */
static enum vka_status upload_rows(struct vka_mpi_layer *layer, const char *from)
{
    struct vka_mpi *mpi = layer->mpi;
    struct log *log = &mpi->log;
    enum vka_status status = VKA_OK;
    uint32_t out = layer->columns.count, in = layer->info.n_head * layer->info.value_dim;
    bool transposed = vka_device_properties(mpi->device)->type == VKA_DEVICE_CPU;
    uint32_t shape[2] = {transposed ? in : out, transposed ? (out + 3) / 4 * 4 : in};
    size_t size = vka_dtype_size(layer->info.dtype), bytes = (size_t)shape[0] * shape[1] * size;
    struct vka_tensor *tensor = NULL, *view = NULL;
    char *turned = NULL;
    TRY_DEVICE(vka_tensor_create(mpi->device, layer->info.dtype, 2, shape, &tensor));
    if (!transposed) {
        TRY_DEVICE(vka_tensor_write(tensor, from, bytes));
        layer->weight = tensor;
        return VKA_OK;
    }
    turned = calloc(1, bytes);
    CHECK_ALLOC(turned);
    for (size_t o = 0; o < out; o++)
        for (size_t i = 0; i < in; i++)
            memcpy(turned + (i * shape[1] + o) * size, from + (o * in + i) * size, size);
    TRY_DEVICE(vka_tensor_write(tensor, turned, bytes));
    TRY_DEVICE(vka_tensor_slice(tensor, 1, 0, out, &view));
    TRY_DEVICE(vka_tensor_permute(view, (const uint32_t[]){1, 0}, &layer->weight));
fail:
    free(turned);
    vka_tensor_destroy(&view);
    vka_tensor_destroy(&tensor);
    return status;
}

static enum vka_status upload_output(struct vka_mpi_layer *layer,
                                     const struct vka_layer_info *whole)
{
    struct vka_mpi *mpi = layer->mpi;
    size_t size = vka_dtype_size(whole->dtype), in = (size_t)whole->n_head * whole->value_dim;
    layer->columns = split_even(whole->output_dim, (uint32_t)mpi->size, (uint32_t)mpi->rank);
    if (!layer->columns.count)
        return VKA_OK;
    ENSURE(
        upload_rows(layer, (const char *)whole->output.weight + layer->columns.first * in * size));
    if (whole->output.bias) {
        ENSURE_DEVICE(
            vka_tensor_create(mpi->device, whole->dtype, 1, &layer->columns.count, &layer->bias));
        ENSURE_DEVICE(vka_tensor_write(
            layer->bias, (const char *)whole->output.bias + layer->columns.first * size,
            layer->columns.count * size));
    }
    return VKA_OK;
}

/* The slice without communication; *out is to be destroyed even on failure. */
static enum vka_status create(struct vka_mpi *mpi, const struct vka_mpi_layer_info *given,
                              const struct vka_layer_info *whole, struct vka_mpi_layer **out)
{
    struct log *log = &mpi->log;
    const struct vka_linear_weights none = {0};
    struct vka_mpi_layer *layer = *out = calloc(1, sizeof *layer);
    ENSURE_ALLOC(layer);
    *layer = (struct vka_mpi_layer){
        .mpi = mpi,
        .split = given->split,
        .info = *whole,
        .has_output = whole->output.weight,
    };
    layer->info.query = layer->info.key = layer->info.value = layer->info.output = none;
    bool batch = given->split == VKA_MPI_BATCH;
    layer->n_round = batch ? 1 : split_rounds(given->rounds, whole->n_kv_head, mpi->size);
    layer->round = calloc(layer->n_round, sizeof *layer->round);
    ENSURE_ALLOC(layer->round);
    if (batch) {
        ENSURE_DEVICE(vka_layer_create(mpi->device, whole, &layer->round[0]));
        return VKA_OK;
    }
    for (uint32_t p = 0; p < layer->n_round; p++) {
        struct head_ranges heads = layer_head_ranges(layer, mpi->rank, p);
        if (heads.query.count)
            ENSURE(create_round(layer, whole, &heads, &layer->round[p]));
    }
    if (layer->has_output)
        ENSURE(upload_output(layer, whole));
    return VKA_OK;
}

struct head_ranges layer_head_ranges(const struct vka_mpi_layer *layer, int rank, uint32_t round)
{
    return split_heads(layer->info.n_head, layer->info.n_kv_head, layer->mpi->size, rank,
                       layer->n_round, round);
}

enum vka_status vka_mpi_layer_create(struct vka_mpi *mpi, const struct vka_mpi_layer_info *given,
                                     struct vka_mpi_layer **out)
{
    if (out)
        *out = NULL;
    if (!mpi)
        return VKA_INVALID;
    struct log *log = &mpi->log;
    enum vka_status status = VKA_OK;
    struct vka_mpi_layer *layer = NULL;
    struct vka_layer_info info = {0};
    struct terms terms = {0};
    CHECK_ARG(out, "%s: layer is NULL", __func__);
    CHECK_ARG(given && given->struct_size == sizeof *given,
              "%s: info is NULL or its struct_size is not %zu", __func__, sizeof *given);
    info = given->layer;
    info.struct_size = sizeof info;
    layer_info_fill(&info);
    describe(given, &info, &terms);
    status = check(mpi, given, &info);
fail:
    status = comm_agree(mpi, __func__, status, &terms);
    if (status == VKA_OK) /* each rank may fail for reasons of its own: memory, files */
        status = comm_agree(mpi, __func__, create(mpi, given, &info, &layer), &terms);
    if (status != VKA_OK) {
        vka_mpi_layer_destroy(&layer);
        return status;
    }
    layer->number = ++mpi->n_layer;
    *out = layer;
    return VKA_OK;
}

void vka_mpi_layer_destroy(struct vka_mpi_layer **slot)
{
    if (!slot || !*slot)
        return;
    struct vka_mpi_layer *layer = *slot;
    for (uint32_t p = 0; layer->round && p < layer->n_round; p++)
        vka_layer_destroy(&layer->round[p]);
    vka_tensor_destroy(&layer->weight);
    vka_tensor_destroy(&layer->bias);
    free(layer->round);
    free(layer);
    *slot = NULL;
}
