/* The queue: submits wait, in order, until the host waits for them or asks. */
#include "stub.h"

#include <stdlib.h>
#include <string.h>

/* ---- Running --------------------------------------------------------------------------------- */

#define GROUP_TICKS 200    /* nanoseconds that a workgroup counts for, of eight at once */
#define DISPATCH_TICKS 500 /* and a dispatch */

static void run_copy(struct stub_device *device, const struct stub_command *c)
{
    static const char *const function = "a copy that runs";
    const char *from = stub_bytes(device, c->from, c->from_offset, c->size, function);
    memmove(stub_bytes(device, c->to, c->offset, c->size, function), from, c->size);
}

static void run_fill(struct stub_device *device, const struct stub_command *c)
{
    char *to = stub_bytes(device, c->to, c->offset, c->size, "a fill that runs");
    for (uint64_t i = 0; i < c->size; i += 4)
        memcpy(to + i, &c->value, 4);
}

static void run_dispatch(struct stub_device *device, const struct stub_command *c)
{
    static const char *const function = "a dispatch that runs";
    const struct stub_pipeline *pipeline = stub_get(device, STUB_PIPELINE, c->pipeline, function);
    stub_check_set(device, pipeline, stub_get(device, STUB_DESCRIPTOR_SET, c->set, function),
                   function);
    device->ticks += DISPATCH_TICKS + c->groups * GROUP_TICKS / 8;
}

static void run_query(struct stub_device *device, const struct stub_command *c)
{
    static const char *const function = "a query that runs";
    struct stub_query_pool *pool = stub_get(device, STUB_QUERY_POOL, c->to, function);
    for (uint32_t i = 0; c->kind == STUB_RESET && i < c->count; i++) {
        pool->queries[c->first + i].reset = true;
        pool->queries[c->first + i].written = false;
    }
    if (c->kind == STUB_RESET)
        return;
    if (!pool->queries[c->first].reset)
        stub_mistake(function, "query %u is written and was not reset", c->first);
    pool->queries[c->first].reset = false;
    pool->queries[c->first].written = true;
    pool->queries[c->first].ticks = device->ticks;
}

static void run_commands(struct stub_device *device, struct stub_command_buffer *commands)
{
    for (size_t i = 0; i < commands->n; i++) {
        const struct stub_command *c = &commands->commands[i];
        if (c->kind == STUB_COPY)
            run_copy(device, c);
        else if (c->kind == STUB_FILL)
            run_fill(device, c);
        else if (c->kind == STUB_DISPATCH)
            run_dispatch(device, c);
        else
            run_query(device, c);
    }
    commands->pending--;
    if (commands->usage & VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT)
        commands->state = STUB_INVALID;
}

static void run_submit(struct stub_device *device, struct stub_submit *submit)
{
    static const char *const function = "a submit that runs";
    for (uint32_t i = 0; i < submit->n_wait; i++) {
        struct stub_semaphore *s =
            stub_get(device, STUB_SEMAPHORE, submit->waits[i].semaphore, function);
        if (s->timeline ? s->value < submit->waits[i].value : !s->signaled)
            stub_mistake(function, "it waits for a semaphore that nothing signals");
        s->signaled = false;
    }
    for (uint32_t i = 0; i < submit->n_commands; i++)
        run_commands(device, submit->commands[i]);
    for (uint32_t i = 0; i < submit->n_signal; i++) {
        struct stub_semaphore *s =
            stub_get(device, STUB_SEMAPHORE, submit->signals[i].semaphore, function);
        s->signaled = true;
        s->value = submit->signals[i].value;
    }
    if (submit->fence) {
        struct stub_fence *fence = stub_get(device, STUB_FENCE, submit->fence, function);
        fence->pending = false;
        fence->signaled = true;
    }
}

