/* Compute pipelines, made once per (kernel, specialization constants) and kept by the device. */
#ifndef VKA_GPU_PIPELINE_H
#define VKA_GPU_PIPELINE_H

#include "gpu/kernels.h"
#include "gpu/vk.h"

#define PUSH_SIZE 128 /* bytes; every Vulkan device has as many */

struct pipeline_key {
    enum kernel kernel;
    uint32_t n_spec;
    uint32_t spec[MAX_SPECS]; /* constants 0 .. n_spec - 1 */
};

struct pipeline {
    struct pipeline *next;
    struct pipeline_key key;
    VkPipeline handle;
};

struct pipelines {
    VkPipelineCache cache;
    VkPipelineCreateFlags flags; /* of every pipeline; 0 but for tests */
    struct pipeline *list;
    VkShaderModule modules[KERNEL_COUNT];
    VkDescriptorSetLayout set_layouts[KERNEL_COUNT];
    VkPipelineLayout layouts[KERNEL_COUNT];
};

/* blob: from vka_device_pipeline_cache, or NULL. */
enum vka_status pipelines_init(struct vka_device *device, const void *blob, size_t size);
void pipelines_finish(struct vka_device *device);

/* Makes the pipelines of all keys that are not there yet, by several threads where there are
 * several. On failure those that could be made stay. */
enum vka_status pipelines_make(struct vka_device *device, const struct pipeline_key *const *keys,
                               size_t count);

/* The pipeline for a key that pipelines_make has been given. The kernel's layouts are there too. */
VkPipeline pipeline_get(const struct vka_device *device, const struct pipeline_key *key);

bool pipeline_same_key(const struct pipeline_key *a, const struct pipeline_key *b);

/* What kind of descriptor a kernel's buffer is bound as. */
VkDescriptorType kernel_descriptor(enum kernel kernel, uint32_t buffer);

#endif
