/* struct vka_layer: weights on the device, and the layer as an operation: three projections,
 * attention on views of their outputs, and the output projection. */
#include "core/dtype.h"
#include "plan/attention.h"
#include "plan/cache.h"
#include "plan/check.h"
#include "plan/linear.h"
#include "plan/tune.h"

#include <stdlib.h>
#include <string.h>

enum projection { QUERY = 0, KEY, VALUE, OUTPUT, PROJECTION_COUNT };

struct vka_layer {
    struct vka_device *device;
    struct vka_layer_info info;                 /* sizes, defaults filled in; no host pointers */
    uint32_t panel;                             /* 0: weights are not packed; see matmul_op */
    struct vka_tensor weight[PROJECTION_COUNT]; /* [out][in] or packed, storage NULL where absent */
    struct vka_tensor bias[PROJECTION_COUNT];   /* [out], likewise */
};

static void fill_defaults(struct vka_layer_info *info)
{
    if (!info->n_kv_head)
        info->n_kv_head = info->n_head;
    if (!info->value_dim)
        info->value_dim = info->head_dim;
    if (!info->key_dim)
        info->key_dim = info->query_dim;
    if (!info->value_input_dim)
        info->value_input_dim = info->key_dim;
    if (!info->output_dim)
        info->output_dim = info->n_head * info->value_dim;
}

static enum vka_status check_info(struct log *log, const char *caller,
                                  const struct vka_layer_info *info)
{
    enum vka_status status = VKA_OK;
    CHECK_ARG(info->n_head >= 1 && info->head_dim >= 1 && info->query_dim >= 1,
              "%s: n_head, head_dim or query_dim is 0", caller);
    CHECK_ARG(info->n_kv_head <= info->n_head && info->n_head % info->n_kv_head == 0,
              "%s: n_head %u is not a multiple of n_kv_head %u", caller, info->n_head,
              info->n_kv_head);
    CHECK_ARG((uint64_t)info->n_head * info->head_dim <= INT32_MAX &&
                  (uint64_t)info->n_head * info->value_dim <= INT32_MAX,
              "%s: n_head times head_dim or value_dim passes 2^31", caller);
    CHECK_ARG(dtype_is_float(info->dtype), "%s: dtype is %s, not f32, f16 or bf16", caller,
              vka_dtype_name(info->dtype));
    CHECK_ARG(info->query.weight && info->key.weight && info->value.weight,
              "%s: query.weight, key.weight or value.weight is NULL", caller);
    CHECK_ARG(info->output.weight || !info->output.bias,
              "%s: output.bias is given without output.weight", caller);
    CHECK_ARG(info->output.weight || info->output_dim == info->n_head * info->value_dim,
              "%s: output_dim is %u without output.weight, not n_head * value_dim = %u", caller,
              info->output_dim, info->n_head * info->value_dim);
fail:
    return status;
}

/* Writes all of a weight or bias, and keeps it where asked to. */
static enum vka_status write_weights(struct vka_layer *layer, struct vka_tensor *weight,
                                     const void *data)
{
    enum vka_status status = VKA_OK;
    TRY(vka_tensor_write(weight, data, vka_tensor_size(weight)));
    TRY(storage_keep(weight->storage, layer->info.keep_weights ? data : NULL));
fail:
    return status;
}

/* Rearranges [out][in] to [in][out padded to 4]. */
static enum vka_status transpose(struct vka_layer *layer, const void *data, uint32_t out,
                                 uint32_t in, struct vka_tensor *weight)
{
    struct log *log = &layer->device->log;
    enum vka_status status = VKA_OK;
    size_t size = vka_dtype_size(weight->dtype);
    uint64_t pitch = weight->shape.size[1];
    char *transposed = calloc(in * pitch, size);
    CHECK_ALLOC(transposed);
    for (uint64_t o = 0; o < out; o++)
        for (uint64_t i = 0; i < in; i++)
            memcpy(transposed + (i * pitch + o) * size, (const char *)data + (o * in + i) * size,
                   size);
    TRY(write_weights(layer, weight, transposed));
    weight->shape = (struct shape){.rank = 2, .size = {out, in}, .stride = {1, pitch}};
fail:
    free(transposed);
    return status;
}

