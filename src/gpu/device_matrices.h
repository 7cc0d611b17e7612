/* Reads which cooperative matrices a physical device has, and chooses those that kernels use. */
#ifndef VKA_GPU_DEVICE_MATRICES_H
#define VKA_GPU_DEVICE_MATRICES_H

#include "gpu/caps.h"
#include "gpu/vk.h"

/* What device_read_caps asks about cooperative matrices; caps->properties is filled in. */
void device_read_matrices(const struct vk_instance *instance, VkPhysicalDevice physical,
                          uint32_t version, struct caps *caps);

#endif
