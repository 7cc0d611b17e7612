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
