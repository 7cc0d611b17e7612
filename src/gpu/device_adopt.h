/* Devices that use an application's VkDevice: what it should be created with, and what it lacks. */
#ifndef VKA_GPU_DEVICE_ADOPT_H
#define VKA_GPU_DEVICE_ADOPT_H

#include "gpu/state.h"

/* Does what vka_device_adopt does, with the function for self-tests. */
enum vka_status device_adopt(const struct vka_vulkan_info *vulkan,
                             const struct vka_device_info *info, test_kernel_function *test,
                             struct vka_device **out);

#endif
