#include "core/inner.h"

#include <stdio.h>
#include <string.h>

/* By public functions alone: vkattn_mpi has this file too. */
bool inner_has_matrices(const struct vka_device_properties *device, enum vka_dtype dtype)
{
    const char *name = vka_dtype_name(dtype);
    char types[sizeof device->cooperative_matrix[0].types];
    if (device->type == VKA_DEVICE_CPU || (dtype != VKA_F16 && dtype != VKA_BF16))
        return false;
    snprintf(types, sizeof types, "%s*%s+f32", name, name);
    for (uint32_t i = 0; i < device->cooperative_matrix_count; i++)
        if (strcmp(device->cooperative_matrix[i].types, types) == 0)
            return true;
    return false;
}

enum vka_dtype inner_dtype(const struct vka_device_properties *device,
                           const enum vka_dtype operands[], size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (operands[i] != operands[0])
            return VKA_F32;
    return inner_has_matrices(device, operands[0]) ? operands[0] : VKA_F32;
}

enum vka_dtype inner_dtype_of_layer(const struct vka_device_properties *device,
                                    enum vka_dtype weights, const enum vka_dtype rows[4])
{
    const bool block = vka_dtype_size(weights) == 0;
    const enum vka_dtype operands[] = {rows[0], rows[1], rows[2], rows[3],
                                       block ? rows[0] : weights};
    return inner_dtype(device, operands, sizeof operands / sizeof *operands);
}
