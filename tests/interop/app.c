#define VOLK_IMPLEMENTATION
#include "app.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned messages;

static VKAPI_ATTR VkBool32 VKAPI_CALL on_message(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                                                 VkDebugUtilsMessageTypeFlagsEXT type,
                                                 const VkDebugUtilsMessengerCallbackDataEXT *data,
                                                 void *user)
{
    (void)severity;
    (void)type;
    (void)user;
    messages++;
    fprintf(stderr, "validation: %s\n", data->pMessage);
    return VK_FALSE;
}

unsigned app_messages(void)
{
    return messages;
}

static bool validates(void)
{
    return getenv("APP_VALIDATE") != NULL;
}

static VkInstance create_instance(void)
{
    static const char *const layer = "VK_LAYER_KHRONOS_validation";
    static const char *const debug_utils = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
    VkInstance instance = VK_NULL_HANDLE;
    VkInstanceCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
        .pApplicationInfo = &(VkApplicationInfo){.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                                 .apiVersion = VK_API_VERSION_1_3},
        .enabledLayerCount = validates(),
        .ppEnabledLayerNames = &layer,
        .enabledExtensionCount = validates(),
        .ppEnabledExtensionNames = &debug_utils,
    };
    if (vkCreateInstance(&info, NULL, &instance) != VK_SUCCESS)
        return VK_NULL_HANDLE;
    volkLoadInstance(instance);
    return instance;
}

static VkDebugUtilsMessengerEXT create_messenger(VkInstance instance)
{
    const VkDebugUtilsMessengerCreateInfoEXT info = {
        .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
        .messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT |
                           VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT,
        .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT,
        .pfnUserCallback = on_message,
    };
    VkDebugUtilsMessengerEXT messenger = VK_NULL_HANDLE;
    if (validates())
        OK(vkCreateDebugUtilsMessengerEXT(instance, &info, NULL, &messenger));
    return messenger;
}

static VkPhysicalDevice choose_physical(VkInstance instance)
{
    VkPhysicalDevice physical = VK_NULL_HANDLE;
    VkPhysicalDeviceProperties p;
    uint32_t count = 1;
    VkResult result = vkEnumeratePhysicalDevices(instance, &count, &physical);
    if ((result != VK_SUCCESS && result != VK_INCOMPLETE) || count == 0)
        return VK_NULL_HANDLE;
    vkGetPhysicalDeviceProperties(physical, &p);
    return p.apiVersion >= VK_API_VERSION_1_3 ? physical : VK_NULL_HANDLE;
}

static uint32_t choose_family(VkPhysicalDevice physical)
{
    VkQueueFamilyProperties families[16];
    uint32_t count = COUNTOF(families), i = 0;
    vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, families);
    while (i < count && !(families[i].queueFlags & VK_QUEUE_COMPUTE_BIT))
        i++;
    assert_true(i < count);
    return i;
}

bool app_possible(void)
{
    bool possible = false;
    if (volkInitialize() == VK_SUCCESS) {
        VkInstance instance = create_instance();
        possible = instance && choose_physical(instance);
        if (instance)
            vkDestroyInstance(instance, NULL);
    }
    if (!possible)
        fprintf(stderr, "SKIPPED: no Vulkan 1.3 device: sharing one is not tested\n");
    return possible;
}

/* All that the physical device has, in the structures of the Vulkan that took features up. */
static const VkPhysicalDeviceFeatures2 *umbrella(VkPhysicalDevice physical)
{
    static VkPhysicalDeviceVulkan13Features v13 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES};
    static VkPhysicalDeviceVulkan12Features v12 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, .pNext = &v13};
    static VkPhysicalDeviceFeatures2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                            .pNext = &v12};
    vkGetPhysicalDeviceFeatures2(physical, &all);
    return &all;
}