bool stub_queue_run(struct stub_device *device, size_t n)
{
    struct stub_queue *queue = &device->queue;
    const bool some = queue->first;
    for (; n > 0 && queue->first; n--) {
        struct stub_submit *submit = queue->first;
        run_submit(device, submit);
        queue->first = submit->next;
        if (!queue->first)
            queue->last = &queue->first;
        free(submit->commands);
        free(submit->waits);
        free(submit->signals);
        free(submit);
    }
    return some;
}

/* ---- Submits --------------------------------------------------------------------------------- */

static void *take(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    if (!p)
        abort();
    return p;
}

static void take_commands(struct stub_device *device, const VkSubmitInfo *info,
                          struct stub_submit *submit)
{
    static const char *const function = "vkQueueSubmit";
    submit->n_commands = info->commandBufferCount;
    submit->commands = take(submit->n_commands, sizeof *submit->commands);
    for (uint32_t i = 0; i < submit->n_commands; i++) {
        struct stub_command_buffer *commands =
            (struct stub_command_buffer *)info->pCommandBuffers[i];
        if (commands->device != device)
            stub_mistake(function, "a command buffer of another device");
        if (commands->state != STUB_EXECUTABLE)
            stub_mistake(function, "a command buffer in state %d, which cannot run",
                         (int)commands->state);
        if (commands->pending && !(commands->usage & VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT))
            stub_mistake(function, "a command buffer that is pending already");
        if (commands->pending && commands->usage & VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT)
            stub_mistake(function, "a command buffer of one submit, submitted twice");
        commands->pending++;
        submit->commands[i] = commands;
    }
}

static void take_signals(struct stub_device *device, const VkSubmitInfo *info,
                         const VkTimelineSemaphoreSubmitInfo *values, struct stub_submit *submit)
{
    static const char *const function = "vkQueueSubmit";
    submit->n_wait = info->waitSemaphoreCount;
    submit->waits = take(submit->n_wait, sizeof *submit->waits);
    submit->n_signal = info->signalSemaphoreCount;
    submit->signals = take(submit->n_signal, sizeof *submit->signals);
    for (uint32_t i = 0; i < submit->n_wait; i++) {
        submit->waits[i].semaphore = (uint64_t)info->pWaitSemaphores[i];
        stub_get(device, STUB_SEMAPHORE, submit->waits[i].semaphore, function);
        if (values && i < values->waitSemaphoreValueCount)
            submit->waits[i].value = values->pWaitSemaphoreValues[i];
        if (!info->pWaitDstStageMask[i])
            stub_mistake(function, "a wait without stages");
    }
    for (uint32_t i = 0; i < submit->n_signal; i++) {
        struct stub_signal *signal = &submit->signals[i];
        signal->semaphore = (uint64_t)info->pSignalSemaphores[i];
        struct stub_semaphore *s = stub_get(device, STUB_SEMAPHORE, signal->semaphore, function);
        if (!s->timeline)
            continue;
        if (!values || i >= values->signalSemaphoreValueCount)
            stub_mistake(function, "a timeline is signaled without a value");
        signal->value = values->pSignalSemaphoreValues[i];
        if (signal->value <= s->promised)
            stub_mistake(function, "a timeline of %llu is signaled with %llu",
                         (unsigned long long)s->promised, (unsigned long long)signal->value);
        s->promised = signal->value;
    }
}

