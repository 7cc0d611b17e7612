/* Compute pipelines, made once per (kernel, specialization constants) and kept by the device. */
#ifndef VKA_GPU_PIPELINE_H
#define VKA_GPU_PIPELINE_H

#include "gpu/state.h"

#define PUSH_SIZE 128 /* bytes; every Vulkan device has as many */

/* blob: from vka_device_pipeline_cache, or NULL. */
enum vka_status pipelines_init(struct vka_device *device, const void *blob, size_t size);
void pipelines_finish(struct vka_device *device);

/* Makes the pipelines of all keys that do not exist yet, in several threads if there are several.
 * Where the driver's compiler refuses one, sets bit k of *refused for its kernel k, which must not
 * be used with this key; the call fails for other reasons alone. What was made stays. */
enum vka_status pipelines_make(struct vka_device *device, const struct pipeline_key *const *keys,
                               size_t count, struct kernel_set *refused);

/* The pipeline of a key that was given to pipelines_make; the layouts of its kernel exist too. */
struct pipeline *pipeline_get(const struct vka_device *device, const struct pipeline_key *key);

/* The descriptor type of a buffer of a kernel. */
VkDescriptorType kernel_descriptor(enum kernel kernel, uint32_t buffer);

#endif
