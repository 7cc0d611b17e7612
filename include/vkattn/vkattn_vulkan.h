/* vkattn inside an application's own Vulkan. SPDX-License-Identifier: MIT
 *
 * For programs that have a VkDevice already: vkattn computes on it, in the application's buffers,
 * command buffers and order. Programs without one need only vkattn.h. An application that uses
 * volk, or otherwise wants no prototypes, includes volk.h or defines VK_NO_PROTOTYPES before this
 * header; nothing here needs to be linked with Vulkan.
 *
 *     struct vka_vulkan_info vulkan = {.struct_size = sizeof vulkan, .instance = instance,
 *                                      .physical_device = physical, .queue_family = family,
 *                                      .api_version = VK_API_VERSION_1_3};
 *     vka_vulkan_request_create(&vulkan, NULL, &request);
 *     create_info.pNext = request->features;
 *     create_info.enabledExtensionCount = request->n_extension;
 *     create_info.ppEnabledExtensionNames = request->extensions;
 *     vkCreateDevice(physical, &create_info, NULL, &vulkan.device);
 *     vkGetDeviceQueue(vulkan.device, family, 0, &vulkan.queue);
 *     vulkan.features = request->features;
 *     vulkan.extensions = request->extensions;
 *     vulkan.n_extension = request->n_extension;
 *     vka_device_adopt(&vulkan, NULL, &device);
 *     vka_vulkan_request_destroy(&request);
 *
 * Handles of the application are never destroyed here and must live as long as what was made from
 * them. Statuses, ownership and threads are as vkattn.h says. Where a sentence below names the
 * vkattn queue, it is vka_vulkan_info.queue for an adopted device.
 */
#ifndef VKATTN_VULKAN_H
#define VKATTN_VULKAN_H

#include <vkattn/vkattn.h>
#include <vulkan/vulkan_core.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Devices --------------------------------------------------------------------------------- */

/* Called before and after every vkQueueSubmit to the queue, on the calling thread, so that the
 * application can use the queue from other threads. Must not call back into vkattn. */
typedef void vka_queue_callback(void *user);

struct vka_vulkan_info {
    size_t struct_size;
    VkInstance instance;
    VkPhysicalDevice physical_device;
    VkDevice device;
    VkQueue queue;
    uint32_t queue_family; /* of the queue; one that computes */
    /* VkApplicationInfo.apiVersion of the instance: the Vulkan that the application asked for. At
     * least 1.1. */
    uint32_t api_version;
    /* NULL: that of the system's Vulkan loader. */
    PFN_vkGetInstanceProcAddr get_instance_proc_addr;
    /* What the device was made with: VkDeviceCreateInfo.pNext from the features on (the features of
     * pEnabledFeatures, where that was used, go into a VkPhysicalDeviceFeatures2), and the device
     * extensions. Read by vka_device_adopt alone. NULL and 0: none. */
    const VkPhysicalDeviceFeatures2 *features;
    const char *const *extensions;
    uint32_t n_extension;
    /* Adopt a device that lacks some of what vka_vulkan_request_create asks for. Kernels that need
     * it are not used, as vka_device_kernel tells, and without timelineSemaphore waits are by
     * fences. */
    bool allow_missing;
    /* Both or neither. */
    vka_queue_callback *queue_lock, *queue_unlock;
    void *queue_user;
};

/* What a device should be made with so that vkattn can use all of it. */
struct vka_vulkan_request {
    /* For VkDeviceCreateInfo.pNext, with pEnabledFeatures NULL. An application that has a chain of
     * its own sets the same features there instead. */
    const VkPhysicalDeviceFeatures2 *features;
    const char *const *extensions;
    uint32_t n_extension;
};

/* Looks at physical_device; device, queue, features and extensions of vulkan are not read. info may
 * be NULL; only its log is used. NO_DEVICE without a Vulkan loader; UNSUPPORTED (Vulkan below 1.1);
 * INVALID; OUT_OF_HOST_MEMORY. Safe from several threads. */
VKA_API enum vka_status vka_vulkan_request_create(const struct vka_vulkan_info *vulkan,
                                                  const struct vka_device_info *info,
                                                  struct vka_vulkan_request **request);
VKA_API void vka_vulkan_request_destroy(struct vka_vulkan_request **request);

/* A vkattn device over the application's. info may be NULL; its device must be NULL and its
 * validation false, as both were chosen by the application. INVALID (a missing handle, a queue
 * family without compute); UNSUPPORTED with the list of what is missing, where the device was made
 * without some of what vka_vulkan_request_create asks for and allow_missing is false; UNSUPPORTED
 * (Vulkan below 1.1); memory statuses. Safe from several threads. vka_device_destroy leaves the
 * application's handles as they are. */
VKA_API enum vka_status vka_device_adopt(const struct vka_vulkan_info *vulkan,
                                         const struct vka_device_info *info,
                                         struct vka_device **device);

/* ---- Buffers --------------------------------------------------------------------------------- */

struct vka_buffer {
    VkBuffer buffer;
    VkDeviceSize offset;      /* of the first element, bytes */
    VkDeviceSize size;        /* bytes from there on */
    VkBufferUsageFlags usage; /* that the buffer was made with */
};

