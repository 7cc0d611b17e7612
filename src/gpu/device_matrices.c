#include "gpu/device_matrices.h"
#include "params/params.h"

#include <stdio.h>

#define MAX_MATRICES 256 /* of a driver's list: what comes behind is not seen */
#define COMPONENT_F16 0  /* of VkComponentTypeKHR */
#define COMPONENT_F32 1
#define COMPONENT_BF16 1000141000
#define VENDOR_INTEL 0x8086u
#define VENDOR_NVIDIA 0x10deu
#define SCOPE_SUBGROUP 3 /* of VkScopeKHR */

static const char *component_name(int32_t type)
{
    static const char *const names[] = {"f16", "f32", "f64", "s8",  "s16", "s32",
                                        "s64", "u8",  "u16", "u32", "u64"};
    if (type >= 0 && (size_t)type < COUNTOF(names))
        return names[type];
    return type == COMPONENT_BF16 ? "bf16" : "?";
}

/* Whether compute shaders may use cooperative matrices, of a device that has the extension. */
static bool in_compute(const struct vk_instance *instance, VkPhysicalDevice physical)
{
    VkPhysicalDeviceCooperativeMatrixPropertiesKHR matrix = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_PROPERTIES_KHR};
    VkPhysicalDeviceProperties2 properties = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &matrix};
    instance->vkGetPhysicalDeviceProperties2(physical, &properties);
    return matrix.cooperativeMatrixSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT;
}

/* Sets *matrices and *bfloat16. Only chains feature structures of extensions that the device has:
 * some drivers have crashed on others. False if there are no cooperative matrices. */
static bool read_features(const struct vk_instance *instance, VkPhysicalDevice physical,
                          uint32_t version, struct caps *caps)
{
    VkPhysicalDeviceShaderBfloat16FeaturesKHR bfloat16 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR};
    VkPhysicalDeviceVulkanMemoryModelFeatures memory_model = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES};
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                          .pNext = &matrix};
    if (!instance->vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR ||
        !vk_has_extension(instance, physical, VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME) ||
        !in_compute(instance, physical))
        return false;
    if (version >= VK_API_VERSION_1_2 ||
        vk_has_extension(instance, physical, VK_KHR_VULKAN_MEMORY_MODEL_EXTENSION_NAME))
        matrix.pNext = &memory_model;
    if (caps->properties.bfloat16)
        memory_model.pNext = &bfloat16;
    instance->vkGetPhysicalDeviceFeatures2(physical, &features);
    /* Where the memory model is on, the atomics of all kernels need its device scope. */
    caps->matrices = matrix.cooperativeMatrix && memory_model.vulkanMemoryModel &&
                     memory_model.vulkanMemoryModelDeviceScope && caps->properties.float16;
    caps->bfloat16_matrices =
        caps->matrices && bfloat16.shaderBFloat16Type && bfloat16.shaderBFloat16CooperativeMatrix;
    return matrix.cooperativeMatrix;
}

/* The features of VK_NV_cooperative_matrix2 that the kernels use. Their modules are SPIR-V 1.6, whose
 * workgroup sizes by specialization constants need maintenance4: Vulkan 1.3 has both. */
static void read_reductions(const struct vk_instance *instance, VkPhysicalDevice physical,
                            uint32_t version, struct caps *caps)
{
    VkPhysicalDeviceCooperativeMatrix2FeaturesNV matrix2 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_2_FEATURES_NV};
    VkPhysicalDeviceMaintenance4Features maintenance4 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_FEATURES, .pNext = &matrix2};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                          .pNext = &maintenance4};
    if (!caps->matrices || version < VK_API_VERSION_1_3 ||
        !instance->vkGetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV ||
        !vk_has_extension(instance, physical, VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME))
        return;
    instance->vkGetPhysicalDeviceFeatures2(physical, &features);
    caps->reduced_nv.usable = maintenance4.maintenance4 && matrix2.cooperativeMatrixReductions &&
                              matrix2.cooperativeMatrixConversions &&
                              matrix2.cooperativeMatrixPerElementOperations;
    caps->reduced_nv.flexible =
        caps->reduced_nv.usable && matrix2.cooperativeMatrixFlexibleDimensions;
}

