/* Tensors in the application's buffers and memory, and the buffers of tensors. */
#include "core/dtype.h"
#include "gpu/memory_foreign.h"
#include "gpu/tensor.h"

#include <string.h>

#define VECTOR 16u /* bytes that kernels read at once */

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + VECTOR - 1) / VECTOR * VECTOR;
}

static enum vka_status check_buffer(struct vka_device *device, const char *caller,
                                    const struct vka_buffer *buffer, uint64_t bytes)
{
    struct log *log = &device->log;
    uint32_t alignment = device->caps.buffer_alignment;
    if (alignment < VECTOR)
        alignment = VECTOR;
    ENSURE_ARG(buffer->buffer, "%s: buffer is VK_NULL_HANDLE", caller);
    ENSURE_ARG(buffer->usage & VK_BUFFER_USAGE_STORAGE_BUFFER_BIT,
               "%s: usage has no VK_BUFFER_USAGE_STORAGE_BUFFER_BIT", caller);
    ENSURE_ARG(buffer->offset % alignment == 0, "%s: offset %llu is not a multiple of %u", caller,
               (unsigned long long)buffer->offset, alignment);
    ENSURE_ARG(buffer->size >= round_up(bytes),
               "%s: size is %llu bytes, but the elements need %llu, rounded up to 16", caller,
               (unsigned long long)buffer->size, (unsigned long long)round_up(bytes));
    ENSURE(device_check(device));
    /* A buffer's memory requirement is never below its size. */
    VkMemoryRequirements needs;
    device->vk.vkGetBufferMemoryRequirements(device->handle, buffer->buffer, &needs);
    ENSURE_ARG(buffer->size <= needs.size && buffer->offset <= needs.size - buffer->size,
               "%s: offset %llu and size %llu exceed the buffer of %llu bytes", caller,
               (unsigned long long)buffer->offset, (unsigned long long)buffer->size,
               (unsigned long long)needs.size);
    return VKA_OK;
}

enum vka_status vka_tensor_wrap(struct vka_device *device, const struct vka_buffer *buffer,
                                enum vka_dtype dtype, uint32_t rank, const uint32_t *shape,
                                struct vka_tensor **out)
{
    if (out)
        *out = NULL;
    if (!device)
        return VKA_INVALID;
    struct log *log = &device->log;
    enum vka_status status = VKA_OK;
    struct vka_tensor *tensor = NULL;
    CHECK_ARG(buffer, "%s: buffer is NULL", __func__);
    TRY(tensor_create_empty(device, __func__, dtype, rank, shape, out ? &tensor : NULL));
    TRY(check_buffer(device, __func__, buffer, vka_tensor_size(tensor)));
    TRY(storage_create_empty(device, &tensor->storage));
    /* In whole vectors, as kernels read whole vectors around the elements of a view. */
    tensor->storage->bytes = buffer->size / VECTOR * VECTOR;
    TRY(memory_wrap(device, buffer->buffer, buffer->usage, buffer->offset, tensor->storage->bytes,
                    &tensor->storage->range));
    *out = tensor;
    return VKA_OK;

fail:
    vka_tensor_destroy(&tensor);
    return status;
}

enum vka_status vka_tensor_buffer(const struct vka_tensor *tensor, struct vka_buffer *buffer)
{
    if (!tensor)
        return VKA_INVALID;
    struct log *log = &tensor->storage->device->log;
    ENSURE_ARG(buffer, "%s: buffer is NULL", __func__);
    const struct extent extent = tensor_extent(tensor);
    const struct memory_range *range = &tensor->storage->range;
    uint64_t room = range->offset + range->size - extent.first;
    uint64_t size = round_up(extent.end - extent.first);
    *buffer = (struct vka_buffer){
        .buffer = extent.buffer,
        .offset = extent.first,
        .size = size < room ? size : room,
        .usage = range->block->usage,
    };
    return VKA_OK;
}

size_t vka_device_host_alignment(const struct vka_device *device)
{
    return device && device->caps.host_import ? (size_t)device->caps.host_alignment : 0;
}

enum vka_status vka_tensor_import(struct vka_device *device, void *memory, size_t size,
                                  enum vka_dtype dtype, uint32_t rank, const uint32_t *shape,
                                  struct vka_tensor **out)
{
    if (out)
        *out = NULL;
    if (!device)
        return VKA_INVALID;
    struct log *log = &device->log;
    enum vka_status status = VKA_OK;
    struct vka_tensor *tensor = NULL;
    const size_t alignment = vka_device_host_alignment(device);
    const uint64_t limit = device->caps.properties.max_allocation;
    TRY(tensor_create_empty(device, __func__, dtype, rank, shape, out ? &tensor : NULL));
    if (!alignment) {
        status = log_error(
            log, VKA_UNSUPPORTED,
            "%s: the device has not enabled " VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME, __func__);
        goto fail;
    }
    CHECK_ARG(memory, "%s: memory is NULL", __func__);
    CHECK_ARG((uintptr_t)memory % alignment == 0, "%s: memory is not aligned to %zu", __func__,
              alignment);
    CHECK_ARG(size && size % alignment == 0, "%s: size is %zu, not a multiple of %zu", __func__,
              size, alignment);
    CHECK_ARG(size >= round_up(vka_tensor_size(tensor)),
              "%s: size is %zu bytes, but the elements need %zu", __func__, size,
              vka_tensor_size(tensor));
    if (size > limit) {
        status = log_error(log, VKA_UNSUPPORTED,
                           "%s: %zu bytes exceed the device's largest allocation of %llu", __func__,
                           size, (unsigned long long)limit);
        goto fail;
    }
    TRY(device_check(device));
    TRY(storage_create_empty(device, &tensor->storage));
    tensor->storage->bytes = size;
    TRY(memory_import(device, memory, size, &tensor->storage->range));
    *out = tensor;
    return VKA_OK;

fail:
    vka_tensor_destroy(&tensor);
    return status;
}