/* A dense tensor in the application's buffer, which must be bound to memory and outlive the tensor
 * and the plans that use it. offset is a multiple of 16 and of minStorageBufferOffsetAlignment,
 * size at least that of the elements rounded up to 16 bytes, as kernels read whole vectors;
 * nothing beyond the elements is written. Views may use all of size. The usage has
 * VK_BUFFER_USAGE_STORAGE_BUFFER_BIT; vka_tensor_read and _write need TRANSFER_SRC and TRANSFER_DST
 * (both: a write of less than whole words reads first) and say INVALID without. vkattn does not own
 * the buffer on a queue family: where it is EXCLUSIVE, the application transfers it. Two tensors
 * over the same VkBuffer are known to overlap; two buffers over the same memory are not. INVALID;
 * OUT_OF_HOST_MEMORY. */
VKA_API enum vka_status vka_tensor_wrap(struct vka_device *device, const struct vka_buffer *buffer,
                                        enum vka_dtype dtype, uint32_t rank, const uint32_t *shape,
                                        struct vka_tensor **tensor);

/* Where a tensor's elements lie: from the first to the last that its strides reach, rounded up to
 * 16 bytes. A buffer of vkattn's has at least the usages STORAGE_BUFFER, TRANSFER_SRC and
 * TRANSFER_DST and is EXCLUSIVE; other tensors lie in it too, so nothing outside this range may be
 * touched. The handle is valid as long as the tensor or a view of it. INVALID. */
VKA_API enum vka_status vka_tensor_buffer(const struct vka_tensor *tensor,
                                          struct vka_buffer *buffer);

/* A dense tensor in the host's own memory, used by the device where it lies, without a copy (by
 * VK_EXT_external_memory_host). memory and size are multiples of vka_device_host_alignment, and
 * size is at least that of the elements. The memory must outlive the tensor and the plans that use
 * it; between runs it is the host's to read and write. INVALID; UNSUPPORTED where the device has
 * not enabled the extension or takes no such memory; memory statuses. */
VKA_API enum vka_status vka_tensor_import(struct vka_device *device, void *memory, size_t size,
                                          enum vka_dtype dtype, uint32_t rank,
                                          const uint32_t *shape, struct vka_tensor **tensor);

/* Bytes; 0 where the device cannot import host memory. */
VKA_API size_t vka_device_host_alignment(const struct vka_device *device);

/* ---- Plans ----------------------------------------------------------------------------------- */

/* Records the operations of a finished plan into a command buffer of the application that is in the
 * recording state, outside a render pass, of the family of the vkattn queue, and is submitted to
 * that queue. It may be submitted as often as wanted; the plan must live until its last run is
 * complete: vkattn does not know of these submits. For the same reason the application waits for
 * them before vka_tensor_read, vka_tensor_write and the functions of caches. The plan's workspace
 * is its own, so command buffers with it run one after the other, which the barriers below see to.
 *
 * Before its first pass stands a barrier from COMPUTE_SHADER and TRANSFER, SHADER_WRITE and
 * TRANSFER_WRITE, to COMPUTE_SHADER, SHADER_READ and SHADER_WRITE: what compute shaders and copies
 * wrote before, and what the host wrote before the submit, is seen. With a cache, a fill of two
 * words of vkattn's comes before that, behind an execution barrier from the same stages to
 * TRANSFER. After its last pass stands one from COMPUTE_SHADER, SHADER_WRITE, to HOST, HOST_READ.
 * For anything else the application places its own, from or to the stage COMPUTE_SHADER, accesses
 * SHADER_READ and SHADER_WRITE.
 *
 * All passes go into this one buffer: that a submit stays within vka_plan_info.submit_budget cannot
 * be seen to here, though long passes are cut for it. An application that wants to give the device
 * back in between runs the plan by vka_plan_submit.
 *
 * Binds a compute pipeline, descriptor set 0 and push constants. Records no timestamps. That a
 * cache was full is told by vka_plan_wait for runs that vkattn submitted, and for these alone,
 * whatever recorded ones run between them; an application that records compares vka_cache_length
 * with what it appended. INVALID; DEVICE_LOST; OUT_OF_HOST_MEMORY. */
VKA_API enum vka_status vka_plan_record(struct vka_plan *plan, VkCommandBuffer commands);

struct vka_semaphore {
    VkSemaphore semaphore;
    uint64_t value; /* of a timeline semaphore; 0 for a binary one */
};

struct vka_submit_info {
    size_t struct_size;
    /* The work starts when all of these are signalled or have reached their values. */
    const struct vka_semaphore *waits;
    uint32_t n_wait;
    /* Signalled, or set to their values, when the work is done. */
    const struct vka_semaphore *signals;
    uint32_t n_signal;
};

/* Semaphores of each kind at most. */
#define VKA_MAX_SEMAPHORES 16

/* vka_plan_submit that waits for the application's semaphores and signals them. Later submits to
 * the vkattn queue, and so vka_tensor_read and _write, stand behind it. info may be NULL. INVALID;
 * UNSUPPORTED for a value where the device has not enabled timelineSemaphore; DEVICE_LOST; memory
 * statuses. */
VKA_API enum vka_status vka_plan_submit_with(struct vka_plan *plan,
                                             const struct vka_submit_info *info, uint64_t *ticket);

#ifdef __cplusplus
}
#endif
#endif
