#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "fake_device.h"
#include "gpu/device_caps.h"
#include "gpu/memory_block.h"

#define FLEXIBLE(m, n, k, type, result, where)                                          \
    {                                                                                   \
        .MGranularity = (m), .NGranularity = (n), .KGranularity = (k), .AType = (type), \
        .BType = (type), .CType = (result), .ResultType = (result), .scope = (where)    \
    }

#define MAINTAINED(m, n, k, type, result)                                               \
    {                                                                                   \
        .MGranularity = (m), .NGranularity = (n), .KGranularity = (k), .AType = (type), \
        .BType = (type), .CType = (result), .ResultType = (result)                      \
    }

const struct fake_device fake_modern = {
    .instance_version = VK_API_VERSION_1_3,
    .properties = {.apiVersion = VK_API_VERSION_1_3,
                   .vendorID = 0x1002,
                   .deviceID = 0x73bf,
                   .driverVersion = 7,
                   .deviceType = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU,
                   .deviceName = "fake",
                   .limits = {.maxComputeWorkGroupInvocations = 1024,
                              .maxComputeWorkGroupSize = {1024, 1024, 64},
                              .maxComputeSharedMemorySize = 65536,
                              .maxStorageBufferRange = UINT32_MAX,
                              .maxComputeWorkGroupCount = {65535, 65534, 65533},
                              .minStorageBufferOffsetAlignment = 16,
                              .minTexelBufferOffsetAlignment = 64,
                              .maxTexelBufferElements = 1 << 27,
                              .maxPerStageDescriptorStorageBuffers = 64,
                              .timestampPeriod = 10}},
    .int64 = 1,
    .int8 = 1,
    .storage8 = 1,
    .timeline = 1,
    .float16 = 1,
    .dot = 1,
    .address = 1,
    .storage16 = 1,
    .size_control = 1,
    .matrix = 1,
    .memory_model = 1,
    .device_scope = 1,
    .bfloat16 = 1,
    .bfloat16_matrix = 1,
    .maintenance4 = 1,
    .flexible = 1,
    .reductions = 1,
    .conversions = 1,
    .elements = 1,
    .ext_sizes = 1,
    .ext_reductions = 1,
    .ext_conversions = 1,
    .ext_elements = 1,
    .subgroup = {.subgroupSize = 32,
                 .supportedStages = VK_SHADER_STAGE_COMPUTE_BIT,
                 .supportedOperations = VK_SUBGROUP_FEATURE_ARITHMETIC_BIT |
                                        VK_SUBGROUP_FEATURE_BALLOT_BIT |
                                        VK_SUBGROUP_FEATURE_SHUFFLE_BIT},
    .size = {.minSubgroupSize = 32,
             .maxSubgroupSize = 64,
             .maxComputeWorkgroupSubgroups = 32,
             .requiredSubgroupSizeStages = VK_SHADER_STAGE_COMPUTE_BIT},
    .max_allocation = 1u << 31,
    .host_alignment = 4096,
    .external = VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT,
    .driver = "radv",
    .extensions = {"VK_KHR_cooperative_matrix", "VK_KHR_shader_bfloat16",
                   "VK_EXT_external_memory_host", "VK_NV_cooperative_matrix2"},
    .memory = {.memoryHeapCount = 2,
               .memoryHeaps = {{.size = 8ull << 30, .flags = VK_MEMORY_HEAP_DEVICE_LOCAL_BIT},
                               {.size = 32ull << 30}},
               .memoryTypeCount = 2,
               .memoryTypes = {{MEMORY_MAPPED_FLAGS, 0}, {VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT, 1}}},
    .families = {{.queueFlags = VK_QUEUE_GRAPHICS_BIT | VK_QUEUE_COMPUTE_BIT,
                  .queueCount = 1,
                  .timestampValidBits = 64},
                 {.queueFlags = VK_QUEUE_TRANSFER_BIT, .queueCount = 1},
                 {.queueFlags = VK_QUEUE_COMPUTE_BIT, .queueCount = 4, .timestampValidBits = 36}},
    .n_family = 3,
    /* m, n, k, the types of A, B, C and the result: 0 float16, 1 float32; scope 3 is a subgroup. */
    .matrices = {{.MSize = 8, .NSize = 8, .KSize = 16, .CType = 1, .ResultType = 1, .scope = 3},
                 {.MSize = 16, .NSize = 16, .KSize = 16, .CType = 1, .ResultType = 1, .scope = 3},
                 {.MSize = 16, .NSize = 8, .KSize = 16, .CType = 1, .ResultType = 1, .scope = 3},
                 {.MSize = 32, .NSize = 32, .KSize = 16, .CType = 0, .ResultType = 0, .scope = 3},
                 {.MSize = 64, .NSize = 64, .KSize = 16, .CType = 1, .ResultType = 1, .scope = 2},
                 {.MSize = 16,
                  .NSize = 16,
                  .KSize = 32,
                  .AType = 1000141000,
                  .BType = 1000141000,
                  .CType = 1,
                  .ResultType = 1,
                  .scope = 3},
                 {.MSize = 16, .NSize = 16, .KSize = 32, .AType = 3, .BType = 7, .scope = 3},
                 {.MSize = 16, .NSize = 16, .KSize = 32, .AType = 999, .BType = -1, .scope = 3}},
    .n_matrix = 8,
    .matrix_stages = VK_SHADER_STAGE_COMPUTE_BIT,
    /* These have the fields of those; scope 2 is a workgroup. */
    .flexibles = {FLEXIBLE(32, 16, 16, 0, 1, 3), FLEXIBLE(16, 8, 16, 0, 1, 3),
                  FLEXIBLE(16, 16, 16, 0, 1, 3), FLEXIBLE(8, 8, 8, 0, 0, 3),
                  FLEXIBLE(8, 8, 8, 0, 1, 2), FLEXIBLE(16, 16, 16, 1000141000, 1, 3)},
    .n_flexible = 6,
    .sizes = {MAINTAINED(32, 16, 16, 0, 1), MAINTAINED(16, 16, 16, 0, 1), MAINTAINED(8, 8, 8, 0, 0),
              MAINTAINED(16, 16, 32, 1000141000, 1)},
    .n_size = 4,
};