/* Rearranges [out][in] to float32 panels. */
static enum vka_status pack(struct vka_layer *layer, const void *data, uint32_t out, uint32_t in,
                            struct vka_tensor *weight)
{
    struct log *log = &layer->device->log;
    enum vka_status status = VKA_OK;
    uint64_t panel = layer->panel;
    float *packed = calloc(1, vka_tensor_size(weight));
    CHECK_ALLOC(packed);
    for (uint64_t o = 0; o < out; o++)
        for (uint64_t i = 0; i < in; i++)
            packed[o / panel * panel * in + i * panel + o % panel] =
                dtype_to_float(data, o * in + i, layer->info.dtype);
    TRY(write_weights(layer, weight, packed));
fail:
    free(packed);
    return status;
}

/* Uploads [out][in] as this device's kernels want it: packed in panels, transposed or as it is. */
static enum vka_status upload_weight(struct vka_layer *layer, const void *data, uint32_t out,
                                     uint32_t in, struct vka_tensor *weight)
{
    struct vka_device *device = layer->device;
    struct log *log = &device->log;
    enum vka_status status = VKA_OK;
    uint32_t panel = layer->panel;
    bool transposes = !panel && tune_transposes_weights(&device->caps);
    uint64_t rows = out, pitch = in;
    if (panel) {
        rows = (out + panel - 1ull) / panel;
        pitch = (uint64_t)in * panel;
    } else if (transposes) {
        rows = in;
        pitch = (out + 3ull) / 4 * 4;
    }
    weight->dtype = panel ? VKA_F32 : layer->info.dtype;
    CHECK_ARG(
        pitch <= UINT32_MAX &&
            shape_dense(2, (const uint32_t[]){(uint32_t)rows, (uint32_t)pitch}, &weight->shape),
        "vka_layer_create: a weight passes 2^48 elements");
    TRY(storage_create(device, MEMORY_DEVICE, vka_tensor_size(weight), &weight->storage));
    if (panel)
        TRY(pack(layer, data, out, in, weight));
    else if (transposes)
        TRY(transpose(layer, data, out, in, weight));
    else
        TRY(write_weights(layer, weight, data));
fail:
    return status;
}

static enum vka_status upload(struct vka_layer *layer, enum projection which,
                              const struct vka_linear_weights *host, uint32_t out, uint32_t in)
{
    enum vka_status status = VKA_OK;
    if (!host->weight)
        return VKA_OK;
    TRY(upload_weight(layer, host->weight, out, in, &layer->weight[which]));
    if (host->bias) {
        struct vka_tensor *bias = &layer->bias[which];
        bias->dtype = layer->info.dtype;
        shape_dense(1, &out, &bias->shape);
        TRY(storage_create(layer->device, MEMORY_DEVICE, vka_tensor_size(bias), &bias->storage));
        TRY(write_weights(layer, bias, host->bias));
    }
fail:
    return status;
}

enum vka_status vka_layer_create(struct vka_device *device, const struct vka_layer_info *given,
                                 struct vka_layer **out)
{
    if (out)
        *out = NULL;
    if (!device)
        return VKA_INVALID;
    struct log *log = &device->log;
    enum vka_status status = VKA_OK;
    struct vka_layer *layer = NULL;
    CHECK_ARG(out, "%s: layer is NULL", __func__);
    CHECK_ARG(given, "%s: info is NULL", __func__);
    CHECK_ARG(given->struct_size == sizeof *given, "%s: struct_size is %zu, not %zu", __func__,
              given->struct_size, sizeof *given);
    struct vka_layer_info info = *given;
    fill_defaults(&info);
    TRY(check_info(log, __func__, &info));
    layer = calloc(1, sizeof *layer);
    CHECK_ALLOC(layer);
    layer->device = device;
    layer->info = info;
    layer->panel = tune_weight_panel(&device->caps);
    const struct vka_linear_weights none = {0};
    layer->info.query = layer->info.key = layer->info.value = layer->info.output = none;
    uint32_t context = info.n_head * info.value_dim;
    TRY(upload(layer, QUERY, &info.query, info.n_head * info.head_dim, info.query_dim));
    TRY(upload(layer, KEY, &info.key, info.n_kv_head * info.head_dim, info.key_dim));
    TRY(upload(layer, VALUE, &info.value, info.n_kv_head * info.value_dim, info.value_input_dim));
    TRY(upload(layer, OUTPUT, &info.output, info.output_dim, context));
    *out = layer;
    return VKA_OK;

fail:
    vka_layer_destroy(&layer);
    return status;
}

