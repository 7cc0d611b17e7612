/* Attention in a command buffer of the application, on the application's own VkDevice.
 *
 *     cc adopt.c -o adopt $(pkg-config --cflags --libs vkattn vulkan)
 *
 * SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <vkattn/vkattn_vulkan.h>
#define TYPE(name) .sType = VK_STRUCTURE_TYPE_##name
#define TRY(call) ((call) != 0 ? (fprintf(stderr, "%s failed\n", #call), exit(1)) : (void)0)

int main(void)
{
    struct vka_vulkan_info own = {.struct_size = sizeof own, .api_version = VK_API_VERSION_1_1};
    VkApplicationInfo name = {TYPE(APPLICATION_INFO), .apiVersion = VK_API_VERSION_1_1};
    VkInstanceCreateInfo instance = {TYPE(INSTANCE_CREATE_INFO), .pApplicationInfo = &name};
    if (vkCreateInstance(&instance, NULL, &own.instance) != 0 ||
        vkEnumeratePhysicalDevices(own.instance, &(uint32_t){1}, &own.physical_device) < 0)
        return 77;                   /* there is no device */
    struct vka_vulkan_request *want; /* features and extensions, which a program adds its own to */
    TRY(vka_vulkan_request_create(&own, NULL, &want));
    VkDeviceQueueCreateInfo queue = {TYPE(DEVICE_QUEUE_CREATE_INFO), .queueCount = 1};
    queue.pQueuePriorities = &(float){1};
    VkDeviceCreateInfo info = {TYPE(DEVICE_CREATE_INFO), want->features, 0, 1, &queue};
    info.enabledExtensionCount = own.n_extension = want->n_extension;
    info.ppEnabledExtensionNames = own.extensions = want->extensions;
    own.features = want->features;
    TRY(vkCreateDevice(own.physical_device, &info, NULL, &own.device));
    vkGetDeviceQueue(own.device, 0, 0, &own.queue);
    struct vka_device *device;
    TRY(vka_device_adopt(&own, NULL, &device));

    struct vka_tensor *x, *y; /* vka_tensor_wrap makes one of a VkBuffer */
    struct vka_plan *plan;
    float values[] = {0, 1, 2, 3};
    TRY(vka_tensor_create(device, VKA_F32, 4, (uint32_t[]){1, 1, 4, 1}, &x));
    TRY(vka_tensor_create(device, VKA_F32, 4, (uint32_t[]){1, 1, 4, 1}, &y));
    TRY(vka_plan_create(device, NULL, &plan));
    TRY(vka_plan_add_attention(plan,
                               VKA_INFO(vka_attention_op, .q = x, .k = x, .v = x, .output = y)));
    TRY(vka_plan_finish(plan));
    TRY(vka_tensor_write(x, values, sizeof values));

    VkCommandBuffer cmd;
    VkCommandBufferAllocateInfo from = {TYPE(COMMAND_BUFFER_ALLOCATE_INFO), NULL, NULL, 0, 1};
    VkCommandPoolCreateInfo pool = {TYPE(COMMAND_POOL_CREATE_INFO)};
    TRY(vkCreateCommandPool(own.device, &pool, NULL, &from.commandPool));
    TRY(vkAllocateCommandBuffers(own.device, &from, &cmd));
    TRY(vkBeginCommandBuffer(cmd, &(VkCommandBufferBeginInfo){TYPE(COMMAND_BUFFER_BEGIN_INFO)}));
    TRY(vka_plan_record(plan, cmd)); /* beside the program's own draws and dispatches */
    TRY(vkEndCommandBuffer(cmd));
    VkSubmitInfo submit = {TYPE(SUBMIT_INFO), .commandBufferCount = 1, .pCommandBuffers = &cmd};
    TRY(vkQueueSubmit(own.queue, 1, &submit, VK_NULL_HANDLE) || vkQueueWaitIdle(own.queue));
    TRY(vka_tensor_read(y, values, sizeof values));
    printf("%.3f %.3f %.3f %.3f\n", values[0], values[1], values[2], values[3]);
    vka_plan_destroy(&plan), vka_tensor_destroy(&x), vka_tensor_destroy(&y);
    vka_device_destroy(&device), vka_vulkan_request_destroy(&want); /* Vulkan's stay */
    vkDestroyCommandPool(own.device, from.commandPool, NULL), vkDestroyDevice(own.device, NULL);
    vkDestroyInstance(own.instance, NULL);
}
