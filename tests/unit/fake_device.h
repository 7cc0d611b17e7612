/* A device that is not there: the functions of an instance that tell what a test wrote. */
#ifndef TESTS_FAKE_DEVICE_H
#define TESTS_FAKE_DEVICE_H

#include "gpu/device.h"

struct fake_device {
    uint32_t instance_version;
    VkPhysicalDeviceProperties properties;
    VkBool32 int64, int8, storage8, timeline, float16, dot, address, storage16, size_control;
    VkBool32 mixed_dot; /* of float16 with float32 sums, where its extension is listed */
    VkBool32 matrix, memory_model, device_scope, bfloat16, bfloat16_matrix;
    VkBool32 maintenance4, flexible, reductions, conversions, elements;
    VkBool32 ext_sizes, ext_reductions, ext_conversions, ext_elements;
    VkPhysicalDeviceSubgroupProperties subgroup;
    VkPhysicalDeviceSubgroupSizeControlProperties size;
    uint64_t max_allocation, max_buffer, host_alignment; /* max_buffer 0: not told */
    VkExternalMemoryFeatureFlags external;
    const char *driver;
    const char *extensions[8];
    VkResult extensions_result, matrices_result;
    VkPhysicalDeviceMemoryProperties memory;
    VkQueueFamilyProperties families[3];
    uint32_t n_family, n_matrix, n_flexible;
    uint32_t n_before; /* other cooperative matrices, of no use, that are listed first */
    VkShaderStageFlags matrix_stages;
    VkCooperativeMatrixPropertiesKHR matrices[8];
    VkCooperativeMatrixFlexibleDimensionsPropertiesNV flexibles[6];
    bool maintained; /* it has VK_EXT_cooperative_matrix_maintenance1 too, and these sizes by it */
    uint32_t n_size;
    VkCooperativeMatrixProperties2EXT sizes[4];
};

/* A device of today, with everything. */
extern const struct fake_device fake_modern;

/* What is told. A structure that nothing here knows is asked for fails the running test. */
extern struct fake_device fake;

/* What the library reads of it; *family is the queue family that it takes. */
struct caps fake_caps(uint32_t *family);

#endif
