/* Memory, which is the host's, and the buffers in it. */
#include "stub.h"

#include <stdlib.h>
#include <sys/mman.h>

#define PAGES (1u << 20) /* bytes from which on memory is pages of its own */
#define PAGE 4096u

/* Bytes of the pages of memory that has some, without the last, which nobody may touch. */
static uint64_t pages_of(const struct stub_memory *memory)
{
    return (memory->size + PAGE - 1) / PAGE * PAGE;
}

/* What lies behind the bytes, but for those that fill up 64 of them, may not be touched: of malloc
 * sanitizers say so, of pages the system. False where the machine has no memory left. */
static bool take(struct stub_memory *memory)
{
    memory->pages = memory->size >= PAGES;
    if (!memory->pages) {
        memory->bytes = calloc(1, memory->size);
        return memory->bytes;
    }
    const uint64_t size = pages_of(memory);
    char *bytes = mmap(NULL, size + PAGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (bytes == MAP_FAILED || mprotect(bytes + size, PAGE, PROT_NONE) != 0)
        return false;
    memory->bytes = bytes + (size - memory->size) / 64 * 64;
    return true;
}

static VKAPI_ATTR VkResult VKAPI_CALL stub_vkAllocateMemory(VkDevice handle,
                                                            const VkMemoryAllocateInfo *info,
                                                            const VkAllocationCallbacks *a,
                                                            VkDeviceMemory *out)
{
    (void)a;
    struct stub_device *device = (struct stub_device *)handle;
    STUB_CHECK(info->allocationSize > 0, "0 bytes");
    STUB_CHECK(info->allocationSize <= device->kind->allocation,
               "%llu bytes exceed maxMemoryAllocationSize",
               (unsigned long long)info->allocationSize);
    const uint32_t type = info->memoryTypeIndex;
    STUB_CHECK(type < stub_memory_types(device->kind), "memory type %u", type);
    STUB_CHECK(stub_role(device->kind, type) < 2 || !device->kind->coherent,
               "deviceCoherentMemory is not enabled");
    if (device->allocated[type] + info->allocationSize > stub_heap(device->kind, type))
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    STUB_CHECK(device->allocations < 4096, "more than maxMemoryAllocationCount allocations");
    struct stub_memory *memory = stub_create(device, STUB_MEMORY, sizeof *memory);
    memory->size = info->allocationSize;
    memory->type = type;
    for (const VkBaseInStructure *s = info->pNext; s; s = s->pNext)
        if (s->sType == VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO)
            memory->address = ((const VkMemoryAllocateFlagsInfo *)s)->flags &
                              VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
    if (!take(memory)) {
        free(STUB_REMOVE(device, STUB_MEMORY, memory->object.handle));
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    }
    device->allocated[type] += memory->size;
    device->allocations++;
    *out = (VkDeviceMemory)memory->object.handle;
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL stub_vkFreeMemory(VkDevice handle, VkDeviceMemory object,
                                                    const VkAllocationCallbacks *a)
{
    (void)a;
    struct stub_device *device = (struct stub_device *)handle;
    struct stub_memory *memory = STUB_REMOVE(device, STUB_MEMORY, object);
    if (!memory)
        return;
    device->allocated[memory->type] -= memory->size;
    device->allocations--;
    if (memory->pages)
        munmap(memory->bytes - (pages_of(memory) - memory->size) / 64 * 64,
               pages_of(memory) + PAGE);
    else
        free(memory->bytes);
    free(memory);
}

static VKAPI_ATTR VkResult VKAPI_CALL stub_vkMapMemory(VkDevice handle, VkDeviceMemory object,
                                                       VkDeviceSize offset, VkDeviceSize size,
                                                       VkMemoryMapFlags flags, void **bytes)
{
    (void)flags;
    struct stub_device *device = (struct stub_device *)handle;
    struct stub_memory *memory = STUB_GET(device, STUB_MEMORY, object);
    const uint32_t role = stub_role(device->kind, memory->type);
    STUB_CHECK(role == 0 ? device->kind->mapped : role == 1 || !device->kind->swapped,
               "memory that the host cannot see");
    STUB_CHECK(!memory->mapped, "memory that is mapped already");
    STUB_CHECK(offset < memory->size &&
                   (size == VK_WHOLE_SIZE || (size > 0 && size <= memory->size - offset)),
               "a range past the memory");
    memory->mapped = true;
    *bytes = memory->bytes + offset;
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL stub_vkUnmapMemory(VkDevice handle, VkDeviceMemory object)
{
    struct stub_memory *memory = STUB_GET((struct stub_device *)handle, STUB_MEMORY, object);
    STUB_CHECK(memory->mapped, "memory that is not mapped");
    memory->mapped = false;
}

/* ---- Buffers --------------------------------------------------------------------------------- */

static VKAPI_ATTR VkResult VKAPI_CALL stub_vkCreateBuffer(VkDevice handle,
                                                          const VkBufferCreateInfo *info,
                                                          const VkAllocationCallbacks *a,
                                                          VkBuffer *out)
{
    (void)a;
    struct stub_device *device = (struct stub_device *)handle;
    STUB_CHECK(info->size > 0 && info->usage, "a buffer without size or usage");
    STUB_CHECK(info->size <= stub_most_buffer(device->kind), "%llu bytes exceed maxBufferSize",
               (unsigned long long)info->size);
    STUB_CHECK(!(info->usage & VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT) || device->kind->address,
               "usage of addresses, which the device has not");
    struct stub_buffer *buffer = stub_create(device, STUB_BUFFER, sizeof *buffer);
    buffer->size = info->size;
    buffer->usage = info->usage;
    *out = (VkBuffer)buffer->object.handle;
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL stub_vkGetBufferMemoryRequirements(VkDevice handle,
                                                                     VkBuffer object,
                                                                     VkMemoryRequirements *need)
{
    struct stub_device *device = (struct stub_device *)handle;
    const struct stub_buffer *buffer = STUB_GET(device, STUB_BUFFER, object);
    const uint64_t granule = device->kind->granule ? device->kind->granule : 1;
    *need = (VkMemoryRequirements){(buffer->size + granule - 1) / granule * granule,
                                   device->kind->alignment,
                                   (1u << stub_memory_types(device->kind)) - 1};
}

static VKAPI_ATTR VkResult VKAPI_CALL stub_vkBindBufferMemory(VkDevice handle, VkBuffer object,
                                                              VkDeviceMemory bound,
                                                              VkDeviceSize offset)
{
    struct stub_device *device = (struct stub_device *)handle;
    struct stub_buffer *buffer = STUB_GET(device, STUB_BUFFER, object);
    const struct stub_memory *memory = STUB_GET(device, STUB_MEMORY, bound);
    STUB_CHECK(!buffer->memory, "a buffer that is bound already");
    STUB_CHECK(offset % device->kind->alignment == 0, "offset %llu is not aligned",
               (unsigned long long)offset);
    STUB_CHECK(offset <= memory->size && buffer->size <= memory->size - offset,
               "a buffer of %llu bytes past its memory", (unsigned long long)buffer->size);
    STUB_CHECK(!(buffer->usage & VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT) || memory->address,
               "a buffer with an address in memory without");
    buffer->memory = memory->object.handle;
    buffer->offset = offset;
    return VK_SUCCESS;
}

static VKAPI_ATTR VkDeviceAddress VKAPI_CALL
stub_vkGetBufferDeviceAddress(VkDevice handle, const VkBufferDeviceAddressInfo *info)
{
    struct stub_device *device = (struct stub_device *)handle;
    const struct stub_buffer *buffer = STUB_GET(device, STUB_BUFFER, info->buffer);
    STUB_CHECK(buffer->usage & VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT,
               "a buffer without that usage");
    return (VkDeviceAddress)(uintptr_t)stub_bytes(device, buffer->object.handle, 0, 1, __func__);
}

char *stub_bytes(struct stub_device *device, uint64_t handle, uint64_t offset, uint64_t size,
                 const char *function)
{
    const struct stub_buffer *buffer = stub_get(device, STUB_BUFFER, handle, function);
    if (!buffer->memory)
        stub_mistake(function, "a buffer without memory");
    const struct stub_memory *memory = stub_get(device, STUB_MEMORY, buffer->memory, function);
    if (size == 0 || offset > buffer->size || size > buffer->size - offset)
        stub_mistake(function, "%llu bytes at %llu of a buffer of %llu", (unsigned long long)size,
                     (unsigned long long)offset, (unsigned long long)buffer->size);
    return memory->bytes + buffer->offset + offset;
}

static VKAPI_ATTR void VKAPI_CALL stub_vkDestroyBuffer(VkDevice handle, VkBuffer object,
                                                       const VkAllocationCallbacks *a)
{
    (void)a;
    free(STUB_REMOVE((struct stub_device *)handle, STUB_BUFFER, object));
}

const struct stub_function stub_memory_functions[] = {
    STUB_FUNCTION(vkAllocateMemory),   STUB_FUNCTION(vkFreeMemory),
    STUB_FUNCTION(vkMapMemory),        STUB_FUNCTION(vkUnmapMemory),
    STUB_FUNCTION(vkCreateBuffer),     STUB_FUNCTION(vkGetBufferMemoryRequirements),
    STUB_FUNCTION(vkBindBufferMemory), STUB_FUNCTION(vkGetBufferDeviceAddress),
    STUB_FUNCTION(vkDestroyBuffer),    {0},
};
