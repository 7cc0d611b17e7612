/* struct vka_device: the Vulkan objects, and the parts other files hang on it. */
#ifndef VKA_GPU_DEVICE_H
#define VKA_GPU_DEVICE_H

#include "core/caps.h"
#include "gpu/command.h"
#include "gpu/memory.h"
#include "gpu/pipeline.h"
#include "gpu/vk.h"

struct vka_device {
    struct log log;
    struct vk_instance instance;
    VkPhysicalDevice physical;
    VkDevice handle;
    struct VolkDeviceTable vk;
    struct caps caps;
    uint32_t queue_family;
    PFN_vkCmdBeginDebugUtilsLabelEXT begin_label; /* NULL: no labels */
    PFN_vkCmdEndDebugUtilsLabelEXT end_label;
    bool lost; /* sticky */
    struct queue queue;
    struct memory memory;
    struct pipelines pipelines;
};

/* Reads what a physical device can do. queue_family is UINT32_MAX where it cannot compute. */
void device_read_caps(const struct vk_instance *instance, VkPhysicalDevice physical, uint32_t index,
                      struct caps *caps, uint32_t *queue_family);

/* Extensions and features that a logical device is made with. Points into itself: not to be copied.
 */
struct device_request {
    const char *extensions[8];
    uint32_t n_extension;
    VkPhysicalDeviceFeatures2 features; /* head of the chain */
    VkPhysicalDeviceTimelineSemaphoreFeatures timeline;
    VkPhysicalDeviceSubgroupSizeControlFeatures subgroup_size;
};

/* What the kernels that device->caps allows need. */
void device_request_fill(const struct vka_device *device, struct device_request *request);

/* Makes the logical device and loads its functions. */
enum vka_status device_create_logical(struct vka_device *device,
                                      const struct device_request *request);

/* Whether the device has an extension. */
bool device_has_extension(const struct vk_instance *instance, VkPhysicalDevice physical,
                          const char *name);

#endif
