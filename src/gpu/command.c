#include "gpu/command.h"
#include "core/os.h"
#include "gpu/memory.h"
#include "gpu/receipt.h"

#include <stdio.h>
#include <string.h>

#define COPY_TIMEOUT VKA_TIMEOUT_DEFAULT
#define FINISH_TIMEOUT 10000000000ull
#define STAGING_SIZE (16ull << 20)

/* Nanoseconds for which a wait asks a GPU again and again before it sleeps: to be woken by an interrupt
 * takes tens of thousands, as long as a small plan. */
#define AWAKE 100000ull

enum vka_status queue_init(struct vka_device *device, bool timeline)
{
    struct queue *queue = &device->queue;
    struct log *log = &device->log;
    if (timeline) {
        ENSURE_VK(device->vk.vkCreateSemaphore(
            device->handle,
            &(VkSemaphoreCreateInfo){
                .sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
                .pNext =
                    &(VkSemaphoreTypeCreateInfo){
                        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                        .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE,
                        .initialValue = queue->submitted, /* not 0 after a recovery */
                    },
            },
            NULL, &queue->timeline));
    } else {
        for (size_t i = 0; i < MAX_IN_FLIGHT; i++)
            ENSURE_VK(device->vk.vkCreateFence(
                device->handle, &(VkFenceCreateInfo){.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO},
                NULL, &queue->fence[i]));
    }
    ENSURE_VK(
        device->vk.vkCreateCommandPool(device->handle,
                                       &(VkCommandPoolCreateInfo){
                                           .sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                           .flags = VK_COMMAND_POOL_CREATE_TRANSIENT_BIT,
                                           .queueFamilyIndex = device->queue_family,
                                       },
                                       NULL, &queue->pool));
    return receipts_grow(device);
}

static void release_done(struct vka_device *device, bool all)
{
    struct retired **link = &device->queue.retired;
    while (*link) {
        struct retired *item = *link;
        if (all || item->ticket <= device->queue.completed) {
            *link = item->next;
            item->release(device, item);
        } else {
            link = &item->next;
        }
    }
}

/* Marks all submits up to this one as done. */
static enum vka_status complete(struct vka_device *device, uint64_t ticket)
{
    device->queue.completed = ticket;
    ENSURE(receipts_check(device, ticket));
    release_done(device, false);
    return VKA_OK;
}

static bool is_in_flight(const struct vka_device *device, uint64_t ticket)
{
    return ticket > device->queue.completed && !device->lost && !device_is_forked(device);
}

bool queue_drain(struct vka_device *device)
{
    const uint64_t last = device->queue.submitted;
    /* Repeated, as a wait may fail because memory ran out. */
    for (int i = 0; i < 3 && is_in_flight(device, last); i++)
        if (queue_wait(device, last, FINISH_TIMEOUT) == VKA_TIMEOUT)
            return false;
    return !is_in_flight(device, last);
}

bool queue_finish(struct vka_device *device)
{
    struct queue *queue = &device->queue;
    if (!queue_drain(device))
        return false;
    release_done(device, true);
    queue->abandoned = 0;
    receipts_finish(device);
    if (device_is_forked(device))
        return true;
    if (queue->timeline)
        device->vk.vkDestroySemaphore(device->handle, queue->timeline, NULL);
    for (size_t i = 0; i < MAX_IN_FLIGHT; i++)
        if (queue->fence[i])
            device->vk.vkDestroyFence(device->handle, queue->fence[i], NULL);
    if (queue->pool)
        device->vk.vkDestroyCommandPool(device->handle, queue->pool, NULL);
    return true;
}

enum vka_status queue_check_lost(struct vka_device *device, enum vka_status status)
{
    if (status == VKA_DEVICE_LOST)
        device->lost = true;
    return status;
}

/* The semaphores of a submit, as Vulkan takes them. */
struct semaphores {
    VkSemaphore handle[VKA_MAX_SEMAPHORES + 1]; /* our timeline and the application's */
    uint64_t value[VKA_MAX_SEMAPHORES + 1];
    uint32_t n;
};