/* The features of VK_EXT_cooperative_matrix_maintenance1 that the kernels use. Their modules are for
 * Vulkan 1.1. */
static void read_maintenance(const struct vk_instance *instance, VkPhysicalDevice physical,
                             struct caps *caps)
{
    VkPhysicalDeviceCooperativeMatrixMaintenance1FeaturesEXT maintenance = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_MAINTENANCE_1_FEATURES_EXT};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                          .pNext = &maintenance};
    if (!caps->matrices ||
        !vk_has_extension(instance, physical,
                          VK_EXT_COOPERATIVE_MATRIX_MAINTENANCE_1_EXTENSION_NAME))
        return;
    instance->vkGetPhysicalDeviceFeatures2(physical, &features);
    caps->reduced_ext.usable = maintenance.cooperativeMatrixReductions &&
                               maintenance.cooperativeMatrixConversions &&
                               maintenance.cooperativeMatrixPerElementOperations;
    caps->reduced_ext.flexible = caps->reduced_ext.usable &&
                                 maintenance.cooperativeMatrixProperties2 &&
                                 instance->vkGetPhysicalDeviceCooperativeMatrixProperties2EXT;
}

static void add_to_properties(const VkCooperativeMatrixPropertiesKHR *from,
                              struct vka_device_properties *p)
{
    if (p->cooperative_matrix_count == COUNTOF(p->cooperative_matrix))
        return;
    size_t n = p->cooperative_matrix_count++;
    p->cooperative_matrix[n].m = from->MSize;
    p->cooperative_matrix[n].n = from->NSize;
    p->cooperative_matrix[n].k = from->KSize;
    snprintf(p->cooperative_matrix[n].types, sizeof p->cooperative_matrix[n].types, "%s*%s+%s",
             component_name(from->AType), component_name(from->BType), component_name(from->CType));
}

/* Replaces *best by a larger size that the kernels can use. */
static void take_larger(const VkCooperativeMatrixPropertiesKHR *from, int32_t component,
                        struct matrix_size *best)
{
    bool types = from->AType == component && from->BType == component &&
                 from->CType == COMPONENT_F32 && from->ResultType == COMPONENT_F32;
    bool size = from->KSize % 8 == 0 && from->KSize <= COOP_DEPTH &&
                COOP_DEPTH % from->KSize == 0 && from->NSize % 2 == 0 && from->MSize <= 64 &&
                from->NSize <= 64;
    if (types && size && !from->saturatingAccumulation &&
        from->MSize * from->NSize * from->KSize > best->m * best->n * best->k)
        *best = (struct matrix_size){from->MSize, from->NSize, from->KSize};
}

/* Vulkan does not tell the number of registers. Intel's GPUs have 128 for a lane of their smallest
 * subgroups, in which scalars take a register of every lane; others have about 256. */
static uint32_t matrix_registers(const struct caps *caps)
{
    if (caps->properties.vendor_id != VENDOR_INTEL)
        return MATRIX_REGISTERS;
    return caps->least_subgroup < 16 ? 80 : 96;
}

/* Vulkan does not tell outside of shaders how a matrix lies in lanes. NVIDIA's have the 8 columns of a
 * row of 16 x 8 in 4 lanes; on AMD's and Intel's a lane has one column. */
static uint32_t matrix_row_lanes(const struct caps *caps)
{
    return caps->properties.vendor_id == VENDOR_NVIDIA ? 4 : 0;
}

/* Replaces *best by a smaller size, of which more are multiples. */
static void take_smaller(const VkCooperativeMatrixFlexibleDimensionsPropertiesNV *from,
                         int32_t component, struct matrix_size *best)
{
    bool types = from->AType == component && from->BType == component &&
                 from->CType == COMPONENT_F32 && from->ResultType == COMPONENT_F32;
    uint32_t had = best->m * best->n * best->k;
    uint32_t has = from->MGranularity * from->NGranularity * from->KGranularity;
    if (types && from->scope == SCOPE_SUBGROUP && !from->saturatingAccumulation && has &&
        (!had || has < had))
        *best = (struct matrix_size){from->MGranularity, from->NGranularity, from->KGranularity};
}

