/* What the devices say of themselves, and the entrance that the Vulkan loader takes. */
#include "stub.h"

#include <vulkan/vk_icd.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

struct instance {
    void *loader; /* first */
    struct stub_physical physical[STUB_DEVICES];
    uint32_t n;
};

void stub_mistake(const char *function, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fflush(stdout);
    fprintf(stderr,
            "stub: MISTAKE in %s: ", strncmp(function, "stub_", 5) ? function : function + 5);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    abort();
}

/* ---- Instances ------------------------------------------------------------------------------- */

/* Whether a list of names with commas has this one. */
static bool has_name(const char *list, const char *name)
{
    const size_t length = strlen(name);
    for (; *list; list += *list == ',') {
        const size_t n = strcspn(list, ",");
        if (n == length && strncmp(list, name, n) == 0)
            return true;
        list += n;
    }
    return false;
}

static VKAPI_ATTR VkResult VKAPI_CALL stub_vkCreateInstance(const VkInstanceCreateInfo *info,
                                                            const VkAllocationCallbacks *a,
                                                            VkInstance *out)
{
    (void)info, (void)a;
    const char *names = getenv("VKATTN_STUB");
    struct instance *instance = calloc(1, sizeof *instance);
    if (!instance)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    set_loader_magic_value(instance);
    for (size_t i = 0; i < STUB_DEVICES; i++)
        if (has_name(names && *names ? names : "cpu", stub_kinds[i].name)) {
            struct stub_physical *physical = &instance->physical[instance->n++];
            set_loader_magic_value(physical);
            physical->kind = &stub_kinds[i];
        }
    *out = (VkInstance)instance;
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL stub_vkDestroyInstance(VkInstance instance,
                                                         const VkAllocationCallbacks *a)
{
    (void)a;
    free(instance);
}

static VKAPI_ATTR VkResult VKAPI_CALL stub_vkEnumerateInstanceVersion(uint32_t *version)
{
    *version = VK_API_VERSION_1_3;
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL stub_vkEnumerateInstanceExtensionProperties(
    const char *layer, uint32_t *n, VkExtensionProperties *list)
{
    (void)layer, (void)list;
    *n = 0;
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL stub_vkEnumeratePhysicalDevices(VkInstance handle,
                                                                      uint32_t *n,
                                                                      VkPhysicalDevice *list)
{
    struct instance *instance = (struct instance *)handle;
    const uint32_t room = list ? *n : instance->n;
    *n = room < instance->n ? room : instance->n;
    for (uint32_t i = 0; list && i < *n; i++)
        list[i] = (VkPhysicalDevice)&instance->physical[i];
    return *n < instance->n ? VK_INCOMPLETE : VK_SUCCESS;
}

/* ---- Properties ------------------------------------------------------------------------------ */

static const struct stub_kind *kind_of(VkPhysicalDevice physical)
{
    return ((const struct stub_physical *)physical)->kind;
}

static VKAPI_ATTR void VKAPI_CALL stub_vkGetPhysicalDeviceProperties(VkPhysicalDevice physical,
                                                                     VkPhysicalDeviceProperties *p)
{
    const struct stub_kind *kind = kind_of(physical);
    *p = (VkPhysicalDeviceProperties){
        .apiVersion = kind->api_version,
        .driverVersion = 1,
        .vendorID = 0x1d0,
        .deviceID = 1 + (uint32_t)(kind - stub_kinds),
        .deviceType = kind->type,
        .limits =
            {
                .maxStorageBufferRange = kind->range,
                .maxPushConstantsSize = STUB_PUSH,
                .maxMemoryAllocationCount = 4096,
                .maxTexelBufferElements = kind->texels,
                .maxBoundDescriptorSets = 4,
                .maxPerStageDescriptorStorageBuffers = kind->storage_buffers,
                .maxPerStageResources = 128,
                .maxComputeSharedMemorySize = kind->shared,
                .maxComputeWorkGroupCount = {kind->groups_x, kind->groups_yz, kind->groups_yz},
                .maxComputeWorkGroupInvocations = kind->invocations,
                .maxComputeWorkGroupSize = {kind->invocations, kind->invocations, STUB_DEEP},
                .minMemoryMapAlignment = 64,
                .minTexelBufferOffsetAlignment = kind->alignment,
                .minStorageBufferOffsetAlignment = kind->alignment,
                .timestampComputeAndGraphics = VK_TRUE,
                .timestampPeriod = 1,
                .nonCoherentAtomSize = 64,
            },
    };
    snprintf(p->deviceName, sizeof p->deviceName, "stub %s", kind->name);
}

/* What follows the head of a chain that the host gives, one structure after the other. */
#define FOR_CHAIN(s, first) for (VkBaseOutStructure *s = (first); s; s = s->pNext)

static VKAPI_ATTR void VKAPI_CALL
stub_vkGetPhysicalDeviceProperties2(VkPhysicalDevice physical, VkPhysicalDeviceProperties2 *p)
{
    const struct stub_kind *kind = kind_of(physical);
    stub_vkGetPhysicalDeviceProperties(physical, &p->properties);
    FOR_CHAIN(s, p->pNext)
    {
        if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES) {
            VkPhysicalDeviceMaintenance3Properties *m = (void *)s;
            m->maxMemoryAllocationSize = kind->allocation;
            m->maxPerSetDescriptors = 1024;
        } else if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES) {
            VkPhysicalDeviceSubgroupProperties *g = (void *)s;
            g->subgroupSize = kind->subgroup;
            g->supportedStages = VK_SHADER_STAGE_COMPUTE_BIT;
            g->supportedOperations = stub_operations(kind);
        } else if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES) {
            VkPhysicalDeviceSubgroupSizeControlProperties *c = (void *)s;
            c->minSubgroupSize = stub_least_subgroup(kind);
            c->maxSubgroupSize = stub_most_subgroup(kind);
            c->maxComputeWorkgroupSubgroups = stub_most_subgroups(kind);
            c->requiredSubgroupSizeStages = VK_SHADER_STAGE_COMPUTE_BIT;
        } else if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES) {
            ((VkPhysicalDeviceMaintenance4Properties *)s)->maxBufferSize = stub_most_buffer(kind);
        } else if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES) {
            VkPhysicalDeviceDriverProperties *d = (void *)s;
            snprintf(d->driverName, sizeof d->driverName, "stub");
            snprintf(d->driverInfo, sizeof d->driverInfo, "no compiler");
        }
    }
}

