/* What driver.c, driver_calls.c and driver_work.c share. */
#ifndef TESTS_FAULTS_DRIVER_STATE_H
#define TESTS_FAULTS_DRIVER_STATE_H

#include "driver.h"
#include "driver_functions.h"

#include <string.h>

#define MAX_CALLS 4096
#define MAX_REFUSED 64
#define MAX_SEEN 256 /* modules */

enum function {
#define F(name, ...) ID_##name,
    RESULT_FUNCTIONS(F)
#undef F
        FUNCTION_COUNT
};

/* The functions of the driver, from the loader. */
struct driver_real {
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
};
extern struct driver_real real;

/* What was counted and armed. */
struct driver_state {
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
};
extern struct driver_state driver;

extern char *driver_in_call; /* name of the call, shared between processes */

static inline void enter(const char *name)
{
    memcpy(driver_in_call, name, strlen(name) + 1);
}

static inline VkResult leave(VkResult result)
{
    driver_in_call[0] = '\0';
    return result;
}

/* Counts the call; true where it is the one to fail. */
static inline bool fails(enum function id)
{
    size_t call = driver.n_call++;
    driver.asked = false;
    if (call < MAX_CALLS)
        driver.calls[call] = id;
    return call == driver.fail_at;
}

/* In driver_work.c: what calls of submits, waits and returned command buffers go through. */
VKAPI_ATTR void VKAPI_CALL on_vkDestroyCommandPool(VkDevice device, VkCommandPool pool,
                                                   const VkAllocationCallbacks *a);
VKAPI_ATTR void VKAPI_CALL on_vkFreeCommandBuffers(VkDevice device, VkCommandPool pool,
                                                   uint32_t count, const VkCommandBuffer *commands);
VKAPI_ATTR void VKAPI_CALL on_vkDestroyDevice(VkDevice device, const VkAllocationCallbacks *a);
VKAPI_ATTR VkResult VKAPI_CALL on_vkQueueSubmit(VkQueue queue, uint32_t count,
                                                const VkSubmitInfo *submits, VkFence fence);
VKAPI_ATTR VkResult VKAPI_CALL on_vkWaitSemaphores(VkDevice device, const VkSemaphoreWaitInfo *info,
                                                   uint64_t timeout);
VKAPI_ATTR VkResult VKAPI_CALL on_vkGetSemaphoreCounterValue(VkDevice device, VkSemaphore semaphore,
                                                             uint64_t *value);
VKAPI_ATTR VkResult VKAPI_CALL on_vkWaitForFences(VkDevice device, uint32_t count,
                                                  const VkFence *fences, VkBool32 all,
                                                  uint64_t timeout);

#endif