static VKAPI_ATTR VkResult VKAPI_CALL stub_vkQueueSubmit(VkQueue handle, uint32_t n,
                                                         const VkSubmitInfo *infos, VkFence object)
{
    struct stub_queue *queue = (struct stub_queue *)handle;
    struct stub_device *device = queue->device;
    if (object) {
        struct stub_fence *fence = STUB_GET(device, STUB_FENCE, object);
        STUB_CHECK(!fence->signaled && !fence->pending, "a fence that is signaled or pending");
        fence->pending = true;
    }
    STUB_CHECK(n > 0, "no submits");
    for (uint32_t i = 0; i < n; i++) {
        const VkTimelineSemaphoreSubmitInfo *values = NULL;
        for (const VkBaseInStructure *s = infos[i].pNext; s; s = s->pNext)
            if (s->sType == VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO)
                values = (const void *)s;
        struct stub_submit *submit = take(1, sizeof *submit);
        take_commands(device, &infos[i], submit);
        take_signals(device, &infos[i], values, submit);
        submit->fence = i + 1 == n ? (uint64_t)object : 0;
        *queue->last = submit;
        queue->last = &submit->next;
    }
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL stub_vkQueueWaitIdle(VkQueue handle)
{
    stub_queue_run(((struct stub_queue *)handle)->device, SIZE_MAX);
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL stub_vkDeviceWaitIdle(VkDevice handle)
{
    stub_queue_run((struct stub_device *)handle, SIZE_MAX);
    return VK_SUCCESS;
}

/* ---- Waits ----------------------------------------------------------------------------------- */

/* Whoever asks without waiting sees one more submit done each time. */
static VKAPI_ATTR VkResult VKAPI_CALL stub_vkGetSemaphoreCounterValue(VkDevice handle,
                                                                      VkSemaphore object,
                                                                      uint64_t *value)
{
    struct stub_device *device = (struct stub_device *)handle;
    stub_queue_run(device, 1);
    const struct stub_semaphore *semaphore = STUB_GET(device, STUB_SEMAPHORE, object);
    STUB_CHECK(semaphore->timeline, "a semaphore that is no timeline");
    *value = semaphore->value;
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL stub_vkWaitSemaphores(VkDevice handle,
                                                            const VkSemaphoreWaitInfo *info,
                                                            uint64_t timeout)
{
    struct stub_device *device = (struct stub_device *)handle;
    STUB_CHECK(info->semaphoreCount == 1, "%u semaphores", info->semaphoreCount);
    const struct stub_semaphore *semaphore = STUB_GET(device, STUB_SEMAPHORE, info->pSemaphores[0]);
    STUB_CHECK(semaphore->timeline, "a semaphore that is no timeline");
    STUB_CHECK(info->pValues[0] <= semaphore->promised, "a wait for a value that nothing signals");
    if (semaphore->value < info->pValues[0])
        stub_queue_run(device, 1);
    while (timeout > 0 && semaphore->value < info->pValues[0])
        stub_queue_run(device, 1);
    return semaphore->value < info->pValues[0] ? VK_TIMEOUT : VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL stub_vkWaitForFences(VkDevice handle, uint32_t n,
                                                           const VkFence *fences, VkBool32 all,
                                                           uint64_t timeout)
{
    struct stub_device *device = (struct stub_device *)handle;
    STUB_CHECK(n == 1 && all, "%u fences", n);
    const struct stub_fence *fence = STUB_GET(device, STUB_FENCE, fences[0]);
    STUB_CHECK(fence->signaled || fence->pending, "a wait for a fence that nothing signals");
    if (!fence->signaled)
        stub_queue_run(device, 1);
    while (timeout > 0 && !fence->signaled)
        stub_queue_run(device, 1);
    return fence->signaled ? VK_SUCCESS : VK_TIMEOUT;
}

static VKAPI_ATTR VkResult VKAPI_CALL stub_vkResetFences(VkDevice handle, uint32_t n,
                                                         const VkFence *fences)
{
    for (uint32_t i = 0; i < n; i++) {
        struct stub_fence *fence = STUB_GET((struct stub_device *)handle, STUB_FENCE, fences[i]);
        STUB_CHECK(!fence->pending, "a fence of a submit that is pending");
        fence->signaled = false;
    }
    return VK_SUCCESS;
}

const struct stub_function stub_queue_functions[] = {
    STUB_FUNCTION(vkQueueSubmit),    STUB_FUNCTION(vkQueueWaitIdle),
    STUB_FUNCTION(vkDeviceWaitIdle), STUB_FUNCTION(vkGetSemaphoreCounterValue),
    STUB_FUNCTION(vkWaitSemaphores), STUB_FUNCTION(vkWaitForFences),
    STUB_FUNCTION(vkResetFences),    {0},
};
