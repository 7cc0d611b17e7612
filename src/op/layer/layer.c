/* struct vka_layer: its weights on the device. */
#include "op/layer/layer.h"
#include "core/layer_info.h"
#include "op/common/check.h"
#include "op/layer/pack.h"

#include <stdlib.h>

uint32_t layer_out(const struct vka_layer_info *info, enum projection which)
{
    const uint32_t out[PROJECTION_COUNT] = {info->n_head * info->head_dim,
                                            info->n_kv_head * info->head_dim,
                                            info->n_kv_head * info->value_dim, info->output_dim};
    return out[which];
}

uint32_t layer_in(const struct vka_layer_info *info, enum projection which)
{
    const uint32_t in[PROJECTION_COUNT] = {info->query_dim, info->key_dim, info->value_input_dim,
                                           info->n_head * info->value_dim};
    return in[which];
}

/* The number of maps that are joined in sets[which]; 0: none begins there. */
static uint32_t maps_at(const struct vka_layer *layer, enum projection which)
{
    if (!layer->joined || which == OUTPUT)
        return 1;
    return which == QUERY ? 3 : 0;
}

static enum vka_status check_tensors(struct vka_device *device, enum vka_dtype dtype,
                                     const char *weight_name, const char *bias_name,
                                     const struct vka_linear_tensors *given,
                                     const uint32_t shape[2])
{
    static const char *const caller = "vka_layer_create";
    struct log *log = &device->log;
    const struct {
        const char *name;
        const struct vka_tensor *tensor;
        uint32_t rank;
    } list[] = {{weight_name, given->weight, 2}, {bias_name, given->bias, 1}};
    for (size_t i = 0; i < COUNTOF(list); i++) {
        if (!list[i].tensor)
            continue;
        ENSURE(check_tensor(device, caller, list[i].name, list[i].tensor, CHECK_FLOAT));
        ENSURE(check_shape(device, caller, list[i].name, list[i].tensor, list[i].rank, shape));
        ENSURE_ARG(list[i].tensor->dtype == dtype, "%s: %s is %s, but dtype is %s", caller,
                   list[i].name, vka_dtype_name(list[i].tensor->dtype), vka_dtype_name(dtype));
    }
    return VKA_OK;
}

static void keep(const struct vka_tensor *tensor, struct vka_tensor *kept)
{
    if (!tensor)
        return;
    *kept = *tensor;
    storage_ref(kept->storage);
}

/* Checks the tensors, keeps them alive and lays out what they will be packed to. */
static enum vka_status keep_tensors(struct vka_layer *layer, const struct vka_layer_info *info)
{
    static const char *const names[PROJECTION_COUNT][2] = {
        {"query_tensors.weight", "query_tensors.bias"},
        {"key_tensors.weight", "key_tensors.bias"},
        {"value_tensors.weight", "value_tensors.bias"},
        {"output_tensors.weight", "output_tensors.bias"}};
    const struct vka_linear_tensors *const given[PROJECTION_COUNT] = {
        &info->query_tensors, &info->key_tensors, &info->value_tensors, &info->output_tensors};
    struct linear_map maps[PROJECTION_COUNT] = {{0}};
    for (enum projection i = QUERY; i < PROJECTION_COUNT; i++) {
        const uint32_t shape[2] = {layer_out(info, i), layer_in(info, i)};
        ENSURE(
            check_tensors(layer->device, info->dtype, names[i][0], names[i][1], given[i], shape));
        keep(given[i]->weight, &layer->weights[i]);
        keep(given[i]->bias, &layer->biases[i]);
        layer->has_bias[i] = given[i]->bias != NULL;
        maps[i].out = shape[0];
    }
    for (enum projection i = QUERY; i < PROJECTION_COUNT; i++)
        if (maps_at(layer, i) && given[i]->weight)
            ENSURE(weights_lay_out(layer->device, &maps[i], maps_at(layer, i), info->dtype,
                                   &layer->sets[i]));
    return VKA_OK;
}

static enum vka_status upload(struct vka_layer *layer, const struct vka_layer_info *info)
{
    const struct vka_linear_weights *const given[PROJECTION_COUNT] = {&info->query, &info->key,
                                                                      &info->value, &info->output};
    struct linear_map maps[PROJECTION_COUNT] = {{0}};
    for (enum projection i = QUERY; i < PROJECTION_COUNT; i++) {
        maps[i] = (struct linear_map){.host = given[i], .out = layer_out(info, i)};
        layer->has_bias[i] = given[i]->bias != NULL;
    }
    for (enum projection i = QUERY; i < PROJECTION_COUNT; i++)
        if (maps_at(layer, i) && given[i]->weight)
            ENSURE(weights_upload(layer->device, info->dtype, layer_weight_dtype(info),
                                  info->keep_weights, &maps[i], maps_at(layer, i),
                                  layer_in(info, i), &layer->sets[i]));
    return VKA_OK;
}

static void forget_given(struct vka_layer_info *info)
{
    const struct vka_linear_weights none = {0};
    const struct vka_linear_tensors no_tensors = {0};
    info->query = info->key = info->value = info->output = none;
    info->query_tensors = info->key_tensors = info->value_tensors = info->output_tensors =
        no_tensors;
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
    layer_info_fill(&info);
    TRY(layer_info_check(log, __func__, &info));
    layer = calloc(1, sizeof *layer);
    CHECK_ALLOC(layer);
    layer->device = device;
    layer->info = info;
    layer->joined = info.query_dim == info.key_dim && info.query_dim == info.value_input_dim;
    layer->has_output = layer_info_has_output(&info);
    forget_given(&layer->info);
    TRY(layer_info_in_tensors(&info) ? keep_tensors(layer, &info) : upload(layer, &info));
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
        weights_free(&(*slot)->sets[i]);
        storage_unref(&(*slot)->weights[i].storage);
        storage_unref(&(*slot)->biases[i].storage);
    }
    free(*slot);
    *slot = NULL;
}

enum vka_status layer_take_sets(struct vka_plan *plan, const struct vka_layer *layer,
                                struct layer_sets *sets)
{
    struct linear_map maps[PROJECTION_COUNT] = {{0}};
    sets->layer = layer;
    for (enum projection i = QUERY; i < PROJECTION_COUNT; i++) {
        sets->sets[i] = layer->sets[i];
        maps[i].out = layer_out(&layer->info, i);
        maps[i].weight = layer->weights[i].storage ? &layer->weights[i] : NULL;
        maps[i].bias = layer->biases[i].storage ? &layer->biases[i] : NULL;
    }
    for (enum projection i = QUERY; i < PROJECTION_COUNT; i++)
        if (maps_at(layer, i) && maps[i].weight)
            ENSURE(weights_pack(plan, layer->info.dtype, &layer->sets[i], &maps[i],
                                layer_in(&layer->info, i), &sets->sets[i]));
    return VKA_OK;
}

enum vka_status layer_weight(struct vka_plan *plan, const struct layer_sets *sets,
                             enum projection which, struct vka_tensor *weight)
{
    uint32_t map;
    const struct weights *w = layer_find(sets, which, &map);
    *weight = sets->layer->weights[which];
    return weight->storage
               ? VKA_OK
               : weights_rows(plan, w, map, layer_in(&sets->layer->info, which), weight);
}
