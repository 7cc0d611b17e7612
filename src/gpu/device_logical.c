#include "gpu/device_logical.h"

static void add_extension(struct device_request *request, const char *name)
{
    request->extensions[request->n_extension++] = name;
}

uint32_t device_version(const struct vka_device *device)
{
    uint32_t version = device->caps.properties.api_version;
    return version < device->instance.api_version ? version : device->instance.api_version;
}

/* Adds what the kernels with cooperative matrices need; tail is the end of the chain. */
static void add_matrices(const struct caps *caps, uint32_t version, void **tail,
                         struct device_request *request)
{
    request->memory_model = (VkPhysicalDeviceVulkanMemoryModelFeatures){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES,
        .vulkanMemoryModel = VK_TRUE,
        .vulkanMemoryModelDeviceScope = VK_TRUE};
    request->matrix = (VkPhysicalDeviceCooperativeMatrixFeaturesKHR){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR,
        .cooperativeMatrix = VK_TRUE};
    request->bfloat16 = (VkPhysicalDeviceShaderBfloat16FeaturesKHR){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR,
        .shaderBFloat16Type = VK_TRUE,
        .shaderBFloat16CooperativeMatrix = VK_TRUE};
    request->maintenance4 = (VkPhysicalDeviceMaintenance4Features){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_FEATURES,
        .pNext = &request->matrix2,
        .maintenance4 = VK_TRUE};
    request->matrix2 = (VkPhysicalDeviceCooperativeMatrix2FeaturesNV){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_2_FEATURES_NV,
        .cooperativeMatrixFlexibleDimensions = caps->reduced_nv.flexible,
        .cooperativeMatrixReductions = VK_TRUE,
        .cooperativeMatrixConversions = VK_TRUE,
        .cooperativeMatrixPerElementOperations = VK_TRUE};
    request->matrix_maintenance = (VkPhysicalDeviceCooperativeMatrixMaintenance1FeaturesEXT){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_MAINTENANCE_1_FEATURES_EXT,
        .cooperativeMatrixProperties2 = caps->reduced_ext.flexible,
        .cooperativeMatrixReductions = VK_TRUE,
        .cooperativeMatrixConversions = VK_TRUE,
        .cooperativeMatrixPerElementOperations = VK_TRUE};
    *tail = &request->memory_model;
    request->memory_model.pNext = &request->matrix;
    tail = &request->matrix.pNext;
    add_extension(request, VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME);
    if (version < VK_API_VERSION_1_2)
        add_extension(request, VK_KHR_VULKAN_MEMORY_MODEL_EXTENSION_NAME);
    if (caps->bfloat16_matrices) {
        *tail = &request->bfloat16;
        tail = &request->bfloat16.pNext;
        add_extension(request, VK_KHR_SHADER_BFLOAT16_EXTENSION_NAME);
    }
    if (caps->reduced_nv.usable) {
        *tail = &request->maintenance4;
        tail = &request->matrix2.pNext;
        add_extension(request, VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME);
    }
    if (caps->reduced_ext.usable) {
        *tail = &request->matrix_maintenance;
        add_extension(request, VK_EXT_COOPERATIVE_MATRIX_MAINTENANCE_1_EXTENSION_NAME);
    }
}