static void add_semaphores(struct semaphores *to, const struct vka_semaphore *from, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++, to->n++) {
        to->handle[to->n] = from[i].semaphore;
        to->value[to->n] = from[i].value;
    }
}

/* commands: the receipt's `before` (may be NULL), the work, the receipt's `behind`. */
static VkResult submit_locked(struct vka_device *device, const VkCommandBuffer commands[3],
                              const struct semaphores *waits, const struct semaphores *signals,
                              VkFence fence)
{
    const struct queue *queue = &device->queue;
    VkPipelineStageFlags stages[VKA_MAX_SEMAPHORES];
    for (uint32_t i = 0; i < waits->n; i++)
        stages[i] = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
    const VkTimelineSemaphoreSubmitInfo values = {
        .sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
        .waitSemaphoreValueCount = waits->n,
        .pWaitSemaphoreValues = waits->value,
        .signalSemaphoreValueCount = signals->n,
        .pSignalSemaphoreValues = signals->value,
    };
    const VkSubmitInfo info = {
        .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
        .pNext = queue->timeline ? &values : NULL,
        .waitSemaphoreCount = waits->n,
        .pWaitSemaphores = waits->n ? waits->handle : NULL,
        .pWaitDstStageMask = waits->n ? stages : NULL,
        .commandBufferCount = commands[0] ? 3 : 2,
        .pCommandBuffers = commands[0] ? commands : commands + 1,
        .signalSemaphoreCount = signals->n,
        .pSignalSemaphores = signals->n ? signals->handle : NULL,
    };
    if (queue->lock)
        queue->lock(queue->lock_user);
    VkResult result = device->vk.vkQueueSubmit(queue->handle, 1, &info, fence);
    if (queue->unlock)
        queue->unlock(queue->lock_user);
    return result;
}

/* Asks the driver which submits are done. After a loss a driver may report more than were ever
 * submitted; later tickets must not count as done then. */
static enum vka_status poll(struct vka_device *device)
{
    struct queue *queue = &device->queue;
    struct log *log = &device->log;
    if (!queue->timeline)
        return VKA_OK;
    uint64_t done = 0;
    ENSURE_VK(device->vk.vkGetSemaphoreCounterValue(device->handle, queue->timeline, &done));
    if (done > queue->submitted)
        done = queue->submitted;
    if (done > queue->completed)
        ENSURE(complete(device, done));
    return VKA_OK;
}

/* Takes a receipt for the ticket. None may be free when many submits are in flight. */
static enum vka_status take_receipt(struct vka_device *device, uint64_t ticket,
                                    struct receipt *receipt)
{
    if (receipt_take(device, ticket, receipt))
        return VKA_OK;
    ENSURE(poll(device));
    if (receipt_take(device, ticket, receipt))
        return VKA_OK;
    ENSURE(receipts_grow(device));
    receipt_take(device, ticket, receipt);
    return VKA_OK;
}

/* Submits one command buffer with its own ticket, which tells the submits that have begun if a
 * later one fails. */