static VKAPI_ATTR void VKAPI_CALL stub_vkGetPhysicalDeviceFeatures(VkPhysicalDevice physical,
                                                                   VkPhysicalDeviceFeatures *f)
{
    *f = (VkPhysicalDeviceFeatures){.shaderInt64 = kind_of(physical)->int64};
}

static VKAPI_ATTR void VKAPI_CALL stub_vkGetPhysicalDeviceFeatures2(VkPhysicalDevice physical,
                                                                    VkPhysicalDeviceFeatures2 *f)
{
    const struct stub_kind *kind = kind_of(physical);
    stub_vkGetPhysicalDeviceFeatures(physical, &f->features);
    FOR_CHAIN(s, f->pNext)
    {
        if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES)
            ((VkPhysicalDeviceTimelineSemaphoreFeatures *)s)->timelineSemaphore = kind->timeline;
        else if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES)
            ((VkPhysicalDeviceSubgroupSizeControlFeatures *)s)->subgroupSizeControl =
                ((VkPhysicalDeviceSubgroupSizeControlFeatures *)s)->computeFullSubgroups =
                    kind->size_control;
        else if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES) {
            ((VkPhysicalDeviceShaderFloat16Int8Features *)s)->shaderFloat16 = kind->float16;
            ((VkPhysicalDeviceShaderFloat16Int8Features *)s)->shaderInt8 = kind->storage8;
        } else if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_BUFFER_DEVICE_ADDRESS_FEATURES)
            ((VkPhysicalDeviceBufferDeviceAddressFeatures *)s)->bufferDeviceAddress = kind->address;
        else if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES)
            ((VkPhysicalDevice16BitStorageFeatures *)s)->storageBuffer16BitAccess = kind->storage16;
        else if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES)
            ((VkPhysicalDevice8BitStorageFeatures *)s)->storageBuffer8BitAccess = kind->storage8;
        else if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES)
            ((VkPhysicalDeviceShaderIntegerDotProductFeatures *)s)->shaderIntegerDotProduct =
                kind->dot;
    }
}

