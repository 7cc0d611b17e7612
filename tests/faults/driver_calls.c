/* Calls that pass through, and how they come to be between volk and the loader. */
#include "driver_state.h"
#include "loader.h"

#include <string.h>

/* ---- The functions --------------------------------------------------------------------------- */

#define PASS(name, parameters, ...)                            \
    static VKAPI_ATTR VkResult VKAPI_CALL on_##name parameters \
    {                                                          \
        if (fails(ID_##name))                                  \
            return driver.error;                               \
        enter(#name);                                          \
        return leave(real.name(__VA_ARGS__));                  \
    }

#define CREATE(name, parent_type, info_type, type)                                              \
    static VKAPI_ATTR VkResult VKAPI_CALL on_##name(parent_type parent, const info_type *info,  \
                                                    const VkAllocationCallbacks *a, type *made) \
    {                                                                                           \
        (void)a;                                                                                \
        if (fails(ID_##name))                                                                   \
            return driver.error;                                                                \
        enter(#name);                                                                           \
        VkResult result = leave(real.name(parent, info, driver_callbacks(), made));             \
        driver.alive += result == VK_SUCCESS;                                                   \
        return result;                                                                          \
    }

#define DESTROY(name, type)                                                     \
    static VKAPI_ATTR void VKAPI_CALL on_##name(VkDevice device, type object,   \
                                                const VkAllocationCallbacks *a) \
    {                                                                           \
        (void)a;                                                                \
        enter(#name);                                                           \
        real.name(device, object, driver_callbacks());                          \
        leave(VK_SUCCESS);                                                      \
        driver.alive -= object != VK_NULL_HANDLE;                               \
    }

#define VOID(name, parameters, ...)                        \
    static VKAPI_ATTR void VKAPI_CALL on_##name parameters \
    {                                                      \
        enter(#name);                                      \
        real.name(__VA_ARGS__);                            \
        leave(VK_SUCCESS);                                 \
    }

VOID_FUNCTIONS(VOID)
CREATE(vkCreateDevice, VkPhysicalDevice, VkDeviceCreateInfo, VkDevice)
CREATE(vkCreateBuffer, VkDevice, VkBufferCreateInfo, VkBuffer)
CREATE(vkAllocateMemory, VkDevice, VkMemoryAllocateInfo, VkDeviceMemory)
CREATE(vkCreateSemaphore, VkDevice, VkSemaphoreCreateInfo, VkSemaphore)
CREATE(vkCreateFence, VkDevice, VkFenceCreateInfo, VkFence)
CREATE(vkCreateCommandPool, VkDevice, VkCommandPoolCreateInfo, VkCommandPool)
CREATE(vkCreateBufferView, VkDevice, VkBufferViewCreateInfo, VkBufferView)
CREATE(vkCreatePipelineCache, VkDevice, VkPipelineCacheCreateInfo, VkPipelineCache)
CREATE(vkCreateDescriptorSetLayout, VkDevice, VkDescriptorSetLayoutCreateInfo,
       VkDescriptorSetLayout)
CREATE(vkCreatePipelineLayout, VkDevice, VkPipelineLayoutCreateInfo, VkPipelineLayout)
CREATE(vkCreateDescriptorPool, VkDevice, VkDescriptorPoolCreateInfo, VkDescriptorPool)
CREATE(vkCreateQueryPool, VkDevice, VkQueryPoolCreateInfo, VkQueryPool)
DESTROY_FUNCTIONS(DESTROY)

PASS(vkEnumerateDeviceExtensionProperties,
     (VkPhysicalDevice d, const char *layer, uint32_t *n, VkExtensionProperties *p), d, layer, n, p)
PASS(vkBindBufferMemory, (VkDevice d, VkBuffer b, VkDeviceMemory m, VkDeviceSize at), d, b, m, at)
PASS(vkMapMemory,
     (VkDevice d, VkDeviceMemory m, VkDeviceSize at, VkDeviceSize n, VkMemoryMapFlags f, void **p),
     d, m, at, n, f, p)
PASS(vkResetFences, (VkDevice d, uint32_t n, const VkFence *f), d, n, f)
PASS(vkAllocateCommandBuffers,
     (VkDevice d, const VkCommandBufferAllocateInfo *info, VkCommandBuffer *c), d, info, c)
PASS(vkBeginCommandBuffer, (VkCommandBuffer c, const VkCommandBufferBeginInfo *info), c, info)
PASS(vkEndCommandBuffer, (VkCommandBuffer c), c)
PASS(vkGetPipelineCacheData, (VkDevice d, VkPipelineCache c, size_t *n, void *p), d, c, n, p)
PASS(vkAllocateDescriptorSets,
     (VkDevice d, const VkDescriptorSetAllocateInfo *info, VkDescriptorSet *s), d, info, s)
PASS(vkGetQueryPoolResults,
     (VkDevice d, VkQueryPool q, uint32_t first, uint32_t n, size_t size, void *p, VkDeviceSize s,
      VkQueryResultFlags f),
     d, q, first, n, size, p, s, f)

static VKAPI_ATTR VkResult VKAPI_CALL on_vkEnumeratePhysicalDevices(VkInstance instance,
                                                                    uint32_t *count,
                                                                    VkPhysicalDevice *devices)
{
    uint32_t room = *count;
    if (fails(ID_vkEnumeratePhysicalDevices))
        return driver.error;
    enter("vkEnumeratePhysicalDevices");
    VkResult result = leave(real.vkEnumeratePhysicalDevices(instance, count, devices));
    bool multiply = devices && result == VK_SUCCESS && driver.n_listing++ >= driver.multiply_at;
    for (uint32_t had = *count; multiply && had && *count < room; ++*count)
        devices[*count] = devices[*count - had];
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL on_vkCreateInstance(const VkInstanceCreateInfo *info,
                                                          const VkAllocationCallbacks *a,
                                                          VkInstance *instance)
{
    (void)a; /* not the callbacks: it is the loader that would use them, not the driver */
    if (fails(ID_vkCreateInstance))
        return driver.error;
    VkResult result = real.vkCreateInstance(info, NULL, instance);
    driver.alive += result == VK_SUCCESS;
    return result;
}

static VKAPI_ATTR void VKAPI_CALL on_vkDestroyInstance(VkInstance instance,
                                                       const VkAllocationCallbacks *a)
{
    (void)a;
    real.vkDestroyInstance(instance, NULL);
    driver.alive -= instance != VK_NULL_HANDLE;
}

static VKAPI_ATTR VkResult VKAPI_CALL on_vkCreateShaderModule(VkDevice device,
                                                              const VkShaderModuleCreateInfo *info,
                                                              const VkAllocationCallbacks *a,
                                                              VkShaderModule *module)
{
    (void)a;
    if (fails(ID_vkCreateShaderModule))
        return driver.error;
    enter("vkCreateShaderModule");
    VkResult result = leave(real.vkCreateShaderModule(device, info, driver_callbacks(), module));
    driver.alive += result == VK_SUCCESS;
    if (result == VK_SUCCESS && info->pCode == driver.refused && driver.n_module < MAX_REFUSED)
        driver.modules[driver.n_module++] = *module;
    driver.seen[driver.n_seen++ % MAX_SEEN] = info->pCode;
    return result;
}

static bool is_of_refused(VkShaderModule module)
{
    for (size_t i = 0; i < driver.n_module; i++)
        if (driver.modules[i] == module)
            return true;
    return false;
}

static VKAPI_ATTR VkResult VKAPI_CALL on_vkCreateComputePipelines(
    VkDevice device, VkPipelineCache cache, uint32_t count, const VkComputePipelineCreateInfo *info,
    const VkAllocationCallbacks *a, VkPipeline *pipelines)
{
    (void)a;
    if (fails(ID_vkCreateComputePipelines))
        return driver.error;
    if (is_of_refused(info->stage.module) && driver.n_made++ >= driver.spared) {
        driver.n_refusal++;
        *pipelines = VK_NULL_HANDLE;
        return driver.refusal;
    }
    enter("vkCreateComputePipelines");
    VkResult result = leave(
        real.vkCreateComputePipelines(device, cache, count, info, driver_callbacks(), pipelines));
    driver.alive += result == VK_SUCCESS ? (long)count : 0;
    return result;
}

/* ---- Below volk ------------------------------------------------------------------------------ */

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL on_vkGetDeviceProcAddr(VkDevice device,
                                                                       const char *name);

/* Keeps the true function and gives ours, where we have one. */
static PFN_vkVoidFunction replace(const char *name, PFN_vkVoidFunction function)
{
    if (!function)
        return NULL;
#define F(id, ...)                          \
    if (strcmp(name, #id) == 0) {           \
        real.id = (PFN_##id)function;       \
        return (PFN_vkVoidFunction)on_##id; \
    }
    RESULT_FUNCTIONS(F)
    DESTROY_FUNCTIONS(F)
    VOID_FUNCTIONS(F)
    F(vkDestroyInstance, )
    F(vkDestroyDevice, )
    F(vkDestroyCommandPool, )
    F(vkFreeCommandBuffers, )
    F(vkGetDeviceProcAddr, )
#undef F
    return function;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL on_vkGetInstanceProcAddr(VkInstance instance,
                                                                         const char *name)
{
    return replace(name, real.vkGetInstanceProcAddr(instance, name));
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL on_vkGetDeviceProcAddr(VkDevice device,
                                                                       const char *name)
{
    PFN_vkVoidFunction idle = real.vkGetDeviceProcAddr(device, "vkQueueWaitIdle");
    memcpy(&real.vkQueueWaitIdle, &idle, sizeof idle);
    return replace(name, real.vkGetDeviceProcAddr(device, name));
}

PFN_vkGetInstanceProcAddr driver_put_between(PFN_vkGetInstanceProcAddr get)
{
    real.vkGetInstanceProcAddr = get;
    return on_vkGetInstanceProcAddr;
}