struct fake_device fake;

static void VKAPI_CALL get_properties(VkPhysicalDevice physical, VkPhysicalDeviceProperties *p)
{
    (void)physical;
    *p = fake.properties;
}

/* Fills a structure of a chain, all but what heads it. */
#define FILL(type, member) \
    memcpy((char *)s + sizeof *s, (const char *)&(member) + sizeof *s, sizeof(type) - sizeof *s)

static void VKAPI_CALL get_properties2(VkPhysicalDevice physical, VkPhysicalDeviceProperties2 *p)
{
    (void)physical;
    p->properties = fake.properties;
    for (VkBaseOutStructure *s = p->pNext; s; s = s->pNext) {
        switch ((int)s->sType) {
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES:
            FILL(VkPhysicalDeviceSubgroupProperties, fake.subgroup);
            break;
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES:
            FILL(VkPhysicalDeviceSubgroupSizeControlProperties, fake.size);
            break;
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES:
            ((VkPhysicalDeviceMaintenance3Properties *)s)->maxMemoryAllocationSize =
                fake.max_allocation;
            break;
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES:
            ((VkPhysicalDeviceMaintenance4Properties *)s)->maxBufferSize = fake.max_buffer;
            break;
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES:
            strcpy(((VkPhysicalDeviceDriverProperties *)s)->driverName, fake.driver);
            strcpy(((VkPhysicalDeviceDriverProperties *)s)->driverInfo, "1.2");
            break;
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT:
            ((VkPhysicalDeviceExternalMemoryHostPropertiesEXT *)s)
                ->minImportedHostPointerAlignment = fake.host_alignment;
            break;
        default: /* not in every header's enum */
            if (s->sType != VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_PROPERTIES_KHR)
                fail_msg("a structure of type %d is asked for", (int)s->sType);
            ((VkPhysicalDeviceCooperativeMatrixPropertiesKHR *)s)
                ->cooperativeMatrixSupportedStages = fake.matrix_stages;
        }
    }
}