void app_create(struct app *app, enum app_features features)
{
    const float priority = 1;
    memset(app, 0, sizeof *app);
    app->instance = create_instance();
    assert_true(app->instance != VK_NULL_HANDLE);
    app->messenger = create_messenger(app->instance);
    app->physical = choose_physical(app->instance);
    app->vulkan = (struct vka_vulkan_info){
        .struct_size = sizeof app->vulkan,
        .instance = app->instance,
        .physical_device = app->physical,
        .queue_family = choose_family(app->physical),
        .api_version = VK_API_VERSION_1_3,
    };
    OK(vka_vulkan_request_create(&app->vulkan, NULL, &app->request));
    if (features != APP_BARE) {
        app->vulkan.features =
            features == APP_UMBRELLA ? umbrella(app->physical) : app->request->features;
        app->vulkan.extensions = app->request->extensions;
        app->vulkan.n_extension = app->request->n_extension;
    }
    OK(vkCreateDevice(app->physical,
                      &(VkDeviceCreateInfo){
                          .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                          .pNext = app->vulkan.features,
                          .queueCreateInfoCount = 1,
                          .pQueueCreateInfos =
                              &(VkDeviceQueueCreateInfo){
                                  .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                  .queueFamilyIndex = app->vulkan.queue_family,
                                  .queueCount = 1,
                                  .pQueuePriorities = &priority,
                              },
                          .enabledExtensionCount = app->vulkan.n_extension,
                          .ppEnabledExtensionNames = app->vulkan.extensions,
                      },
                      NULL, &app->device));
    volkLoadDevice(app->device);
    vkGetDeviceQueue(app->device, app->vulkan.queue_family, 0, &app->queue);
    app->vulkan.device = app->device;
    app->vulkan.queue = app->queue;
    OK(vkCreateCommandPool(
        app->device,
        &(VkCommandPoolCreateInfo){.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                   .queueFamilyIndex = app->vulkan.queue_family},
        NULL, &app->pool));
}

void app_destroy(struct app *app)
{
    vka_vulkan_request_destroy(&app->request);
    vkDestroyCommandPool(app->device, app->pool, NULL);
    vkDestroyDevice(app->device, NULL);
    if (app->messenger)
        vkDestroyDebugUtilsMessengerEXT(app->instance, app->messenger, NULL);
    vkDestroyInstance(app->instance, NULL);
}

struct vka_device *app_adopt(struct app *app, const struct vka_device_info *info)
{
    struct vka_device *device = NULL;
    OK(vka_device_adopt(&app->vulkan, info, &device));
    assert_non_null(device);
    return device;
}

static uint32_t mapped_type(struct app *app, uint32_t allowed)
{
    const VkMemoryPropertyFlags need =
        VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    VkPhysicalDeviceMemoryProperties m;
    vkGetPhysicalDeviceMemoryProperties(app->physical, &m);
    uint32_t i = 0;
    while (i < m.memoryTypeCount &&
           !(allowed >> i & 1 && (m.memoryTypes[i].propertyFlags & need) == need))
        i++;
    assert_true(i < m.memoryTypeCount);
    return i;
}

struct app_buffer app_buffer_create(struct app *app, VkDeviceSize size, VkBufferUsageFlags usage)
{
    struct app_buffer b = {.size = size, .usage = usage};
    VkMemoryRequirements needs;
    void *mapped;
    OK(vkCreateBuffer(app->device,
                      &(VkBufferCreateInfo){.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                            .size = size,
                                            .usage = usage},
                      NULL, &b.handle));
    vkGetBufferMemoryRequirements(app->device, b.handle, &needs);
    OK(vkAllocateMemory(
        app->device,
        &(VkMemoryAllocateInfo){.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                .allocationSize = needs.size,
                                .memoryTypeIndex = mapped_type(app, needs.memoryTypeBits)},
        NULL, &b.memory));
    OK(vkBindBufferMemory(app->device, b.handle, b.memory, 0));
    OK(vkMapMemory(app->device, b.memory, 0, VK_WHOLE_SIZE, 0, &mapped));
    b.mapped = mapped;
    memset(mapped, 0, size);
    return b;
}

