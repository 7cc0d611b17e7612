#include "core/layer_info.h"

void layer_info_fill(struct vka_layer_info *info)
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

/* By public functions alone: vkattn_mpi has this file too. */
static bool is_float(enum vka_dtype dtype)
{
    return dtype == VKA_F32 || dtype == VKA_F16 || dtype == VKA_BF16;
}

static bool is_block(enum vka_dtype dtype)
{
    uint32_t values, bytes;
    return vka_dtype_block(dtype, &values, &bytes) == VKA_OK && values > 1;
}

enum vka_dtype layer_weight_dtype(const struct vka_layer_info *info)
{
    return info->quantise != VKA_F32 ? info->quantise : info->dtype;
}

bool layer_info_in_tensors(const struct vka_layer_info *info)
{
    const struct vka_linear_tensors *const all[] = {&info->query_tensors, &info->key_tensors,
                                                    &info->value_tensors, &info->output_tensors};
    for (size_t i = 0; i < COUNTOF(all); i++)
        if (all[i]->weight || all[i]->bias)
            return true;
    return false;
}

bool layer_info_has_output(const struct vka_layer_info *info)
{
    return info->output.weight || info->output_tensors.weight;
}

/* Weights are all on the host, or all in tensors. */
static enum vka_status check_places(struct log *log, const char *caller,
                                    const struct vka_layer_info *info)
{
    if (!layer_info_in_tensors(info)) {
        ENSURE_ARG(info->query.weight && info->key.weight && info->value.weight,
                   "%s: query.weight, key.weight or value.weight is NULL", caller);
        ENSURE_ARG(info->output.weight || !info->output.bias,
                   "%s: output.bias is given without output.weight", caller);
        return VKA_OK;
    }
    const struct vka_linear_weights *const host[] = {&info->query, &info->key, &info->value,
                                                     &info->output};
    for (size_t i = 0; i < COUNTOF(host); i++)
        ENSURE_ARG(!host[i]->weight && !host[i]->bias,
                   "%s: weights are given on the host and in tensors: a layer has all in one place",
                   caller);
    ENSURE_ARG(info->query_tensors.weight && info->key_tensors.weight && info->value_tensors.weight,
               "%s: query_tensors.weight, key_tensors.weight or value_tensors.weight is NULL",
               caller);
    ENSURE_ARG(info->output_tensors.weight || !info->output_tensors.bias,
               "%s: output_tensors.bias is given without output_tensors.weight", caller);
    ENSURE_ARG(!info->keep_weights, "%s: keep_weights is given, but the weights are in tensors",
               caller);
    ENSURE_ARG(info->quantise == VKA_F32 && !is_block(info->dtype),
               "%s: weights in tensors are f32, f16 or bf16, and not quantised", caller);
    return VKA_OK;
}

/* Rows of weights are whole blocks. */
static enum vka_status check_blocks(struct log *log, const char *caller,
                                    const struct vka_layer_info *info)
{
    uint32_t values, bytes;
    vka_dtype_block(layer_weight_dtype(info), &values, &bytes);
    const struct {
        const char *name;
        uint32_t size;
    } widths[] = {
        {"query_dim", info->query_dim},
        {"key_dim", info->key_dim},
        {"value_input_dim", info->value_input_dim},
        {"n_head * value_dim", layer_info_has_output(info) ? info->n_head * info->value_dim : 0}};
    for (size_t i = 0; i < COUNTOF(widths); i++)
        ENSURE_ARG(widths[i].size % values == 0,
                   "%s: %s is %u, not whole blocks of %u values of %s", caller, widths[i].name,
                   widths[i].size, values, vka_dtype_name(layer_weight_dtype(info)));
    return VKA_OK;
}

enum vka_status layer_info_check(struct log *log, const char *caller,
                                 const struct vka_layer_info *info)
{
    ENSURE_ARG(info->n_head >= 1 && info->head_dim >= 1 && info->query_dim >= 1,
               "%s: n_head, head_dim or query_dim is 0", caller);
    ENSURE_ARG(info->n_kv_head <= info->n_head && info->n_head % info->n_kv_head == 0,
               "%s: n_head %u is not a multiple of n_kv_head %u", caller, info->n_head,
               info->n_kv_head);
    ENSURE_ARG((uint64_t)info->n_head * info->head_dim <= INT32_MAX &&
                   (uint64_t)info->n_head * info->value_dim <= INT32_MAX,
               "%s: n_head * head_dim or n_head * value_dim exceeds 2^31 - 1", caller);
    ENSURE_ARG(is_float(info->dtype) || is_block(info->dtype),
               "%s: dtype is %s, not f32, f16, bf16 or a block type", caller,
               vka_dtype_name(info->dtype));
    ENSURE_ARG(info->quantise == VKA_F32 ||
                   vka_dtype_encode(info->quantise, NULL, 0, NULL) == VKA_OK,
               "%s: quantise is %s, which vka_dtype_encode does not make", caller,
               vka_dtype_name(info->quantise));
    ENSURE_ARG(info->quantise == VKA_F32 || is_float(info->dtype),
               "%s: quantise is given, but the weights are %s", caller,
               vka_dtype_name(info->dtype));
    ENSURE(check_blocks(log, caller, info));
    ENSURE(check_places(log, caller, info));
    ENSURE_ARG(layer_info_has_output(info) || info->output_dim == info->n_head * info->value_dim,
               "%s: output_dim is %u, but without output.weight it must be n_head * value_dim = %u",
               caller, info->output_dim, info->n_head * info->value_dim);
    return VKA_OK;
}
