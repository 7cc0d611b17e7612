#include "op/common/check.h"
#include "core/dtype.h"
#include "core/overlap.h"

#include <string.h>

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
    if (flags & CHECK_WEIGHT && !dtype_is_float(tensor->dtype) &&
        !dtype_is_quantised(tensor->dtype))
        return log_error(log, VKA_INVALID, "%s: %s is %s, not a type of weights", caller, name,
                         type);
    if (flags & CHECK_F32 && tensor->dtype != VKA_F32)
        return log_error(log, VKA_INVALID, "%s: %s is %s, not f32", caller, name, type);
    if (flags & CHECK_I32 && tensor->dtype != VKA_I32)
        return log_error(log, VKA_INVALID, "%s: %s is %s, not i32", caller, name, type);
    if (flags & CHECK_WRITTEN && !shape_is_distinct(&tensor->shape))
        return log_error(log, VKA_INVALID,
                         "%s: %s is written, but some of its elements share memory", caller, name);
    return VKA_OK;
}

enum vka_status check_shape(struct vka_device *device, const char *caller, const char *name,
                            const struct vka_tensor *tensor, uint32_t rank, const uint32_t *size)
{
    struct shape want;
    char got_text[SHAPE_TEXT], want_text[SHAPE_TEXT];
    if (tensor->shape.rank == rank && !memcmp(tensor->shape.size, size, rank * sizeof *size))
        return VKA_OK;
    shape_dense(rank, size, &want);
    return log_error(&device->log, VKA_INVALID, "%s: %s is %s, not %s", caller, name,
                     shape_text(&tensor->shape, got_text), shape_text(&want, want_text));
}

enum vka_status check_given(struct vka_device *device, const char *caller, uint32_t given,
                            uint32_t allowed)
{
    struct log *log = &device->log;
    ENSURE_ARG(!(given & ~allowed), "%s: given is %#x, of which only %#x has a meaning here",
               caller, given, allowed);
    return VKA_OK;
}

enum vka_status check_vector(struct vka_device *device, const char *caller, const char *name,
                             const struct vka_tensor *tensor, uint32_t n)
{
    struct log *log = &device->log;
    if (!tensor)
        return VKA_OK;
    ENSURE(check_tensor(device, caller, name, tensor, CHECK_F32));
    ENSURE(check_shape(device, caller, name, tensor, 1, &n));
    ENSURE_ARG(n == 1 || tensor->shape.stride[0] == 1, "%s: %s is not contiguous", caller, name);
    return VKA_OK;
}

enum vka_status check_activations(struct vka_device *device, const char *caller,
                                  enum vka_dtype activations, enum vka_dtype weight)
{
    struct log *log = &device->log;
    ENSURE_ARG(activations == VKA_F32 || activations == VKA_I8,
               "%s: activations is %s, not f32 (as the input is) or i8", caller,
               vka_dtype_name(activations));
    ENSURE_ARG(activations == VKA_F32 || dtype_has_integers(weight),
               "%s: activations is i8, but weight is %s, which has no integers to multiply", caller,
               vka_dtype_name(weight));
    return VKA_OK;
}

bool tensors_overlap(const struct vka_tensor *a, const struct vka_tensor *b)
{
    const struct extent mine = tensor_extent(a), other = tensor_extent(b);
    uint32_t size, other_size;
    const struct shape shape = tensor_blocks(a, &size), other_shape = tensor_blocks(b, &other_size);
    const struct placed_shape placed = {&shape, mine.first, size};
    const struct placed_shape other_placed = {&other_shape, other.first, other_size};
    return mine.buffer == other.buffer && shape_overlaps(&placed, &other_placed);
}

enum vka_status check_no_overlap(struct vka_device *device, const char *caller, const char *name,
                                 const struct vka_tensor *written,
                                 const struct vka_tensor *const *others, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (others[i] && tensors_overlap(written, others[i]))
            return log_error(&device->log, VKA_INVALID, "%s: %s shares elements with an input",
                             caller, name);
    return VKA_OK;
}
