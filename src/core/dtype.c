#include "core/dtype.h"
#include "core/status.h"
#include "params.h"

#include <assert.h>

static_assert((int)VKA_F32 == TYPE_F32 && (int)VKA_F16 == TYPE_F16 && (int)VKA_BF16 == TYPE_BF16 &&
                  (int)VKA_I32 == TYPE_I32 && (int)VKA_BOOL == TYPE_BOOL,
              "the shaders number the types as the API does");

static const struct {
    const char *name;
    size_t size;
    bool is_float;
} rows[] = {
    [VKA_F32] = {"f32", 4, true},  [VKA_F16] = {"f16", 2, true},    [VKA_BF16] = {"bf16", 2, true},
    [VKA_I32] = {"i32", 4, false}, [VKA_BOOL] = {"bool", 1, false},
};
static_assert(COUNTOF(rows) == VKA_DTYPE_COUNT, "a row for each type");

bool dtype_is_valid(enum vka_dtype dtype)
{
    return (unsigned)dtype < COUNTOF(rows);
}

bool dtype_is_float(enum vka_dtype dtype)
{
    return dtype_is_valid(dtype) && rows[dtype].is_float;
}

size_t vka_dtype_size(enum vka_dtype dtype)
{
    return dtype_is_valid(dtype) ? rows[dtype].size : 0;
}

const char *vka_dtype_name(enum vka_dtype dtype)
{
    return dtype_is_valid(dtype) ? rows[dtype].name : "unknown";
}

float dtype_to_float(const void *data, size_t index, enum vka_dtype dtype)
{
    union {
        uint32_t bits;
        float value;
    } x;
    if (dtype == VKA_F32)
        return ((const float *)data)[index];
    uint32_t h = ((const uint16_t *)data)[index];
    x.bits = h << 16;
    if (dtype == VKA_BF16)
        return x.value;
    uint32_t sign = (h & 0x8000) << 16, magnitude = h & 0x7fff;
    if (magnitude < 0x400) { /* 0 and subnormals: units of 2^-24 */
        x.value = (float)magnitude * 5.9604644775390625e-8f;
        x.bits |= sign;
    } else {
        x.bits = sign | (magnitude >= 0x7c00 ? 0x7f800000 | magnitude << 13
                                             : (magnitude << 13) + 0x38000000);
    }
    return x.value;
}
