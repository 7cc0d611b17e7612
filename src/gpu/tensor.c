#include "gpu/tensor.h"
#include "core/block.h"
#include "core/dtype.h"
#include "gpu/command.h"
#include "gpu/memory.h"

#include <stdlib.h>
#include <string.h>

static uint32_t block_values(enum vka_dtype dtype)
{
    uint32_t values;
    vka_dtype_block(dtype, &values, NULL);
    return values;
}

static enum vka_status check_whole_blocks(struct log *log, const char *caller, enum vka_dtype dtype,
                                          uint32_t size)
{
    ENSURE_ARG(size % block_values(dtype) == 0,
               "%s: the last axis is %u, not whole blocks of %u values of %s", caller, size,
               block_values(dtype), vka_dtype_name(dtype));
    return VKA_OK;
}

enum vka_status tensor_create_empty(struct vka_device *device, const char *caller,
                                    enum vka_dtype dtype, uint32_t rank, const uint32_t *shape,
                                    struct vka_tensor **out)
{
    struct log *log = &device->log;
    enum vka_status status = VKA_OK;
    struct vka_tensor *tensor = NULL;
    CHECK_ARG(out, "%s: tensor is NULL", caller);
    CHECK_ARG(dtype_is_valid(dtype), "%s: dtype %d is unknown", caller, (int)dtype);
    CHECK_ARG(rank >= 1 && rank <= VKA_MAX_RANK, "%s: rank is %u, not 1 to 4", caller, rank);
    CHECK_ARG(shape, "%s: shape is NULL", caller);
    tensor = calloc(1, sizeof *tensor);
    CHECK_ALLOC(tensor);
    tensor->dtype = dtype;
    CHECK_ARG(shape_dense(rank, shape, &tensor->shape),
              "%s: shape has an axis of 0 or more than 2^48 elements", caller);
    TRY(check_whole_blocks(log, caller, dtype, shape[rank - 1]));
    *out = tensor;
    return VKA_OK;

fail:
    free(tensor);
    return status;
}

/* What is too large for one allocation is refused, and told which slices are not. */
static enum vka_status check_allocation(struct vka_device *device, const struct vka_tensor *tensor,
                                        const char *caller)
{
    const uint64_t largest = memory_largest(device);
    const struct shape *shape = &tensor->shape;
    const uint32_t last = block_values(tensor->dtype) > 1 ? shape->rank - 1 : shape->rank;
    uint64_t slice = vka_tensor_size(tensor); /* bytes of one index of the axes before */
    if (slice <= largest)
        return VKA_OK;
    for (uint32_t axis = 0; axis < last; axis++) {
        slice /= shape->size[axis];
        if (slice <= largest)
            return log_error(
                &device->log, VKA_UNSUPPORTED,
                "%s: %llu bytes exceed the device's largest allocation of %llu; slices of %llu "
                "of the %u of axis %u fit",
                caller, (unsigned long long)vka_tensor_size(tensor), (unsigned long long)largest,
                (unsigned long long)(largest / slice), shape->size[axis], axis);
    }
    return VKA_OK; /* a row of blocks: the allocation says so */
}

enum vka_status vka_tensor_create(struct vka_device *device, enum vka_dtype dtype, uint32_t rank,
                                  const uint32_t *shape, struct vka_tensor **out)
{
    if (out)
        *out = NULL;
    if (!device)
        return VKA_INVALID;
    enum vka_status status = VKA_OK;
    struct vka_tensor *tensor = NULL;
    TRY(tensor_create_empty(device, __func__, dtype, rank, shape, out ? &tensor : NULL));
    TRY(check_allocation(device, tensor, __func__));
    TRY(storage_create(device, MEMORY_DEVICE, vka_tensor_size(tensor), &tensor->storage));
    *out = tensor;
    return VKA_OK;

fail:
    vka_tensor_destroy(&tensor);
    return status;
}

void vka_tensor_destroy(struct vka_tensor **tensor)
{
    if (!tensor || !*tensor)
        return;
    storage_unref(&(*tensor)->storage);
    free(*tensor);
    *tensor = NULL;
}

static enum vka_status make_view(struct vka_tensor *tensor, const struct shape *shape,
                                 struct vka_tensor **view)
{
    struct log *log = &tensor->storage->device->log;
    struct vka_tensor *made = malloc(sizeof *made);
    ENSURE_ALLOC(made);
    *made = (struct vka_tensor){storage_ref(tensor->storage), tensor->dtype, *shape};
    *view = made;
    return VKA_OK;
}

/* Begins a view function: checks view and tensor, sets *view to NULL, declares log and status. */
#define BEGIN_VIEW                                   \
    if (view)                                        \
        *view = NULL;                                \
    if (!tensor)                                     \
        return VKA_INVALID;                          \
    struct log *log = &tensor->storage->device->log; \
    enum vka_status status = VKA_OK;                 \
    CHECK_ARG(view, "%s: view is NULL", __func__)

