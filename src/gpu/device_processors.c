/* The number of a device's processors, which Vulkan itself does not tell but vendors do. */
#include "gpu/device.h"

static uint32_t of_nvidia(const struct vk_instance *instance, VkPhysicalDevice physical)
{
    VkPhysicalDeviceShaderSMBuiltinsPropertiesNV sm = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV};
    VkPhysicalDeviceProperties2 properties = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &sm};
    instance->vkGetPhysicalDeviceProperties2(physical, &properties);
    return sm.shaderSMCount;
}

static uint32_t of_amd(const struct vk_instance *instance, VkPhysicalDevice physical)
{
    VkPhysicalDeviceShaderCoreProperties2AMD core = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_2_AMD};
    VkPhysicalDeviceProperties2 properties = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &core};
    instance->vkGetPhysicalDeviceProperties2(physical, &properties);
    return core.activeComputeUnitCount;
}

static uint32_t of_arm(const struct vk_instance *instance, VkPhysicalDevice physical)
{
    VkPhysicalDeviceShaderCoreBuiltinsPropertiesARM core = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_BUILTINS_PROPERTIES_ARM};
    VkPhysicalDeviceProperties2 properties = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &core};
    instance->vkGetPhysicalDeviceProperties2(physical, &properties);
    return core.shaderCoreCount;
}

uint32_t device_count_processors(const struct vk_instance *instance, VkPhysicalDevice physical)
{
    static const struct {
        const char *extension;
        uint32_t (*count)(const struct vk_instance *instance, VkPhysicalDevice physical);
    } vendors[] = {
        {VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME, of_nvidia},
        {VK_AMD_SHADER_CORE_PROPERTIES_2_EXTENSION_NAME, of_amd},
        {VK_ARM_SHADER_CORE_BUILTINS_EXTENSION_NAME, of_arm},
    };
    for (size_t i = 0; i < COUNTOF(vendors); i++)
        if (vk_has_extension(instance, physical, vendors[i].extension))
            return vendors[i].count(instance, physical);
    return 0;
}
