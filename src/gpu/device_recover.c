/* Recovers a lost device: destroys the Vulkan objects and makes them again; all handles stay. */
#include "gpu/device.h"
#include "gpu/tensor.h"

/* Destroys every Vulkan object, the device too; skips those that do not exist. */
static void stop(struct vka_device *device)
{
    for (struct recorded *r = device->recorded; r; r = r->next)
        r->release(r);
    queue_finish(device);
    device->queue = (struct queue){.submitted = device->queue.submitted};
    device->queue.completed = device->queue.submitted;
    VkPipelineCreateFlags flags = device->pipelines.flags;
    pipelines_finish(device);
    device->pipelines = (struct pipelines){.flags = flags};
    memory_empty(device);
    if (device->handle)
        device->vk.vkDestroyDevice(device->handle, NULL);
    device->handle = VK_NULL_HANDLE;
}

/* Restores contents that were kept; marks other storages stale. */
static enum vka_status restore_storages(struct vka_device *device)
{
    for (struct storage *s = device->kept; s; s = s->next_kept) {
        s->stale = !s->kept;
        if (s->kept)
            ENSURE(storage_restore(s));
    }
    return VKA_OK;
}

static enum vka_status start(struct vka_device *device)
{
    struct device_request request;
    device_request_fill(device, &request);
    ENSURE(device_create_logical(device, &request));
    if (device->begin_label)
        device_load_labels(device);
    ENSURE(memory_refill(device));
    ENSURE(queue_init(device, device->caps.properties.timeline));
    ENSURE(pipelines_init(device, NULL, 0));
    ENSURE(restore_storages(device));
    for (struct recorded *r = device->recorded; r; r = r->next)
        ENSURE(r->restore(r));
    return VKA_OK;
}

enum vka_status vka_device_recover(struct vka_device *device)
{
    if (!device)
        return VKA_INVALID;
    struct log *log = &device->log;
    enum vka_status status = VKA_OK;
    if (device_is_forked(device))
        return device_check(device);
    CHECK_ARG(device->lost, "%s: the device is not lost", __func__);
    if (device->adopted || !memory_is_own(device))
        return log_error(log, VKA_UNSUPPORTED,
                         "%s: the device, or memory that a tensor wraps, is the application's: "
                         "make a new device",
                         __func__);
    stop(device);
    device->lost = false; /* so that the calls below work */
    status = start(device);
    if (status != VKA_OK)
        queue_drain(device); /* a copy may be in flight: the next attempt releases what it uses */
    device->lost = status != VKA_OK;
fail:
    return status;
}