static enum vka_status submit_one(struct vka_device *device, VkCommandBuffer commands, bool told,
                                  const struct vka_submit_info *info, bool first, bool last)
{
    struct queue *queue = &device->queue;
    struct log *log = &device->log;
    enum vka_status status = VKA_OK;
    struct semaphores waits = {.n = 0}, signals = {.n = 0};
    uint64_t next = queue->submitted + 1;
    VkFence fence = VK_NULL_HANDLE;
    if (info && first)
        add_semaphores(&waits, info->waits, info->n_wait);
    if (info && last)
        add_semaphores(&signals, info->signals, info->n_signal);
    if (queue->timeline) {
        add_semaphores(&signals, &(struct vka_semaphore){queue->timeline, next}, 1);
    } else { /* the fence is free when the ticket MAX_IN_FLIGHT before is done */
        if (next > MAX_IN_FLIGHT)
            TRY(queue_wait(device, next - MAX_IN_FLIGHT, COPY_TIMEOUT));
        fence = queue->fence[next % MAX_IN_FLIGHT];
        VK(device->vk.vkResetFences(device->handle, 1, &fence));
    }
    struct receipt receipt = {0};
    TRY(take_receipt(device, next, &receipt));
    const VkCommandBuffer all[] = {told ? receipt.before : VK_NULL_HANDLE, commands,
                                   receipt.behind};
    VkResult result = submit_locked(device, all, &waits, &signals, fence);
    if (result != VK_SUCCESS) {
        receipt_drop(device, next);
        status = vk_error(log, result, "vkQueueSubmit");
        goto fail;
    }
    queue->submitted = next;
fail:
    return queue_check_lost(device, status);
}

enum vka_status queue_submit(struct vka_device *device, const VkCommandBuffer *commands, size_t n,
                             bool told, const struct vka_submit_info *info, uint64_t *ticket)
{
    ENSURE(device_check(device));
    for (size_t i = 0; i < n; i++) {
        ENSURE(submit_one(device, commands[i], told, info, i == 0, i + 1 == n));
        *ticket = device->queue.submitted;
    }
    return VKA_OK;
}

static VkResult wait_once(struct vka_device *device, uint64_t ticket, uint64_t timeout)
{
    struct queue *queue = &device->queue;
    if (!queue->timeline)
        return device->vk.vkWaitForFences(device->handle, 1, &queue->fence[ticket % MAX_IN_FLIGHT],
                                          VK_TRUE, timeout);
    return device->vk.vkWaitSemaphores(device->handle,
                                       &(VkSemaphoreWaitInfo){
                                           .sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                           .semaphoreCount = 1,
                                           .pSemaphores = &queue->timeline,
                                           .pValues = &ticket,
                                       },
                                       timeout);
}

/* Whether the ticket is done before a wait would have slept and woken up. False where that is not known,
 * after a loss too: waiting tells. Never on a CPU driver, which needs the processor. */
static bool is_done_soon(struct vka_device *device, uint64_t ticket, uint64_t timeout)
{
    const struct queue *queue = &device->queue;
    if (!queue->timeline || device->caps.properties.type == VKA_DEVICE_CPU || !timeout)
        return false;
    const uint64_t begin = os_now(), most = timeout < AWAKE ? timeout : AWAKE;
    do {
        uint64_t done = 0;
        if (device->vk.vkGetSemaphoreCounterValue(device->handle, queue->timeline, &done) !=
                VK_SUCCESS ||
            done > queue->submitted)
            return false;
        if (done >= ticket)
            return true;
    } while (os_now() - begin < most);
    return false;
}

enum vka_status queue_try(struct vka_device *device, uint64_t ticket, uint64_t timeout)
{
    struct queue *queue = &device->queue;
    struct log *log = &device->log;
    enum vka_status status = device_check(device);
    if (status != VKA_OK || ticket <= queue->completed)
        return status;
    VkResult result =
        is_done_soon(device, ticket, timeout) ? VK_SUCCESS : wait_once(device, ticket, timeout);
    if (result == VK_TIMEOUT) {
        snprintf(log->error, sizeof log->error, "the run is not done yet");
        return VKA_TIMEOUT;
    }
    if (result != VK_SUCCESS)
        status = vk_error(log, result, queue->timeline ? "vkWaitSemaphores" : "vkWaitForFences");
    else
        status = complete(device, ticket);
    return queue_check_lost(device, status);
}

enum vka_status queue_wait(struct vka_device *device, uint64_t ticket, uint64_t timeout)
{
    enum vka_status status = queue_try(device, ticket, timeout);
    if (status == VKA_TIMEOUT && timeout > 0)
        return log_error(&device->log, VKA_TIMEOUT, "the device is not done after %.3g s",
                         (double)timeout * 1e-9);
    return status;
}

