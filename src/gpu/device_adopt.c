#include "gpu/device_adopt.h"
#include "core/os.h"
#include "gpu/device.h"
#include "gpu/device_caps.h"
#include "gpu/device_logical.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One thing that device_request_fill asks for. */
struct wanted {
    size_t flag; /* offset of a bool in struct caps: the device has it and we use it */
    const char *extension;
    uint32_t core; /* the Vulkan version that includes the extension */
    bool optional; /* only its own functions or kernels need it */
    /* The feature: in the extension's structure, and in that of the Vulkan version with it. */
    const char *feature; /* NULL: none */
    VkStructureType own, later;
    size_t own_offset, later_offset;
};

#define FEATURES_2 VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2
#define VULKAN_1_2 VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES
#define VULKAN_1_3 VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES
#define TIMELINE VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES
#define ADDRESS VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_BUFFER_DEVICE_ADDRESS_FEATURES
#define SUBGROUP_SIZE VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES

#define COOPERATIVE_MATRIX VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR
#define COOPERATIVE_MATRIX_2 VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_2_FEATURES_NV
#define MATRIX_MAINTENANCE \
    VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_MAINTENANCE_1_FEATURES_EXT
#define MIXED_DOT VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_MIXED_FLOAT_DOT_PRODUCT_FEATURES_VALVE
#define BFLOAT16 VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR

/* A feature that has the same name in the structure of its extension and in that of a Vulkan version. */
#define FEATURE(name, own_type, own_struct, later_type, later_struct) \
    .feature = #name, .own = (own_type), .later = (later_type),       \
    .own_offset = offsetof(own_struct, name), .later_offset = offsetof(later_struct, name)

