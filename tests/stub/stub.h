/* A Vulkan driver without a compiler, for tests: it takes any pipeline, its dispatches write
 * nothing, copies and fills are carried out. What a host may get wrong ends the process with a
 * sentence on stderr: a range past a buffer or a limit, a binding or a push constant not set, an
 * object used after it was destroyed or never destroyed, a command buffer in a wrong state, a
 * value that does not rise.
 *
 * Submits stay pending until the host waits for them or asks, so that what the host destroys too
 * early is missed when they run. Device memory is the host's: small allocations by malloc, which
 * sanitizers guard, large ones in pages that exist once they are touched, so that tensors may be
 * larger than the machine.
 *
 * VKATTN_STUB names the devices, with commas: "cpu" (the default), "least", a GPU with no more
 * than vkattn demands, "small", one of a telephone, "large", one of the largest; "wide" has subgroups
 * of 64 and 128, "varying" those of 8 to 32, a window of 256 MiB on its memory and no timestamps,
 * "carved" little memory of its own beside the machine's, and buffers smaller than an allocation;
 * "rebar" gives answers that are legal and rare, "broken" cannot be opened. */
#ifndef TESTS_STUB_STUB_H
#define TESTS_STUB_STUB_H

#include <vulkan/vulkan.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STUB_DEVICES 9
#define STUB_BINDINGS 32 /* of a set; kernels have 14 at most */
#define STUB_PUSH 128    /* bytes */
#define STUB_DEEP 64     /* maxComputeWorkGroupSize[2] */
#define STUB_TYPES_OF_MEMORY 3

