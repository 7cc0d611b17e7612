/* Reads what a physical device is and can do, from Vulkan 1.1 and later versions. */
#ifndef VKA_GPU_DEVICE_CAPS_H
#define VKA_GPU_DEVICE_CAPS_H

#include "gpu/caps.h"
#include "gpu/vk.h"

/* Reads what a physical device can do. queue_family is UINT32_MAX if it cannot compute. */
void device_read_caps(const struct vk_instance *instance, VkPhysicalDevice physical, uint32_t index,
                      struct caps *caps, uint32_t *queue_family);

/* Reads what a queue family can do. False if there is none or it does not compute. */
bool device_read_family(const struct vk_instance *instance, VkPhysicalDevice physical,
                        uint32_t family, struct caps *caps);

#endif
