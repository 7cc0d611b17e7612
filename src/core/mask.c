#include "core/mask.h"

const char *mask_broadcast(const struct shape *shape, const uint32_t size[4], uint64_t stride[4],
                           uint32_t *n_kv)
{
    struct shape full = shape_rank4(shape);
    for (uint32_t i = 0; i < 3; i++) {
        if (full.size[i] != 1 && full.size[i] != size[i])
            return i == 0   ? "its batch axis is neither 1 nor batch"
                   : i == 1 ? "its head axis is neither 1 nor n_head"
                            : "its query axis is neither 1 nor n_q";
        stride[i] = full.size[i] == 1 ? 0 : full.stride[i];
    }
    if (full.size[3] > size[3])
        return "its last axis is longer than n_kv";
    stride[3] = full.size[3] == 1 ? 0 : full.stride[3];
    *n_kv = full.size[3] == 1 ? size[3] : full.size[3];
    return NULL;
}
