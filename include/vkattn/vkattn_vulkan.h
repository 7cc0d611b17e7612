/* vkattn on an application's own Vulkan device. SPDX-License-Identifier: MIT
 *
 * For programs that already have a VkDevice: vkattn computes on it, with the application's buffers
 * and command buffers, in the application's order. Programs without one need only vkattn.h. An
 * application that uses volk, or wants no Vulkan prototypes, includes volk.h or defines
 * VK_NO_PROTOTYPES before this header. Nothing here needs to be linked with Vulkan.
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
 *     vka_vulkan_request_destroy(&request); // examples/adopt.c is the whole program
 *
 * vkattn never destroys a handle of the application; the handles must outlive what was made from
 * them. Statuses, ownership and threads are as in vkattn.h. "The vkattn queue" is
 * vka_vulkan_info.queue for an adopted device.
 */
#ifndef VKATTN_VULKAN_H
#define VKATTN_VULKAN_H

#include <vkattn/vkattn.h>
#include <vulkan/vulkan_core.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Devices --------------------------------------------------------------------------------- */

/* Called before and after every vkQueueSubmit to the queue, on the thread that called vkattn: it
 * locks and unlocks the queue, so that the application can use it in other threads. Must not call
 * back into vkattn. */
typedef void vka_queue_callback(void *user);

struct vka_vulkan_info {
    size_t struct_size;
    VkInstance instance;
    VkPhysicalDevice physical_device;
    VkDevice device;
    VkQueue queue;
    uint32_t queue_family; /* of the queue; it must support compute */
    /* VkApplicationInfo.apiVersion of the instance, at least 1.1. */
    uint32_t api_version;
    /* NULL: the function of the system's Vulkan loader. */
    PFN_vkGetInstanceProcAddr get_instance_proc_addr;
    /* What the device was created with: what of VkDeviceCreateInfo.pNext begins with the
     * VkPhysicalDeviceFeatures2 (make one from pEnabledFeatures if that was used), and the device
     * extensions. Only read by vka_device_adopt. NULL and 0: none. */
    const VkPhysicalDeviceFeatures2 *features;
    const char *const *extensions;
    uint32_t n_extension;
    /* Adopt a device even if it lacks something that vka_vulkan_request_create asks for. Kernels
     * that need it are not used, as vka_device_kernel says; without timelineSemaphore vkattn waits
     * on fences. */
    bool allow_missing;
    /* Give both or neither. NULL: no other thread uses the queue. */
    vka_queue_callback *queue_lock, *queue_unlock;
    void *queue_user;
};

/* What a device should be created with, so that vkattn can use all that it can do. */
struct vka_vulkan_request {
    /* For VkDeviceCreateInfo.pNext, with pEnabledFeatures NULL. An application with a chain of its
     * own sets the same features in that chain instead. */
    const VkPhysicalDeviceFeatures2 *features;
    const char *const *extensions;
    uint32_t n_extension;
};

/* Makes a request for vulkan->physical_device. The device, queue, features and extensions of vulkan
 * are not read. info may be NULL; only its log is used. NO_DEVICE (no Vulkan loader); UNSUPPORTED
 * (Vulkan below 1.1, fewer than 8 storage buffers a stage); INVALID; OUT_OF_HOST_MEMORY. Safe from
 * several threads. */
VKA_API enum vka_status vka_vulkan_request_create(const struct vka_vulkan_info *vulkan,
                                                  const struct vka_device_info *info,
                                                  struct vka_vulkan_request **request);
VKA_API void vka_vulkan_request_destroy(struct vka_vulkan_request **request);

/* Makes a vkattn device that uses the application's. info may be NULL; its device must be NULL and
 * its validation false, as the application has decided both. vka_device_destroy leaves the
 * application's handles alone. INVALID (a handle is missing, the queue family has no compute);
 * UNSUPPORTED (Vulkan below 1.1, fewer than 8 storage buffers a stage; without allow_missing, also a
 * device that lacks something that vka_vulkan_request_create asks for: the sentence lists it); memory
 * statuses. Safe from several threads. */
VKA_API enum vka_status vka_device_adopt(const struct vka_vulkan_info *vulkan,
                                         const struct vka_device_info *info,
                                         struct vka_device **device);

/* ---- Buffers --------------------------------------------------------------------------------- */

struct vka_buffer {
    VkBuffer buffer;
    VkDeviceSize offset;      /* of the first element, in bytes */
    VkDeviceSize size;        /* bytes from offset on */
    VkBufferUsageFlags usage; /* that the buffer was created with */
};

/* Makes a dense tensor in the application's buffer. The buffer must be bound to memory and outlive
 * the tensor and the plans that use it.
 * - offset is a multiple of 16 and of minStorageBufferOffsetAlignment.
 * - size is at least the bytes of the elements, rounded up to 16, as kernels read whole vectors;
 *   only elements are written. Views may use all of size.
 * - usage has VK_BUFFER_USAGE_STORAGE_BUFFER_BIT. vka_tensor_read and vka_tensor_write need
 *   TRANSFER_SRC and TRANSFER_DST and return INVALID without them (a write needs both, as it reads
 *   words of which it changes some bytes).
 * - If the buffer is EXCLUSIVE, the application transfers its ownership between queue families.
 * - vkattn orders accesses of tensors in the same VkBuffer that overlap, but does not know that two
 *   buffers share memory.
 * INVALID; OUT_OF_HOST_MEMORY. */