/* Type 0 is the device's own, type 1 the host's, which is another where type 0 is not mapped; type 2 a
 * window on the device's, or one that a feature has to be enabled for. */
static VKAPI_ATTR void VKAPI_CALL stub_vkGetPhysicalDeviceMemoryProperties(
    VkPhysicalDevice physical, VkPhysicalDeviceMemoryProperties *m)
{
    const struct stub_kind *kind = kind_of(physical);
    const VkMemoryPropertyFlags host = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                       VK_MEMORY_PROPERTY_HOST_COHERENT_BIT |
                                       VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
    const VkMemoryPropertyFlags coherent = VK_MEMORY_PROPERTY_HOST_CACHED_BIT |
                                           VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD |
                                           VK_MEMORY_PROPERTY_DEVICE_UNCACHED_BIT_AMD;
    const VkMemoryPropertyFlags seen =
        kind->uncached ? host & ~(VkMemoryPropertyFlags)VK_MEMORY_PROPERTY_HOST_CACHED_BIT : host;
    *m = (VkPhysicalDeviceMemoryProperties){
        .memoryTypeCount = stub_memory_types(kind),
        .memoryTypes = {{VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | (kind->mapped ? seen : 0), 0},
                        {host, 1},
                        {VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                             VK_MEMORY_PROPERTY_HOST_COHERENT_BIT | (kind->coherent ? coherent : 0),
                         kind->coherent ? 0 : 2}},
        .memoryHeapCount = kind->window ? 3 : 2,
        .memoryHeaps = {{kind->local ? kind->local : kind->heap, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT},
                        {kind->heap, 0},
                        {kind->window, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}},
    };
    if (kind->swapped) { /* a window that the host does not see comes first */
        m->memoryTypes[2] = m->memoryTypes[0];
        m->memoryTypes[0] = (VkMemoryType){VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 2};
    }
}

static VKAPI_ATTR void VKAPI_CALL stub_vkGetPhysicalDeviceMemoryProperties2(
    VkPhysicalDevice physical, VkPhysicalDeviceMemoryProperties2 *m)
{
    stub_vkGetPhysicalDeviceMemoryProperties(physical, &m->memoryProperties);
}

static VKAPI_ATTR void VKAPI_CALL stub_vkGetPhysicalDeviceQueueFamilyProperties(
    VkPhysicalDevice physical, uint32_t *n, VkQueueFamilyProperties *list)
{
    if (list && *n)
        list[0] = (VkQueueFamilyProperties){
            .queueFlags = VK_QUEUE_COMPUTE_BIT | VK_QUEUE_TRANSFER_BIT,
            .queueCount = 1,
            .timestampValidBits = kind_of(physical)->no_timestamps ? 0 : 64,
        };
    *n = list && !*n ? 0 : 1;
}

