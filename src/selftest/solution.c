/* What all known problems share: tensors of known values, and the comparison of a result. */
#include "selftest/solution.h"
#include "core/convert.h"
#include "core/dtype.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Far longer than a run takes, also on a CPU driver in an emulator. */
static uint64_t run_timeout(const struct vka_device *device)
{
    return VKA_TIMEOUT_DEFAULT * (device->caps.properties.type == VKA_DEVICE_CPU ? 20 : 4);
}

float known_value(uint32_t seed, uint32_t index)
{
    uint32_t mixed = (index + seed * 40503u) * 2654435761u;
    return (float)(int)(mixed >> 28) / 8 - 1;
}

/* Converts a float that float16 holds exactly. */
static uint16_t to_f16(float x)
{
    int exponent;
    float mantissa = frexpf(fabsf(x), &exponent); /* 0.5 .. 1 */
    uint32_t sign = x < 0 ? 0x8000 : 0;
    if (x == 0)
        return 0;
    return (uint16_t)(sign | (uint32_t)(exponent + 14) << 10 | (uint32_t)(mantissa * 2048 - 1024));
}

static void put(void *data, size_t index, enum vka_dtype dtype, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (dtype == VKA_F32)
        ((float *)data)[index] = x;
    else
        ((uint16_t *)data)[index] = dtype == VKA_F16 ? to_f16(x) : (uint16_t)(bits >> 16);
}

enum vka_status known_tensor(struct solution *s, enum vka_dtype dtype, uint32_t rank,
                             const uint32_t *shape, uint32_t seed, struct vka_tensor **tensor)
{
    struct log *log = &s->device->log;
    enum vka_status status = VKA_OK;
    void *data = NULL;
    TRY(vka_tensor_create(s->device, dtype, rank, shape, &s->tensors[s->n_tensor]));
    *tensor = s->tensors[s->n_tensor++];
    size_t size = vka_tensor_size(*tensor), n = (size_t)vka_tensor_count(*tensor);
    data = malloc(size);
    CHECK_ALLOC(data);
    memset(data, 0xff, size); /* NaN */
    for (size_t i = 0; seed && i < n; i++)
        put(data, i, dtype, known_value(seed, (uint32_t)i));
    TRY(vka_tensor_write(*tensor, data, size));
fail:
    free(data);
    return status;
}

enum vka_status known_shrink(struct solution *s, struct vka_tensor *tensor, uint32_t seed,
                             uint32_t first)
{
    struct log *log = &s->device->log;
    enum vka_status status = VKA_OK;
    const uint32_t n = (uint32_t)vka_tensor_count(tensor);
    uint16_t *values = malloc(n * sizeof *values);
    CHECK_ALLOC(values);
    for (uint32_t i = 0; i < n; i++)
        values[i] = dtype_to_f16(known_value(seed, i) * (float)(i % 2 == first ? KNOWN_SMALL : 1));
    TRY(vka_tensor_write(tensor, values, n * sizeof *values));
fail:
    free(values);
    return status;
}

/* Sets *s->right to whether all elements are as wanted; NaN never is. */
static enum vka_status compare(struct solution *s, struct vka_tensor *tensor)
{
    struct log *log = &s->device->log;
    enum vka_status status = VKA_OK;
    size_t size = vka_tensor_size(tensor), n = (size_t)vka_tensor_count(tensor);
    void *got = malloc(size);
    CHECK_ALLOC(got);
    TRY(vka_tensor_read(tensor, got, size));
    *s->right = true;
    for (size_t i = 0; i < n; i++)
        *s->right &= fabs(dtype_to_float(got, i, tensor->dtype) - s->want[i]) <= s->tolerance;
fail:
    free(got);
    return status;
}

enum vka_status known_want(struct solution *s, const struct vka_tensor *tensor)
{
    struct log *log = &s->device->log;
    s->want = calloc((size_t)vka_tensor_count(tensor), sizeof *s->want);
    ENSURE_ALLOC(s->want);
    return VKA_OK;
}

enum vka_status known_run(struct solution *s, struct vka_tensor *tensor, uint32_t times)
{
    if (!s->right)
        return VKA_OK;
    ENSURE(vka_plan_finish(s->plan));
    for (uint32_t i = 0; i < times; i++)
        ENSURE(vka_plan_run(s->plan, run_timeout(s->device)));
    if (tensor)
        ENSURE(compare(s, tensor));
    return VKA_OK;
}
