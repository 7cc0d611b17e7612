/* Memory that the application owns: its buffers, and host memory used in place. */
#ifndef VKA_GPU_MEMORY_FOREIGN_H
#define VKA_GPU_MEMORY_FOREIGN_H

#include "gpu/state.h"

/* A range of the application's buffer, or of host memory that the device uses in place. Free it by
 * memory_free, like any other. */
enum vka_status memory_wrap(struct vka_device *device, VkBuffer buffer, VkBufferUsageFlags usage,
                            uint64_t offset, uint64_t size, struct memory_range *range);
enum vka_status memory_import(struct vka_device *device, void *host, uint64_t size,
                              struct memory_range *range);

/* Whether a device with VK_EXT_external_memory_host can use host memory for tensors. */
bool memory_can_import(const struct vk_instance *instance, VkPhysicalDevice physical);

#endif
