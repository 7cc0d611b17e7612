#include "gpu/memory_block.h"

#include <stdlib.h>

/* The first memory type with all of `need` whose heap is at least `least_heap` bytes. */
static bool find_type(const VkPhysicalDeviceMemoryProperties *m, uint32_t allowed,
                      VkMemoryPropertyFlags need, uint64_t least_heap, uint32_t *type)
{
    for (uint32_t i = 0; i < m->memoryTypeCount; i++) {
        const VkMemoryType *t = &m->memoryTypes[i];
        if (allowed >> i & 1 && memory_type_has(t, need) &&
            m->memoryHeaps[t->heapIndex].size >= least_heap) {
            *type = i;
            return true;
        }
    }
    return false;
}

VkBufferUsageFlags memory_usage(const struct vka_device *device)
{
    VkBufferUsageFlags usage = MEMORY_USAGE;
    if (device->caps.properties.type == VKA_DEVICE_CPU)
        usage |= VK_BUFFER_USAGE_UNIFORM_TEXEL_BUFFER_BIT;
    if (device->caps.device_address)
        usage |= VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
    return usage;
}

static VkBufferCreateInfo buffer_info(const struct vka_device *device, uint64_t size)
{
    return (VkBufferCreateInfo){
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .size = size,
        .usage = memory_usage(device),
        .sharingMode = VK_SHARING_MODE_EXCLUSIVE,
    };
}

/* The memory types that such buffers can use, the same for every size; bytes of which the memory of a
 * buffer has a multiple. */
static enum vka_status allowed_types(struct vka_device *device, uint32_t *allowed,
                                     uint64_t *granule)
{
    struct log *log = &device->log;
    VkBuffer probe;
    VkBufferCreateInfo info = buffer_info(device, MEMORY_ALIGNMENT);
    ENSURE_VK(device->vk.vkCreateBuffer(device->handle, &info, NULL, &probe));
    VkMemoryRequirements requirements;
    device->vk.vkGetBufferMemoryRequirements(device->handle, probe, &requirements);
    device->vk.vkDestroyBuffer(device->handle, probe, NULL);
    *allowed = requirements.memoryTypeBits;
    *granule = requirements.size;
    return VKA_OK;
}

uint64_t memory_largest_local(const VkPhysicalDeviceMemoryProperties *properties)
{
    uint64_t largest = 0;
    for (uint32_t i = 0; i < properties->memoryHeapCount; i++) {
        const VkMemoryHeap *heap = &properties->memoryHeaps[i];
        if (heap->flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT && heap->size > largest)
            largest = heap->size;
    }
    return largest;
}

enum vka_status memory_init(struct vka_device *device, bool mapped, uint64_t limit)
{
    struct memory *memory = &device->memory;
    struct log *log = &device->log;
    VkPhysicalDeviceMemoryProperties m;
    device->instance.vkGetPhysicalDeviceMemoryProperties(device->physical, &m);
    uint32_t allowed = 0;
    uint64_t granule = 0, *most = &device->caps.properties.max_allocation;
    ENSURE(allowed_types(device, &allowed, &granule));
    if (granule > 0 && *most >= granule)
        *most = *most / granule * granule;

    const VkMemoryPropertyFlags local = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
    const VkMemoryPropertyFlags host =
        VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    const VkMemoryPropertyFlags cached = host | VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
    const uint64_t largest = memory_largest_local(&m);

