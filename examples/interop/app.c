#define VOLK_IMPLEMENTATION
#include "app.h"

#include "axpy_spv.h"

#include <stdio.h>
#include <string.h>

static VKAPI_ATTR VkBool32 VKAPI_CALL on_message(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                                                 VkDebugUtilsMessageTypeFlagsEXT type,
                                                 const VkDebugUtilsMessengerCallbackDataEXT *data,
                                                 void *user)
{
    struct app *app = user;
    (void)severity;
    (void)type;
    app->messages++;
    fprintf(stderr, "interop: %s\n", data->pMessage);
    return VK_FALSE;
}

static bool create_instance(struct app *app, bool validate)
{
    static const char *const layer = "VK_LAYER_KHRONOS_validation";
    static const char *const extension = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
    TRY(volkInitialize());
    TRY(vkCreateInstance(
        &(VkInstanceCreateInfo){
            .sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
            .pApplicationInfo = &(VkApplicationInfo){.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                                     .apiVersion = VK_API_VERSION_1_1},
            .enabledLayerCount = validate,
            .ppEnabledLayerNames = &layer,
            .enabledExtensionCount = validate,
            .ppEnabledExtensionNames = &extension,
        },
        NULL, &app->instance));
    volkLoadInstance(app->instance);
    if (validate)
        TRY(vkCreateDebugUtilsMessengerEXT(
            app->instance,
            &(VkDebugUtilsMessengerCreateInfoEXT){
                .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
                .messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT |
                                   VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT,
                .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT,
                .pfnUserCallback = on_message,
                .pUserData = app,
            },
            NULL, &app->messenger));
    return true;
fail:
    return false;
}

/* Chooses the first device and its first queue family with compute. */
static bool choose(struct app *app)
{
    uint32_t count = 1;
    VkQueueFamilyProperties families[16];
    VkResult result = vkEnumeratePhysicalDevices(app->instance, &count, &app->physical);
    if (result < 0 || count == 0) {
        fprintf(stderr, "interop: no Vulkan device\n");
        return false;
    }
    count = sizeof families / sizeof families[0];
    vkGetPhysicalDeviceQueueFamilyProperties(app->physical, &count, families);
    while (app->family < count && !(families[app->family].queueFlags & VK_QUEUE_COMPUTE_BIT))
        app->family++;
    if (app->family == count)
        fprintf(stderr, "interop: no queue computes\n");
    return app->family < count;
}

/* Makes the application's device with what vkattn asks for, and a vkattn device on it. */
static bool create_device(struct app *app)
{
    struct vka_vulkan_request *request = NULL;
    struct vka_vulkan_info vulkan = {.struct_size = sizeof vulkan,
                                     .instance = app->instance,
                                     .physical_device = app->physical,
                                     .queue_family = app->family,
                                     .api_version = VK_API_VERSION_1_1};
    TRY(vka_vulkan_request_create(&vulkan, NULL, &request));
    TRY(vkCreateDevice(app->physical,
                       &(VkDeviceCreateInfo){
                           .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                           .pNext = request->features,
                           .queueCreateInfoCount = 1,
                           .pQueueCreateInfos =
                               &(VkDeviceQueueCreateInfo){
                                   .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                   .queueFamilyIndex = app->family,
                                   .queueCount = 1,
                                   .pQueuePriorities = &(const float){1},
                               },
                           .enabledExtensionCount = request->n_extension,
                           .ppEnabledExtensionNames = request->extensions,
                       },
                       NULL, &app->device));
    volkLoadDevice(app->device);
    vkGetDeviceQueue(app->device, app->family, 0, &app->queue);
    vulkan.device = app->device;
    vulkan.queue = app->queue;
    vulkan.features = request->features;
    vulkan.extensions = request->extensions;
    vulkan.n_extension = request->n_extension;
    TRY(vka_device_adopt(&vulkan, NULL, &app->vkattn));
    TRY(vkCreateCommandPool(
        app->device,
        &(VkCommandPoolCreateInfo){.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                   .queueFamilyIndex = app->family},
        NULL, &app->commands));
    vka_vulkan_request_destroy(&request);
    return true;
fail:
    vka_vulkan_request_destroy(&request);
    return false;
}

static bool create_axpy(VkDevice device, struct axpy *axpy)
{
    VkDescriptorSetLayoutBinding bindings[2];
    for (uint32_t i = 0; i < 2; i++)
        bindings[i] =
            (VkDescriptorSetLayoutBinding){.binding = i,
                                           .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                           .descriptorCount = 1,
                                           .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT};
    TRY(vkCreateDescriptorSetLayout(
        device,
        &(VkDescriptorSetLayoutCreateInfo){.sType =
                                               VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
                                           .bindingCount = 2,
                                           .pBindings = bindings},
        NULL, &axpy->set_layout));
    TRY(vkCreatePipelineLayout(
        device,
        &(VkPipelineLayoutCreateInfo){
            .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
            .setLayoutCount = 1,
            .pSetLayouts = &axpy->set_layout,
            .pushConstantRangeCount = 1,
            .pPushConstantRanges = &(VkPushConstantRange){VK_SHADER_STAGE_COMPUTE_BIT, 0, 8}},
        NULL, &axpy->layout));
    TRY(vkCreateShaderModule(
        device,
        &(VkShaderModuleCreateInfo){.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                    .codeSize = sizeof axpy_spv,
                                    .pCode = axpy_spv},
        NULL, &axpy->module));
    TRY(vkCreateComputePipelines(
        device, VK_NULL_HANDLE, 1,
        &(VkComputePipelineCreateInfo){
            .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
            .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                      .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                      .module = axpy->module,
                      .pName = "main"},
            .layout = axpy->layout},
        NULL, &axpy->pipeline));
    TRY(vkCreateDescriptorPool(
        device,
        &(VkDescriptorPoolCreateInfo){
            .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
            .maxSets = 8,
            .poolSizeCount = 1,
            .pPoolSizes = &(VkDescriptorPoolSize){VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 16}},
        NULL, &axpy->pool));
    return true;
