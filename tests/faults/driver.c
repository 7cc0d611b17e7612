#include "driver.h"
#include "driver_functions.h"
#include "loader.h"

#include <stdlib.h>
#include <string.h>

#define MAX_CALLS 4096
#define NAME_SIZE 64
#define MAX_REFUSED 64
#define MAX_SEEN 256 /* modules */

enum function {
#define F(name, ...) ID_##name,
    RESULT_FUNCTIONS(F)
#undef F
        FUNCTION_COUNT
};

static const struct {
    const char *name;
    VkResult errors[DRIVER_MAX_ERRORS]; /* ends at 0 */
} functions[] = {
#define F(name, ...) \
    {#name,          \
     {VK_ERROR_OUT_OF_HOST_MEMORY, VK_ERROR_OUT_OF_DEVICE_MEMORY, VK_ERROR_UNKNOWN, __VA_ARGS__}},
    RESULT_FUNCTIONS(F)
#undef F
};

static struct {
#define F(name, ...) PFN_##name name;
    RESULT_FUNCTIONS(F)
    DESTROY_FUNCTIONS(F)
    VOID_FUNCTIONS(F)
#undef F
    PFN_vkGetInstanceProcAddr vkGetInstanceProcAddr;
    PFN_vkGetDeviceProcAddr vkGetDeviceProcAddr;
    PFN_vkDestroyInstance vkDestroyInstance;
    PFN_vkDestroyDevice vkDestroyDevice;
    PFN_vkDestroyCommandPool vkDestroyCommandPool;
    PFN_vkFreeCommandBuffers vkFreeCommandBuffers;
    PFN_vkQueueWaitIdle vkQueueWaitIdle;
} real;

static struct {
    enum function calls[MAX_CALLS];
    size_t n_call, fail_at, drop_at;
    bool boasts, asked; /* asked: by the last call, whether a submit is done */
    size_t n_listing, multiply_at;
    VkResult error;
    long alive;
    size_t submitted, waited; /* submits of the device, counted from 1 */
    VkQueue queue;            /* that they went to */
    size_t freed_in_flight;
    VkFence fences[MAX_CALLS]; /* of submits */
    struct {
        VkCommandBuffer commands;
        size_t submit;
    } used[MAX_CALLS];
    size_t n_used;
    const uint32_t *refused; /* the words of a module whose pipelines the compiler refuses */
    VkResult refusal;
    size_t spared, n_refusal, n_made;    /* first pipelines of it that are made; refused; made */
    VkShaderModule modules[MAX_REFUSED]; /* of those words */
    size_t n_module;
    const uint32_t *seen[MAX_SEEN]; /* words of all modules */
    size_t n_seen;
} driver;

static bool computes;
static char *busy; /* [NAME_SIZE], shared between processes */

/* ---- What calls go through ------------------------------------------------------------------- */

static void enter(const char *name)
{
    memcpy(busy, name, strlen(name) + 1);
}

static VkResult leave(VkResult result)
{
    busy[0] = '\0';
    return result;
}

/* Counts the call; true where it is the one to fail. */
static bool fails(enum function id)
{
    size_t call = driver.n_call++;
    driver.asked = false;
    if (call < MAX_CALLS)
        driver.calls[call] = id;
    return call == driver.fail_at;
}

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

static void check_at_rest(void)
{
    driver.freed_in_flight += driver.submitted > driver.waited;
}

static size_t last_submit(VkCommandBuffer commands)
{
    for (size_t i = driver.n_used; i-- > 0 && i + MAX_CALLS >= driver.n_used;)
        if (driver.used[i % MAX_CALLS].commands == commands)
            return driver.used[i % MAX_CALLS].submit;
    return 0;
}

static VKAPI_ATTR void VKAPI_CALL on_vkDestroyCommandPool(VkDevice device, VkCommandPool pool,
                                                          const VkAllocationCallbacks *a)
{
    (void)a;
    check_at_rest();
    enter("vkDestroyCommandPool");
    real.vkDestroyCommandPool(device, pool, driver_callbacks());
    leave(VK_SUCCESS);
    driver.alive -= pool != VK_NULL_HANDLE;
}