    uint32_t *type = memory->type;
    memory->mapped[MEMORY_STAGING] = true;
    memory->mapped[MEMORY_DEVICE] =
        mapped && (find_type(&m, allowed, local | cached, largest / 2, &type[MEMORY_DEVICE]) ||
                   find_type(&m, allowed, local | host, largest / 2, &type[MEMORY_DEVICE]));
    if (!memory->mapped[MEMORY_DEVICE] &&
        !find_type(&m, allowed, local, largest / 2, &type[MEMORY_DEVICE]) &&
        !find_type(&m, allowed, local, 0, &type[MEMORY_DEVICE]))
        return log_error(log, VKA_INTERNAL, "the device has no device-local memory for buffers");
    if (!find_type(&m, allowed, cached, 0, &type[MEMORY_STAGING]) &&
        !find_type(&m, allowed, host, 0, &type[MEMORY_STAGING]))
        return log_error(log, VKA_INTERNAL, "the device has no host-visible memory for buffers");
    device->caps.properties.mapped_memory = memory->mapped[MEMORY_DEVICE];
    memory->uncached = memory->mapped[MEMORY_DEVICE] &&
                       !memory_type_has(&m.memoryTypes[type[MEMORY_DEVICE]], cached);
    memory->limit = limit;
    memory->has_budget =
        vk_has_extension(&device->instance, device->physical, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
    return VKA_OK;
}

uint64_t memory_address(struct vka_device *device, const struct memory_block *block)
{
    if (!device->caps.device_address || !(block->usage & VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT))
        return 0;
    return device->vk.vkGetBufferDeviceAddress(
        device->handle, &(VkBufferDeviceAddressInfo){
                            .sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                            .buffer = block->buffer,
                        });
}

static void block_empty(struct vka_device *device, struct memory_block *block)
{
    const bool forked = device_is_forked(device);
    if (block->buffer && !block->borrowed && !forked)
        device->vk.vkDestroyBuffer(device->handle, block->buffer, NULL);
    if (block->memory && !forked)
        device->vk.vkFreeMemory(device->handle, block->memory, NULL); /* unmaps */
    block->buffer = VK_NULL_HANDLE;
    block->memory = VK_NULL_HANDLE;
    block->mapped = NULL;
}

void memory_block_destroy(struct vka_device *device, struct memory_block *block)
{
    block_empty(device, block);
    free(block->holes);
    free(block);
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

/* The type for device memory where the device's own heap is full: that of integrated GPUs may be a
 * little of the machine's memory, all of which they can read. The usual type where there is
 * none. */
static uint32_t type_beside(const struct vka_device *device, enum memory_kind kind,
                            uint32_t allowed)
{
    const VkMemoryPropertyFlags need =
        VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    const uint32_t usual = device->memory.type[kind];
    VkPhysicalDeviceMemoryProperties m;
    if (kind != MEMORY_DEVICE || device->caps.properties.type != VKA_DEVICE_INTEGRATED)
        return usual;
    device->instance.vkGetPhysicalDeviceMemoryProperties(device->physical, &m);
    for (uint32_t i = 0; i < m.memoryTypeCount; i++) {
        const VkMemoryType *t = &m.memoryTypes[i];
        const bool local = m.memoryHeaps[t->heapIndex].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT;
        if (allowed >> i & 1 && !local && memory_type_has(t, need))
            return i;
    }
    return usual;
}

static VkResult allocate(const struct vka_device *device, struct memory_block *block, uint32_t type,
                         uint64_t bytes)
{
    const VkMemoryAllocateFlagsInfo flags = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
        .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT,
    };
    return device->vk.vkAllocateMemory(device->handle,
                                       &(VkMemoryAllocateInfo){
                                           .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                           .pNext = device->caps.device_address ? &flags : NULL,
                                           .allocationSize = bytes,
                                           .memoryTypeIndex = type,
                                       },
                                       NULL, &block->memory);
}

/* Allocates in the heap of the block's kind, or beside it where the driver says that it is full. */
static VkResult allocate_either(const struct vka_device *device, struct memory_block *block,
                                const VkMemoryRequirements *need)
{
    const uint32_t own = device->memory.type[block->kind];
    const uint32_t other = type_beside(device, block->kind, need->memoryTypeBits);
    const bool full =
        other != own && device->memory.has_budget && driver_left(device, own) < need->size;
    VkResult result = allocate(device, block, full ? other : own, need->size);
    if (result == VK_ERROR_OUT_OF_DEVICE_MEMORY && other != own)
        result = allocate(device, block, full ? own : other, need->size);
    return result;
}

/* Makes the buffer of a block and binds it to memory of its own. retried: want of device memory is
 * not told of, and *lacking is set. */
static enum vka_status block_fill(struct vka_device *device, struct memory_block *block,
                                  bool retried, bool *lacking)
{
    struct log *log = &device->log;
    VkBufferCreateInfo info = buffer_info(device, block->size);
    ENSURE_VK(device->vk.vkCreateBuffer(device->handle, &info, NULL, &block->buffer));
    VkMemoryRequirements requirements;
    device->vk.vkGetBufferMemoryRequirements(device->handle, block->buffer, &requirements);
    VkResult result = allocate_either(device, block, &requirements);
    *lacking = retried && result == VK_ERROR_OUT_OF_DEVICE_MEMORY;
    if (*lacking)
        return VKA_OUT_OF_DEVICE_MEMORY;
    if (result != VK_SUCCESS)
        return vk_error(log, result, "vkAllocateMemory");
    ENSURE_VK(device->vk.vkBindBufferMemory(device->handle, block->buffer, block->memory, 0));
    block->address = memory_address(device, block);
    if (device->memory.mapped[block->kind])
        ENSURE_VK(device->vk.vkMapMemory(device->handle, block->memory, 0, VK_WHOLE_SIZE, 0,
                                         &block->mapped));
    return VKA_OK;
}

enum vka_status memory_block_create(struct vka_device *device, enum memory_kind kind, uint64_t size,
                                    bool retried, struct memory_block **out)
{
    enum vka_status status = VKA_OK;
    bool lacking = false;
    struct log *log = &device->log;
    struct memory_block *block = calloc(1, sizeof *block);
    CHECK_ALLOC(block);
    block->kind = kind;
    block->usage = memory_usage(device);
    block->size = size;
    block->hole_room = 8;
    block->holes = malloc(block->hole_room * sizeof *block->holes);
    CHECK_ALLOC(block->holes);
    block->holes[0] = (struct memory_hole){0, size};
    block->n_hole = 1;
    *out = NULL;
    TRY(block_fill(device, block, retried, &lacking));
    block->next = device->memory.blocks;
    device->memory.blocks = block;
    *out = block;
    return VKA_OK;

fail:
    if (block)
        memory_block_destroy(device, block);
    return lacking ? VKA_OK : status;
}

void memory_finish(struct vka_device *device)
{
    while (device->memory.blocks) {
        struct memory_block *block = device->memory.blocks;
        device->memory.blocks = block->next;
        memory_block_destroy(device, block);
    }
}

bool memory_is_own(const struct vka_device *device)
{
    for (const struct memory_block *block = device->memory.blocks; block; block = block->next)
        if (block->kind == MEMORY_FOREIGN)
            return false;
    return true;
}

void memory_empty(struct vka_device *device)
{
    for (struct memory_block *block = device->memory.blocks; block; block = block->next)
        block_empty(device, block);
}

enum vka_status memory_refill(struct vka_device *device)
{
    for (struct memory_block *block = device->memory.blocks; block; block = block->next)
        ENSURE(block_fill(device, block, false, &(bool){false}));
    return VKA_OK;
}

/* The bytes of all our own blocks; imported host memory and wrapped buffers do not count. */
static uint64_t allocated(const struct memory *memory)
{
    uint64_t bytes = 0;
    for (const struct memory_block *b = memory->blocks; b; b = b->next)
        bytes += b->kind == MEMORY_FOREIGN ? 0 : b->size;
    return bytes;
}

uint64_t memory_left(const struct vka_device *device, enum memory_kind kind)
{
    const struct memory *memory = &device->memory;
    uint64_t left = UINT64_MAX, used = allocated(memory);
    if (memory->limit)
        left = used < memory->limit ? memory->limit - used : 0;
    if (memory->has_budget) {
        uint64_t driver = driver_left(device, memory->type[kind]);
        const uint64_t beside = driver_left(device, type_beside(device, kind, UINT32_MAX));
        driver = beside > driver ? beside : driver;
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