static VKAPI_ATTR VkResult VKAPI_CALL stub_vkEnumerateDeviceExtensionProperties(
    VkPhysicalDevice physical, const char *layer, uint32_t *n, VkExtensionProperties *list)
{
    (void)physical, (void)layer, (void)list;
    *n = 0;
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL stub_vkGetPhysicalDeviceExternalBufferProperties(
    VkPhysicalDevice physical, const VkPhysicalDeviceExternalBufferInfo *info,
    VkExternalBufferProperties *p)
{
    (void)physical, (void)info;
    p->externalMemoryProperties = (VkExternalMemoryProperties){0};
}

/* ---- What the loader demands and no test uses: images ---------------------------------------- */

static VKAPI_ATTR void VKAPI_CALL stub_vkGetPhysicalDeviceFormatProperties(
    VkPhysicalDevice physical, VkFormat format, VkFormatProperties *p)
{
    (void)physical, (void)format;
    *p = (VkFormatProperties){.bufferFeatures = VK_FORMAT_FEATURE_UNIFORM_TEXEL_BUFFER_BIT};
}

static VKAPI_ATTR VkResult VKAPI_CALL stub_vkGetPhysicalDeviceImageFormatProperties(
    VkPhysicalDevice physical, VkFormat format, VkImageType type, VkImageTiling tiling,
    VkImageUsageFlags usage, VkImageCreateFlags flags, VkImageFormatProperties *p)
{
    (void)physical, (void)format, (void)type, (void)tiling, (void)usage, (void)flags, (void)p;
    return VK_ERROR_FORMAT_NOT_SUPPORTED;
}

static VKAPI_ATTR void VKAPI_CALL stub_vkGetPhysicalDeviceSparseImageFormatProperties(
    VkPhysicalDevice physical, VkFormat format, VkImageType type, VkSampleCountFlagBits samples,
    VkImageUsageFlags usage, VkImageTiling tiling, uint32_t *n, VkSparseImageFormatProperties *list)
{
    (void)physical, (void)format, (void)type, (void)samples, (void)usage, (void)tiling, (void)list;
    *n = 0;
}

/* ---- The entrance ---------------------------------------------------------------------------- */

const struct stub_function stub_physical_functions[] = {
    STUB_FUNCTION(vkCreateInstance),
    STUB_FUNCTION(vkDestroyInstance),
    STUB_FUNCTION(vkEnumerateInstanceVersion),
    STUB_FUNCTION(vkEnumerateInstanceExtensionProperties),
    STUB_FUNCTION(vkEnumeratePhysicalDevices),
    STUB_FUNCTION(vkGetPhysicalDeviceProperties),
    STUB_FUNCTION(vkGetPhysicalDeviceProperties2),
    STUB_FUNCTION(vkGetPhysicalDeviceFeatures),
    STUB_FUNCTION(vkGetPhysicalDeviceFeatures2),
    STUB_FUNCTION(vkGetPhysicalDeviceMemoryProperties),
    STUB_FUNCTION(vkGetPhysicalDeviceMemoryProperties2),
    STUB_FUNCTION(vkGetPhysicalDeviceQueueFamilyProperties),
    STUB_FUNCTION(vkEnumerateDeviceExtensionProperties),
    STUB_FUNCTION(vkGetPhysicalDeviceExternalBufferProperties),
    STUB_FUNCTION(vkGetPhysicalDeviceFormatProperties),
    STUB_FUNCTION(vkGetPhysicalDeviceImageFormatProperties),
    STUB_FUNCTION(vkGetPhysicalDeviceSparseImageFormatProperties),
    {0},
};

static PFN_vkVoidFunction find(const char *name)
{
    const struct stub_function *const lists[] = {stub_physical_functions, stub_object_functions,
                                                 stub_memory_functions,   stub_descriptor_functions,
                                                 stub_command_functions,  stub_queue_functions};
    for (size_t i = 0; i < COUNT(lists); i++)
        for (const struct stub_function *f = lists[i]; f->name; f++)
            if (strcmp(f->name, name) == 0)
                return f->function;
    return NULL;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL stub_vkGetDeviceProcAddr(VkDevice device,
                                                                         const char *name)
{
    (void)device;
    return find(name);
}

#define EXPORT __attribute__((visibility("default")))

EXPORT VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vk_icdGetInstanceProcAddr(VkInstance instance,
                                                                          const char *name);
EXPORT VKAPI_ATTR VkResult VKAPI_CALL vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version);

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vk_icdGetInstanceProcAddr(VkInstance instance,
                                                                   const char *name)
{
    (void)instance;
    return strcmp(name, "vkGetDeviceProcAddr") == 0 ? (PFN_vkVoidFunction)stub_vkGetDeviceProcAddr
           : strcmp(name, "vkGetInstanceProcAddr") == 0
               ? (PFN_vkVoidFunction)vk_icdGetInstanceProcAddr
               : find(name);
}

VKAPI_ATTR VkResult VKAPI_CALL vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version)
{
    *version = *version < 4 ? *version : 4;
    return VK_SUCCESS;
}