void queue_retire(struct vka_device *device, struct retired *item)
{
    item->next = device->queue.retired;
    device->queue.retired = item;
    release_done(device, device_is_forked(device));
}

/* Copies size bytes between two buffers, and waits. */
static enum vka_status copy_and_wait(struct vka_device *device, VkBuffer from, uint64_t from_offset,
                                     VkBuffer to, uint64_t to_offset, uint64_t size)
{
    struct log *log = &device->log;
    enum vka_status status = VKA_OK;
    const struct VolkDeviceTable *vk = &device->vk;
    const VkPipelineStageFlags shader = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT;
    const VkPipelineStageFlags transfer = VK_PIPELINE_STAGE_TRANSFER_BIT;
    VkCommandBuffer commands = VK_NULL_HANDLE;
    uint64_t ticket = 0;
    TRY(vk_allocate_commands(log, vk, device->handle, device->queue.pool, 1, &commands));
    TRY(vk_begin(log, vk, commands, VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT));
    vk_barrier(vk, commands, shader | transfer, transfer,
               VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
               VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT);
    vk->vkCmdCopyBuffer(commands, from, to, 1, &(VkBufferCopy){from_offset, to_offset, size});
    vk_barrier(vk, commands, transfer, VK_PIPELINE_STAGE_HOST_BIT | shader,
               VK_ACCESS_TRANSFER_WRITE_BIT,
               VK_ACCESS_HOST_READ_BIT | VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
    VK(device->vk.vkEndCommandBuffer(commands));
    TRY(queue_submit(device, &commands, 1, false, NULL, &ticket));
    TRY(queue_wait(device, ticket, COPY_TIMEOUT));
fail:
    if (is_in_flight(device, ticket))
        device->queue.abandoned = ticket; /* the pool frees the commands in the end */
    else if (commands)
        device->vk.vkFreeCommandBuffers(device->handle, device->queue.pool, 1, &commands);
    return status;
}

/* Copies the bytes to or from the device, in slices of the size of the staging buffer. */
static enum vka_status transfer(struct vka_device *device, const struct memory_range *range,
                                uint64_t offset, char *data, uint64_t size, bool to_device)
{
    struct memory_range staging;
    enum vka_status status = memory_allocate(device, MEMORY_STAGING,
                                             size < STAGING_SIZE ? size : STAGING_SIZE, &staging);
    if (status != VKA_OK)
        return status;
    for (uint64_t done = 0; done < size && status == VKA_OK;) {
        uint64_t slice = size - done < staging.size ? size - done : staging.size;
        VkBuffer host = staging.block->buffer, local = range->block->buffer;
        uint64_t at = range->offset + offset + done;
        if (to_device) {
            memcpy(memory_mapped(&staging), data + done, slice);
            status = copy_and_wait(device, host, staging.offset, local, at, slice);
        } else {
            status = copy_and_wait(device, local, at, host, staging.offset, slice);
            if (status == VKA_OK)
                memcpy(data + done, memory_mapped(&staging), slice);
        }
        done += slice;
    }
    if (!is_in_flight(device, device->queue.submitted)) /* else the device may still write there */
        memory_free(device, &staging);
    return status;
}

enum vka_status queue_write(struct vka_device *device, const struct memory_range *range,
                            uint64_t offset, const void *data, uint64_t size)
{
    return transfer(device, range, offset, (char *)(uintptr_t)data, size, true);
}

enum vka_status queue_read(struct vka_device *device, const struct memory_range *range,
                           uint64_t offset, void *data, uint64_t size)
{
    return transfer(device, range, offset, data, size, false);
}

enum vka_status queue_copy(struct vka_device *device, const struct memory_range *from,
                           uint64_t from_offset, const struct memory_range *to, uint64_t to_offset,
                           uint64_t size)
{
    return copy_and_wait(device, from->block->buffer, from->offset + from_offset, to->block->buffer,
                         to->offset + to_offset, size);
}