VKA_API enum vka_status vka_tensor_wrap(struct vka_device *device, const struct vka_buffer *buffer,
                                        enum vka_dtype dtype, uint32_t rank, const uint32_t *shape,
                                        struct vka_tensor **tensor);

/* Sets *buffer to the range of a tensor: from its first element to the last that its strides reach,
 * rounded up to 16 bytes. vkattn's own buffers are EXCLUSIVE and have at least the usages
 * STORAGE_BUFFER, TRANSFER_SRC and TRANSFER_DST; they hold other tensors too, so the application
 * must not touch anything outside the range. The handle is valid as long as the tensor or a view of
 * it. INVALID. */
VKA_API enum vka_status vka_tensor_buffer(const struct vka_tensor *tensor,
                                          struct vka_buffer *buffer);

/* Makes a dense tensor in memory of the host, which the device uses in place, without a copy (by
 * VK_EXT_external_memory_host). memory and size are multiples of vka_device_host_alignment; size is
 * at least the bytes of the elements. The memory must outlive the tensor and the plans that use it.
 * Between runs the host may read and write it. INVALID; UNSUPPORTED (the extension is not enabled,
 * or the driver refuses this memory); memory statuses. */
VKA_API enum vka_status vka_tensor_import(struct vka_device *device, void *memory, size_t size,
                                          enum vka_dtype dtype, uint32_t rank,
                                          const uint32_t *shape, struct vka_tensor **tensor);

/* The alignment that vka_tensor_import needs, in bytes; 0 if the device cannot import host
 * memory. */
VKA_API size_t vka_device_host_alignment(const struct vka_device *device);

/* ---- Plans ----------------------------------------------------------------------------------- */

/* Records the operations of a finished plan into a command buffer of the application. The command
 * buffer is in the recording state, outside a render pass, of the family of the vkattn queue, and
 * is submitted to that queue, as often as wanted. The plan must live until the last run is
 * complete.
 *
 * vkattn does not know when the application submits. The application therefore waits for its
 * submits before vka_tensor_read, vka_tensor_write and the functions of caches. Command buffers
 * with the same plan use the same workspace; the barriers below keep them in order.
 *
 * Barriers. Before the first pass: from COMPUTE_SHADER and TRANSFER (SHADER_WRITE, TRANSFER_WRITE)
 * to COMPUTE_SHADER (SHADER_READ, SHADER_WRITE). So the plan sees what compute shaders and copies
 * wrote before it, and what the host wrote before the submit. With a cache, a fill of two words of
 * vkattn's comes first, after an execution barrier from the same stages to TRANSFER. After the last
 * pass: from COMPUTE_SHADER (SHADER_WRITE) to HOST (HOST_READ). For anything else the application
 * places barriers of its own, from or to COMPUTE_SHADER (SHADER_READ, SHADER_WRITE).
 *
 * State. It binds a compute pipeline, descriptor set 0 and push constants, and writes no
 * timestamps.
 *
 * Submit budget. All passes go into this one command buffer, so one submit may take longer than
 * vka_plan_info.submit_budget; only the passes are split for it. An application that must give the
 * device back in between runs the plan by vka_plan_submit.
 *
 * Full caches. vka_plan_wait reports a full cache only for runs that vkattn submitted, even if
 * recorded runs come between them. An application that records compares vka_cache_length with what
 * it appended.
 *
 * INVALID; DEVICE_LOST; OUT_OF_HOST_MEMORY. */
VKA_API enum vka_status vka_plan_record(struct vka_plan *plan, VkCommandBuffer commands);

struct vka_semaphore {
    VkSemaphore semaphore;
    uint64_t value; /* of a timeline semaphore; 0: a binary semaphore */
};

struct vka_submit_info {
    size_t struct_size;
    /* The work starts when all of these are signalled, or have reached their values. */
    const struct vka_semaphore *waits;
    uint32_t n_wait;
    /* These are signalled, or set to their values, when the work is done. */
    const struct vka_semaphore *signals;
    uint32_t n_signal;
};

/* The most waits, and the most signals, of a submit. */
#define VKA_MAX_SEMAPHORES 16

/* Submits as vka_plan_submit does, waits for semaphores of the application and signals others. Later
 * submits to the vkattn queue run after it, and so do vka_tensor_read and vka_tensor_write. info may
 * be NULL. INVALID; UNSUPPORTED (a value is given, but the device has not enabled timelineSemaphore);
 * DEVICE_LOST; TIMEOUT; memory statuses. */
VKA_API enum vka_status vka_plan_submit_with(struct vka_plan *plan,
                                             const struct vka_submit_info *info, uint64_t *ticket);

#ifdef __cplusplus
}
#endif
#endif
