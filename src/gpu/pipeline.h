/* Compute pipelines, made once per (kernel, specialization constants) and kept by the device. */
#ifndef VKA_GPU_PIPELINE_H
#define VKA_GPU_PIPELINE_H

#include "gpu/kernels.h"
#include "gpu/vk.h"
#include <stddef.h>

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
    bool warm;   /* it has been dispatched: the driver has nothing left to compile */
    bool listed; /* among those of a plan that the driver is asked to compile */
};

struct pipelines {
    VkPipelineCache cache;
    VkPipelineCreateFlags flags; /* of every pipeline; only tests set them */
    bool late; /* operations make none, only vka_plan_finish does; for tests that list them */
    struct pipeline *list;
    uint64_t n_made, code; /* pipelines made so far; bytes of SPIR-V of their kernels, for each */
    VkShaderModule modules[KERNEL_COUNT];
    VkDescriptorSetLayout set_layouts[KERNEL_COUNT];
    VkPipelineLayout layouts[KERNEL_COUNT];
};

/* blob: from vka_device_pipeline_cache, or NULL. */
enum vka_status pipelines_init(struct vka_device *device, const void *blob, size_t size);
void pipelines_finish(struct vka_device *device);

/* Makes the pipelines of all keys that do not exist yet, in several threads if there are several.
 * Where the driver's compiler refuses one, sets bit k of *refused for its kernel k, which must not
 * be used with this key; the call fails for other reasons alone. What was made stays. */
enum vka_status pipelines_make(struct vka_device *device, const struct pipeline_key *const *keys,
                               size_t count, uint64_t *refused);

/* The pipeline of a key that was given to pipelines_make; the layouts of its kernel exist too. */
struct pipeline *pipeline_get(const struct vka_device *device, const struct pipeline_key *key);

bool pipeline_same_key(const struct pipeline_key *a, const struct pipeline_key *b);

/* The descriptor type of a buffer of a kernel. */
VkDescriptorType kernel_descriptor(enum kernel kernel, uint32_t buffer);

/* The blob that an application keeps from one run to the next: the driver's pipeline cache, then
 * which kernels passed and failed the self-test. */

struct vka_device;

#define BLOB_TAIL 40 /* bytes after the driver's part */

/* Takes over the self-test results of a blob of this device, driver and build. Returns the bytes of
 * the driver's part; 0 if that is of another device or driver, or any byte of the blob is
 * damaged. */
size_t blob_read(struct vka_device *device, const void *blob, size_t size);

/* Writes BLOB_TAIL bytes after the driver's part, which has this size. */
void blob_write_tail(const struct vka_device *device, void *blob, size_t size);

#endif
