/* struct vka_device and all that it holds: memory, queue, pipelines and refusals. Types alone, which
 * the files that work on its members share. */
#ifndef VKA_GPU_STATE_H
#define VKA_GPU_STATE_H

#include "core/os.h"
#include "core/status.h"
#include "gpu/caps.h"
#include "gpu/pipeline_key.h"
#include "gpu/tuning_profile.h"
#include "gpu/vk.h"

enum memory_kind {
    MEMORY_DEVICE = 0, /* for tensors: device-local, and mapped if the device has such memory */
    MEMORY_STAGING,    /* host-visible, for copies */
    MEMORY_KIND_COUNT,
    MEMORY_FOREIGN = MEMORY_KIND_COUNT /* memory of the application: a block with one range */
};

struct memory_hole {
    uint64_t offset, size; /* bytes */
};

struct memory_block {
    struct memory_block *next;
    enum memory_kind kind;
    VkBuffer buffer;
    VkDeviceMemory memory;
    bool borrowed; /* the buffer is the application's */
    VkBufferUsageFlags usage;
    uint64_t address; /* of the buffer, for shaders; 0 if the device has no addresses */
    uint64_t size;
    void *mapped;              /* NULL: the host cannot see it */
    struct memory_hole *holes; /* free ranges by offset; no two are adjacent */
    size_t n_hole, hole_room, n_taken;
};

struct memory {
    uint32_t type[MEMORY_KIND_COUNT]; /* memory type index */
    bool mapped[MEMORY_KIND_COUNT];
    bool uncached; /* device memory that is mapped: the host reads it word by word */
    struct memory_block *blocks;
    uint64_t limit;  /* bytes of all blocks together; 0: none */
    bool has_budget; /* the driver tells its budget: VK_EXT_memory_budget */
};

/* A range of one block; block NULL: no memory. */
struct memory_range {
    struct memory_block *block;
    uint64_t offset, size;
};

#define PAGE_RECEIPTS 4
#define RECEIPT_WORDS 3 /* the word that is written, and two of the ticket */

/* Receipts are recorded once, and used again after they were checked. */
struct receipt_page {
    struct receipt_page *next;
    struct memory_range words; /* u32 [PAGE_RECEIPTS][RECEIPT_WORDS], host-visible */
    VkCommandBuffer commands[2 * PAGE_RECEIPTS]; /* all `before`, then all `behind`; of the pool */
    uint64_t ticket[PAGE_RECEIPTS];              /* whose receipt it is; 0: free */
};

#define MAX_IN_FLIGHT 16 /* submits, when fences replace timeline semaphores */

/* An object that is released when the submit `ticket` is done. */
struct retired {
    struct retired *next;
    uint64_t ticket;
    void (*release)(struct vka_device *device, struct retired *self);
};

struct queue {
    VkQueue handle;
    vka_queue_callback *lock, *unlock; /* around submits; NULL: none */
    void *lock_user;
    uint64_t submitted, completed; /* tickets */
    uint64_t abandoned;            /* of the last copy whose wait timed out; 0: none */
    VkSemaphore timeline;          /* or, without timeline semaphores, the fences: */
    VkFence fence[MAX_IN_FLIGHT];  /* of ticket t at t % MAX_IN_FLIGHT */
    VkCommandPool pool;            /* of the copies and the receipts */
    struct receipt_page *receipts;
    struct retired *retired;
};

/* A range of device memory, freed with its last reference. */
struct storage {
    struct retired retired; /* from the last reference on */
    struct vka_device *device;
    struct memory_range range;
    uint64_t bytes; /* asked for; range may be larger */
    size_t references;
    /* A host copy for vka_device_recover, see storage_keep. */
    struct storage *next_kept;
    void *kept;  /* [bytes in whole words] */
    bool listed; /* among device->kept */
    bool stale;  /* the contents are lost and cannot be restored */
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

/* A pipeline, or a whole kernel, that is not used on the device. */
struct refusal {
    struct refusal *next; /* the one before */
    uint64_t serial;      /* counts from 1 */
    struct pipeline_key key;
    bool whole; /* all of the kernel: key.n_spec tells nothing */
    VkResult result;
};

struct refusals {
    struct refusal *last;
    uint64_t serial;               /* of the last one */
    uint64_t of[KERNEL_COUNT];     /* how often the driver refused a pipeline of the kernel */
    const char *why[KERNEL_COUNT]; /* the last time, as the end of a sentence; NULL: never */
    VkResult result[KERNEL_COUNT]; /* the last time */
};

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
    uint64_t n_run;         /* so far */
    struct kernel_set lost; /* those that lost the device */
    bool blamed;            /* the kernel under test has been blamed for the loss */
};

struct vka_device {
    struct log log;
    struct vk_instance instance;
    VkPhysicalDevice physical;
    VkDevice handle;
    struct VolkDeviceTable vk;
    struct caps caps;
    struct tuning_profile profile; /* what caps.profile points to */
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

#endif
