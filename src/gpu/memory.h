/* Device memory: ranges cut from large blocks, each block one VkBuffer over one allocation. */
#ifndef VKA_GPU_MEMORY_H
#define VKA_GPU_MEMORY_H

#include "gpu/vk.h"

enum memory_kind {
    MEMORY_DEVICE = 0, /* for tensors: device-local, and mapped if the device has such memory */
    MEMORY_STAGING,    /* host-visible, for copies */
    MEMORY_KIND_COUNT,
    MEMORY_FOREIGN = MEMORY_KIND_COUNT /* memory of the application: a block with one range */
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
    uint64_t address; /* of the buffer, for shaders; 0 if the device has no addresses */
    uint64_t size;
    void *mapped;              /* NULL: the host cannot see it */
    struct memory_hole *holes; /* free ranges by offset; no two are adjacent */
    size_t n_hole, hole_room, n_taken;
};

struct memory {
    uint32_t type[MEMORY_KIND_COUNT]; /* memory type index */
    bool mapped[MEMORY_KIND_COUNT];
    struct memory_block *blocks;
    uint64_t limit;  /* bytes of all blocks together; 0: none */
    bool has_budget; /* the driver tells its budget: VK_EXT_memory_budget */
};

/* A range of one block; block NULL: no memory. */
struct memory_range {
    struct memory_block *block;
    uint64_t offset, size;
};

/* The properties that memory must have so that the host can use tensors in place. */
#define MEMORY_MAPPED_FLAGS                                                      \
    (VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | \
     VK_MEMORY_PROPERTY_HOST_COHERENT_BIT)

/* Bytes of the largest device-local heap. A host-visible heap of less than half that size is only a
 * small window and does not count as mapped memory. */
uint64_t memory_largest_local(const VkPhysicalDeviceMemoryProperties *properties);

/* Chooses memory types. mapped: use mapped memory for MEMORY_DEVICE if there is any; limit as in
 * struct memory. */
enum vka_status memory_init(struct vka_device *device, bool mapped, uint64_t limit);

/* Frees every block, even if ranges of it are in use. */
void memory_finish(struct vka_device *device);

/* For vka_device_recover: whether all memory is our own; destroys the Vulkan objects of all blocks;
 * makes them again, with equal ranges and undefined contents. */
bool memory_is_own(const struct vka_device *device);
void memory_empty(struct vka_device *device);
enum vka_status memory_refill(struct vka_device *device);

#define MEMORY_ALIGNMENT 256u /* the largest minStorageBufferOffsetAlignment of Vulkan */

/* Bytes of the largest range that there can be. */
uint64_t memory_largest(const struct vka_device *device);

/* A range of size bytes (at least 1), aligned to that. */
enum vka_status memory_allocate(struct vka_device *device, enum memory_kind kind, uint64_t size,
                                struct memory_range *range);
void memory_free(struct vka_device *device, struct memory_range *range);

/* The buffer usages that every tensor needs. */
#define MEMORY_USAGE                                                         \
    (VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT | \
     VK_BUFFER_USAGE_TRANSFER_DST_BIT)

/* The usages of our own buffers: kernels for CPU drivers also read texels and addresses. */
VkBufferUsageFlags memory_usage(const struct vka_device *device);

/* A range of the application's buffer, or of host memory that the device uses in place. Free it by
 * memory_free, like any other. */
enum vka_status memory_wrap(struct vka_device *device, VkBuffer buffer, VkBufferUsageFlags usage,
                            uint64_t offset, uint64_t size, struct memory_range *range);
enum vka_status memory_import(struct vka_device *device, void *host, uint64_t size,
                              struct memory_range *range);

/* Whether a device with VK_EXT_external_memory_host can use host memory for tensors. */
bool memory_can_import(const struct vk_instance *instance, VkPhysicalDevice physical);

/* The address of the buffer for shaders; 0 if it has none. */
uint64_t memory_address(struct vka_device *device, const struct memory_block *block);

/* memory_left: the bytes that may still be allocated. memory_trim frees all empty blocks. */
uint64_t memory_left(const struct vka_device *device, enum memory_kind kind);
void memory_trim(struct vka_device *device);

/* Adds a block of our own, which is one hole; frees a block, and its Vulkan objects unless they are
 * the application's. */
enum vka_status memory_block_create(struct vka_device *device, enum memory_kind kind, uint64_t size,
                                    struct memory_block **block);
void memory_block_destroy(struct vka_device *device, struct memory_block *block);

/* The address of the range on the host; NULL if the host cannot see it. */
void *memory_mapped(const struct memory_range *range);

#endif