enum vka_status vka_tensor_permute(struct vka_tensor *tensor, const uint32_t *axes,
                                   struct vka_tensor **view)
{
    BEGIN_VIEW;
    CHECK_ARG(axes, "%s: axes is NULL", __func__);
    struct shape shape = tensor->shape;
    unsigned seen = 0;
    for (uint32_t i = 0; i < shape.rank; i++) {
        CHECK_ARG(axes[i] < shape.rank && !(seen >> axes[i] & 1),
                  "%s: axes[%u] is %u: axes is not a permutation of %u axes", __func__, i, axes[i],
                  shape.rank);
        seen |= 1u << axes[i];
        CHECK_ARG(!dtype_is_block(tensor->dtype) || axes[i] == i ||
                      (axes[i] != shape.rank - 1 && i != shape.rank - 1),
                  "%s: axes moves the last axis, along which %s has blocks", __func__,
                  vka_dtype_name(tensor->dtype));
        shape.size[i] = tensor->shape.size[axes[i]];
        shape.stride[i] = tensor->shape.stride[axes[i]];
    }
    TRY(make_view(tensor, &shape, view));
fail:
    return status;
}

enum vka_status vka_tensor_slice(struct vka_tensor *tensor, uint32_t axis, uint32_t first,
                                 uint32_t count, struct vka_tensor **view)
{
    BEGIN_VIEW;
    struct shape shape = tensor->shape;
    CHECK_ARG(axis < shape.rank, "%s: axis is %u, the rank is %u", __func__, axis, shape.rank);
    CHECK_ARG(count >= 1 && first < shape.size[axis] && count <= shape.size[axis] - first,
              "%s: first %u and count %u do not fit an axis of length %u", __func__, first, count,
              shape.size[axis]);
    CHECK_ARG(!dtype_is_block(tensor->dtype) || axis != shape.rank - 1 || count == shape.size[axis],
              "%s: axis %u is the last one, along which %s has blocks", __func__, axis,
              vka_dtype_name(tensor->dtype));
    shape.offset += first * shape.stride[axis];
    shape.size[axis] = count;
    TRY(make_view(tensor, &shape, view));
fail:
    return status;
}

enum vka_status vka_tensor_reshape(struct vka_tensor *tensor, uint32_t rank, const uint32_t *size,
                                   struct vka_tensor **view)
{
    BEGIN_VIEW;
    CHECK_ARG(rank >= 1 && rank <= VKA_MAX_RANK, "%s: rank is %u, not 1 to 4", __func__, rank);
    CHECK_ARG(size, "%s: shape is NULL", __func__);
    struct shape shape;
    char text[SHAPE_TEXT];
    CHECK_ARG(shape_reshape(&tensor->shape, rank, size, &shape),
              "%s: shape has another number of elements than the %s tensor, or would need a copy",
              __func__, shape_text(&tensor->shape, text));
    TRY(check_whole_blocks(log, __func__, tensor->dtype, size[rank - 1]));
    TRY(make_view(tensor, &shape, view));
fail:
    return status;
}

enum vka_status vka_tensor_strided(struct vka_tensor *tensor, uint64_t offset, uint32_t rank,
                                   const uint32_t *size, const uint64_t *strides,
                                   struct vka_tensor **view)
{
    BEGIN_VIEW;
    CHECK_ARG(rank >= 1 && rank <= VKA_MAX_RANK, "%s: rank is %u, not 1 to 4", __func__, rank);
    CHECK_ARG(size && strides, "%s: shape or strides is NULL", __func__);
    struct shape shape;
    CHECK_ARG(shape_dense(rank, size, &shape),
              "%s: shape has an axis of 0 or more than 2^48 elements", __func__);
    memcpy(shape.stride, strides, rank * sizeof *strides);
    uint32_t values, bytes;
    vka_dtype_block(tensor->dtype, &values, &bytes);
    TRY(check_whole_blocks(log, __func__, tensor->dtype, size[rank - 1]));
    CHECK_ARG(offset % values == 0, "%s: offset %llu is not whole blocks of %u values", __func__,
              (unsigned long long)offset, values);
    for (uint32_t i = 0; values > 1 && i < rank; i++)
        CHECK_ARG(i + 1 == rank ? strides[i] == 1 : strides[i] % values == 0,
                  "%s: strides[%u] is %llu, but %s has blocks of %u values along the last axis",
                  __func__, i, (unsigned long long)strides[i], vka_dtype_name(tensor->dtype),
                  values);
    uint64_t room = tensor->storage->bytes / bytes * values;
    uint64_t extent = shape_extent(&shape);
    uint64_t left = room - tensor->shape.offset;
    CHECK_ARG(offset <= left && extent <= left - offset,
              "%s: offset, shape and strides reach beyond the storage of %llu elements", __func__,
              (unsigned long long)room);
    shape.offset = tensor->shape.offset + offset;
    TRY(make_view(tensor, &shape, view));
fail:
    return status;
}

