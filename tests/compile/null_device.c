#include "null_device.h"
#include "core/os.h"
#include "gpu/device_caps.h"
#include "gpu/device_logical.h"
#include "gpu/memory_block.h"

#include <gpu/tensor.h>

#include <stdlib.h>

#define MEMORY_BYTES (1ull << 30) /* touched only where written */

#define FAST 1e6 /* operations per nanosecond: no pass is cut */

/* Null devices have no memory types, so one block of host memory stands in for all of a kind. */
static enum vka_status add_memory(struct vka_device *device, enum memory_kind kind)
{
    struct log *log = &device->log;
    enum vka_status status = VKA_OK;
    struct memory_block *block = calloc(1, sizeof *block);
    CHECK_ALLOC(block);
    block->next = device->memory.blocks;
    device->memory.blocks = block;
    block->kind = kind;
    block->size = MEMORY_BYTES;
    block->mapped = calloc(1, MEMORY_BYTES);
    CHECK_ALLOC(block->mapped);
    block->holes = malloc(sizeof *block->holes);
    CHECK_ALLOC(block->holes);
    block->holes[0] = (struct memory_hole){0, MEMORY_BYTES};
    block->n_hole = block->hole_room = 1;
    block->n_taken = 1; /* so that it is never empty and given back to the driver */
    device->memory.mapped[kind] = true;
fail:
    return status;
}

static enum vka_status create_logical(struct vka_device *device, bool wanted)
{
    static const char *const extension = VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME;
    struct device_request request;
    VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR statistics = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR,
        .pipelineExecutableInfo = VK_TRUE};
    if (wanted && !vk_has_extension(&device->instance, device->physical, extension))
        return log_error(&device->log, VKA_UNSUPPORTED, "%s has no %s",
                         device->caps.properties.name, extension);
    device_request_fill(device, &request);
    if (wanted) {
        statistics.pNext = request.features.pNext;
        request.features.pNext = &statistics;
        request.extensions[request.n_extension++] = extension;
    }
    return device_create_logical(device, &request);
}

enum vka_status null_device_open(bool statistics, struct vka_device **out)
{
    enum vka_status status = VKA_OK;
    *out = NULL;
    struct vka_device *device = calloc(1, sizeof *device);
    if (!device)
        return VKA_OUT_OF_HOST_MEMORY;
    struct log *log = &device->log;
    uint32_t count = 1;
    device->process = os_process();
    TRY(vk_instance_create(log, false, false, &device->instance));
    VkResult result = device->instance.vkEnumeratePhysicalDevices(device->instance.handle, &count,
                                                                  &device->physical);
    if ((result != VK_SUCCESS && result != VK_INCOMPLETE) || count == 0) {
        status = log_error(log, VKA_NO_DEVICE, "no device");
        goto fail;
    }
    device_read_caps(&device->instance, device->physical, 0, &device->caps, &device->queue_family);
    device->self_test.off = true;          /* it runs nothing */
    device->pipelines.late = true;         /* and makes what it is asked for */
    for (int k = 0; k < KERNEL_COUNT; k++) /* so plans measure no rate */
        device->rates.of[k] = (struct rate){FAST, FAST};
    TRY(create_logical(device, statistics));
    for (int kind = 0; kind < MEMORY_KIND_COUNT; kind++)
        TRY(add_memory(device, (enum memory_kind)kind));
    TRY(storage_create(device, MEMORY_STAGING, 8, &device->running));
    TRY(pipelines_init(device, NULL, 0));
    device->pipelines.flags = statistics ? VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR : 0;
    *out = device;
    return VKA_OK;

fail:
    null_device_close(&device);
    return status;
}

void null_device_close(struct vka_device **slot)
{
    struct vka_device *device = *slot;
    *slot = NULL;
    if (!device)
        return;
    storage_unref(&device->running);
    for (struct memory_block *block = device->memory.blocks; block; block = block->next)
        free(block->mapped);
    if (device->handle) {
        pipelines_finish(device);
        memory_finish(device);
        device->vk.vkDestroyDevice(device->handle, NULL);
    }
    vk_instance_destroy(&device->instance);
    free(device);
}
