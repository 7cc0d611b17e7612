/* The public functions that make a device, with self-tests. */
#include "selftest/self_test.h"

enum vka_status vka_device_create(const struct vka_device_info *info, struct vka_device **out)
{
    return device_create(info, self_test_kernel, out);
}

enum vka_status vka_device_adopt(const struct vka_vulkan_info *vulkan,
                                 const struct vka_device_info *info, struct vka_device **out)
{
    return device_adopt(vulkan, info, self_test_kernel, out);
}