static void read_flexible_sizes(const struct vk_instance *instance, VkPhysicalDevice physical,
                                struct caps *caps)
{
    VkCooperativeMatrixFlexibleDimensionsPropertiesNV list[MAX_MATRICES];
    uint32_t count = COUNTOF(list);
    for (uint32_t i = 0; i < count; i++)
        list[i] = (VkCooperativeMatrixFlexibleDimensionsPropertiesNV){
            .sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_FLEXIBLE_DIMENSIONS_PROPERTIES_NV};
    VkResult result = instance->vkGetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV(
        physical, &count, list);
    for (uint32_t i = 0; i < count && (result == VK_SUCCESS || result == VK_INCOMPLETE); i++) {
        take_smaller(&list[i], COMPONENT_F16, &caps->reduced_nv.f16);
        take_smaller(&list[i], COMPONENT_BF16, &caps->reduced_nv.bf16);
    }
}

/* Sizes that VK_EXT_cooperative_matrix_maintenance1 lists, for the subgroups of kernels that need the
 * least ones and for sums that do not saturate. */
static void read_maintained_sizes(const struct vk_instance *instance, VkPhysicalDevice physical,
                                  struct caps *caps)
{
    const VkPhysicalDeviceCooperativeMatrixInfo2EXT info = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_INFO_2_EXT,
        .scope = SCOPE_SUBGROUP,
        .subgroupSize = caps->least_subgroup};
    VkCooperativeMatrixProperties2EXT list[MAX_MATRICES];
    uint32_t count = COUNTOF(list);
    for (uint32_t i = 0; i < count; i++)
        list[i] = (VkCooperativeMatrixProperties2EXT){
            .sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_2_EXT};
    VkResult result =
        instance->vkGetPhysicalDeviceCooperativeMatrixProperties2EXT(physical, &info, &count, list);
    for (uint32_t i = 0; i < count && (result == VK_SUCCESS || result == VK_INCOMPLETE); i++) {
        const VkCooperativeMatrixFlexibleDimensionsPropertiesNV size = {
            .MGranularity = list[i].MGranularity,
            .NGranularity = list[i].NGranularity,
            .KGranularity = list[i].KGranularity,
            .AType = list[i].AType,
            .BType = list[i].BType,
            .CType = list[i].CType,
            .ResultType = list[i].ResultType,
            .scope = SCOPE_SUBGROUP};
        take_smaller(&size, COMPONENT_F16, &caps->reduced_ext.f16);
        take_smaller(&size, COMPONENT_BF16, &caps->reduced_ext.bf16);
    }
}

void device_read_matrices(const struct vk_instance *instance, VkPhysicalDevice physical,
                          uint32_t version, struct caps *caps)
{
    VkCooperativeMatrixPropertiesKHR list[MAX_MATRICES];
    uint32_t count = COUNTOF(list);
    if (!read_features(instance, physical, version, caps))
        return;
    caps->matrix_registers = matrix_registers(caps);
    caps->matrix_row_lanes = matrix_row_lanes(caps);
    read_reductions(instance, physical, version, caps);
    read_maintenance(instance, physical, caps);
    if (caps->reduced_nv.flexible)
        read_flexible_sizes(instance, physical, caps);
    if (caps->reduced_ext.flexible)
        read_maintained_sizes(instance, physical, caps);
    for (uint32_t i = 0; i < count; i++)
        list[i] = (VkCooperativeMatrixPropertiesKHR){
            .sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR};
    VkResult result =
        instance->vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR(physical, &count, list);
    if (result != VK_SUCCESS && result != VK_INCOMPLETE)
        return;
    for (uint32_t i = 0; i < count; i++) {
        if (list[i].scope != SCOPE_SUBGROUP)
            continue;
        add_to_properties(&list[i], &caps->properties);
        take_larger(&list[i], COMPONENT_F16, &caps->matrix_f16);
        take_larger(&list[i], COMPONENT_BF16, &caps->matrix_bf16);
    }
}