void app_buffer_destroy(struct app *app, struct app_buffer *buffer)
{
    vkDestroyBuffer(app->device, buffer->handle, NULL);
    vkFreeMemory(app->device, buffer->memory, NULL);
}

struct vka_buffer app_buffer_info(const struct app_buffer *buffer, VkDeviceSize offset)
{
    return (struct vka_buffer){buffer->handle, offset, buffer->size - offset, buffer->usage};
}

struct vka_tensor *app_wrap(struct vka_device *device, const struct app_buffer *buffer,
                            uint32_t rows, uint32_t columns)
{
    struct vka_tensor *tensor = NULL;
    const struct vka_buffer whole = app_buffer_info(buffer, 0);
    OK(vka_tensor_wrap(device, &whole, VKA_F32, 2, (const uint32_t[]){rows, columns}, &tensor));
    return tensor;
}

VkCommandBuffer app_begin(struct app *app)
{
    VkCommandBuffer commands;
    OK(vkAllocateCommandBuffers(
        app->device,
        &(VkCommandBufferAllocateInfo){.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                       .commandPool = app->pool,
                                       .commandBufferCount = 1},
        &commands));
    OK(vkBeginCommandBuffer(commands, &(VkCommandBufferBeginInfo){
                                          .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO}));
    return commands;
}

void app_submit(struct app *app, VkCommandBuffer commands)
{
    OK(vkEndCommandBuffer(commands));
    OK(vkQueueSubmit(app->queue, 1,
                     &(VkSubmitInfo){.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                                     .commandBufferCount = 1,
                                     .pCommandBuffers = &commands},
                     VK_NULL_HANDLE));
    OK(vkQueueWaitIdle(app->queue));
    vkFreeCommandBuffers(app->device, app->pool, 1, &commands);
}

void app_pass_on(struct app *app, VkSemaphore wait, VkSemaphore signal)
{
    const VkPipelineStageFlags stage = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
    OK(vkQueueSubmit(app->queue, 1,
                     &(VkSubmitInfo){.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                                     .waitSemaphoreCount = wait != VK_NULL_HANDLE,
                                     .pWaitSemaphores = &wait,
                                     .pWaitDstStageMask = &stage,
                                     .signalSemaphoreCount = signal != VK_NULL_HANDLE,
                                     .pSignalSemaphores = &signal},
                     VK_NULL_HANDLE));
}

VkSemaphore app_semaphore(struct app *app, bool timeline)
{
    VkSemaphore semaphore;
    const VkSemaphoreTypeCreateInfo type = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
        .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE,
    };
    OK(vkCreateSemaphore(app->device,
                         &(VkSemaphoreCreateInfo){.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
                                                  .pNext = timeline ? &type : NULL},
                         NULL, &semaphore));
    return semaphore;
}

struct vka_plan *app_linear(struct vka_device *device, struct vka_tensor *input,
                            struct vka_tensor *weight, struct vka_tensor *output)
{
    struct vka_plan *plan = NULL;
    OK(vka_plan_create(device, NULL, &plan));
    OK(vka_plan_add_linear(
        plan, VKA_INFO(vka_linear_op, .input = input, .weight = weight, .output = output)));
    OK(vka_plan_finish(plan));
    return plan;
}

void app_expect(struct vka_device *device, enum vka_status got, enum vka_status want,
                const char *words, int line)
{
    const char *said = vka_device_error(device);
    if (got != want)
        fail_msg("line %d: %s, not %s: %s", line, vka_status_name(got), vka_status_name(want),
                 said);
    if (words && !strstr(said, words))
        fail_msg("line %d: \"%s\" does not have \"%s\"", line, said, words);
}

void *app_aligned(size_t alignment, size_t size, void **whole)
{
    *whole = calloc(1, size + alignment);
    assert_non_null(*whole);
    return (char *)*whole + (alignment - (uintptr_t)*whole % alignment) % alignment;
}
