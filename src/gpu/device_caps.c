#include "gpu/device_caps.h"
#include "gpu/device_matrices.h"
#include "gpu/memory_block.h"
#include "gpu/memory_foreign.h"
#include "gpu/quirks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FAMILIES 32

static enum vka_device_type device_type(VkPhysicalDeviceType type)
{
    switch ((int)type) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
        return VKA_DEVICE_DISCRETE;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
        return VKA_DEVICE_INTEGRATED;
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
        return VKA_DEVICE_VIRTUAL;
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
        return VKA_DEVICE_CPU;
    default:
        return VKA_DEVICE_OTHER;
    }
}

static void read_features(const struct vk_instance *instance, VkPhysicalDevice physical,
                          uint32_t api_version, struct caps *caps)
{
    VkPhysicalDeviceTimelineSemaphoreFeatures timeline = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES};
    VkPhysicalDeviceSubgroupSizeControlFeatures size = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES};
    VkPhysicalDeviceShaderFloat16Int8Features float16 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES};
    VkPhysicalDeviceBufferDeviceAddressFeatures address = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_BUFFER_DEVICE_ADDRESS_FEATURES};
    VkPhysicalDevice16BitStorageFeatures storage16 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES};
    VkPhysicalDevice8BitStorageFeatures storage8 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES};
    VkPhysicalDeviceShaderIntegerDotProductFeatures dot = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES};
    VkPhysicalDeviceShaderMixedFloatDotProductFeaturesVALVE mixed = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_MIXED_FLOAT_DOT_PRODUCT_FEATURES_VALVE};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                          .pNext = &storage16};
    void **tail = &storage16.pNext;
#define CHAIN(s, core, extension)                                                   \
    if (api_version >= (core) || vk_has_extension(instance, physical, extension)) { \
        *tail = &s;                                                                 \
        tail = &s.pNext;                                                            \
    }
    CHAIN(timeline, VK_API_VERSION_1_2, VK_KHR_TIMELINE_SEMAPHORE_EXTENSION_NAME)
    CHAIN(float16, VK_API_VERSION_1_2, VK_KHR_SHADER_FLOAT16_INT8_EXTENSION_NAME)
    CHAIN(storage8, VK_API_VERSION_1_2, VK_KHR_8BIT_STORAGE_EXTENSION_NAME)
    CHAIN(address, VK_API_VERSION_1_2, VK_KHR_BUFFER_DEVICE_ADDRESS_EXTENSION_NAME)
    CHAIN(size, VK_API_VERSION_1_3, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME)
    CHAIN(dot, VK_API_VERSION_1_3, VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME)
    CHAIN(mixed, UINT32_MAX, VK_VALVE_SHADER_MIXED_FLOAT_DOT_PRODUCT_EXTENSION_NAME)
#undef CHAIN
    instance->vkGetPhysicalDeviceFeatures2(physical, &features);
    /* What only the kernels for CPU drivers use is only enabled there. */
    caps->int64 = features.features.shaderInt64 && caps->properties.type == VKA_DEVICE_CPU;
    caps->int8 = float16.shaderInt8 && storage8.storageBuffer8BitAccess &&
                 caps->properties.type == VKA_DEVICE_CPU;
    caps->device_address = address.bufferDeviceAddress && caps->properties.type == VKA_DEVICE_CPU;
    caps->dot = dot.shaderIntegerDotProduct;
    caps->mixed_dot = mixed.shaderMixedFloatDotProductFloat16AccFloat32;
    caps->properties.timeline = timeline.timelineSemaphore;
    caps->properties.float16 = float16.shaderFloat16;
    caps->properties.storage16 = storage16.storageBuffer16BitAccess;
    caps->properties.bfloat16 =
        vk_has_extension(instance, physical, VK_KHR_SHADER_BFLOAT16_EXTENSION_NAME);
    caps->subgroup_size_control = size.subgroupSizeControl && size.computeFullSubgroups;
}

/* Invocations of a workgroup, along each of the two axes that kernels use too. */
static uint32_t most_invocations(const VkPhysicalDeviceLimits *limits)
{
    uint32_t most = limits->maxComputeWorkGroupInvocations;
    for (int axis = 0; axis < 2; axis++)
        if (limits->maxComputeWorkGroupSize[axis] < most)
            most = limits->maxComputeWorkGroupSize[axis];
    return most;
}

/* Where sizes of subgroups are demanded, a workgroup has at most n of them, even of the smallest; 0: the
 * driver does not say. */
static void bound_subgroups(uint32_t n, struct caps *caps)
{
    const uint64_t most = (uint64_t)n * caps->least_subgroup;
    if (caps->subgroup_size_control && most && most < caps->properties.max_workgroup)
        caps->properties.max_workgroup = (uint32_t)most;
}