void vka_layer_destroy(struct vka_layer **slot)
{
    if (!slot || !*slot)
        return;
    for (int i = 0; i < PROJECTION_COUNT; i++) {
        storage_unref(&(*slot)->weight[i].storage);
        storage_unref(&(*slot)->bias[i].storage);
    }
    free(*slot);
    *slot = NULL;
}

/* An input or the output: [batch][n][width], or [n][batch][width]; *batch and *n must be met where
 * they are not 0, and are filled in where they are. */
static enum vka_status check_io(struct vka_plan *plan, const char *name,
                                const struct vka_tensor *tensor, enum vka_layout layout,
                                unsigned flags, uint32_t width, uint32_t *batch, uint32_t *n)
{
    static const char *const caller = "vka_plan_add_layer";
    struct log *log = &plan->device->log;
    enum vka_status status = VKA_OK;
    TRY(check_tensor(plan->device, caller, name, tensor, flags));
    CHECK_ARG(tensor->shape.rank == 3, "%s: %s has rank %u, not 3", caller, name,
              tensor->shape.rank);
    const uint32_t *size = tensor->shape.size;
    uint32_t b = layout == VKA_BATCH_FIRST ? 0 : 1;
    CHECK_ARG(size[2] == width, "%s: %s has width %u, the layer takes %u", caller, name, size[2],
              width);
    CHECK_ARG(!*batch || size[b] == *batch, "%s: %s has batch %u, not %u", caller, name, size[b],
              *batch);
    CHECK_ARG(!*n || size[1 - b] == *n, "%s: %s has %u positions, not %u", caller, name,
              size[1 - b], *n);
    *batch = size[b];
    *n = size[1 - b];
fail:
    return status;
}

/* [n0][n1][n_head * dim], heads blocked or interleaved, as [batch][n_head][n][dim]. */
static struct vka_tensor heads_of(const struct vka_tensor *flat, enum vka_layout layout,
                                  uint32_t n_head, uint32_t dim, bool interleaved)
{
    uint32_t b = layout == VKA_BATCH_FIRST ? 0 : 1, lead = flat->shape.rank - 3;
    const uint32_t *size = flat->shape.size + lead;
    const uint64_t *stride = flat->shape.stride + lead;
    struct vka_tensor heads = *flat;
    heads.shape = (struct shape){
        .rank = 4,
        .size = {size[b], n_head, size[1 - b], dim},
        .stride = {stride[b], stride[2] * (interleaved ? 1 : dim), stride[1 - b],
                   stride[2] * (interleaved ? n_head : 1)},
        .offset = flat->shape.offset,
    };
    return heads;
}

/* x W^T + b into scratch, seen as heads. */
static enum vka_status project(struct vka_plan *plan, const struct vka_layer_op *op,
                               enum projection which, const char *name, const struct vka_tensor *x,
                               struct vka_tensor *heads)
{
    enum vka_status status = VKA_OK;
    const struct vka_layer *layer = op->layer;
    const struct vka_layer_info *info = &layer->info;
    uint32_t n_head = which == QUERY ? info->n_head : info->n_kv_head;
    uint32_t out = n_head * (which == VALUE ? info->value_dim : info->head_dim);
    const uint32_t size[4] = {1, x->shape.size[0], x->shape.size[1], out};
    struct vka_tensor flat;
    TRY(plan_scratch(plan, VKA_F32, size, &flat));
    TRY(plan_linear(plan, name, x, &layer->weight[which], layer->panel,
                    layer->bias[which].storage ? &layer->bias[which] : NULL, false, &flat));
    *heads = heads_of(&flat, op->layout, n_head, out / n_head, info->interleaved);
fail:
    return status;
}

