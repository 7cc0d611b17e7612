/* Deliberate mistakes that the validation layer must report through the device's log: without them,
 * silence of the layer on the cases would prove nothing. Not a test of its own; .ci/run calls
 *
 *     validation_canary core              a buffer of no bytes
 *     validation_canary synchronization   two writes to a buffer with no barrier between
 *
 * and the second kind needs the layer's synchronization checks on by its environment variable.
 */
#include <stdio.h>
#include <string.h>

#include "gpu/device.h"

struct heard {
    const char *want; /* part of the expected message */
    bool found;
};

static void listen(void *user, enum vka_log_level level, const char *message)
{
    struct heard *heard = user;

    if (level == VKA_LOG_ERROR && strstr(message, heard->want)) {
        heard->found = true;
        printf("reported, as it should be: %.100s\n", message);
    }
}

static void make_empty_buffer(struct vka_device *device)
{
    const VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .size = 0,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT,
    };
    VkBuffer buffer = VK_NULL_HANDLE;

    if (device->vk.vkCreateBuffer(device->handle, &info, NULL, &buffer) == VK_SUCCESS)
        device->vk.vkDestroyBuffer(device->handle, buffer, NULL);
}

/* Records only; the layer finds the hazard within one command buffer. */
static enum vka_status record_hazard(struct vka_device *device)
{
    enum vka_status status = VKA_OK;
    struct log *log = &device->log;
    VkCommandPool pool = VK_NULL_HANDLE;
    VkCommandBuffer commands;
    struct memory_range range = {0};

    TRY(memory_allocate(device, MEMORY_STAGING, 256, &range));
    VK(device->vk.vkCreateCommandPool(
        device->handle,
        &(VkCommandPoolCreateInfo){.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                   .queueFamilyIndex = device->queue_family},
        NULL, &pool));
    VK(device->vk.vkAllocateCommandBuffers(
        device->handle,
        &(VkCommandBufferAllocateInfo){.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                       .commandPool = pool,
                                       .commandBufferCount = 1},
        &commands));
    VK(device->vk.vkBeginCommandBuffer(
        commands,
        &(VkCommandBufferBeginInfo){.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO}));
    for (uint32_t value = 0; value < 2; value++)
        device->vk.vkCmdFillBuffer(commands, range.block->buffer, range.offset, range.size, value);
    VK(device->vk.vkEndCommandBuffer(commands));
fail:
    device->vk.vkDestroyCommandPool(device->handle, pool, NULL);
    memory_free(device, &range);
    return status;
}

int main(int argc, char **argv)
{
    bool core = argc == 2 && !strcmp(argv[1], "core");
    bool synchronization = argc == 2 && !strcmp(argv[1], "synchronization");
    struct heard heard = {.want = core ? "VkBufferCreateInfo-size" : "SYNC-HAZARD"};
    struct vka_device *device = NULL;

    if (!core && !synchronization) {
        fprintf(stderr, "usage: validation_canary core|synchronization\n");
        return 2;
    }
    if (vka_device_create(
            VKA_INFO(vka_device_info, .log = listen, .log_user = &heard, .validation = true),
            &device)) {
        fprintf(stderr, "validation_canary: no device\n");
        return 3;
    }
    if (core)
        make_empty_buffer(device);
    else
        (void)record_hazard(device);
    vka_device_destroy(&device);
    if (!heard.found)
        fprintf(stderr, "validation_canary: no %s in the log: the layer is not at work\n",
                heard.want);
    return heard.found ? 0 : 1;
}