/* Processors of the device, which Vulkan itself does not tell but vendors do; else 0. */
static uint32_t count_processors(const struct vk_instance *instance, VkPhysicalDevice physical)
{
    VkPhysicalDeviceShaderSMBuiltinsPropertiesNV nvidia = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV};
    VkPhysicalDeviceShaderCoreProperties2AMD amd = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_2_AMD};
    VkPhysicalDeviceShaderCoreBuiltinsPropertiesARM arm = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_BUILTINS_PROPERTIES_ARM};
    const struct {
        const char *extension;
        void *properties;
        const uint32_t *count;
    } vendors[] = {
        {VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME, &nvidia, &nvidia.shaderSMCount},
        {VK_AMD_SHADER_CORE_PROPERTIES_2_EXTENSION_NAME, &amd, &amd.activeComputeUnitCount},
        {VK_ARM_SHADER_CORE_BUILTINS_EXTENSION_NAME, &arm, &arm.shaderCoreCount},
    };
    for (size_t i = 0; i < COUNTOF(vendors); i++)
        if (vk_has_extension(instance, physical, vendors[i].extension)) {
            VkPhysicalDeviceProperties2 properties = {
                .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                .pNext = vendors[i].properties,
            };
            instance->vkGetPhysicalDeviceProperties2(physical, &properties);
            return *vendors[i].count;
        }
    return 0;
}

/* The bytes that one buffer and its memory may have. */
static uint64_t most_bytes(const struct vk_instance *instance, VkPhysicalDevice physical,
                           uint32_t version, uint64_t allocation)
{
    VkPhysicalDeviceMaintenance4Properties buffers = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES};
    VkPhysicalDeviceProperties2 properties = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &buffers};
    if (version < VK_API_VERSION_1_3 &&
        !vk_has_extension(instance, physical, VK_KHR_MAINTENANCE_4_EXTENSION_NAME))
        return allocation;
    instance->vkGetPhysicalDeviceProperties2(physical, &properties);
    const uint64_t most = buffers.maxBufferSize;
    return most && most < allocation ? most : allocation;
}

static void read_properties(const struct vk_instance *instance, VkPhysicalDevice physical,
                            struct caps *caps)
{
    struct vka_device_properties *p = &caps->properties;
    VkPhysicalDeviceProperties plain;
    instance->vkGetPhysicalDeviceProperties(physical, &plain);
    uint32_t version =
        plain.apiVersion < instance->api_version ? plain.apiVersion : instance->api_version;
    p->api_version = plain.apiVersion;
    p->type = device_type(plain.deviceType);
    p->vendor_id = plain.vendorID;
    p->device_id = plain.deviceID;
    p->driver_version = plain.driverVersion;
    snprintf(p->name, sizeof p->name, "%s", plain.deviceName);
    snprintf(p->driver, sizeof p->driver, "unknown");
    if (version < VK_API_VERSION_1_1)
        return;

    VkPhysicalDeviceExternalMemoryHostPropertiesEXT host = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT};
    VkPhysicalDeviceSubgroupSizeControlProperties size = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES};
    VkPhysicalDeviceDriverProperties driver = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES, .pNext = &size};
    VkPhysicalDeviceSubgroupProperties subgroup = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES, .pNext = &driver};
    VkPhysicalDeviceMaintenance3Properties maintenance = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES, .pNext = &subgroup};
    VkPhysicalDeviceProperties2 properties = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &maintenance};
    if (version < VK_API_VERSION_1_2 &&
        !vk_has_extension(instance, physical, VK_KHR_DRIVER_PROPERTIES_EXTENSION_NAME))
        subgroup.pNext = &size;
    caps->host_import =
        vk_has_extension(instance, physical, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME) &&
        memory_can_import(instance, physical);
    if (caps->host_import)
        size.pNext = &host;
    caps->portability = vk_has_extension(instance, physical, PORTABILITY_SUBSET);
    instance->vkGetPhysicalDeviceProperties2(physical, &properties);
    if (driver.driverName[0])
        snprintf(p->driver, sizeof p->driver, "%.120s %.120s", driver.driverName,
                 driver.driverInfo);

    const VkPhysicalDeviceLimits *limits = &properties.properties.limits;
    p->subgroup_size = subgroup.subgroupSize;
    bool compute = subgroup.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT;
    p->subgroup_arithmetic =
        compute && subgroup.supportedOperations & VK_SUBGROUP_FEATURE_ARITHMETIC_BIT;
    p->subgroup_ballot = compute && subgroup.supportedOperations & VK_SUBGROUP_FEATURE_BALLOT_BIT;
    caps->shuffle = compute && subgroup.supportedOperations & VK_SUBGROUP_FEATURE_SHUFFLE_BIT;
    p->max_workgroup = most_invocations(limits);
    p->max_shared_memory = limits->maxComputeSharedMemorySize;
    p->max_buffer_range = limits->maxStorageBufferRange;
    p->max_allocation =
        most_bytes(instance, physical, version, maintenance.maxMemoryAllocationSize);
    memcpy(caps->max_groups, limits->maxComputeWorkGroupCount, sizeof caps->max_groups);
    caps->buffer_alignment = (uint32_t)limits->minStorageBufferOffsetAlignment;
    if (p->type == VKA_DEVICE_CPU && /* its kernels read texels */
        caps->buffer_alignment < limits->minTexelBufferOffsetAlignment)
        caps->buffer_alignment = (uint32_t)limits->minTexelBufferOffsetAlignment;
    caps->max_texels = limits->maxTexelBufferElements;
    caps->host_alignment = host.minImportedHostPointerAlignment;
    caps->max_bindings = limits->maxPerStageDescriptorStorageBuffers;
    caps->timestamp_ns = (double)limits->timestampPeriod;

    read_features(instance, physical, version, caps);
    caps->subgroup_size_varies = size.minSubgroupSize != size.maxSubgroupSize;
    caps->subgroup_size_control &=
        size.minSubgroupSize <= p->subgroup_size && p->subgroup_size <= size.maxSubgroupSize;
    if (caps->subgroup_size_varies)
        caps->subgroup_size_control &=
            (size.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0;
    caps->least_subgroup = caps->subgroup_size_varies && caps->subgroup_size_control
                               ? size.minSubgroupSize
                               : p->subgroup_size;
    bound_subgroups(size.maxComputeWorkgroupSubgroups, caps);
    device_read_matrices(instance, physical, version, caps);
    caps->processors = count_processors(instance, physical);
}