static void VKAPI_CALL get_features2(VkPhysicalDevice physical, VkPhysicalDeviceFeatures2 *f)
{
    (void)physical;
    f->features.shaderInt64 = fake.int64;
    for (VkBaseOutStructure *s = f->pNext; s; s = s->pNext) {
        switch ((int)s->sType) {
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES:
            ((VkPhysicalDeviceTimelineSemaphoreFeatures *)s)->timelineSemaphore = fake.timeline;
            break;
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES:
            ((VkPhysicalDeviceSubgroupSizeControlFeatures *)s)->subgroupSizeControl =
                fake.size_control;
            ((VkPhysicalDeviceSubgroupSizeControlFeatures *)s)->computeFullSubgroups =
                fake.size_control;
            break;
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES:
            ((VkPhysicalDeviceShaderFloat16Int8Features *)s)->shaderFloat16 = fake.float16;
            ((VkPhysicalDeviceShaderFloat16Int8Features *)s)->shaderInt8 = fake.int8;
            break;
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES:
            ((VkPhysicalDeviceShaderIntegerDotProductFeatures *)s)->shaderIntegerDotProduct =
                fake.dot;
            break;
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_BUFFER_DEVICE_ADDRESS_FEATURES:
            ((VkPhysicalDeviceBufferDeviceAddressFeatures *)s)->bufferDeviceAddress = fake.address;
            break;
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES:
            ((VkPhysicalDevice8BitStorageFeatures *)s)->storageBuffer8BitAccess = fake.storage8;
            break;
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES:
            ((VkPhysicalDevice16BitStorageFeatures *)s)->storageBuffer16BitAccess = fake.storage16;
            break;
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES:
            ((VkPhysicalDeviceVulkanMemoryModelFeatures *)s)->vulkanMemoryModel = fake.memory_model;
            ((VkPhysicalDeviceVulkanMemoryModelFeatures *)s)->vulkanMemoryModelDeviceScope =
                fake.device_scope;
            break;
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_FEATURES:
            ((VkPhysicalDeviceMaintenance4Features *)s)->maintenance4 = fake.maintenance4;
            break;
        default:
            /* Not in every header's enum, so not in a switch over it. */
            if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR) {
                ((VkPhysicalDeviceCooperativeMatrixFeaturesKHR *)s)->cooperativeMatrix =
                    fake.matrix;
            } else if (s->sType ==
                       VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_2_FEATURES_NV) {
                VkPhysicalDeviceCooperativeMatrix2FeaturesNV *m = (void *)s;
                m->cooperativeMatrixFlexibleDimensions = fake.flexible;
                m->cooperativeMatrixReductions = fake.reductions;
                m->cooperativeMatrixConversions = fake.conversions;
                m->cooperativeMatrixPerElementOperations = fake.elements;
            } else if (
                s->sType ==
                VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_MAINTENANCE_1_FEATURES_EXT) {
                VkPhysicalDeviceCooperativeMatrixMaintenance1FeaturesEXT *m = (void *)s;
                assert_true(fake.maintained);
                m->cooperativeMatrixProperties2 = fake.ext_sizes;
                m->cooperativeMatrixReductions = fake.ext_reductions;
                m->cooperativeMatrixConversions = fake.ext_conversions;
                m->cooperativeMatrixPerElementOperations = fake.ext_elements;
            } else if (
                s->sType ==
                VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_MIXED_FLOAT_DOT_PRODUCT_FEATURES_VALVE) {
                VkPhysicalDeviceShaderMixedFloatDotProductFeaturesVALVE *m = (void *)s;
                m->shaderMixedFloatDotProductFloat16AccFloat32 = fake.mixed_dot;
                m->shaderMixedFloatDotProductFloat16AccFloat16 = !fake.mixed_dot;
            } else {
                VkPhysicalDeviceShaderBfloat16FeaturesKHR *b = (void *)s;
                assert_int_equal(s->sType,
                                 VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR);
                b->shaderBFloat16Type = fake.bfloat16;
                b->shaderBFloat16CooperativeMatrix = fake.bfloat16_matrix;
            }
        }
    }
}

static VkResult VKAPI_CALL get_extensions(VkPhysicalDevice physical, const char *layer,
                                          uint32_t *count, VkExtensionProperties *list)
{
    (void)physical;
    assert_null(layer);
    uint32_t n = 0;
    while (n < COUNTOF(fake.extensions) && fake.extensions[n])
        n++;
    for (uint32_t i = 0; list && i < n; i++)
        strcpy(list[i].extensionName, fake.extensions[i]);
    if (list && fake.maintained)
        strcpy(list[n].extensionName, "VK_EXT_cooperative_matrix_maintenance1");
    *count = n + fake.maintained;
    return fake.extensions_result;
}

