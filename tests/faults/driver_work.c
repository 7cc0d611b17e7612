/* Submits, waits, and what gives back what a submit may still use. */
#include "driver_state.h"

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

VKAPI_ATTR void VKAPI_CALL on_vkDestroyCommandPool(VkDevice device, VkCommandPool pool,
                                                   const VkAllocationCallbacks *a)
{
    (void)a;
    check_at_rest();
    enter("vkDestroyCommandPool");
    real.vkDestroyCommandPool(device, pool, driver_callbacks());
    leave(VK_SUCCESS);
    driver.alive -= pool != VK_NULL_HANDLE;
}

VKAPI_ATTR void VKAPI_CALL on_vkFreeCommandBuffers(VkDevice device, VkCommandPool pool,
                                                   uint32_t count, const VkCommandBuffer *commands)
{
    for (uint32_t i = 0; i < count; i++)
        driver.freed_in_flight += last_submit(commands[i]) > driver.waited;
    real.vkFreeCommandBuffers(device, pool, count, commands);
}

VKAPI_ATTR void VKAPI_CALL on_vkDestroyDevice(VkDevice device, const VkAllocationCallbacks *a)
{
    (void)a;
    check_at_rest();
    driver.submitted = driver.waited = driver.n_used = 0;
    enter("vkDestroyDevice");
    real.vkDestroyDevice(device, driver_callbacks());
    leave(VK_SUCCESS);
    driver.alive -= device != VK_NULL_HANDLE;
}

VKAPI_ATTR VkResult VKAPI_CALL on_vkQueueSubmit(VkQueue queue, uint32_t count,
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

VKAPI_ATTR VkResult VKAPI_CALL on_vkWaitSemaphores(VkDevice device, const VkSemaphoreWaitInfo *info,
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
VKAPI_ATTR VkResult VKAPI_CALL on_vkGetSemaphoreCounterValue(VkDevice device, VkSemaphore semaphore,
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

VKAPI_ATTR VkResult VKAPI_CALL on_vkWaitForFences(VkDevice device, uint32_t count,
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
