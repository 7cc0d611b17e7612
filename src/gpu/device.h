/* struct vka_device: the Vulkan objects, and the parts that other files define. */
#ifndef VKA_GPU_DEVICE_H
#define VKA_GPU_DEVICE_H

#include "core/os.h"
#include "gpu/caps.h"
#include "gpu/command.h"
#include "gpu/memory.h"
#include "gpu/pipeline.h"
#include "gpu/refusal.h"
#include "gpu/verdict.h"
#include "gpu/vk.h"

/* An object with Vulkan objects of its own (not memory or pipelines), for vka_device_recover:
 * releases them, and makes them again; both may be called twice. Then has a CPU driver compile what
 * was made, TIMEOUT: call it again to wait on; NULL: nothing. */
struct recorded {
    struct recorded *next;
    void (*release)(struct recorded *self);
    enum vka_status (*restore)(struct recorded *self);
    enum vka_status (*compile)(struct recorded *self);
};

/* Lets a kernel solve a small problem whose result is known, and sets its state by the result. The
 * state is not changed if the device cannot run the kernel or the problem. A wrong result is not a
 * failure of the call. Row kernels of attention are tested with the given head size. Waits for the
 * device; statuses of vka_plan_run. */
typedef enum vka_status test_kernel_function(struct vka_device *device, enum kernel kernel,
                                             uint32_t head_dim);

/* Self-tests. Their results are in caps.kernels, which are kept when a device is recovered: it is
 * the same device. */
struct self_test {
    test_kernel_function *run; /* of selftest/, a folder above this one */
    bool off;
    uint64_t n_run; /* so far */
    uint64_t lost;  /* bit k: kernel k lost the device */
    bool blamed;    /* the kernel under test has been blamed for the loss */
};

struct vka_device {
    struct log log;
    struct vk_instance instance;
    VkPhysicalDevice physical;
    VkDevice handle;
    struct VolkDeviceTable vk;
    struct caps caps;
    struct verdict verdict; /* the tuning profile of caps.verdict, if there is one */
    uint32_t queue_family;
    PFN_vkCmdBeginDebugUtilsLabelEXT begin_label; /* NULL: no labels */
    PFN_vkCmdEndDebugUtilsLabelEXT end_label;
    bool adopted;  /* instance and handle are the application's */
    bool lost;     /* sticky, until vka_device_recover */
    bool compiles; /* after a recovery, still: vka_device_recover waits on */
    long process;  /* os_process of the process that made it */
    struct storage *kept;
    struct recorded *recorded;
    struct queue queue;
    struct storage
        *running; /* two words: the ticket of the submit that runs, see ticket_to_words */
    struct memory memory;
    struct pipelines pipelines;
    struct refusals refusals; /* kept when a device is recovered */
    struct self_test self_test;
    struct rates rates; /* kept when a device is recovered: it is the same device */
};

/* Whether this process was forked from the one that made the device. Then the driver's threads do
 * not exist here, its locks may be held by them, and mapped memory may be gone: the driver must not
 * be called, and mapped memory must not be touched. */
static inline bool device_is_forked(const struct vka_device *device)
{
    return os_process() != device->process;
}

/* Call it before anything that needs the driver. INVALID (forked child); DEVICE_LOST. */
static inline enum vka_status device_check(struct vka_device *device)
{
    if (device_is_forked(device))
        return log_error(&device->log, VKA_INVALID,
                         "the device was made before this process was forked: the child can only "
                         "destroy it");
    if (device->lost)
        return log_error(&device->log, VKA_DEVICE_LOST, "the device is lost");
    return VKA_OK;
}

/* Reads what a physical device can do. queue_family is UINT32_MAX if it cannot compute. */
void device_read_caps(const struct vk_instance *instance, VkPhysicalDevice physical, uint32_t index,
                      struct caps *caps, uint32_t *queue_family);

/* Reads what a queue family can do. False if there is none or it does not compute. */
bool device_read_family(const struct vk_instance *instance, VkPhysicalDevice physical,
                        uint32_t family, struct caps *caps);

/* The part of device_read_caps about cooperative matrices; caps->properties is filled in. */
void device_read_matrices(const struct vk_instance *instance, VkPhysicalDevice physical,
                          uint32_t version, struct caps *caps);

/* Processors of the device, where an extension tells them; else 0. */
uint32_t device_count_processors(const struct vk_instance *instance, VkPhysicalDevice physical);

/* The extensions and features that a logical device is made with. Do not copy it: it has pointers
 * to itself. */
struct device_request {
    const char *extensions[13];
    uint32_t n_extension;
    VkPhysicalDeviceFeatures2 features; /* head of the chain */
    VkPhysicalDeviceTimelineSemaphoreFeatures timeline;
    VkPhysicalDeviceSubgroupSizeControlFeatures subgroup_size;
    VkPhysicalDeviceBufferDeviceAddressFeatures address;
    VkPhysicalDeviceShaderIntegerDotProductFeatures dot;
    VkPhysicalDeviceShaderFloat16Int8Features float16;
    VkPhysicalDevice8BitStorageFeatures storage8;
    VkPhysicalDeviceVulkanMemoryModelFeatures memory_model;
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix;
    VkPhysicalDeviceShaderBfloat16FeaturesKHR bfloat16;
    VkPhysicalDeviceMaintenance4Features maintenance4;
    VkPhysicalDeviceCooperativeMatrix2FeaturesNV matrix2;
};

/* Requests what the kernels that caps allows need. */
void device_request_fill(const struct vka_device *device, struct device_request *request);

/* Makes the logical device, loads its functions and gets its queue. */
enum vka_status device_create_logical(struct vka_device *device,
                                      const struct device_request *request);

/* The Vulkan version that both the instance and the physical device support. */
uint32_t device_version(const struct vka_device *device);

/* Loads the functions of device->handle. */
void device_load(struct vka_device *device);

/* UNSUPPORTED, with the name of a device that binds fewer storage buffers than LEAST_BINDINGS. */
enum vka_status device_few_bindings(struct log *log, const struct caps *caps);

/* Checks an info struct, for created and adopted devices alike, and applies its limits. */
enum vka_status device_check_info(struct log *log, const char *caller,
                                  const struct vka_device_info *info);
void device_lower_limits(struct vka_device *device, const struct vka_device_info *info);

/* Loads the functions for labels, if info asks for them. */
void device_load_labels(struct vka_device *device);

/* As vka_device_create and vka_device_adopt, with the function for self-tests. */
enum vka_status device_create(const struct vka_device_info *info, test_kernel_function *test,
                              struct vka_device **out);
enum vka_status device_adopt(const struct vka_vulkan_info *vulkan,
                             const struct vka_device_info *info, test_kernel_function *test,
                             struct vka_device **out);

/* Completes a device that has a logical device and its queue. */
enum vka_status device_start(struct vka_device *device, const struct vka_device_info *info);

#endif
