#include "plan/check.h"
#include "core/dtype.h"

/* Strides, smallest first, must each step over all that the smaller ones reach. */
static bool has_distinct_elements(const struct shape *shape)
{
    uint64_t reach = 1;
    unsigned left = (1u << shape->rank) - 1;
    for (uint32_t round = 0; round < shape->rank; round++) {
        uint32_t best = VKA_MAX_RANK;
        for (uint32_t i = 0; i < shape->rank; i++)
            if (left >> i & 1 && (best == VKA_MAX_RANK || shape->stride[i] < shape->stride[best]))
                best = i;
        left &= ~(1u << best);
        if (shape->size[best] == 1)
            continue;
        if (shape->stride[best] < reach)
            return false;
        reach += (shape->size[best] - 1u) * shape->stride[best];
    }
    return true;
}

enum vka_status check_tensor(struct vka_device *device, const char *caller, const char *name,
                             const struct vka_tensor *tensor, unsigned flags)
{
    struct log *log = &device->log;
    if (!tensor)
        return log_error(log, VKA_INVALID, "%s: %s is NULL", caller, name);
    if (tensor->storage->device != device)
        return log_error(log, VKA_INVALID, "%s: %s belongs to another device", caller, name);
    const char *type = vka_dtype_name(tensor->dtype);
    if (flags & CHECK_FLOAT && !dtype_is_float(tensor->dtype))
        return log_error(log, VKA_INVALID, "%s: %s is %s, not f32, f16 or bf16", caller, name,
                         type);
    if (flags & CHECK_F32 && tensor->dtype != VKA_F32)
        return log_error(log, VKA_INVALID, "%s: %s is %s, not f32", caller, name, type);
    if (flags & CHECK_I32 && tensor->dtype != VKA_I32)
        return log_error(log, VKA_INVALID, "%s: %s is %s, not i32", caller, name, type);
    if (flags & CHECK_WRITTEN && !has_distinct_elements(&tensor->shape))
        return log_error(log, VKA_INVALID, "%s: elements of %s share memory, but it is written",
                         caller, name);
    return VKA_OK;
}

enum vka_status check_shape(struct vka_device *device, const char *caller, const char *name,
                            const struct vka_tensor *tensor, uint32_t rank, const uint32_t *size)
{
    struct shape want;
    char got_text[SHAPE_TEXT], want_text[SHAPE_TEXT];
    bool same = tensor->shape.rank == rank;
    for (uint32_t i = 0; same && i < rank; i++)
        same = tensor->shape.size[i] == size[i];
    if (same)
        return VKA_OK;
    shape_dense(rank, size, &want);
    return log_error(&device->log, VKA_INVALID, "%s: %s is %s, not %s", caller, name,
                     shape_text(&tensor->shape, got_text), shape_text(&want, want_text));
}

enum vka_status check_vector(struct vka_device *device, const char *caller, const char *name,
                             const struct vka_tensor *tensor, uint32_t n)
{
    struct log *log = &device->log;
    enum vka_status status = VKA_OK;
    if (!tensor)
        return VKA_OK;
    TRY(check_tensor(device, caller, name, tensor, CHECK_F32));
    TRY(check_shape(device, caller, name, tensor, 1, &n));
    CHECK_ARG(n == 1 || tensor->shape.stride[0] == 1, "%s: %s is not contiguous", caller, name);
fail:
    return status;
}

enum vka_status check_no_overlap(struct vka_device *device, const char *caller, const char *name,
                                 const struct vka_tensor *written,
                                 const struct vka_tensor *const *others, size_t n)
{
    const struct extent mine = tensor_extent(written);
    for (size_t i = 0; i < n; i++) {
        if (!others[i])
            continue;
        const struct extent other = tensor_extent(others[i]);
        if (mine.buffer == other.buffer && mine.first < other.end && other.first < mine.end)
            return log_error(&device->log, VKA_INVALID, "%s: %s overlaps an input in memory",
                             caller, name);
    }
    return VKA_OK;
}