static const struct wanted wanted[] = {
    {.flag = offsetof(struct caps, int64),
     .feature = "shaderInt64",
     .own = FEATURES_2,
     .later = FEATURES_2,
     .own_offset = offsetof(VkPhysicalDeviceFeatures2, features.shaderInt64),
     .later_offset = offsetof(VkPhysicalDeviceFeatures2, features.shaderInt64)},
    {.flag = offsetof(struct caps, properties.timeline),
     .extension = VK_KHR_TIMELINE_SEMAPHORE_EXTENSION_NAME,
     .core = VK_API_VERSION_1_2,
     FEATURE(timelineSemaphore, TIMELINE, VkPhysicalDeviceTimelineSemaphoreFeatures, VULKAN_1_2,
             VkPhysicalDeviceVulkan12Features)},
    {.flag = offsetof(struct caps, device_address),
     .extension = VK_KHR_BUFFER_DEVICE_ADDRESS_EXTENSION_NAME,
     .core = VK_API_VERSION_1_2,
     FEATURE(bufferDeviceAddress, ADDRESS, VkPhysicalDeviceBufferDeviceAddressFeatures, VULKAN_1_2,
             VkPhysicalDeviceVulkan12Features)},
    {.flag = offsetof(struct caps, subgroup_size_control),
     .extension = VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME,
     .core = VK_API_VERSION_1_3,
     FEATURE(subgroupSizeControl, SUBGROUP_SIZE, VkPhysicalDeviceSubgroupSizeControlFeatures,
             VULKAN_1_3, VkPhysicalDeviceVulkan13Features)},
    {.flag = offsetof(struct caps, subgroup_size_control),
     FEATURE(computeFullSubgroups, SUBGROUP_SIZE, VkPhysicalDeviceSubgroupSizeControlFeatures,
             VULKAN_1_3, VkPhysicalDeviceVulkan13Features)},
    {.flag = offsetof(struct caps, dot),
     .extension = VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME,
     .core = VK_API_VERSION_1_3,
     .optional = true,
     FEATURE(shaderIntegerDotProduct,
             VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES,
             VkPhysicalDeviceShaderIntegerDotProductFeatures, VULKAN_1_3,
             VkPhysicalDeviceVulkan13Features)},
    {.flag = offsetof(struct caps, mixed_dot),
     .extension = VK_VALVE_SHADER_MIXED_FLOAT_DOT_PRODUCT_EXTENSION_NAME,
     .core = UINT32_MAX,
     .optional = true,
     FEATURE(shaderMixedFloatDotProductFloat16AccFloat32, MIXED_DOT,
             VkPhysicalDeviceShaderMixedFloatDotProductFeaturesVALVE, MIXED_DOT,
             VkPhysicalDeviceShaderMixedFloatDotProductFeaturesVALVE)},
    {.flag = offsetof(struct caps, host_import),
     .extension = VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME,
     .core = UINT32_MAX,
     .optional = true},
    {.flag = offsetof(struct caps, matrices),
     .extension = VK_KHR_VULKAN_MEMORY_MODEL_EXTENSION_NAME,
     .core = VK_API_VERSION_1_2,
     .optional = true,
     FEATURE(vulkanMemoryModel, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES,
             VkPhysicalDeviceVulkanMemoryModelFeatures, VULKAN_1_2,
             VkPhysicalDeviceVulkan12Features)},
    {.flag = offsetof(struct caps, matrices),
     .optional = true,
     FEATURE(vulkanMemoryModelDeviceScope,
             VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES,
             VkPhysicalDeviceVulkanMemoryModelFeatures, VULKAN_1_2,
             VkPhysicalDeviceVulkan12Features)},
    {.flag = offsetof(struct caps, properties.float16),
     .extension = VK_KHR_SHADER_FLOAT16_INT8_EXTENSION_NAME,
     .core = VK_API_VERSION_1_2,
     .optional = true,
     FEATURE(shaderFloat16, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES,
             VkPhysicalDeviceShaderFloat16Int8Features, VULKAN_1_2,
             VkPhysicalDeviceVulkan12Features)},
    {.flag = offsetof(struct caps, int8),
     .extension = VK_KHR_SHADER_FLOAT16_INT8_EXTENSION_NAME,
     .core = VK_API_VERSION_1_2,
     .optional = true,
     FEATURE(shaderInt8, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES,
             VkPhysicalDeviceShaderFloat16Int8Features, VULKAN_1_2,
             VkPhysicalDeviceVulkan12Features)},
    {.flag = offsetof(struct caps, int8),
     .extension = VK_KHR_8BIT_STORAGE_EXTENSION_NAME,
     .core = VK_API_VERSION_1_2,
     .optional = true,
     FEATURE(storageBuffer8BitAccess, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES,
             VkPhysicalDevice8BitStorageFeatures, VULKAN_1_2, VkPhysicalDeviceVulkan12Features)},
    {.flag = offsetof(struct caps, matrices),
     .extension = VK_KHR_SHADER_FLOAT16_INT8_EXTENSION_NAME,
     .core = VK_API_VERSION_1_2,
     .optional = true,
     FEATURE(shaderFloat16, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES,
             VkPhysicalDeviceShaderFloat16Int8Features, VULKAN_1_2,
             VkPhysicalDeviceVulkan12Features)},
    {.flag = offsetof(struct caps, matrices),
     .extension = VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME,
     .core = UINT32_MAX,
     .optional = true,
     FEATURE(cooperativeMatrix, COOPERATIVE_MATRIX, VkPhysicalDeviceCooperativeMatrixFeaturesKHR,
             COOPERATIVE_MATRIX, VkPhysicalDeviceCooperativeMatrixFeaturesKHR)},
    {.flag = offsetof(struct caps, bfloat16_matrices),
     .extension = VK_KHR_SHADER_BFLOAT16_EXTENSION_NAME,
     .core = UINT32_MAX,
     .optional = true,
     FEATURE(shaderBFloat16CooperativeMatrix, BFLOAT16, VkPhysicalDeviceShaderBfloat16FeaturesKHR,
             BFLOAT16, VkPhysicalDeviceShaderBfloat16FeaturesKHR)},
    {.flag = offsetof(struct caps, reduced_nv.usable),
     .optional = true,
     FEATURE(maintenance4, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_FEATURES,
             VkPhysicalDeviceMaintenance4Features, VULKAN_1_3, VkPhysicalDeviceVulkan13Features)},
    {.flag = offsetof(struct caps, reduced_nv.flexible),
     .extension = VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME,
     .core = UINT32_MAX,
     .optional = true,
     FEATURE(cooperativeMatrixFlexibleDimensions, COOPERATIVE_MATRIX_2,
             VkPhysicalDeviceCooperativeMatrix2FeaturesNV, COOPERATIVE_MATRIX_2,
             VkPhysicalDeviceCooperativeMatrix2FeaturesNV)},
    {.flag = offsetof(struct caps, reduced_nv.usable),
     .extension = VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME,
     .core = UINT32_MAX,
     .optional = true,
     FEATURE(cooperativeMatrixReductions, COOPERATIVE_MATRIX_2,
             VkPhysicalDeviceCooperativeMatrix2FeaturesNV, COOPERATIVE_MATRIX_2,
             VkPhysicalDeviceCooperativeMatrix2FeaturesNV)},
    {.flag = offsetof(struct caps, reduced_nv.usable),
     .extension = VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME,
     .core = UINT32_MAX,
     .optional = true,
     FEATURE(cooperativeMatrixConversions, COOPERATIVE_MATRIX_2,
             VkPhysicalDeviceCooperativeMatrix2FeaturesNV, COOPERATIVE_MATRIX_2,
             VkPhysicalDeviceCooperativeMatrix2FeaturesNV)},
    {.flag = offsetof(struct caps, reduced_nv.usable),
     .extension = VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME,
     .core = UINT32_MAX,
     .optional = true,
     FEATURE(cooperativeMatrixPerElementOperations, COOPERATIVE_MATRIX_2,
             VkPhysicalDeviceCooperativeMatrix2FeaturesNV, COOPERATIVE_MATRIX_2,
             VkPhysicalDeviceCooperativeMatrix2FeaturesNV)},
    {.flag = offsetof(struct caps, reduced_ext.flexible),
     .extension = VK_EXT_COOPERATIVE_MATRIX_MAINTENANCE_1_EXTENSION_NAME,
     .core = UINT32_MAX,
     .optional = true,
     FEATURE(cooperativeMatrixProperties2, MATRIX_MAINTENANCE,
             VkPhysicalDeviceCooperativeMatrixMaintenance1FeaturesEXT, MATRIX_MAINTENANCE,
             VkPhysicalDeviceCooperativeMatrixMaintenance1FeaturesEXT)},
    {.flag = offsetof(struct caps, reduced_ext.usable),
     .extension = VK_EXT_COOPERATIVE_MATRIX_MAINTENANCE_1_EXTENSION_NAME,
     .core = UINT32_MAX,
     .optional = true,
     FEATURE(cooperativeMatrixReductions, MATRIX_MAINTENANCE,
             VkPhysicalDeviceCooperativeMatrixMaintenance1FeaturesEXT, MATRIX_MAINTENANCE,
             VkPhysicalDeviceCooperativeMatrixMaintenance1FeaturesEXT)},
    {.flag = offsetof(struct caps, reduced_ext.usable),
     .extension = VK_EXT_COOPERATIVE_MATRIX_MAINTENANCE_1_EXTENSION_NAME,
     .core = UINT32_MAX,
     .optional = true,
     FEATURE(cooperativeMatrixConversions, MATRIX_MAINTENANCE,
             VkPhysicalDeviceCooperativeMatrixMaintenance1FeaturesEXT, MATRIX_MAINTENANCE,
             VkPhysicalDeviceCooperativeMatrixMaintenance1FeaturesEXT)},
    {.flag = offsetof(struct caps, reduced_ext.usable),
     .extension = VK_EXT_COOPERATIVE_MATRIX_MAINTENANCE_1_EXTENSION_NAME,
     .core = UINT32_MAX,
     .optional = true,
     FEATURE(cooperativeMatrixPerElementOperations, MATRIX_MAINTENANCE,
             VkPhysicalDeviceCooperativeMatrixMaintenance1FeaturesEXT, MATRIX_MAINTENANCE,
             VkPhysicalDeviceCooperativeMatrixMaintenance1FeaturesEXT)},
};

