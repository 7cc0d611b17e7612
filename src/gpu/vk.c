#define VOLK_IMPLEMENTATION
#include "gpu/vk.h"
#include "core/os.h"

#include <stdlib.h>
#include <string.h>

/* Held while volk's loader and instance pointers, which are process-wide, are written or read. */
static struct os_mutex volk_lock = OS_MUTEX_INIT;

static VKAPI_ATTR VkBool32 VKAPI_CALL on_message(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                                                 VkDebugUtilsMessageTypeFlagsEXT type,
                                                 const VkDebugUtilsMessengerCallbackDataEXT *data,
                                                 void *user)
{
    (void)severity;
    (void)type;
    const char *id = data->pMessageIdName ? data->pMessageIdName : "no id";
    log_message(user, VKA_LOG_ERROR, "validation: [%s] %s", id, data->pMessage);
    return VK_FALSE;
}

static const VkDebugUtilsMessengerCreateInfoEXT messenger_info = {
    .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
    .messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT |
                       VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT,
    .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT |
                   VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT,
    .pfnUserCallback = on_message,
};

static bool has_layer(const char *name)
{
    VkLayerProperties layers[64];
    uint32_t count = COUNTOF(layers);
    VkResult result = vkEnumerateInstanceLayerProperties(&count, layers);
    if (result != VK_SUCCESS && result != VK_INCOMPLETE)
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(layers[i].layerName, name) == 0)
            return true;
    return false;
}

static bool has_instance_extension(const char *layer, const char *name)
{
    VkExtensionProperties extensions[128];
    uint32_t count = COUNTOF(extensions);
    VkResult result = vkEnumerateInstanceExtensionProperties(layer, &count, extensions);
    if (result != VK_SUCCESS && result != VK_INCOMPLETE)
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(extensions[i].extensionName, name) == 0)
            return true;
    return false;
}