enum vka_dtype vka_tensor_dtype(const struct vka_tensor *tensor)
{
    return tensor ? tensor->dtype : VKA_DTYPE_COUNT;
}

uint32_t vka_tensor_rank(const struct vka_tensor *tensor)
{
    return tensor ? tensor->shape.rank : 0;
}

uint32_t vka_tensor_shape(const struct vka_tensor *tensor, uint32_t axis)
{
    return tensor && axis < tensor->shape.rank ? tensor->shape.size[axis] : 0;
}

uint64_t vka_tensor_count(const struct vka_tensor *tensor)
{
    return tensor ? shape_count(&tensor->shape) : 0;
}

size_t vka_tensor_size(const struct vka_tensor *tensor)
{
    return tensor ? (size_t)dtype_bytes(tensor->dtype, shape_count(&tensor->shape)) : 0;
}

struct shape tensor_blocks(const struct vka_tensor *tensor, uint32_t *bytes)
{
    uint32_t values;
    dtype_block(tensor->dtype, &values, bytes);
    return shape_blocks(&tensor->shape, values);
}

struct extent tensor_extent(const struct vka_tensor *tensor)
{
    uint32_t size;
    const struct shape shape = tensor_blocks(tensor, &size);
    const struct memory_range *range = &tensor->storage->range;
    uint64_t first = range->offset + shape.offset * size;
    return (struct extent){range->block->buffer, first, first + shape_extent(&shape) * size};
}

/* Copies between dense elements and strided ones at `base`, one row of the last axis at a time. */
static void copy_strided(const struct vka_tensor *tensor, char *base, char *dense, bool to_tensor)
{
    uint32_t size;
    const struct shape blocks = tensor_blocks(tensor, &size), shape = shape_rank4(&blocks);
    uint64_t count = shape.size[3], step = shape.stride[3], bytes = size;
    if (step == 1) { /* a row at once */
        bytes *= count;
        count = 1;
    }
    for (uint64_t i = 0; i < shape.size[0]; i++)
        for (uint64_t j = 0; j < shape.size[1]; j++)
            for (uint64_t k = 0; k < shape.size[2]; k++) {
                char *row =
                    base + (i * shape.stride[0] + j * shape.stride[1] + k * shape.stride[2]) * size;
                for (uint64_t l = 0; l < count; l++, dense += bytes)
                    memcpy(to_tensor ? row + l * step * size : dense,
                           to_tensor ? dense : row + l * step * size, bytes);
            }
}

/* The whole words around a tensor's bytes: first byte, number of bytes, and offset of the tensor in
 * them. */
struct window {
    uint64_t first, size, inside; /* bytes */
};

static struct window window_of(const struct vka_tensor *tensor)
{
    uint32_t size;
    const struct shape shape = tensor_blocks(tensor, &size);
    uint64_t first = shape.offset * size, end = first + shape_extent(&shape) * size;
    struct window w = {.first = first / 4 * 4};
    w.size = (end + 3) / 4 * 4 - w.first;
    w.inside = first - w.first;
    return w;
}

/* Checks the usages that copies need; only an application's buffer can lack them. */
static enum vka_status check_usage(const struct vka_tensor *tensor, bool to_tensor,
                                   const char *caller)
{
    struct log *log = &tensor->storage->device->log;
    VkBufferUsageFlags usage = tensor->storage->range.block->usage;
    ENSURE_ARG(usage & VK_BUFFER_USAGE_TRANSFER_SRC_BIT,
               "%s: the buffer of tensor has no TRANSFER_SRC usage", caller);
    ENSURE_ARG(!to_tensor || usage & VK_BUFFER_USAGE_TRANSFER_DST_BIT,
               "%s: the buffer of tensor has no TRANSFER_DST usage", caller);
    return VKA_OK;
}

/* Without mapped memory: reads the words around the elements, replaces the elements, and writes the
 * words back. */
static enum vka_status exchange_staged(struct vka_tensor *tensor, char *dense, bool to_tensor)
{
    struct vka_device *device = tensor->storage->device;
    struct log *log = &device->log;
    enum vka_status status = VKA_OK;
    struct window w = window_of(tensor);
    struct memory_range *range = &tensor->storage->range;
    if (shape_is_dense(&tensor->shape) && w.inside == 0 && vka_tensor_size(tensor) == w.size)
        return to_tensor ? queue_write(device, range, w.first, dense, w.size)
                         : queue_read(device, range, w.first, dense, w.size);
    char *words = malloc(w.size);
    CHECK_ALLOC(words);
    TRY(queue_read(device, range, w.first, words, w.size));
    copy_strided(tensor, words + w.inside, dense, to_tensor);
    if (to_tensor)
        TRY(queue_write(device, range, w.first, words, w.size));
fail:
    free(words);
    return status;
}