static bool *flag_of(struct caps *caps, const struct wanted *w)
{
    return (bool *)((char *)caps + w->flag);
}

static bool feature_is_on(const VkPhysicalDeviceFeatures2 *features, const struct wanted *w)
{
    for (const VkBaseInStructure *s = (const void *)features; s; s = s->pNext) {
        VkBool32 on = VK_FALSE;
        if (s->sType == w->own)
            memcpy(&on, (const char *)s + w->own_offset, sizeof on);
        else if (s->sType == w->later)
            memcpy(&on, (const char *)s + w->later_offset, sizeof on);
        if (on)
            return true;
    }
    return false;
}

static bool extension_is_on(const struct vka_vulkan_info *vulkan, const char *name)
{
    for (uint32_t i = 0; i < vulkan->n_extension; i++)
        if (strcmp(vulkan->extensions[i], name) == 0)
            return true;
    return false;
}

struct list {
    char text[384];
    size_t length;
};

static void list_add(struct list *list, const char *name)
{
    size_t room = sizeof list->text - list->length;
    int n = snprintf(list->text + list->length, room, "%s%s", list->length ? ", " : "", name);
    list->length += (size_t)n < room ? (size_t)n : room - 1;
}

/* Clears in caps what the application has not enabled, and lists those that are needed. */
static void find_missing(struct vka_device *device, const struct vka_vulkan_info *vulkan,
                         struct list *missing)
{
    struct caps physical = device->caps;
    for (size_t i = 0; i < COUNTOF(wanted); i++) {
        const struct wanted *w = &wanted[i];
        bool extension = !w->extension || device_version(device) >= w->core ||
                         extension_is_on(vulkan, w->extension);
        bool feature = !w->feature || feature_is_on(vulkan->features, w);
        if (!*flag_of(&physical, w) || (extension && feature))
            continue;
        *flag_of(&device->caps, w) = false;
        if (w->optional)
            continue;
        if (!extension)
            list_add(missing, w->extension);
        if (!feature)
            list_add(missing, w->feature);
    }
}