void device_request_fill(const struct vka_device *device, struct device_request *request)
{
    const struct caps *caps = &device->caps;
    uint32_t version = device_version(device);
    *request = (struct device_request){
        .features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
        .features.features.shaderInt64 = caps->int64,
        .timeline = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES,
                     .timelineSemaphore = VK_TRUE},
        .subgroup_size = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES,
                          .subgroupSizeControl = VK_TRUE,
                          .computeFullSubgroups = VK_TRUE},
        .float16 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES,
                    .shaderFloat16 = caps->properties.float16,
                    .shaderInt8 = caps->int8},
        .storage8 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES,
                     .storageBuffer8BitAccess = VK_TRUE},
        .dot = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES,
                .shaderIntegerDotProduct = VK_TRUE},
        .mixed_dot =
            {.sType =
                 VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_MIXED_FLOAT_DOT_PRODUCT_FEATURES_VALVE,
             .shaderMixedFloatDotProductFloat16AccFloat32 = VK_TRUE},
        .address = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_BUFFER_DEVICE_ADDRESS_FEATURES,
                    .bufferDeviceAddress = VK_TRUE},
    };
    void **tail = &request->features.pNext;
    if (caps->properties.timeline) {
        *tail = &request->timeline;
        tail = &request->timeline.pNext;
        if (version < VK_API_VERSION_1_2)
            add_extension(request, VK_KHR_TIMELINE_SEMAPHORE_EXTENSION_NAME);
    }
    if (caps->device_address) {
        *tail = &request->address;
        tail = &request->address.pNext;
        if (version < VK_API_VERSION_1_2)
            add_extension(request, VK_KHR_BUFFER_DEVICE_ADDRESS_EXTENSION_NAME);
    }
    if (caps->subgroup_size_control) {
        *tail = &request->subgroup_size;
        tail = &request->subgroup_size.pNext;
        if (version < VK_API_VERSION_1_3)
            add_extension(request, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
    }
    if (caps->properties.float16 || caps->int8) {
        *tail = &request->float16;
        tail = &request->float16.pNext;
        if (version < VK_API_VERSION_1_2)
            add_extension(request, VK_KHR_SHADER_FLOAT16_INT8_EXTENSION_NAME);
    }
    if (caps->int8) {
        *tail = &request->storage8;
        tail = &request->storage8.pNext;
        if (version < VK_API_VERSION_1_2)
            add_extension(request, VK_KHR_8BIT_STORAGE_EXTENSION_NAME);
    }
    if (caps->dot) {
        *tail = &request->dot;
        tail = &request->dot.pNext;
        if (version < VK_API_VERSION_1_3)
            add_extension(request, VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME);
    }
    if (caps->mixed_dot) {
        *tail = &request->mixed_dot;
        tail = &request->mixed_dot.pNext;
        add_extension(request, VK_VALVE_SHADER_MIXED_FLOAT_DOT_PRODUCT_EXTENSION_NAME);
    }
    if (caps->host_import)
        add_extension(request, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);
    if (caps->portability) /* none of the features that it makes optional is used */
        add_extension(request, PORTABILITY_SUBSET);
    if (caps->matrices)
        add_matrices(caps, version, tail, request);
}

void device_load(struct vka_device *device)
{
    vk_load_device(&device->instance, device->handle, &device->vk);
    if (device_version(device) < VK_API_VERSION_1_2 && device->vk.vkWaitSemaphoresKHR)
        device->vk.vkWaitSemaphores = device->vk.vkWaitSemaphoresKHR;
    if (device_version(device) < VK_API_VERSION_1_2 && device->vk.vkGetSemaphoreCounterValueKHR)
        device->vk.vkGetSemaphoreCounterValue = device->vk.vkGetSemaphoreCounterValueKHR;
    if (device_version(device) < VK_API_VERSION_1_2 && device->vk.vkGetBufferDeviceAddressKHR)
        device->vk.vkGetBufferDeviceAddress = device->vk.vkGetBufferDeviceAddressKHR;
}

enum vka_status device_create_logical(struct vka_device *device,
                                      const struct device_request *request)
{
    enum vka_status status = VKA_OK;
    struct log *log = &device->log;
    VK(device->instance.vkCreateDevice(
        device->physical,
        &(VkDeviceCreateInfo){
            .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
            .pNext = &request->features,
            .queueCreateInfoCount = 1,
            .pQueueCreateInfos =
                &(VkDeviceQueueCreateInfo){
                    .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                    .queueFamilyIndex = device->queue_family,
                    .queueCount = 1,
                    .pQueuePriorities = &(const float){0.5f},
                },
            .enabledExtensionCount = request->n_extension,
            .ppEnabledExtensionNames = request->extensions,
        },
        NULL, &device->handle));
    device_load(device);
    device->vk.vkGetDeviceQueue(device->handle, device->queue_family, 0, &device->queue.handle);
fail:
    return status;
}