static enum vka_status load_functions(struct log *log, struct vk_instance *instance)
{
#define F(name)                                                                            \
    instance->name = (PFN_##name)instance->vkGetInstanceProcAddr(instance->handle, #name); \
    if (!instance->name)                                                                   \
        return log_error(log, VKA_INTERNAL, "the Vulkan loader has no %s", #name);
    VK_INSTANCE_FUNCTIONS(F)
#undef F
    instance->vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR =
        (PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR)vkGetInstanceProcAddr(
            instance->handle, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
    instance->vkGetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV =
        (PFN_vkGetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV)
            vkGetInstanceProcAddr(
                instance->handle,
                "vkGetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV");
    instance->vkGetPhysicalDeviceCooperativeMatrixProperties2EXT =
        (PFN_vkGetPhysicalDeviceCooperativeMatrixProperties2EXT)vkGetInstanceProcAddr(
            instance->handle, "vkGetPhysicalDeviceCooperativeMatrixProperties2EXT");
    if (instance->debug_utils) {
        instance->vkCreateDebugUtilsMessengerEXT =
            (PFN_vkCreateDebugUtilsMessengerEXT)vkGetInstanceProcAddr(
                instance->handle, "vkCreateDebugUtilsMessengerEXT");
        instance->vkDestroyDebugUtilsMessengerEXT =
            (PFN_vkDestroyDebugUtilsMessengerEXT)vkGetInstanceProcAddr(
                instance->handle, "vkDestroyDebugUtilsMessengerEXT");
    }
    return VKA_OK;
}

static enum vka_status load_volk(struct log *log, PFN_vkGetInstanceProcAddr get,
                                 struct vk_instance *instance)
{
    if (get)
        volkInitializeCustom(get);
    else if (volkInitialize() != VK_SUCCESS)
        return log_error(log, VKA_NO_DEVICE, "no Vulkan loader (libvulkan.so.1) was found");
    instance->vkGetInstanceProcAddr = vkGetInstanceProcAddr;
    return VKA_OK;
}

enum vka_status vk_instance_create(struct log *log, bool validation, bool labels,
                                   struct vk_instance *instance)
{
    static const char *const layer = "VK_LAYER_KHRONOS_validation";
    static const char *const debug_utils = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
    static const char *const portability = VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME;
    const char *extensions[2];
    uint32_t n_extension = 0;
    VkInstanceCreateFlags flags = 0;
    enum vka_status status = VKA_OK;
    memset(instance, 0, sizeof *instance);
    os_mutex_lock(&volk_lock);

    TRY(load_volk(log, NULL, instance));
    instance->api_version = volkGetInstanceVersion();
    if (instance->api_version < VK_API_VERSION_1_1) {
        status = log_error(log, VKA_UNSUPPORTED, "the Vulkan loader is older than 1.1");
        goto fail;
    }
    if (instance->api_version > VK_API_VERSION_1_3)
        instance->api_version = VK_API_VERSION_1_3;
    if (validation && !has_layer(layer)) {
        status = log_error(log, VKA_UNSUPPORTED,
                           "validation was asked for, but %s is not installed", layer);
        goto fail;
    }
    instance->debug_utils = (validation && has_instance_extension(layer, debug_utils)) ||
                            ((validation || labels) && has_instance_extension(NULL, debug_utils));
    if (instance->debug_utils)
        extensions[n_extension++] = debug_utils;
    if (has_instance_extension(NULL, portability)) { /* else the loader hides such drivers */
        extensions[n_extension++] = portability;
        flags |= VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR;
    }
    VK(vkCreateInstance(
        &(VkInstanceCreateInfo){
            .sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
            .flags = flags,
            .pApplicationInfo =
                &(VkApplicationInfo){
                    .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                    .pEngineName = "vkattn",
                    .apiVersion = instance->api_version,
                },
            .enabledLayerCount = validation ? 1 : 0,
            .ppEnabledLayerNames = &layer,
            .enabledExtensionCount = n_extension,
            .ppEnabledExtensionNames = extensions,
        },
        NULL, &instance->handle));
    volkLoadInstanceOnly(instance->handle); /* vkGetDeviceProcAddr, for volkLoadDeviceTable */
    TRY(load_functions(log, instance));
    if (validation && instance->vkCreateDebugUtilsMessengerEXT) {
        VkDebugUtilsMessengerCreateInfoEXT info = messenger_info;
        info.pUserData = log;
        VK(instance->vkCreateDebugUtilsMessengerEXT(instance->handle, &info, NULL,
                                                    &instance->messenger));
    }
    os_mutex_unlock(&volk_lock);
    return VKA_OK;

fail:
    os_mutex_unlock(&volk_lock);
    vk_instance_destroy(instance);
    return status;
}

enum vka_status vk_instance_adopt(struct log *log, VkInstance handle, uint32_t api_version,
                                  PFN_vkGetInstanceProcAddr get, struct vk_instance *instance)
{
    enum vka_status status = VKA_OK;
    memset(instance, 0, sizeof *instance);
    os_mutex_lock(&volk_lock);
    TRY(load_volk(log, get, instance));
    instance->handle = handle;
    instance->borrowed = true;
    instance->api_version = api_version < VK_API_VERSION_1_3 ? api_version : VK_API_VERSION_1_3;
    TRY(load_functions(log, instance));
fail:
    os_mutex_unlock(&volk_lock);
    return status;
}

void vk_instance_destroy(struct vk_instance *instance)
{
    if (instance->messenger)
        instance->vkDestroyDebugUtilsMessengerEXT(instance->handle, instance->messenger, NULL);
    if (instance->handle && !instance->borrowed && instance->vkDestroyInstance)
        instance->vkDestroyInstance(instance->handle, NULL);
    memset(instance, 0, sizeof *instance);
}

void vk_keep_driver(void)
{
    static VkInstance kept;
    os_mutex_lock(&volk_lock);
    if (!kept) {
        const VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                               .pEngineName = "vkattn",
                                               .apiVersion = VK_API_VERSION_1_1};
        const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                           .pApplicationInfo = &application};
        if (vkCreateInstance(&info, NULL, &kept) != VK_SUCCESS)
            kept = VK_NULL_HANDLE;
    }
    os_mutex_unlock(&volk_lock);
}

void vk_load_device(const struct vk_instance *instance, VkDevice device,
                    struct VolkDeviceTable *table)
{
    os_mutex_lock(&volk_lock);
    volkInitializeCustom(
        instance->vkGetInstanceProcAddr); /* another instance may have set its own */
    volkLoadInstanceOnly(instance->handle);
    volkLoadDeviceTable(table, device);
    os_mutex_unlock(&volk_lock);
}

enum vka_status vk_allocate_commands(struct log *log, const struct VolkDeviceTable *vk,
                                     VkDevice device, VkCommandPool pool, uint32_t n,
                                     VkCommandBuffer *commands)
{
    const VkCommandBufferAllocateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .commandPool = pool,
        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
        .commandBufferCount = n,
    };
    ENSURE_VK(vk->vkAllocateCommandBuffers(device, &info, commands));
    return VKA_OK;
}

