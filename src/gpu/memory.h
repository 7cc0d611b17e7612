/* Device memory: ranges cut from large blocks, each block one VkBuffer over one allocation. */
#ifndef VKA_GPU_MEMORY_H
#define VKA_GPU_MEMORY_H

#include "gpu/vk.h"

enum memory_kind {
    MEMORY_DEVICE = 0, /* tensors: device-local; mapped too where the device has such memory */
    MEMORY_STAGING,    /* host-visible, for copies */
    MEMORY_KIND_COUNT,
    MEMORY_FOREIGN = MEMORY_KIND_COUNT /* blocks of one range: the application's, never shared */
};

struct memory_hole {
    uint64_t offset, size; /* bytes */
};

struct memory_block {
    struct memory_block *next;
    enum memory_kind kind;
    VkBuffer buffer;
    VkDeviceMemory memory;
    bool borrowed; /* the buffer is the application's */
    VkBufferUsageFlags usage;
    uint64_t address; /* of the buffer in shaders; 0 where the device has no addresses */
    uint64_t size;
    void *mapped;              /* NULL where the host cannot see it */
    struct memory_hole *holes; /* free ranges by offset; never two that touch */
    size_t n_hole, hole_room, n_taken;
};

struct memory {
    uint32_t type[MEMORY_KIND_COUNT]; /* memory type index */
    bool mapped[MEMORY_KIND_COUNT];
    struct memory_block *blocks;
    uint64_t limit;  /* bytes of all blocks together; 0: none */
    bool has_budget; /* the driver says what it would give: VK_EXT_memory_budget */
};

/* Bytes of one block; block NULL: nothing. */
struct memory_range {
    struct memory_block *block;
    uint64_t offset, size;
};

/* What memory must be so that the host uses tensors in place. */
#define MEMORY_MAPPED_FLAGS                                                      \
    (VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | \
     VK_MEMORY_PROPERTY_HOST_COHERENT_BIT)

/* Bytes of the largest device-local heap: a small visible window into large local memory, less than
 * half of that, does not count as mapped. */
uint64_t memory_largest_local(const VkPhysicalDeviceMemoryProperties *properties);

/* Chooses memory types. mapped: whether MEMORY_DEVICE may be written in place where possible; limit
 * as in struct memory. */
enum vka_status memory_init(struct vka_device *device, bool mapped, uint64_t limit);

/* Frees every block, also those with ranges in use. */
void memory_finish(struct vka_device *device);

/* For a device that is made anew: whether all memory is ours; gives the Vulkan objects of all
 * blocks back; makes them again, the ranges as they were and their contents undefined. */
bool memory_is_own(const struct vka_device *device);
void memory_empty(struct vka_device *device);
enum vka_status memory_refill(struct vka_device *device);

/* A range of size bytes (at least 1), aligned to 256. */
enum vka_status memory_allocate(struct vka_device *device, enum memory_kind kind, uint64_t size,
                                struct memory_range *range);
void memory_free(struct vka_device *device, struct memory_range *range);

/* What a tensor's buffer is used for. */
#define MEMORY_USAGE                                                         \
    (VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT | \
     VK_BUFFER_USAGE_TRANSFER_DST_BIT)

/* What a device's own buffers are used for: kernels of CPU drivers also read texels and
 * addresses. */
VkBufferUsageFlags memory_usage(const struct vka_device *device);

/* A range over the application's buffer, or over host memory that the device uses in place; given
 * back by memory_free like any other. */
enum vka_status memory_wrap(struct vka_device *device, VkBuffer buffer, VkBufferUsageFlags usage,
                            uint64_t offset, uint64_t size, struct memory_range *range);
enum vka_status memory_import(struct vka_device *device, void *host, uint64_t size,
                              struct memory_range *range);

/* Whether the device takes host memory as tensors, given VK_EXT_external_memory_host. */
bool memory_can_import(const struct vk_instance *instance, VkPhysicalDevice physical);

/* The buffer's address in shaders; 0 where it has none. */
uint64_t memory_address(struct vka_device *device, const struct memory_block *block);

/* Bytes that may still be allocated; gives blocks back in which nothing is taken. */
uint64_t memory_left(const struct vka_device *device, enum memory_kind kind);
void memory_trim(struct vka_device *device);

/* Frees a block and what of it is ours. */
void memory_block_destroy(struct vka_device *device, struct memory_block *block);

/* The host's view of the range; NULL where the host cannot see it. */
void *memory_mapped(const struct memory_range *range);

#endif