/* Checks the operation and fills in the sizes of *a. */
static enum vka_status check(struct vka_plan *plan, const struct vka_layer_op *op,
                             const struct vka_tensor *key, const struct vka_tensor *value,
                             struct attention *a)
{
    static const char *const caller = "vka_plan_add_layer";
    enum vka_status status = VKA_OK;
    const struct vka_layer_info *info = &op->layer->info;
    uint32_t batch = 0, n_q = 0, n_kv = 0;
    TRY(check_io(plan, "query", op->query, op->layout, CHECK_FLOAT, info->query_dim, &batch, &n_q));
    TRY(check_io(plan, "key", key, op->layout, CHECK_FLOAT, info->key_dim, &batch, &n_kv));
    TRY(check_io(plan, "value", value, op->layout, CHECK_FLOAT, info->value_input_dim, &batch,
                 &n_kv));
    TRY(check_io(plan, "output", op->output, op->layout, CHECK_FLOAT | CHECK_WRITTEN,
                 info->output_dim, &batch, &n_q));
    a->batch = batch;
    a->n_head = info->n_head;
    a->n_kv_head = info->n_kv_head;
    a->n_q = n_q;
    a->n_kv = n_kv;
    a->head_dim = info->head_dim;
    a->value_dim = info->value_dim;
    if (op->cache)
        TRY(attention_check_cache(plan, caller, op->cache, n_kv, a));
    TRY(attention_check_options(plan, caller, a));
    const struct vka_tensor *inputs[4 + OPTION_INPUTS] = {op->query, key, value};
    attention_option_inputs(a->options, inputs + 4);
    TRY(check_no_overlap(plan->device, caller, "output", op->output, inputs, COUNTOF(inputs)));
    inputs[3] = op->output;
    if (a->options->scores)
        TRY(check_no_overlap(plan->device, caller, "scores", a->options->scores, inputs,
                             COUNTOF(inputs)));
fail:
    return status;
}

static enum vka_status add_layer(struct vka_plan *plan, const char *caller,
                                 const struct vka_layer_op *op)
{
    struct log *log = &plan->device->log;
    enum vka_status status = VKA_OK;
    CHECK_ARG(op, "%s: op is NULL", caller);
    CHECK_ARG(op->struct_size == sizeof *op, "%s: struct_size is %zu, not %zu", caller,
              op->struct_size, sizeof *op);
    CHECK_ARG(op->layer && op->layer->device == plan->device,
              "%s: layer is NULL or belongs to another device", caller);
    CHECK_ARG((unsigned)op->layout < VKA_LAYOUT_COUNT, "%s: layout %d is unknown", caller,
              (int)op->layout);
    const struct vka_layer *layer = op->layer;
    const struct vka_tensor *key = op->key ? op->key : op->query;
    const struct vka_tensor *value = op->value ? op->value : key;
    struct attention a = {.options = &op->attention};
    TRY(check(plan, op, key, value, &a));

    struct vka_tensor new_k, new_v, context = *op->output;
    TRY(project(plan, op, QUERY, "project q", op->query, &a.q));
    TRY(project(plan, op, KEY, "project k", key, &new_k));
    TRY(project(plan, op, VALUE, "project v", value, &new_v));
    bool has_output = layer->weight[OUTPUT].storage;
    if (has_output) {
        const uint32_t *size = op->output->shape.size;
        const uint32_t width[4] = {1, size[0], size[1], a.n_head * a.value_dim};
        TRY(plan_scratch(plan, VKA_F32, width, &context));
    }
    a.output = heads_of(&context, op->layout, a.n_head, a.value_dim, false);
    TRY(plan_attention(
        plan, &a,
        &(struct attention_inputs){.new_k = &new_k, .new_v = &new_v, .cache = op->cache}));
    if (has_output)
        TRY(plan_linear(plan, "project out", &context, &layer->weight[OUTPUT], layer->panel,
                        layer->bias[OUTPUT].storage ? &layer->bias[OUTPUT] : NULL, false,
                        op->output));
fail:
    return status;
}

enum vka_status vka_plan_add_layer(struct vka_plan *plan, const struct vka_layer_op *op)
{
    struct plan_mark mark;
    enum vka_status status = plan_begin(plan, __func__, &mark);
    if (status != VKA_OK)
        return status;
    return plan_end(plan, mark, add_layer(plan, __func__, op));
}
