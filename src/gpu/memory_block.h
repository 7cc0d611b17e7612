/* Memory types and blocks; a block is one VkBuffer with one allocation. */
#ifndef VKA_GPU_MEMORY_BLOCK_H
#define VKA_GPU_MEMORY_BLOCK_H

#include "gpu/state.h"

#define MEMORY_ALIGNMENT 256u /* the largest minStorageBufferOffsetAlignment of Vulkan */

/* The properties that memory must have so that the host can use tensors in place. */
#define MEMORY_MAPPED_FLAGS                                                      \
    (VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | \
     VK_MEMORY_PROPERTY_HOST_COHERENT_BIT)

/* Types whose use asks for a feature that is not enabled, or that no buffer of ours may have. */
#define MEMORY_SPECIAL_FLAGS                                                      \
    (VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT | VK_MEMORY_PROPERTY_PROTECTED_BIT | \
     VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD | VK_MEMORY_PROPERTY_DEVICE_UNCACHED_BIT_AMD)

/* Whether a type has all of `need` and is no special one. */
static inline bool memory_type_has(const VkMemoryType *type, VkMemoryPropertyFlags need)
{
    return (type->propertyFlags & (need | MEMORY_SPECIAL_FLAGS)) == need;
}

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

/* The buffer usages that every tensor needs. */
#define MEMORY_USAGE                                                         \
    (VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT | \
     VK_BUFFER_USAGE_TRANSFER_DST_BIT)

/* The usages of our own buffers: kernels for CPU drivers also read texels and addresses. */
VkBufferUsageFlags memory_usage(const struct vka_device *device);

/* The address of the buffer for shaders; 0 if it has none. */
uint64_t memory_address(struct vka_device *device, const struct memory_block *block);

/* memory_left: the bytes that may still be allocated. memory_trim frees all empty blocks. */
uint64_t memory_left(const struct vka_device *device, enum memory_kind kind);
void memory_trim(struct vka_device *device);

/* Adds a block of our own, which is one hole; `retried`: where the device has no memory for it, that
 * is no error and *block is NULL. Frees a block, and its Vulkan objects unless they are the
 * application's. */
enum vka_status memory_block_create(struct vka_device *device, enum memory_kind kind, uint64_t size,
                                    bool retried, struct memory_block **block);
void memory_block_destroy(struct vka_device *device, struct memory_block *block);

#endif
