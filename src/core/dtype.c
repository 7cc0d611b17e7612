#include "core/dtype.h"
#include "core/block.h"
#include "core/status.h"
#include "params/params.h"

#include <assert.h>

static_assert((int)VKA_I8 == TYPE_I8 && (int)VKA_Q8_0 == TYPE_Q8_0 && (int)VKA_Q4_0 == TYPE_Q4_0 &&
                  (int)VKA_Q4_1 == TYPE_Q4_1 && (int)VKA_Q5_0 == TYPE_Q5_0 &&
                  (int)VKA_Q4_K == TYPE_Q4_K && (int)VKA_Q6_K == TYPE_Q6_K &&
                  (int)VKA_MXFP4 == TYPE_MXFP4 && (int)VKA_I4_G128 == TYPE_I4_G128 &&
                  (int)VKA_F8_E4M3 == TYPE_F8_E4M3,
              "the shaders number the block types as the API does");
static_assert((int)VKA_F32 == TYPE_F32 && (int)VKA_F16 == TYPE_F16 && (int)VKA_BF16 == TYPE_BF16 &&
                  (int)VKA_I32 == TYPE_I32 && (int)VKA_BOOL == TYPE_BOOL,
              "the shaders number the types as the API does");

static const struct {
    const char *name;
    size_t size;
    bool is_float;
} rows[] = {
    [VKA_F32] = {"f32", 4, true},          [VKA_F16] = {"f16", 2, true},
    [VKA_BF16] = {"bf16", 2, true},        [VKA_I32] = {"i32", 4, false},
    [VKA_BOOL] = {"bool", 1, false},       [VKA_I8] = {"i8", 1, false},
    [VKA_Q8_0] = {"q8_0", 0, false},       [VKA_Q4_0] = {"q4_0", 0, false},
    [VKA_Q4_1] = {"q4_1", 0, false},       [VKA_Q5_0] = {"q5_0", 0, false},
    [VKA_Q4_K] = {"q4_K", 0, false},       [VKA_Q6_K] = {"q6_K", 0, false},
    [VKA_MXFP4] = {"mxfp4", 0, false},     [VKA_I4_G128] = {"i4_g128", 0, false},
    [VKA_F8_E4M3] = {"f8_e4m3", 1, false},
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

static const struct block_layout *layout_of(enum vka_dtype dtype)
{
    static const struct block_layout activation = {.values = ACTIVATION_VALUES,
                                                   .bytes = ACTIVATION_BYTES};
    return dtype == DTYPE_ACTIVATION ? &activation : block_layout(dtype);
}

void dtype_block(enum vka_dtype dtype, uint32_t *values, uint32_t *bytes)
{
    const struct block_layout *layout = layout_of(dtype);
    uint32_t size = (uint32_t)vka_dtype_size(dtype);
    *values = layout ? layout->values : size != 0;
    *bytes = layout ? layout->bytes : size;
}

enum vka_status vka_dtype_block(enum vka_dtype dtype, uint32_t *values, uint32_t *bytes)
{
    uint32_t v = 0, b = 0;
    if (dtype_is_valid(dtype))
        dtype_block(dtype, &v, &b);
    if (values)
        *values = v;
    if (bytes)
        *bytes = b;
    return v ? VKA_OK : VKA_INVALID;
}

bool dtype_is_block(enum vka_dtype dtype)
{
    return layout_of(dtype);
}

bool dtype_is_quantised(enum vka_dtype dtype)
{
    return dtype == VKA_I8 || dtype_is_block(dtype);
}

bool dtype_is_scaled(enum vka_dtype dtype)
{
    return dtype == VKA_Q8_0 || dtype == VKA_Q4_0 || dtype == VKA_F8_E4M3;
}

uint64_t dtype_bytes(enum vka_dtype dtype, uint64_t count)
{
    const struct block_layout *layout = layout_of(dtype);
    return layout ? count / layout->values * layout->bytes : count * vka_dtype_size(dtype);
}

const char *vka_dtype_name(enum vka_dtype dtype)
{
    return dtype_is_valid(dtype) ? rows[dtype].name : "unknown";
}