/* Checks the instance and the physical device, and reads what the physical device can do. */
static enum vka_status open_physical(struct vka_device *device, const char *caller,
                                     const struct vka_vulkan_info *vulkan)
{
    enum vka_status status = VKA_OK;
    struct log *log = &device->log;
    uint32_t family;
    CHECK_ARG(vulkan->struct_size == sizeof *vulkan, "%s: struct_size is %zu, not %zu", caller,
              vulkan->struct_size, sizeof *vulkan);
    CHECK_ARG(vulkan->instance, "%s: instance is VK_NULL_HANDLE", caller);
    CHECK_ARG(vulkan->physical_device, "%s: physical_device is VK_NULL_HANDLE", caller);
    if (vulkan->api_version < VK_API_VERSION_1_1)
        return log_error(log, VKA_UNSUPPORTED, "%s: api_version is below Vulkan 1.1", caller);
    TRY(vk_instance_adopt(log, vulkan->instance, vulkan->api_version,
                          vulkan->get_instance_proc_addr, &device->instance));
    device->adopted = true;
    device->physical = vulkan->physical_device;
    device_read_caps(&device->instance, device->physical, UINT32_MAX, &device->caps, &family);
    if (device->caps.properties.api_version < VK_API_VERSION_1_1)
        return log_error(log, VKA_UNSUPPORTED, "%s: the physical device is below Vulkan 1.1",
                         caller);
    if (device->caps.max_bindings < LEAST_BINDINGS)
        return device_few_bindings(log, &device->caps);
    device->queue_family = vulkan->queue_family;
    CHECK_ARG(device_read_family(&device->instance, device->physical, device->queue_family,
                                 &device->caps),
              "%s: queue_family %u does not support compute", caller, device->queue_family);
fail:
    return status;
}

static enum vka_status check_logical(struct log *log, const char *caller,
                                     const struct vka_vulkan_info *vulkan)
{
    enum vka_status status = VKA_OK;
    CHECK_ARG(vulkan->device, "%s: device is VK_NULL_HANDLE", caller);
    CHECK_ARG(vulkan->queue, "%s: queue is VK_NULL_HANDLE", caller);
    CHECK_ARG(!vulkan->features || vulkan->features->sType == FEATURES_2,
              "%s: features is not a VkPhysicalDeviceFeatures2", caller);
    CHECK_ARG(vulkan->extensions || !vulkan->n_extension, "%s: extensions is NULL", caller);
    for (uint32_t i = 0; i < vulkan->n_extension; i++)
        CHECK_ARG(vulkan->extensions[i], "%s: extensions[%u] is NULL", caller, i);
    CHECK_ARG(!vulkan->queue_lock == !vulkan->queue_unlock,
              "%s: only one of queue_lock and queue_unlock is given", caller);
fail:
    return status;
}

