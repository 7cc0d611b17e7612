#include "gpu/memory_foreign.h"
#include "gpu/memory_block.h"

#include <stdlib.h>

static enum vka_status create_block(struct vka_device *device, uint64_t size,
                                    struct memory_block **out)
{
    struct log *log = &device->log;
    struct memory_block *block = calloc(1, sizeof *block);
    ENSURE_ALLOC(block);
    block->kind = MEMORY_FOREIGN;
    block->size = size;
    *out = block;
    return VKA_OK;
}

static void take(struct vka_device *device, struct memory_block *block, uint64_t offset,
                 uint64_t size, struct memory_range *range)
{
    block->next = device->memory.blocks;
    device->memory.blocks = block;
    *range = (struct memory_range){block, offset, size};
}

enum vka_status memory_wrap(struct vka_device *device, VkBuffer buffer, VkBufferUsageFlags usage,
                            uint64_t offset, uint64_t size, struct memory_range *range)
{
    struct memory_block *block = NULL;
    ENSURE(create_block(device, offset + size, &block));
    block->buffer = buffer;
    block->borrowed = true;
    block->usage = usage;
    block->address = memory_address(device, block);
    take(device, block, offset, size, range);
    return VKA_OK;
}

static const VkExternalMemoryHandleTypeFlagBits host_handle =
    VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;

bool memory_can_import(const struct vk_instance *instance, VkPhysicalDevice physical)
{
    VkExternalBufferProperties can = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_BUFFER_PROPERTIES};
    instance->vkGetPhysicalDeviceExternalBufferProperties(
        physical,
        &(VkPhysicalDeviceExternalBufferInfo){
            .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_BUFFER_INFO,
            .usage = MEMORY_USAGE,
            .handleType = host_handle,
        },
        &can);
    return can.externalMemoryProperties.externalMemoryFeatures &
           VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT;
}

static enum vka_status create_buffer(struct vka_device *device, uint64_t size, VkBuffer *buffer)
{
    struct log *log = &device->log;
    ENSURE_VK(device->vk.vkCreateBuffer(
        device->handle,
        &(VkBufferCreateInfo){
            .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
            .pNext =
                &(VkExternalMemoryBufferCreateInfo){
                    .sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO,
                    .handleTypes = host_handle,
                },
            .size = size,
            .usage = MEMORY_USAGE,
            .sharingMode = VK_SHARING_MODE_EXCLUSIVE,
        },
        NULL, buffer));
    return VKA_OK;
}

/* Finds a memory type that both the host memory and the buffer allow, and that is coherent. */
static enum vka_status choose_type(struct vka_device *device, void *host, VkBuffer buffer,
                                   uint64_t size, uint32_t *type)
{
    struct log *log = &device->log;
    const VkMemoryPropertyFlags need =
        VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    VkMemoryHostPointerPropertiesEXT can = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT};
    ENSURE_VK(
        device->vk.vkGetMemoryHostPointerPropertiesEXT(device->handle, host_handle, host, &can));
    VkMemoryRequirements buffer_needs;
    device->vk.vkGetBufferMemoryRequirements(device->handle, buffer, &buffer_needs);
    VkPhysicalDeviceMemoryProperties m;
    device->instance.vkGetPhysicalDeviceMemoryProperties(device->physical, &m);
    uint32_t allowed = can.memoryTypeBits & buffer_needs.memoryTypeBits;
    for (uint32_t i = 0; i < m.memoryTypeCount && buffer_needs.size <= size; i++)
        if (allowed >> i & 1 && memory_type_has(&m.memoryTypes[i], need)) {
            *type = i;
            return VKA_OK;
        }
    return log_error(log, VKA_UNSUPPORTED,
                     "the device has no coherent memory type for this host memory");
}

enum vka_status memory_import(struct vka_device *device, void *host, uint64_t size,
                              struct memory_range *range)
{
    enum vka_status status = VKA_OK;
    struct log *log = &device->log;
    struct memory_block *block = NULL;
    uint32_t type = 0;
    TRY(create_block(device, size, &block));
    block->usage = MEMORY_USAGE;
    block->mapped = host;
    TRY(create_buffer(device, size, &block->buffer));
    TRY(choose_type(device, host, block->buffer, size, &type));
    VK(device->vk.vkAllocateMemory(
        device->handle,
        &(VkMemoryAllocateInfo){
            .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
            .pNext =
                &(VkImportMemoryHostPointerInfoEXT){
                    .sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT,
                    .handleType = host_handle,
                    .pHostPointer = host,
                },
            .allocationSize = size,
            .memoryTypeIndex = type,
        },
        NULL, &block->memory));
    VK(device->vk.vkBindBufferMemory(device->handle, block->buffer, block->memory, 0));
    take(device, block, 0, size, range);
    return VKA_OK;

fail:
    if (block)
        memory_block_destroy(device, block);
    return status;
}
