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
    ENSURE_ARG(info->dtype == VKA_F32 || info->dtype == VKA_F16 || info->dtype == VKA_BF16,
               "%s: dtype is %s, not f32, f16 or bf16", caller, vka_dtype_name(info->dtype));
    ENSURE_ARG(info->query.weight && info->key.weight && info->value.weight,
               "%s: query.weight, key.weight or value.weight is NULL", caller);
    ENSURE_ARG(info->output.weight || !info->output.bias,
               "%s: output.bias is given without output.weight", caller);
    ENSURE_ARG(info->output.weight || info->output_dim == info->n_head * info->value_dim,
               "%s: output_dim is %u, but without output.weight it must be n_head * value_dim = %u",
               caller, info->output_dim, info->n_head * info->value_dim);
    return VKA_OK;
}
