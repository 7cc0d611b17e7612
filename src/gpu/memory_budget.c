/* Computes how much memory may still be allocated. */
#include "gpu/device.h"

/* The bytes of all our own blocks; imported host memory and wrapped buffers do not count. */
static uint64_t allocated(const struct memory *memory)
{
    uint64_t bytes = 0;
    for (const struct memory_block *b = memory->blocks; b; b = b->next)
        bytes += b->kind == MEMORY_FOREIGN ? 0 : b->size;
    return bytes;
}

/* The bytes of a heap that the driver would give at the moment. */
static uint64_t driver_left(const struct vka_device *device, uint32_t type)
{
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 m = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
        .pNext = &budget,
    };
    device->instance.vkGetPhysicalDeviceMemoryProperties2(device->physical, &m);
    uint32_t heap = m.memoryProperties.memoryTypes[type].heapIndex;
    uint64_t limit = budget.heapBudget[heap], used = budget.heapUsage[heap];
    return used < limit ? limit - used : 0;
}

uint64_t memory_left(const struct vka_device *device, enum memory_kind kind)
{
    const struct memory *memory = &device->memory;
    uint64_t left = UINT64_MAX, used = allocated(memory);
    if (memory->limit)
        left = used < memory->limit ? memory->limit - used : 0;
    if (memory->has_budget) {
        uint64_t driver = driver_left(device, memory->type[kind]);
        left = driver < left ? driver : left;
    }
    return left;
}

void memory_trim(struct vka_device *device)
{
    struct memory_block **link = &device->memory.blocks;
    while (*link) {
        struct memory_block *block = *link;
        if (block->kind == MEMORY_FOREIGN || block->n_taken > 0) {
            link = &block->next;
            continue;
        }
        *link = block->next;
        memory_block_destroy(device, block);
    }
}