static VkResult VKAPI_CALL get_matrices(VkPhysicalDevice physical, uint32_t *count,
                                        VkCooperativeMatrixPropertiesKHR *list)
{
    (void)physical;
    uint32_t n = fake.n_before + fake.n_matrix;
    VkResult result = *count < n ? VK_INCOMPLETE : fake.matrices_result;
    *count = *count < n ? *count : n;
    for (uint32_t i = 0; i < *count; i++) {
        assert_int_equal(list[i].sType, VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR);
        list[i] = i < fake.n_before ? (VkCooperativeMatrixPropertiesKHR){.MSize = 1}
                                    : fake.matrices[i - fake.n_before];
        list[i].sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR;
    }
    return result;
}

static VkResult VKAPI_CALL get_flexibles(VkPhysicalDevice physical, uint32_t *count,
                                         VkCooperativeMatrixFlexibleDimensionsPropertiesNV *list)
{
    (void)physical;
    assert_true(*count >= fake.n_flexible);
    *count = fake.n_flexible;
    for (uint32_t i = 0; i < fake.n_flexible; i++) {
        assert_int_equal(list[i].sType,
                         VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_FLEXIBLE_DIMENSIONS_PROPERTIES_NV);
        list[i] = fake.flexibles[i];
    }
    return fake.matrices_result;
}

/* What a subgroup of the least size has. */
static VkResult VKAPI_CALL get_sizes(VkPhysicalDevice physical,
                                     const VkPhysicalDeviceCooperativeMatrixInfo2EXT *info,
                                     uint32_t *count, VkCooperativeMatrixProperties2EXT *list)
{
    (void)physical;
    assert_true(fake.maintained && fake.ext_sizes && *count >= fake.n_size);
    assert_int_equal(info->sType, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_INFO_2_EXT);
    assert_int_equal(info->scope, 3);
    assert_int_equal(info->subgroupSize, fake.size.minSubgroupSize);
    assert_true(!info->pNext && !info->flags);
    *count = fake.n_size;
    for (uint32_t i = 0; i < fake.n_size; i++) {
        assert_int_equal(list[i].sType, VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_2_EXT);
        list[i] = fake.sizes[i];
    }
    return fake.matrices_result;
}

static void VKAPI_CALL get_memory(VkPhysicalDevice physical, VkPhysicalDeviceMemoryProperties *m)
{
    (void)physical;
    *m = fake.memory;
}

static void VKAPI_CALL get_families(VkPhysicalDevice physical, uint32_t *count,
                                    VkQueueFamilyProperties *list)
{
    (void)physical;
    if (!list || *count > fake.n_family)
        *count = fake.n_family;
    if (list)
        memcpy(list, fake.families, *count * sizeof *list);
}

static void VKAPI_CALL get_external(VkPhysicalDevice physical,
                                    const VkPhysicalDeviceExternalBufferInfo *info,
                                    VkExternalBufferProperties *can)
{
    (void)physical;
    (void)info;
    can->externalMemoryProperties.externalMemoryFeatures = fake.external;
}

struct caps fake_caps(uint32_t *family)
{
    const struct vk_instance instance = {
        .api_version = fake.instance_version,
        .vkGetPhysicalDeviceProperties = get_properties,
        .vkGetPhysicalDeviceProperties2 = get_properties2,
        .vkGetPhysicalDeviceFeatures2 = get_features2,
        .vkGetPhysicalDeviceMemoryProperties = get_memory,
        .vkGetPhysicalDeviceQueueFamilyProperties = get_families,
        .vkGetPhysicalDeviceExternalBufferProperties = get_external,
        .vkEnumerateDeviceExtensionProperties = get_extensions,
        .vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR = get_matrices,
        .vkGetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV = get_flexibles,
        .vkGetPhysicalDeviceCooperativeMatrixProperties2EXT = fake.maintained ? get_sizes : NULL,
    };
    struct caps caps;
    device_read_caps(&instance, VK_NULL_HANDLE, 5, &caps, family);
    return caps;
}