static enum vka_status open_logical(struct vka_device *device, const char *caller,
                                    const struct vka_vulkan_info *vulkan)
{
    enum vka_status status = VKA_OK;
    struct log *log = &device->log;
    struct list missing = {.length = 0};
    TRY(check_logical(log, caller, vulkan));
    find_missing(device, vulkan, &missing);
    if (missing.length && !vulkan->allow_missing)
        return log_error(log, VKA_UNSUPPORTED,
                         "%s: the device was made without %s: make it with what "
                         "vka_vulkan_request_create lists or give allow_missing",
                         caller, missing.text);
    if (missing.length)
        log_message(log, VKA_LOG_WARNING, "the device was made without %s", missing.text);
    device->handle = vulkan->device;
    device->queue.handle = vulkan->queue;
    device->queue.lock = vulkan->queue_lock;
    device->queue.unlock = vulkan->queue_unlock;
    device->queue.lock_user = vulkan->queue_user;
    device_load(device);
fail:
    return status;
}

enum vka_status device_adopt(const struct vka_vulkan_info *vulkan,
                             const struct vka_device_info *info, test_kernel_function *test,
                             struct vka_device **out)
{
    static const char *const caller = "vka_device_adopt";
    static const struct vka_device_info defaults = {.struct_size = sizeof defaults};
    if (!out)
        return VKA_INVALID;
    *out = NULL;
    if (!info)
        info = &defaults;
    struct log log_here = {.callback = info->log, .user = info->log_user}, *log = &log_here;
    enum vka_status status = VKA_OK;
    struct vka_device *device = NULL;
    CHECK_ARG(vulkan, "%s: vulkan is NULL", caller);
    TRY(device_check_info(log, caller, info));
    CHECK_ARG(!info->device, "%s: info->device is given, but the application chooses the device",
              caller);
    CHECK_ARG(!info->validation,
              "%s: info->validation is true, but only the application can enable validation",
              caller);
    device = calloc(1, sizeof *device);
    CHECK_ALLOC(device);
    device->self_test.run = test;
    device->process = os_process();
    device->log = log_here;
    TRY(open_physical(device, caller, vulkan));
    TRY(open_logical(device, caller, vulkan));
    device_lower_limits(device, info);
    TRY(device_start(device, info));
    *out = device;
    return VKA_OK;

fail:
    log_keep(device ? &device->log : log);
    vka_device_destroy(&device);
    return status;
}

/* The request that the application sees, and the structures that it points to. */
struct request {
    struct vka_vulkan_request view; /* first */
    struct device_request own;
};

enum vka_status vka_vulkan_request_create(const struct vka_vulkan_info *vulkan,
                                          const struct vka_device_info *info,
                                          struct vka_vulkan_request **out)
{
    if (!out)
        return VKA_INVALID;
    *out = NULL;
    struct vka_device device = {.adopted = true};
    struct log *log = &device.log;
    enum vka_status status = VKA_OK;
    struct request *request = NULL;
    if (info)
        device.log = (struct log){.callback = info->log, .user = info->log_user};
    CHECK_ARG(vulkan, "%s: vulkan is NULL", __func__);
    TRY(open_physical(&device, __func__, vulkan));
    request = calloc(1, sizeof *request);
    CHECK_ALLOC(request);
    device_request_fill(&device, &request->own);
    request->view = (struct vka_vulkan_request){
        .features = &request->own.features,
        .extensions = request->own.extensions,
        .n_extension = request->own.n_extension,
    };
    *out = &request->view;
fail:
    if (status != VKA_OK)
        log_keep(log);
    return status;
}

void vka_vulkan_request_destroy(struct vka_vulkan_request **request)
{
    if (!request)
        return;
    free(*request); /* the first member of a struct request */
    *request = NULL;
}
