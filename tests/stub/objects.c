/* Devices, the table of objects, and those of them that hold nothing. */
#include "stub.h"

#include <vulkan/vk_icd.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const char *const type_names[STUB_TYPES] = {
    [STUB_MEMORY] = "memory",
    [STUB_BUFFER] = "buffer",
    [STUB_BUFFER_VIEW] = "buffer view",
    [STUB_SEMAPHORE] = "semaphore",
    [STUB_FENCE] = "fence",
    [STUB_COMMAND_POOL] = "command pool",
    [STUB_QUERY_POOL] = "query pool",
    [STUB_SHADER_MODULE] = "shader module",
    [STUB_SET_LAYOUT] = "descriptor set layout",
    [STUB_PIPELINE_LAYOUT] = "pipeline layout",
    [STUB_PIPELINE] = "pipeline",
    [STUB_PIPELINE_CACHE] = "pipeline cache",
    [STUB_DESCRIPTOR_POOL] = "descriptor pool",
    [STUB_DESCRIPTOR_SET] = "descriptor set",
};

/* ---- The table ------------------------------------------------------------------------------- */

/* Slot i has the handle (turn << 32 | i + 1). */
static struct {
    pthread_mutex_t lock;
    struct slot {
        struct stub_object *object; /* NULL: free */
        enum stub_type type;        /* of the last */
        uint32_t turn;
        size_t next_free; /* index + 1; 0: none */
    } * slots;
    size_t n, room, free; /* free: index + 1 */
    struct stub_device *devices;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void lock(void)
{
    pthread_mutex_lock(&table.lock);
}

static void unlock(void)
{
    pthread_mutex_unlock(&table.lock);
}

static size_t take_slot(void)
{
    if (table.free) {
        size_t i = table.free - 1;
        table.free = table.slots[i].next_free;
        return i;
    }
    if (table.n == table.room) {
        table.room = table.room ? 2 * table.room : 1024;
        table.slots = realloc(table.slots, table.room * sizeof *table.slots);
        if (!table.slots)
            abort();
    }
    table.slots[table.n] = (struct slot){0};
    return table.n++;
}

void *stub_create(struct stub_device *device, enum stub_type type, size_t size)
{
    struct stub_object *object = calloc(1, size);
    if (!object)
        abort();
    lock();
    size_t i = take_slot();
    struct slot *slot = &table.slots[i];
    slot->turn++;
    slot->object = object;
    slot->type = type;
    *object = (struct stub_object){type, device, (uint64_t)slot->turn << 32 | (i + 1)};
    device->alive[type]++;
    unlock();
    return object;
}

/* The slot of an object that lives; with the lock held. */
static struct slot *find(struct stub_device *device, enum stub_type type, uint64_t handle,
                         const char *function)
{
    const size_t i = (handle & UINT32_MAX) - 1;
    if (!handle || i >= table.n || table.slots[i].turn < handle >> 32)
        stub_mistake(function, "%#llx is no handle of a %s", (unsigned long long)handle,
                     type_names[type]);
    struct slot *slot = &table.slots[i];
    if (!slot->object || slot->turn != handle >> 32)
        stub_mistake(function, "a %s is used after it was destroyed", type_names[type]);
    if (slot->type != type)
        stub_mistake(function, "a %s is taken for a %s", type_names[slot->type], type_names[type]);
    if (slot->object->device != device)
        stub_mistake(function, "a %s of another device", type_names[type]);
    return slot;
}

void *stub_get(struct stub_device *device, enum stub_type type, uint64_t handle,
               const char *function)
{
    lock();
    void *object = find(device, type, handle, function)->object;
    unlock();
    return object;
}

void *stub_remove(struct stub_device *device, enum stub_type type, uint64_t handle,
                  const char *function)
{
    if (!handle)
        return NULL;
    lock();
    struct slot *slot = find(device, type, handle, function);
    void *object = slot->object;
    slot->object = NULL;
    slot->next_free = table.free;
    table.free = (size_t)(slot - table.slots) + 1;
    device->alive[type]--;
    unlock();
    return object;
}

/* ---- Devices --------------------------------------------------------------------------------- */

/* Notes what a structure of a chain enables. */
static void enable(const VkBaseInStructure *s, struct stub_enabled *on)
{
    switch ((int)s->sType) {
    case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2:
        on->int64 |= ((const VkPhysicalDeviceFeatures2 *)s)->features.shaderInt64;
        break;
    case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES:
        on->size_control |=
            ((const VkPhysicalDeviceSubgroupSizeControlFeatures *)s)->subgroupSizeControl;
        break;
    case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES:
        on->float16 |= ((const VkPhysicalDeviceShaderFloat16Int8Features *)s)->shaderFloat16;
        on->int8 |= ((const VkPhysicalDeviceShaderFloat16Int8Features *)s)->shaderInt8;
        break;
    case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES:
        on->storage16 |=
            ((const VkPhysicalDevice16BitStorageFeatures *)s)->storageBuffer16BitAccess;
        break;
    case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES:
        on->storage8 |= ((const VkPhysicalDevice8BitStorageFeatures *)s)->storageBuffer8BitAccess;
        break;
    case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_BUFFER_DEVICE_ADDRESS_FEATURES:
        on->address |=
            ((const VkPhysicalDeviceBufferDeviceAddressFeatures *)s)->bufferDeviceAddress;
        break;
    case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES:
        on->dot |=
            ((const VkPhysicalDeviceShaderIntegerDotProductFeatures *)s)->shaderIntegerDotProduct;
        break;
    default:
        break;
    }
}

/* Nothing is enabled that the device has not. */
static struct stub_enabled read_features(const struct stub_kind *kind,
                                         const VkBaseInStructure *chain)
{
    static const char *const function = "vkCreateDevice";
    struct stub_enabled on = {.float16 = false};
    bool timeline = false;
    for (const VkBaseInStructure *s = chain; s; s = s->pNext) {
        enable(s, &on);
        timeline |= s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES;
    }
    const struct {
        bool on, had;
        const char *name;
    } rows[] = {
        {on.int64, kind->int64, "shaderInt64"},
        {timeline, kind->timeline, "timelineSemaphore"},
        {on.size_control, kind->size_control, "subgroupSizeControl"},
        {on.float16, kind->float16, "shaderFloat16"},
        {on.int8, kind->storage8, "shaderInt8"},
        {on.storage16, kind->storage16, "storageBuffer16BitAccess"},
        {on.storage8, kind->storage8, "storageBuffer8BitAccess"},
        {on.address, kind->address, "bufferDeviceAddress"},
        {on.dot, kind->dot, "shaderIntegerDotProduct"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].on && !rows[i].had)
            stub_mistake(function, "%s is enabled, which the device has not", rows[i].name);
    return on;
}

static VKAPI_ATTR VkResult VKAPI_CALL stub_vkCreateDevice(VkPhysicalDevice physical,
                                                          const VkDeviceCreateInfo *info,
                                                          const VkAllocationCallbacks *a,
                                                          VkDevice *out)
{
    (void)a;
    const struct stub_kind *kind = ((const struct stub_physical *)physical)->kind;
    STUB_CHECK(info->enabledExtensionCount == 0, "%s is enabled, which the device has not",
               info->ppEnabledExtensionNames[0]);
    const struct stub_enabled enabled = read_features(kind, info->pNext);
    if (kind->broken)
        return VK_ERROR_INITIALIZATION_FAILED;
    struct stub_device *device = calloc(1, sizeof *device);
    if (!device)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    device->kind = kind;
    device->enabled = enabled;
    set_loader_magic_value(device);
    set_loader_magic_value(&device->queue);
    device->queue.device = device;
    device->queue.last = &device->queue.first;
    lock();
    device->next = table.devices;
    table.devices = device;
    unlock();
    *out = (VkDevice)device;
    return VK_SUCCESS;
}

static void check_leaks(const struct stub_device *device, const char *function)
{
    for (int type = 0; type < STUB_TYPES; type++)
        if (device->alive[type])
            stub_mistake(function, "%u of type %s never destroyed", device->alive[type],
                         type_names[type]);
}

static VKAPI_ATTR void VKAPI_CALL stub_vkDestroyDevice(VkDevice handle,
                                                       const VkAllocationCallbacks *a)
{
    (void)a;
    struct stub_device *device = (struct stub_device *)handle;
    STUB_CHECK(!device->queue.first, "a submit is pending");
    check_leaks(device, "vkDestroyDevice");
    while (device->freed) {
        struct stub_command_buffer *commands = device->freed;
        device->freed = commands->next;
        free(commands);
    }
    lock();
    struct stub_device **link = &table.devices;
    while (*link != device)
        link = &(*link)->next;
    *link = device->next;
    unlock();
    free(device);
}

/* A process that ends with a device counts as one that leaks. */
__attribute__((destructor)) static void end(void)
{
    if (table.devices)
        stub_mistake("exit", "a device is never destroyed");
    free(table.slots);
}

static VKAPI_ATTR void VKAPI_CALL stub_vkGetDeviceQueue(VkDevice handle, uint32_t family,
                                                        uint32_t index, VkQueue *queue)
{
    STUB_CHECK(family == 0 && index == 0, "queue %u of family %u", index, family);
    *queue = (VkQueue) & ((struct stub_device *)handle)->queue;
}

/* ---- Objects that hold nothing --------------------------------------------------------------- */

static VKAPI_ATTR VkResult VKAPI_CALL stub_vkCreateSemaphore(VkDevice handle,
                                                             const VkSemaphoreCreateInfo *info,
                                                             const VkAllocationCallbacks *a,
                                                             VkSemaphore *out)
{
    (void)a;
    struct stub_device *device = (struct stub_device *)handle;
    struct stub_semaphore *semaphore = stub_create(device, STUB_SEMAPHORE, sizeof *semaphore);
    for (const VkBaseInStructure *s = info->pNext; s; s = s->pNext)
        if (s->sType == VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO) {
            const VkSemaphoreTypeCreateInfo *type = (const void *)s;
            semaphore->timeline = type->semaphoreType == VK_SEMAPHORE_TYPE_TIMELINE;
            semaphore->value = semaphore->promised = type->initialValue;
        }
    STUB_CHECK(!semaphore->timeline || device->kind->timeline,
               "a timeline, which the device has not");
    *out = (VkSemaphore)semaphore->object.handle;
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL stub_vkCreateFence(VkDevice handle,
                                                         const VkFenceCreateInfo *info,
                                                         const VkAllocationCallbacks *a,
                                                         VkFence *out)
{
    (void)a;
    struct stub_fence *fence = stub_create((struct stub_device *)handle, STUB_FENCE, sizeof *fence);
    fence->signaled = info->flags & VK_FENCE_CREATE_SIGNALED_BIT;
    *out = (VkFence)fence->object.handle;
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL stub_vkDestroyFence(VkDevice handle, VkFence object,
                                                      const VkAllocationCallbacks *a)
{
    (void)a;
    struct stub_fence *fence = STUB_REMOVE((struct stub_device *)handle, STUB_FENCE, object);
    STUB_CHECK(!fence || !fence->pending, "a fence of a submit that is pending");
    free(fence);
}

static VKAPI_ATTR VkResult VKAPI_CALL
stub_vkCreatePipelineCache(VkDevice handle, const VkPipelineCacheCreateInfo *info,
                           const VkAllocationCallbacks *a, VkPipelineCache *out)
{
    (void)info, (void)a;
    struct stub_object *cache =
        stub_create((struct stub_device *)handle, STUB_PIPELINE_CACHE, sizeof *cache);
    *out = (VkPipelineCache)cache->handle;
    return VK_SUCCESS;
}

/* The header that Vulkan defines, and nothing else. */
static VKAPI_ATTR VkResult VKAPI_CALL stub_vkGetPipelineCacheData(VkDevice handle,
                                                                  VkPipelineCache cache,
                                                                  size_t *size, void *data)
{
    VkPhysicalDeviceProperties properties = {.vendorID = 0x1d0, .deviceID = 1};
    const VkPipelineCacheHeaderVersionOne header = {sizeof header,
                                                    VK_PIPELINE_CACHE_HEADER_VERSION_ONE,
                                                    properties.vendorID,
                                                    properties.deviceID,
                                                    {0}};
    struct stub_device *device = (struct stub_device *)handle;
    STUB_GET(device, STUB_PIPELINE_CACHE, cache);
    const bool room = !data || *size >= sizeof header;
    const size_t grown = device->kind->growing ? 8 * device->asked++ : 0; /* zeros behind it */
    if (data && room)
        memcpy(memset(data, 0, *size), &header, sizeof header);
    const bool whole = !data || *size >= sizeof header + grown;
    *size = !room ? 0 : whole ? sizeof header + grown : *size;
    return whole ? VK_SUCCESS : VK_INCOMPLETE;
}

static VKAPI_ATTR VkResult VKAPI_CALL stub_vkCreateQueryPool(VkDevice handle,
                                                             const VkQueryPoolCreateInfo *info,
                                                             const VkAllocationCallbacks *a,
                                                             VkQueryPool *out)
{
    (void)a;
    struct stub_query_pool *pool = NULL;
    STUB_CHECK(info->queryType == VK_QUERY_TYPE_TIMESTAMP && info->queryCount > 0,
               "queries of type %d, %u of them", (int)info->queryType, info->queryCount);
    pool = stub_create((struct stub_device *)handle, STUB_QUERY_POOL,
                       sizeof *pool + info->queryCount * sizeof pool->queries[0]);
    pool->count = info->queryCount;
    *out = (VkQueryPool)pool->object.handle;
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL stub_vkGetQueryPoolResults(VkDevice handle,
                                                                 VkQueryPool object, uint32_t first,
                                                                 uint32_t n, size_t size,
                                                                 void *data, VkDeviceSize stride,
                                                                 VkQueryResultFlags flags)
{
    const struct stub_query_pool *pool =
        STUB_GET((struct stub_device *)handle, STUB_QUERY_POOL, object);
    STUB_CHECK(n > 0 && first < pool->count && n <= pool->count - first, "queries %u + %u of %u",
               first, n, pool->count);
    STUB_CHECK(flags == VK_QUERY_RESULT_64_BIT && stride >= 8 && size >= (n - 1) * stride + 8,
               "no room for %u results", n);
    if (((struct stub_device *)handle)->kind->late && ((struct stub_device *)handle)->asked++ == 0)
        return VK_NOT_READY;
    for (uint32_t i = 0; i < n; i++) {
        if (!pool->queries[first + i].written)
            return VK_NOT_READY;
        memcpy((char *)data + i * stride, &pool->queries[first + i].ticks, 8);
    }
    return VK_SUCCESS;
}

#define DESTROY(name, type, handle_type)                                               \
    static VKAPI_ATTR void VKAPI_CALL stub_##name(VkDevice device, handle_type object, \
                                                  const VkAllocationCallbacks *a)      \
    {                                                                                  \
        (void)a;                                                                       \
        free(STUB_REMOVE((struct stub_device *)device, type, object));                 \
    }

DESTROY(vkDestroyBufferView, STUB_BUFFER_VIEW, VkBufferView)
DESTROY(vkDestroySemaphore, STUB_SEMAPHORE, VkSemaphore)
DESTROY(vkDestroyQueryPool, STUB_QUERY_POOL, VkQueryPool)
DESTROY(vkDestroyDescriptorSetLayout, STUB_SET_LAYOUT, VkDescriptorSetLayout)
DESTROY(vkDestroyPipelineLayout, STUB_PIPELINE_LAYOUT, VkPipelineLayout)
DESTROY(vkDestroyPipeline, STUB_PIPELINE, VkPipeline)
DESTROY(vkDestroyPipelineCache, STUB_PIPELINE_CACHE, VkPipelineCache)

const struct stub_function stub_object_functions[] = {
    STUB_FUNCTION(vkCreateDevice),          STUB_FUNCTION(vkDestroyDevice),
    STUB_FUNCTION(vkGetDeviceQueue),        STUB_FUNCTION(vkCreateSemaphore),
    STUB_FUNCTION(vkCreateFence),           STUB_FUNCTION(vkDestroyFence),
    STUB_FUNCTION(vkCreatePipelineCache),   STUB_FUNCTION(vkGetPipelineCacheData),
    STUB_FUNCTION(vkCreateQueryPool),       STUB_FUNCTION(vkGetQueryPoolResults),
    STUB_FUNCTION(vkDestroyBufferView),     STUB_FUNCTION(vkDestroySemaphore),
    STUB_FUNCTION(vkDestroyQueryPool),      STUB_FUNCTION(vkDestroyDescriptorSetLayout),
    STUB_FUNCTION(vkDestroyPipelineLayout), STUB_FUNCTION(vkDestroyPipeline),
    STUB_FUNCTION(vkDestroyPipelineCache),  {0},
};