/* Reports a mistake of the host and aborts. */
#define STUB_MISTAKE(...) stub_mistake(__func__, __VA_ARGS__)
_Noreturn void stub_mistake(const char *function, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
#define STUB_CHECK(condition, ...)     \
    do {                               \
        if (!(condition))              \
            STUB_MISTAKE(__VA_ARGS__); \
    } while (0)

/* ---- Devices --------------------------------------------------------------------------------- */

struct stub_kind {
    const char *name;
    VkPhysicalDeviceType type;
    uint32_t api_version, subgroup, invocations, shared, groups_x, groups_yz, storage_buffers;
    uint32_t range, texels, alignment;
    uint32_t least_subgroup, most_subgroup; /* 0: as `subgroup` */
    uint32_t subgroups;                     /* of a workgroup; 0: what its invocations fill */
    uint64_t allocation, heap;
    uint64_t buffer; /* maxBufferSize; 0: as much as an allocation */
    uint64_t local;  /* bytes of the device's own heap; 0: as the host's */
    uint64_t window; /* of a third heap, the device's and seen by the host; 0: none */
    bool mapped;     /* device memory is the host's too */
    bool
        coherent; /* a third type, of AMD's device-coherent memory, a feature that nobody enables */
    bool no_timestamps;
    /* Legal and rare: a host reads the device's memory without a cache; the first type of memory is of a
     * small heap; results of queries come late; data of a pipeline cache grow; none can be made. */
    bool uncached, swapped, late, growing, broken;
    uint32_t granule; /* a buffer takes multiples of so many bytes; 0: of one */
    bool timeline, float16, storage16, storage8, int64, address, dot, size_control, operations;
};

extern const struct stub_kind stub_kinds[STUB_DEVICES];

static inline uint32_t stub_least_subgroup(const struct stub_kind *kind)
{
    return kind->least_subgroup ? kind->least_subgroup : kind->subgroup;
}

static inline uint32_t stub_most_subgroup(const struct stub_kind *kind)
{
    return kind->most_subgroup ? kind->most_subgroup : kind->subgroup;
}

static inline uint32_t stub_most_subgroups(const struct stub_kind *kind)
{
    return kind->subgroups ? kind->subgroups : kind->invocations / stub_least_subgroup(kind);
}

static inline uint64_t stub_most_buffer(const struct stub_kind *kind)
{
    return kind->buffer ? kind->buffer : kind->allocation;
}

/* What a type of memory is: 0 the device's own, 1 the host's, 2 another one. */
static inline uint32_t stub_role(const struct stub_kind *kind, uint32_t type)
{
    return kind->swapped && type != 1 ? 2 - type : type;
}

static inline uint32_t stub_memory_types(const struct stub_kind *kind)
{
    return kind->window || kind->coherent ? 3 : 2;
}

/* Bytes of the heap of a type of memory, which has one of its own. */
static inline uint64_t stub_heap(const struct stub_kind *kind, uint32_t type)
{
    const uint32_t role = stub_role(kind, type);
    return role == 2 ? kind->window : role == 0 && kind->local ? kind->local : kind->heap;
}

static inline VkSubgroupFeatureFlags stub_operations(const struct stub_kind *kind)
{
    const VkSubgroupFeatureFlags more = VK_SUBGROUP_FEATURE_ARITHMETIC_BIT |
                                        VK_SUBGROUP_FEATURE_BALLOT_BIT |
                                        VK_SUBGROUP_FEATURE_SHUFFLE_BIT;
    return VK_SUBGROUP_FEATURE_BASIC_BIT | (kind->operations ? more : 0);
}

/* What a device was made with. */
struct stub_enabled {
    bool float16, int64, int8, storage16, storage8, address, dot, size_control;
};

struct stub_physical {
    void *loader; /* first: the loader's own */
    const struct stub_kind *kind;
};

/* ---- Objects --------------------------------------------------------------------------------- */

enum stub_type {
    STUB_MEMORY = 0,
    STUB_BUFFER,
    STUB_BUFFER_VIEW,
    STUB_SEMAPHORE,
    STUB_FENCE,
    STUB_COMMAND_POOL,
    STUB_QUERY_POOL,
    STUB_SHADER_MODULE,
    STUB_SET_LAYOUT,
    STUB_PIPELINE_LAYOUT,
    STUB_PIPELINE,
    STUB_PIPELINE_CACHE,
    STUB_DESCRIPTOR_POOL,
    STUB_DESCRIPTOR_SET,
    STUB_TYPES
};

struct stub_device;

/* A handle is a place in a table and how often it was taken, so that one of a destroyed object is
 * known for what it is. */
struct stub_object {
    enum stub_type type;
    struct stub_device *device;
    uint64_t handle;
};

/* Calls of any thread. size includes the object, which is first in its structure; it is zeroed. */
void *stub_create(struct stub_device *device, enum stub_type type, size_t size);

/* The object of a handle; a mistake where it is not one of the device's. */
void *stub_get(struct stub_device *device, enum stub_type type, uint64_t handle,
               const char *function);
#define STUB_GET(device, type, handle) stub_get(device, type, (uint64_t)(handle), __func__)

/* Takes the object out of the table; the caller frees it. NULL for a handle of NULL. */
void *stub_remove(struct stub_device *device, enum stub_type type, uint64_t handle,
                  const char *function);
#define STUB_REMOVE(device, type, handle) stub_remove(device, type, (uint64_t)(handle), __func__)

struct stub_memory {
    struct stub_object object;
    uint64_t size;
    char *bytes;
    bool pages; /* by mmap */
    bool mapped, address;
    uint32_t type;
};

struct stub_buffer {
    struct stub_object object;
    uint64_t size;
    VkBufferUsageFlags usage;
    uint64_t memory, offset; /* memory 0: not bound */
};

struct stub_buffer_view {
    struct stub_object object;
    uint64_t buffer, offset, range;
};

struct stub_semaphore {
    struct stub_object object;
    bool timeline, signaled;
    uint64_t value, promised; /* promised: by submits that are pending */
};

struct stub_fence {
    struct stub_object object;
    bool signaled, pending;
};

struct stub_query_pool {
    struct stub_object object;
    uint32_t count;
    struct {
        bool reset, written;
        uint64_t ticks;
    } queries[];
};

struct stub_shader_module {
    struct stub_object object;
    uint32_t bindings; /* bit per binding that the code declares */
    bool sets;         /* it declares one of another set than 0 */
    uint32_t *words;   /* [n] of the code before its first function */
    size_t n;
};

struct stub_set_layout {
    struct stub_object object;
    uint32_t count;
    VkDescriptorType types[STUB_BINDINGS];
};

struct stub_pipeline_layout {
    struct stub_object object;
    uint32_t count; /* of the set */
    VkDescriptorType types[STUB_BINDINGS];
    uint32_t push; /* bytes from 0 on */
};

struct stub_pipeline {
    struct stub_object object;
    uint32_t count, push; /* of its layout */
    VkDescriptorType types[STUB_BINDINGS];
};

struct stub_descriptor {
    uint64_t buffer, view; /* 0: not written */
    uint64_t offset, range;
};

struct stub_descriptor_set {
    struct stub_object object;
    uint64_t pool;
    uint32_t count;
    VkDescriptorType types[STUB_BINDINGS];
    struct stub_descriptor descriptors[STUB_BINDINGS];
    struct stub_descriptor_set *next;
};

struct stub_descriptor_pool {
    struct stub_object object;
    uint32_t sets, storage, texels; /* left */
    struct stub_descriptor_set *list;
};

/* ---- Commands -------------------------------------------------------------------------------- */

enum stub_command_kind { STUB_COPY = 0, STUB_FILL, STUB_DISPATCH, STUB_RESET, STUB_STAMP };

/* What runs when it is submitted. Barriers are judged when they are recorded. */
struct stub_command {
    enum stub_command_kind kind;
    uint64_t from, to; /* buffers, or the query pool in `to` */
    uint64_t from_offset, offset, size;
    uint32_t value, first, count;
    uint64_t pipeline, set;
    uint64_t groups;
};

enum stub_state { STUB_INITIAL = 0, STUB_RECORDING, STUB_EXECUTABLE, STUB_INVALID, STUB_FREED };

struct stub_command_buffer {
    void *loader; /* first: the loader's own */
    struct stub_device *device;
    struct stub_command_buffer *next; /* of the pool, or of those freed */
    enum stub_state state;
    VkCommandBufferUsageFlags usage;
    uint32_t pending; /* submits */
    struct stub_command *commands;
    size_t n, room;
    uint64_t pipeline, set;        /* bound */
    unsigned char push[STUB_PUSH]; /* 1: the byte is set */
};

struct stub_command_pool {
    struct stub_object object;
    struct stub_command_buffer *list;
};

/* ---- The device ------------------------------------------------------------------------------ */

struct stub_signal {
    uint64_t semaphore, value;
};

struct stub_submit {
    struct stub_submit *next;
    struct stub_command_buffer **commands; /* [n_commands] */
    struct stub_signal *waits, *signals;
    uint32_t n_commands, n_wait, n_signal;
    uint64_t fence; /* 0: none */
};

struct stub_queue {
    void *loader; /* first: the loader's own */
    struct stub_device *device;
    struct stub_submit *first, **last;
};

struct stub_device {
    void *loader; /* first: the loader's own */
    const struct stub_kind *kind;
    struct stub_enabled enabled;
    struct stub_queue queue;
    struct stub_device *next;
    struct stub_command_buffer *freed; /* kept, so that a use of them is known */
    uint64_t allocated[STUB_TYPES_OF_MEMORY], allocations; /* bytes; allocations alive */
    uint64_t ticks, asked; /* asked: how often for results or data of a cache */
    uint32_t alive[STUB_TYPES];
};

/* Runs the submits that are pending: n of them, SIZE_MAX for all. False where there was none. */
bool stub_queue_run(struct stub_device *device, size_t n);

/* The bytes of a buffer that is bound; a mistake where they are not in it. */
char *stub_bytes(struct stub_device *device, uint64_t buffer, uint64_t offset, uint64_t size,
                 const char *function);

/* Judges what code asks of a device, and what it does with a pipeline's constants. */
void stub_check_code(const struct stub_device *device, const uint32_t *words, size_t n);
void stub_check_stage(const struct stub_device *device, const struct stub_shader_module *module,
                      const VkPipelineShaderStageCreateInfo *info);

/* Judges the buffers of a set that a pipeline takes, before a dispatch is recorded and when it
 * runs. */
void stub_check_set(struct stub_device *device, const struct stub_pipeline *pipeline,
                    const struct stub_descriptor_set *set, const char *function);

/* ---- Functions, by file ---------------------------------------------------------------------- */

struct stub_function {
    const char *name;
    PFN_vkVoidFunction function;
};
#define STUB_FUNCTION(name)                    \
    {                                          \
#name, (PFN_vkVoidFunction)stub_##name \
    }
extern const struct stub_function stub_physical_functions[], stub_object_functions[],
    stub_memory_functions[], stub_descriptor_functions[], stub_command_functions[],
    stub_queue_functions[]; /* end at NULL */

#endif
