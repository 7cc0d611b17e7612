/* Deliberate mistakes that a validation layer must report through the device's log: without them,
 * its silence on everything else would prove nothing. Not a test of its own: .ci/validation asks
 * each layer for the mistakes that the checks it has switched on are there to find.
 *
 *     validation_canary MISTAKE...
 */
#include <stdio.h>
#include <string.h>

#include "patience.h"
#include "gpu/device.h"
#include "params/params.h"
#include "op/common/copy.h"

/* A buffer of no bytes. */
static enum vka_status make_empty_buffer(struct vka_device *device)
{
    VkBuffer buffer = VK_NULL_HANDLE;
    VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT,
    };
    if (device->vk.vkCreateBuffer(device->handle, &info, NULL, &buffer) == VK_SUCCESS)
        device->vk.vkDestroyBuffer(device->handle, buffer, NULL);
    return VKA_OK;
}

/* A buffer that is still there when the device goes. */
static enum vka_status leak_buffer(struct vka_device *device)
{
    enum vka_status status = VKA_OK;
    struct log *log = &device->log;
    VkBuffer buffer;
    VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .size = 256,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT,
    };
    VK(device->vk.vkCreateBuffer(device->handle, &info, NULL, &buffer));
fail:
    return status;
}

/* Command buffers that are reset one by one, which a pool is better without. */
static enum vka_status make_slow_pool(struct vka_device *device)
{
    enum vka_status status = VKA_OK;
    struct log *log = &device->log;
    VkCommandPool pool;
    VkCommandPoolCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
        .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
        .queueFamilyIndex = device->queue_family,
    };
    VK(device->vk.vkCreateCommandPool(device->handle, &info, NULL, &pool));
    device->vk.vkDestroyCommandPool(device->handle, pool, NULL);
fail:
    return status;
}

/* Two writes to a buffer with no barrier between. Recorded only: the layer sees it there. */
static enum vka_status record_two_fills(struct vka_device *device)
{
    enum vka_status status = VKA_OK;
    struct log *log = &device->log;
    VkCommandPool pool = VK_NULL_HANDLE;
    VkCommandBuffer commands;
    struct memory_range range = {0};
    VkCommandPoolCreateInfo pool_info = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
        .queueFamilyIndex = device->queue_family,
    };
    VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    TRY(memory_allocate(device, MEMORY_STAGING, 256, &range));
    VK(device->vk.vkCreateCommandPool(device->handle, &pool_info, NULL, &pool));
    VK(device->vk.vkAllocateCommandBuffers(
        device->handle,
        &(VkCommandBufferAllocateInfo){.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                       .commandPool = pool,
                                       .commandBufferCount = 1},
        &commands));
    VK(device->vk.vkBeginCommandBuffer(commands, &begin));
    for (uint32_t value = 0; value < 2; value++)
        device->vk.vkCmdFillBuffer(commands, range.block->buffer, range.offset, range.size, value);
    VK(device->vk.vkEndCommandBuffer(commands));
fail:
    device->vk.vkDestroyCommandPool(device->handle, pool, NULL);
    memory_free(device, &range);
    return status;
}

/* Runs b = a, c = b as a plan that has been tampered with. */
static enum vka_status run_tampered(struct vka_device *device, void (*tamper)(struct pass *))
{
    enum vka_status status = VKA_OK;
    struct vka_tensor *t[3] = {NULL};
    struct vka_plan *plan = NULL;
    const uint32_t shape[] = {1, 1, 16, 16};
    for (size_t i = 0; i < COUNTOF(t); i++)
        TRY(vka_tensor_create(device, VKA_F32, 4, shape, &t[i]));
    TRY(vka_plan_create(device, NULL, &plan));
    for (size_t i = 0; i < 2; i++)
        TRY(plan_copy(plan, "copy", t[i], t[i + 1]));
    for (size_t i = 0; i < 2; i++)
        tamper(&plan->passes[i]);
    TRY(vka_plan_finish(plan));
    TRY(vka_plan_run(plan, PATIENCE));
fail:
    vka_plan_destroy(&plan);
    for (size_t i = 0; i < COUNTOF(t); i++)
        vka_tensor_destroy(&t[i]);
    return status;
}

static void hide_write(struct pass *pass)
{
    pass->bindings[1].write = false;
}

/* The second kernel reads what the first writes, with no barrier between. */
static enum vka_status run_without_barrier(struct vka_device *device)
{
    return run_tampered(device, hide_write);
}

static void cut_binding(struct pass *pass)
{
    pass->bindings[1].size = 4;
}

/* A kernel that writes past what it is bound to, within the buffer. */
static enum vka_status write_past_binding(struct vka_device *device)
{
    return run_tampered(device, cut_binding);
}

static void push_out(struct pass *pass)
{
    struct copy_params p;
    memcpy(&p, pass->push, sizeof p);
    p.to_offset = 1u << 28; /* elements: farther than any block of memory */
    memcpy(pass->push, &p, sizeof p);
}

/* A kernel that writes past the buffer, for layers that see no less. Only for those that keep it
 * from doing so. */
static enum vka_status write_past_buffer(struct vka_device *device)
{
    return run_tampered(device, push_out);
}

struct mistake {
    const char *name, *want; /* words of the expected message */
    enum vka_status (*make)(struct vka_device *device);
};

static const struct mistake mistakes[] = {
    {"empty-buffer", "VkBufferCreateInfo-size", make_empty_buffer},
    {"leaked-buffer", "VkBuffer", leak_buffer},
    {"slow-pool", "RESET_COMMAND_BUFFER_BIT", make_slow_pool},
    {"two-fills", "WRITE_AFTER_WRITE", record_two_fills},
    {"no-barrier", "READ_AFTER_WRITE", run_without_barrier},
    {"past-binding", "out of bounds", write_past_binding},
    {"past-buffer", "out of bounds", write_past_buffer},
};

struct heard {
    const char *want;
    bool found;
};

static void listen(void *user, enum vka_log_level level, const char *message)
{
    struct heard *heard = user;
    if (level == VKA_LOG_ERROR && !heard->found && strstr(message, heard->want)) {
        heard->found = true;
        printf("reported, as it should be: %.100s\n", message);
    }
}

static bool is_reported(const struct mistake *m)
{
    struct heard heard = {.want = m->want};
    struct vka_device *device = NULL;
    enum vka_status status = vka_device_create(
        VKA_INFO(vka_device_info, .log = listen, .log_user = &heard, .validation = true), &device);
    if (status == VKA_OK)
        status = m->make(device);
    vka_device_destroy(&device);
    if (status != VKA_OK || !heard.found)
        fprintf(stderr, "validation_canary: %s: %s\n", m->name,
                status == VKA_OK ? "not reported: the layer is not at work"
                                 : vka_status_name(status));
    return status == VKA_OK && heard.found;
}

int main(int argc, char **argv)
{
    int failures = argc < 2;
    for (int i = 1; i < argc; i++) {
        size_t m = 0;
        while (m < COUNTOF(mistakes) && strcmp(mistakes[m].name, argv[i]) != 0)
            m++;
        if (m == COUNTOF(mistakes)) {
            fprintf(stderr, "validation_canary: no mistake is called %s\n", argv[i]);
            return 2;
        }
        failures += !is_reported(&mistakes[m]);
    }
    return failures ? 1 : 0;
}