fail:
    return false;
}

bool app_create(struct app *app, bool validate)
{
    return create_instance(app, validate) && choose(app) && create_device(app) &&
           create_axpy(app->device, &app->axpy);
}

void app_destroy(struct app *app)
{
    vka_device_destroy(&app->vkattn);
    if (app->device) {
        vkDestroyDescriptorPool(app->device, app->axpy.pool, NULL);
        vkDestroyPipeline(app->device, app->axpy.pipeline, NULL);
        vkDestroyShaderModule(app->device, app->axpy.module, NULL);
        vkDestroyPipelineLayout(app->device, app->axpy.layout, NULL);
        vkDestroyDescriptorSetLayout(app->device, app->axpy.set_layout, NULL);
        vkDestroyCommandPool(app->device, app->commands, NULL);
        vkDestroyDevice(app->device, NULL);
    }
    if (app->messenger)
        vkDestroyDebugUtilsMessengerEXT(app->instance, app->messenger, NULL);
    if (app->instance)
        vkDestroyInstance(app->instance, NULL);
}

/* Vulkan guarantees a host-visible, coherent memory type for any buffer. */
static uint32_t visible_type(VkPhysicalDevice physical, uint32_t allowed)
{
    const VkMemoryPropertyFlags need =
        VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    VkPhysicalDeviceMemoryProperties m;
    vkGetPhysicalDeviceMemoryProperties(physical, &m);
    uint32_t i = 0;
    while (!(allowed >> i & 1 && (m.memoryTypes[i].propertyFlags & need) == need))
        i++;
    return i;
}

bool buffer_create(struct app *app, VkDeviceSize count, struct buffer *buffer)
{
    void *mapped = NULL;
    VkMemoryRequirements needs;
    buffer->size = count * sizeof(float);
    TRY(vkCreateBuffer(app->device,
                       &(VkBufferCreateInfo){.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                             .size = buffer->size,
                                             .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT},
                       NULL, &buffer->handle));
    vkGetBufferMemoryRequirements(app->device, buffer->handle, &needs);
    TRY(vkAllocateMemory(app->device,
                         &(VkMemoryAllocateInfo){
                             .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                             .allocationSize = needs.size,
                             .memoryTypeIndex = visible_type(app->physical, needs.memoryTypeBits)},
                         NULL, &buffer->memory));
    TRY(vkBindBufferMemory(app->device, buffer->handle, buffer->memory, 0));
    TRY(vkMapMemory(app->device, buffer->memory, 0, VK_WHOLE_SIZE, 0, &mapped));
    memset(mapped, 0, buffer->size);
    buffer->mapped = mapped;
    return true;
fail:
    return false;
}

void buffer_destroy(struct app *app, struct buffer *buffer)
{
    if (!app->device)
        return;
    vkDestroyBuffer(app->device, buffer->handle, NULL);
    vkFreeMemory(app->device, buffer->memory, NULL);
}

bool axpy_record(struct app *app, VkCommandBuffer commands, const struct buffer *x,
                 const struct buffer *y, uint32_t count, float a)
{
    const struct axpy *axpy = &app->axpy;
    const VkDescriptorBufferInfo buffers[] = {{x->handle, 0, VK_WHOLE_SIZE},
                                              {y->handle, 0, VK_WHOLE_SIZE}};
    const struct {
        uint32_t count;
        float a;
    } push = {count, a};
    VkDescriptorSet set;
    TRY(vkAllocateDescriptorSets(
        app->device,
        &(VkDescriptorSetAllocateInfo){.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
                                       .descriptorPool = axpy->pool,
                                       .descriptorSetCount = 1,
                                       .pSetLayouts = &axpy->set_layout},
        &set));
    vkUpdateDescriptorSets(
        app->device, 1,
        &(VkWriteDescriptorSet){.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                .dstSet = set,
                                .descriptorCount = 2,
                                .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                .pBufferInfo = buffers},
        0, NULL);
    vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, axpy->pipeline);
    vkCmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE, axpy->layout, 0, 1, &set, 0,
                            NULL);
    vkCmdPushConstants(commands, axpy->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof push, &push);
    vkCmdDispatch(commands, (count + 63) / 64, 1, 1);
    return true;
fail:
    return false;
}
