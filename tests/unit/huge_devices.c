#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "core/os.h"
#include "gpu/memory_block.h"
#include "huge_devices.h"
#include "tune_devices.h"

#define MAPPED (64ull << 20) /* bytes of an allocation that is there: the library's small blocks */

static uintptr_t n_buffer;
static uint64_t buffer_size; /* of the last: memory is asked for at once */

static VkResult VKAPI_CALL create_buffer(VkDevice device, const VkBufferCreateInfo *info,
                                         const VkAllocationCallbacks *callbacks, VkBuffer *buffer)
{
    (void)device;
    (void)callbacks;
    *buffer = (VkBuffer)++n_buffer;
    buffer_size = info->size;
    return VK_SUCCESS;
}

static void VKAPI_CALL buffer_needs(VkDevice device, VkBuffer buffer, VkMemoryRequirements *needs)
{
    (void)device;
    (void)buffer;
    *needs = (VkMemoryRequirements){.size = buffer_size, .alignment = 256, .memoryTypeBits = 1};
}

static VkResult VKAPI_CALL allocate_memory(VkDevice device, const VkMemoryAllocateInfo *info,
                                           const VkAllocationCallbacks *callbacks,
                                           VkDeviceMemory *memory)
{
    (void)device;
    (void)callbacks;
    size_t size = info->allocationSize <= MAPPED ? (size_t)info->allocationSize : 1;
    *memory = (VkDeviceMemory)calloc(1, size);
    return *memory ? VK_SUCCESS : VK_ERROR_OUT_OF_HOST_MEMORY;
}

static VkResult VKAPI_CALL bind_memory(VkDevice device, VkBuffer buffer, VkDeviceMemory memory,
                                       VkDeviceSize offset)
{
    (void)device;
    (void)buffer;
    (void)memory;
    (void)offset;
    return VK_SUCCESS;
}

static VkResult VKAPI_CALL map_memory(VkDevice device, VkDeviceMemory memory, VkDeviceSize offset,
                                      VkDeviceSize size, VkMemoryMapFlags flags, void **data)
{
    (void)device;
    (void)offset;
    (void)size;
    (void)flags;
    *data = buffer_size <= MAPPED ? (void *)memory : NULL;
    return VK_SUCCESS;
}

static void VKAPI_CALL destroy_buffer(VkDevice device, VkBuffer buffer,
                                      const VkAllocationCallbacks *callbacks)
{
    (void)device;
    (void)buffer;
    (void)callbacks;
}

static void VKAPI_CALL free_memory(VkDevice device, VkDeviceMemory memory,
                                   const VkAllocationCallbacks *callbacks)
{
    (void)device;
    (void)callbacks;
    free((void *)memory);
}

static VkDeviceAddress VKAPI_CALL buffer_address(VkDevice device,
                                                 const VkBufferDeviceAddressInfo *info)
{
    (void)device;
    return (VkDeviceAddress)(uintptr_t)info->buffer << 40;
}

static void make_device(struct vka_device *device, const struct caps *caps)
{
    *device = (struct vka_device){.caps = *caps, .process = os_process()};
    device->caps.properties.max_buffer_range = UINT32_MAX;
    device->caps.properties.max_allocation = 64 * GIB;
    device->caps.max_texels = UINT32_MAX;
    device->self_test.off = true;
    device->pipelines.late = true;
    device->memory.mapped[MEMORY_DEVICE] = device->memory.mapped[MEMORY_STAGING] = true;
    device->vk = (struct VolkDeviceTable){
        .vkCreateBuffer = create_buffer,
        .vkGetBufferMemoryRequirements = buffer_needs,
        .vkAllocateMemory = allocate_memory,
        .vkBindBufferMemory = bind_memory,
        .vkMapMemory = map_memory,
        .vkDestroyBuffer = destroy_buffer,
        .vkFreeMemory = free_memory,
        .vkGetBufferDeviceAddress = buffer_address,
    };
    assert_int_equal(storage_create(device, MEMORY_STAGING, 8, &device->running), VKA_OK);
}

struct vka_device huge_devices[HUGE_DEVICES];

int huge_devices_make(void **state)
{
    (void)state;
    struct caps caps[HUGE_DEVICES] = {discrete, like(&discrete, "any grid"), mesa(22), mesa(26)};
    for (int i = 0; i < 3; i++)
        caps[1].max_groups[i] = UINT32_MAX;
    for (int i = 0; i < HUGE_DEVICES; i++)
        make_device(&huge_devices[i], &caps[i]);
    return 0;
}

int huge_devices_free(void **state)
{
    (void)state;
    for (int i = 0; i < HUGE_DEVICES; i++) {
        storage_unref(&huge_devices[i].running);
        memory_finish(&huge_devices[i]);
    }
    return 0;
}