static enum vka_status check_scales(const struct vka_tensor *tensor, const void *dense,
                                    const char *caller)
{
    uint32_t values, bytes;
    size_t at;
    vka_dtype_block(tensor->dtype, &values, &bytes);
    if (!block_find_nonfinite(tensor->dtype, dense, vka_tensor_size(tensor) / bytes, &at))
        return VKA_OK;
    return log_error(&tensor->storage->device->log, VKA_INVALID,
                     "%s: the scale%s of block %zu, of elements %zu and on, is NaN or infinite",
                     caller, dtype_has_integers(tensor->dtype) ? "" : " or a value", at,
                     at * values);
}

/* Bytes from which on a read from memory without a cache, some microseconds for 64, takes longer than a
 * copy by the device. */
#define LONG_READ 1024

/* Whether a read of so many bytes is by a copy to memory of the host, though the device's is mapped. */
static bool is_slow_to_read(const struct vka_tensor *tensor, size_t size)
{
    return tensor->storage->device->memory.uncached && size >= LONG_READ &&
           tensor->storage->range.block->kind == MEMORY_DEVICE;
}

static enum vka_status exchange(struct vka_tensor *tensor, char *dense, size_t size, bool to_tensor,
                                const char *caller)
{
    if (!tensor)
        return VKA_INVALID;
    struct vka_device *device = tensor->storage->device;
    struct log *log = &device->log;
    ENSURE_ARG(dense, "%s: data is NULL", caller);
    ENSURE_ARG(size == vka_tensor_size(tensor), "%s: size is %zu, but the tensor has %zu bytes",
               caller, size, vka_tensor_size(tensor));
    for (uint32_t i = 0; to_tensor && i < tensor->shape.rank; i++)
        ENSURE_ARG(tensor->shape.size[i] == 1 || tensor->shape.stride[i] != 0,
                   "%s: tensor has stride 0 on axis %u and can only be read", caller, i);
    if (to_tensor)
        ENSURE(check_scales(tensor, dense, caller));
    ENSURE(queue_wait(device, device->queue.submitted, VKA_TIMEOUT_DEFAULT));
    char *mapped = memory_mapped(&tensor->storage->range);
    if (!mapped || (!to_tensor && is_slow_to_read(tensor, size))) {
        ENSURE(check_usage(tensor, to_tensor, caller));
        ENSURE(exchange_staged(tensor, dense, to_tensor));
        return VKA_OK;
    }
    mapped += dtype_bytes(tensor->dtype, tensor->shape.offset);
    if (!shape_is_dense(&tensor->shape))
        copy_strided(tensor, mapped, dense, to_tensor);
    else
        memcpy(to_tensor ? mapped : dense, to_tensor ? dense : mapped, size);
    return VKA_OK;
}

enum vka_status vka_tensor_write(struct vka_tensor *tensor, const void *data, size_t size)
{
    return exchange(tensor, (char *)(uintptr_t)data, size, true, __func__);
}

enum vka_status vka_tensor_read(struct vka_tensor *tensor, void *data, size_t size)
{
    return exchange(tensor, data, size, false, __func__);
}

struct vka_tensor tensor_transposed(const struct vka_tensor *tensor)
{
    struct vka_tensor view = *tensor;
    const uint32_t rank = tensor->shape.rank;
    for (uint32_t i = rank - 2; i < rank; i++) {
        view.shape.size[i] = tensor->shape.size[2 * rank - 3 - i];
        view.shape.stride[i] = tensor->shape.stride[2 * rank - 3 - i];
    }
    return view;
}

struct vka_tensor tensor_slice_along(const struct vka_tensor *tensor, uint32_t axis, uint32_t first,
                                     uint32_t count)
{
    struct vka_tensor slice = *tensor;
    slice.shape.offset += first * slice.shape.stride[axis];
    slice.shape.size[axis] = count;
    return slice;
}

struct vka_tensor tensor_rank4(const struct vka_tensor *tensor)
{
    struct vka_tensor full = *tensor;
    full.shape = shape_rank4(&tensor->shape);
    return full;
}

struct vka_tensor tensor_one_head(const struct vka_tensor *tensor)
{
    struct vka_tensor t = tensor_rank4(tensor);
    t.shape.size[0] = t.shape.size[1];
    t.shape.stride[0] = t.shape.stride[1];
    t.shape.size[1] = 1;
    t.shape.stride[1] = 0;
    return t;
}