static VKAPI_ATTR void VKAPI_CALL on_vkFreeCommandBuffers(VkDevice device, VkCommandPool pool,
                                                          uint32_t count,
                                                          const VkCommandBuffer *commands)
{
    for (uint32_t i = 0; i < count; i++)
        driver.freed_in_flight += last_submit(commands[i]) > driver.waited;
    real.vkFreeCommandBuffers(device, pool, count, commands);
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

static VKAPI_ATTR void VKAPI_CALL on_vkDestroyDevice(VkDevice device,
                                                     const VkAllocationCallbacks *a)
{
    (void)a;
    check_at_rest();
    driver.submitted = driver.waited = driver.n_used = 0;
    enter("vkDestroyDevice");
    real.vkDestroyDevice(device, driver_callbacks());
    leave(VK_SUCCESS);
    driver.alive -= device != VK_NULL_HANDLE;
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

static VKAPI_ATTR VkResult VKAPI_CALL on_vkQueueSubmit(VkQueue queue, uint32_t count,
                                                       const VkSubmitInfo *submits, VkFence fence)
{
    bool drop = driver.n_call == driver.drop_at;
    if (fails(ID_vkQueueSubmit)) {
        if (driver.error == VK_ERROR_DEVICE_LOST && real.vkQueueWaitIdle(queue) == VK_SUCCESS)
            driver.waited = driver.submitted;
        return driver.error;
    }
    VkSubmitInfo empty = *submits;
    if (drop)
        empty.commandBufferCount = 0;
    driver.queue = queue;
    enter("vkQueueSubmit");
    VkResult result = leave(real.vkQueueSubmit(queue, count, drop ? &empty : submits, fence));
    if (result != VK_SUCCESS)
        return result;
    driver.fences[++driver.submitted % MAX_CALLS] = fence;
    for (uint32_t i = 0; i < submits->commandBufferCount; i++) {
        driver.used[driver.n_used % MAX_CALLS].commands = submits->pCommandBuffers[i];
        driver.used[driver.n_used++ % MAX_CALLS].submit = driver.submitted;
    }
    return result;
}

/* A failed wait leaves the device at work, but for a lost one, which rests. */
static bool skips_wait(enum function id, bool *failed)
{
    *failed = fails(id);
    return *failed && driver.error != VK_ERROR_DEVICE_LOST;
}

/* Nanoseconds to wait where the caller would `timeout`: to the end, as a busy machine may need longer
 * than the library waits for its own work. A question stays one. */
static uint64_t patience(bool failed, uint64_t timeout)
{
    return failed || timeout > 0 ? UINT64_MAX : 0;
}

static VkResult end_wait(bool failed, VkResult result, size_t submit)
{
    if (result == VK_SUCCESS && submit > driver.waited)
        driver.waited = submit;
    return failed ? driver.error : result;
}

static VKAPI_ATTR VkResult VKAPI_CALL on_vkWaitSemaphores(VkDevice device,
                                                          const VkSemaphoreWaitInfo *info,
                                                          uint64_t timeout)
{
    bool failed = false, again = timeout == 0 && driver.asked;
    if (!again && skips_wait(ID_vkWaitSemaphores, &failed))
        return driver.error;
    driver.asked = timeout == 0;
    return end_wait(failed, real.vkWaitSemaphores(device, info, patience(failed, timeout)),
                    info->pValues[0]);
}

/* Tells of no more than was waited for, so that the calls that follow do not depend on time. */
static VKAPI_ATTR VkResult VKAPI_CALL on_vkGetSemaphoreCounterValue(VkDevice device,
                                                                    VkSemaphore semaphore,
                                                                    uint64_t *value)
{
    bool failed;
    if (skips_wait(ID_vkGetSemaphoreCounterValue, &failed))
        return driver.error;
    if ((failed || driver.boasts) && real.vkQueueWaitIdle(driver.queue) == VK_SUCCESS)
        driver.waited = driver.submitted;
    enter("vkGetSemaphoreCounterValue");
    VkResult result = leave(real.vkGetSemaphoreCounterValue(device, semaphore, value));
    *value = driver.boasts ? UINT64_MAX : driver.waited;
    return failed ? driver.error : result;
}

static VKAPI_ATTR VkResult VKAPI_CALL on_vkWaitForFences(VkDevice device, uint32_t count,
                                                         const VkFence *fences, VkBool32 all,
                                                         uint64_t timeout)
{
    bool failed = false, again = timeout == 0 && driver.asked;
    size_t submit = driver.submitted;
    if (!again && skips_wait(ID_vkWaitForFences, &failed))
        return driver.error;
    driver.asked = timeout == 0;
    while (submit > 0 && driver.fences[submit % MAX_CALLS] != fences[0])
        submit--;
    return end_wait(failed,
                    real.vkWaitForFences(device, count, fences, all, patience(failed, timeout)),
                    submit);
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

/* ---- What tests say -------------------------------------------------------------------------- */

bool driver_share(void)
{
    busy = loader_share(NAME_SIZE);
    return busy;
}

static bool is_stub(PFN_vkGetInstanceProcAddr get, VkInstance instance)
{
    PFN_vkEnumeratePhysicalDevices list =
        (PFN_vkEnumeratePhysicalDevices)get(instance, "vkEnumeratePhysicalDevices");
    PFN_vkGetPhysicalDeviceProperties properties =
        (PFN_vkGetPhysicalDeviceProperties)get(instance, "vkGetPhysicalDeviceProperties");
    VkPhysicalDevice first;
    VkPhysicalDeviceProperties p;
    uint32_t n = 1;
    if (list(instance, &n, &first) < 0 || n == 0)
        return false;
    properties(first, &p);
    return strncmp(p.deviceName, "stub ", 5) == 0;
}

bool driver_open(void)
{
    PFN_vkGetInstanceProcAddr get = loader_open();
    if (!get || !(busy || driver_share()))
        return false;
    PFN_vkCreateInstance create = (PFN_vkCreateInstance)get(NULL, "vkCreateInstance");
    static VkInstance kept;
    const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
    driver_reset();
    if (!create || create(&info, NULL, &kept) != VK_SUCCESS)
        return false;
    computes = !is_stub(get, kept);
    return true;
}

void driver_reset(void)
{
    long alive = driver.alive;
    memset(&driver, 0, sizeof driver);
    driver.alive = alive;
    driver.fail_at = driver.drop_at = driver.multiply_at = DRIVER_NEVER;
    driver_keep_allocations();
}

size_t driver_calls(void)
{
    return driver.n_call;
}

const char *driver_call_name(size_t call)
{
    return call < MAX_CALLS ? functions[driver.calls[call]].name : "a call past those kept";
}

size_t driver_call_errors(size_t call, VkResult errors[DRIVER_MAX_ERRORS])
{
    size_t n = 0;
    if (call < driver.n_call && call < MAX_CALLS)
        while (n < DRIVER_MAX_ERRORS && functions[driver.calls[call]].errors[n] != VK_SUCCESS) {
            errors[n] = functions[driver.calls[call]].errors[n];
            n++;
        }
    return n;
}

void driver_fail(size_t call, VkResult error)
{
    driver.fail_at = call;
    driver.error = error;
}

void driver_drop(size_t call)
{
    driver.drop_at = call;
}

void driver_refuse(const uint32_t *words, VkResult result, size_t spared)
{
    driver.refused = words;
    driver.refusal = result;
    driver.spared = spared;
}

size_t driver_refusals(void)
{
    return driver.n_refusal;
}

size_t driver_pipelines(void)
{
    return driver.n_made;
}

bool driver_saw(const uint32_t *words)
{
    for (size_t i = 0; i < driver.n_seen && i < MAX_SEEN; i++)
        if (driver.seen[i] == words)
            return true;
    return driver.n_seen > MAX_SEEN; /* or it was forgotten */
}

bool driver_computes(void)
{
    return computes;
}

void driver_multiply_devices(size_t listing)
{
    driver.multiply_at = listing;
}

void driver_boast(void)
{
    driver.boasts = true;
}

long driver_alive(void)
{
    return driver.alive;
}

size_t driver_freed_in_flight(void)
{
    return driver.freed_in_flight;
}

const char *driver_busy(void)
{
    return busy[0] ? busy : NULL;
}