enum vka_status vk_begin(struct log *log, const struct VolkDeviceTable *vk,
                         VkCommandBuffer commands, VkCommandBufferUsageFlags flags)
{
    const VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                           .flags = flags};
    ENSURE_VK(vk->vkBeginCommandBuffer(commands, &info));
    return VKA_OK;
}

void vk_barrier(const struct VolkDeviceTable *vk, VkCommandBuffer commands,
                VkPipelineStageFlags from, VkPipelineStageFlags to, VkAccessFlags before,
                VkAccessFlags after)
{
    const VkMemoryBarrier memory = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = before,
        .dstAccessMask = after,
    };
    vk->vkCmdPipelineBarrier(commands, from, to, 0, before || after, &memory, 0, NULL, 0, NULL);
}

enum vka_status vk_error(struct log *log, VkResult result, const char *call)
{
    static const struct {
        VkResult result;
        enum vka_status status;
        const char *text;
    } rows[] = {
        {VK_ERROR_OUT_OF_HOST_MEMORY, VKA_OUT_OF_HOST_MEMORY, "out of host memory"},
        {VK_ERROR_OUT_OF_DEVICE_MEMORY, VKA_OUT_OF_DEVICE_MEMORY, "out of device memory"},
        {VK_ERROR_OUT_OF_POOL_MEMORY, VKA_OUT_OF_DEVICE_MEMORY, "out of pool memory"},
        {VK_ERROR_FRAGMENTED_POOL, VKA_OUT_OF_DEVICE_MEMORY, "fragmented pool"},
        {VK_ERROR_TOO_MANY_OBJECTS, VKA_OUT_OF_DEVICE_MEMORY, "too many objects"},
        {VK_ERROR_MEMORY_MAP_FAILED, VKA_OUT_OF_HOST_MEMORY, "memory could not be mapped"},
        {VK_ERROR_DEVICE_LOST, VKA_DEVICE_LOST, "device lost"},
        {VK_ERROR_INCOMPATIBLE_DRIVER, VKA_NO_DEVICE,
         "no Vulkan driver was found: install the GPU's, or Mesa's for CPUs"},
        {VK_ERROR_INITIALIZATION_FAILED, VKA_NO_DEVICE, "the driver could not start"},
        {VK_ERROR_FEATURE_NOT_PRESENT, VKA_UNSUPPORTED, "feature not present"},
        {VK_ERROR_EXTENSION_NOT_PRESENT, VKA_UNSUPPORTED, "extension not present"},
        {VK_ERROR_INVALID_EXTERNAL_HANDLE, VKA_INVALID, "not memory that can be imported"},
        {VK_TIMEOUT, VKA_TIMEOUT, "timed out"},
    };
    const char *name = strstr(call, "vk."); /* device->vk.vkName(...) or instance->vkName(...) */
    const char *arrow = strstr(call, "->vk");
    call = name ? name + 3 : arrow ? arrow + 2 : call;
    int length = (int)strcspn(call, "(");
    for (size_t i = 0; i < COUNTOF(rows); i++)
        if (rows[i].result == result)
            return log_error(log, rows[i].status, "%.*s: %s", length, call, rows[i].text);
    return log_error(log, VKA_INTERNAL, "%.*s: VkResult %d", length, call, (int)result);
}

bool vk_has_extension(const struct vk_instance *instance, VkPhysicalDevice physical,
                      const char *name)
{
    uint32_t count = 0;
    if (instance->vkEnumerateDeviceExtensionProperties(physical, NULL, &count, NULL) != VK_SUCCESS)
        return false;
    VkExtensionProperties *list = calloc(count ? count : 1, sizeof *list);
    if (!list)
        return false;
    VkResult result = instance->vkEnumerateDeviceExtensionProperties(physical, NULL, &count, list);
    bool found = false;
    for (uint32_t i = 0; (result == VK_SUCCESS || result == VK_INCOMPLETE) && i < count; i++)
        found |= strcmp(list[i].extensionName, name) == 0;
    free(list);
    return found;
}
