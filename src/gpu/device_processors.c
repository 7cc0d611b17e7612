/* The number of a device's processors, which Vulkan itself does not tell but vendors do. */
#include "gpu/device.h"

uint32_t device_count_processors(const struct vk_instance *instance, VkPhysicalDevice physical)
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
