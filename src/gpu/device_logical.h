/* Creates the logical device with the extensions and features that we use. Each of them has a row
 * in device_adopt.c too, which checks an application's device for it; but for that of the portability
 * subset, which Vulkan wants of whoever makes such a device. */
#ifndef VKA_GPU_DEVICE_LOGICAL_H
#define VKA_GPU_DEVICE_LOGICAL_H

#include "gpu/state.h"

/* The extensions and features that a logical device is made with. Do not copy it: it has pointers
 * to itself. */
struct device_request {
    const char *extensions[15];
    uint32_t n_extension;
    VkPhysicalDeviceFeatures2 features; /* head of the chain */
    VkPhysicalDeviceTimelineSemaphoreFeatures timeline;
    VkPhysicalDeviceSubgroupSizeControlFeatures subgroup_size;
    VkPhysicalDeviceBufferDeviceAddressFeatures address;
    VkPhysicalDeviceShaderIntegerDotProductFeatures dot;
    VkPhysicalDeviceShaderMixedFloatDotProductFeaturesVALVE mixed_dot;
    VkPhysicalDeviceShaderFloat16Int8Features float16;
    VkPhysicalDevice8BitStorageFeatures storage8;
    VkPhysicalDeviceVulkanMemoryModelFeatures memory_model;
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix;
    VkPhysicalDeviceShaderBfloat16FeaturesKHR bfloat16;
    VkPhysicalDeviceMaintenance4Features maintenance4;
    VkPhysicalDeviceCooperativeMatrix2FeaturesNV matrix2;
    VkPhysicalDeviceCooperativeMatrixMaintenance1FeaturesEXT matrix_maintenance;
};

/* Requests what the kernels that caps allows need. */
void device_request_fill(const struct vka_device *device, struct device_request *request);

/* Makes the logical device, loads its functions and gets its queue. */
enum vka_status device_create_logical(struct vka_device *device,
                                      const struct device_request *request);

/* The Vulkan version that both the instance and the physical device support. */
uint32_t device_version(const struct vka_device *device);

/* Loads the functions of device->handle. */
void device_load(struct vka_device *device);

#endif