/* Reads the first MAX_FAMILIES queue families and returns their number. */
static uint32_t read_families(const struct vk_instance *instance, VkPhysicalDevice physical,
                              VkQueueFamilyProperties families[MAX_FAMILIES])
{
    uint32_t count = 0;
    instance->vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, NULL);
    if (count > MAX_FAMILIES)
        count = MAX_FAMILIES;
    instance->vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, families);
    return count;
}

/* Prefers a family without graphics: usually its queue is not the one that draws the screen. */
static uint32_t find_queue_family(const struct vk_instance *instance, VkPhysicalDevice physical)
{
    VkQueueFamilyProperties families[MAX_FAMILIES];
    uint32_t count = read_families(instance, physical, families), best = UINT32_MAX;
    for (uint32_t i = 0; i < count; i++) {
        VkQueueFlags flags = families[i].queueFlags;
        if (!(flags & VK_QUEUE_COMPUTE_BIT) || families[i].queueCount == 0)
            continue;
        if (!(flags & VK_QUEUE_GRAPHICS_BIT))
            return i;
        if (best == UINT32_MAX)
            best = i;
    }
    return best;
}

bool device_read_family(const struct vk_instance *instance, VkPhysicalDevice physical,
                        uint32_t family, struct caps *caps)
{
    VkQueueFamilyProperties families[MAX_FAMILIES];
    uint32_t count = read_families(instance, physical, families);
    if (family >= count || !(families[family].queueFlags & VK_QUEUE_COMPUTE_BIT))
        return false;
    uint32_t bits = families[family].timestampValidBits;
    caps->timestamp_mask = bits >= 64 ? UINT64_MAX : (1ull << bits) - 1;
    caps->properties.timestamps = bits > 0 && caps->timestamp_ns > 0;
    return true;
}

static void read_memory(const struct vk_instance *instance, VkPhysicalDevice physical,
                        struct vka_device_properties *p)
{
    VkPhysicalDeviceMemoryProperties memory;
    instance->vkGetPhysicalDeviceMemoryProperties(physical, &memory);
    uint64_t largest = memory_largest_local(&memory);
    for (uint32_t i = 0; i < memory.memoryHeapCount; i++)
        if (memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT)
            p->memory += memory.memoryHeaps[i].size;
    for (uint32_t i = 0; i < memory.memoryTypeCount; i++) {
        const VkMemoryType *t = &memory.memoryTypes[i];
        p->mapped_memory |= memory_type_has(t, MEMORY_MAPPED_FLAGS) &&
                            memory.memoryHeaps[t->heapIndex].size >= largest / 2;
    }
}

void device_read_caps(const struct vk_instance *instance, VkPhysicalDevice physical, uint32_t index,
                      struct caps *caps, uint32_t *queue_family)
{
    memset(caps, 0, sizeof *caps);
    read_properties(instance, physical, caps);
    caps->properties.index = index;
    caps->max_loops = quirk_max_loops(&caps->properties);

    read_memory(instance, physical, &caps->properties);

    *queue_family = find_queue_family(instance, physical);
    device_read_family(instance, physical, *queue_family, caps);
}
