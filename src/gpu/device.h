/* struct vka_device: the Vulkan objects, and the parts other files hang on it. */
#ifndef VKA_GPU_DEVICE_H
#define VKA_GPU_DEVICE_H

#include "core/caps.h"
#include "gpu/command.h"
#include "gpu/memory.h"
#include "gpu/pipeline.h"
#include "gpu/verdict.h"
#include "gpu/vk.h"

/* What holds Vulkan objects of the device beside memory and pipelines: gives them back, and makes
 * them again. Accepts being asked twice. */
struct recorded {
    struct recorded *next;
    void (*release)(struct recorded *self);
    enum vka_status (*restore)(struct recorded *self);
};

/* Kernels that solved a small known problem; see plan/self_test.h. Kept over a loss: it is the same
 * device. */
struct self_test {
    bool off;
    uint64_t done, busy; /* bit k: kernel k was tested, is being tested */
    uint64_t wrong;      /* and failed; caps.wrong_kernels, where that is not switched off */
    uint64_t lost;       /* lost the device */
    bool blamed;         /* for the loss of the device: the kernel that was tested then */
};

struct vka_device {
    struct log log;
    struct vk_instance instance;
    VkPhysicalDevice physical;
    VkDevice handle;
    struct VolkDeviceTable vk;
    struct caps caps;
    struct verdict verdict; /* caps.verdict, where there is one */
    uint32_t queue_family;
    PFN_vkCmdBeginDebugUtilsLabelEXT begin_label; /* NULL: no labels */
    PFN_vkCmdEndDebugUtilsLabelEXT end_label;
    bool adopted; /* instance and handle are the application's */
    bool lost;    /* sticky, until vka_device_recover */
    long process; /* os_process of the one that made it */
    struct storage *kept;
    struct recorded *recorded;
    struct queue queue;
    struct storage *running; /* two words: the ticket of the submit that runs, see receipt.h */
    struct memory memory;
    struct pipelines pipelines;
    struct self_test self_test;
    struct rates rates; /* kept over a loss: it is the same device */
};

/* Whether this process was forked from the one that made the device. The driver's threads are not
 * here then, its locks may be those of threads that are not, and memory that it mapped may be gone:
 * nothing of the driver is called, and nothing that is mapped is touched. */
bool device_is_forked(const struct vka_device *device);

/* Stands before all that needs the driver: INVALID in a fork, DEVICE_LOST. */
enum vka_status device_check(struct vka_device *device);

/* Reads what a physical device can do. queue_family is UINT32_MAX where it cannot compute. */
void device_read_caps(const struct vk_instance *instance, VkPhysicalDevice physical, uint32_t index,
                      struct caps *caps, uint32_t *queue_family);

/* Reads what a queue family can do. False where there is none or it does not compute. */
bool device_read_family(const struct vk_instance *instance, VkPhysicalDevice physical,
                        uint32_t family, struct caps *caps);

/* Its part about cooperative matrices; caps->properties is there already. */
void device_read_matrices(const struct vk_instance *instance, VkPhysicalDevice physical,
                          uint32_t version, struct caps *caps);

/* Extensions and features that a logical device is made with. Points into itself: not to be copied.
 */
struct device_request {
    const char *extensions[12];
    uint32_t n_extension;
    VkPhysicalDeviceFeatures2 features; /* head of the chain */
    VkPhysicalDeviceTimelineSemaphoreFeatures timeline;
    VkPhysicalDeviceSubgroupSizeControlFeatures subgroup_size;
    VkPhysicalDeviceBufferDeviceAddressFeatures address;
    VkPhysicalDeviceShaderFloat16Int8Features float16;
    VkPhysicalDeviceVulkanMemoryModelFeatures memory_model;
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix;
    VkPhysicalDeviceShaderBfloat16FeaturesKHR bfloat16;
};

/* What the kernels that device->caps allows need. */
void device_request_fill(const struct vka_device *device, struct device_request *request);

/* Makes the logical device, loads its functions and gets its queue. */
enum vka_status device_create_logical(struct vka_device *device,
                                      const struct device_request *request);

/* The Vulkan that instance and physical device share. */
uint32_t device_version(const struct vka_device *device);

/* Loads the functions of device->handle. */
void device_load(struct vka_device *device);

/* Checks what an info struct says to both ways of having a device, and takes over its limits. */
enum vka_status device_check_info(struct log *log, const char *caller,
                                  const struct vka_device_info *info);
void device_lower_limits(struct vka_device *device, const struct vka_device_info *info);

/* Loads the functions for labels, where info asked for them. */
void device_load_labels(struct vka_device *device);

/* All that follows once there are a logical device and its queue. */
enum vka_status device_start(struct vka_device *device, const struct vka_device_info *info);

/* Whether the device has an extension. */
bool device_has_extension(const struct vk_instance *instance, VkPhysicalDevice physical,
                          const char *name);

#endif
