/* The only place that includes Vulkan. It uses volk with one table for each device and a table of
 * the few instance functions, so that nothing depends on which instance or device was loaded
 * last. */
#ifndef VKA_GPU_VK_H
#define VKA_GPU_VK_H

#define VK_NO_PROTOTYPES
#include <volk.h>

#include <vkattn/vkattn_vulkan.h>

#include "core/status.h"

/* Missing in the oldest headers that we build with (1.3.239); values from the Vulkan registry. */
#ifndef VK_KHR_cooperative_matrix
#define VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME "VK_KHR_cooperative_matrix"
#define VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR \
    ((VkStructureType)1000506000)
#define VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR ((VkStructureType)1000506001)
#define VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_PROPERTIES_KHR \
    ((VkStructureType)1000506002)
typedef struct VkPhysicalDeviceCooperativeMatrixFeaturesKHR {
    VkStructureType sType;
    void *pNext;
    VkBool32 cooperativeMatrix;
    VkBool32 cooperativeMatrixRobustBufferAccess;
} VkPhysicalDeviceCooperativeMatrixFeaturesKHR;
typedef struct VkPhysicalDeviceCooperativeMatrixPropertiesKHR {
    VkStructureType sType;
    void *pNext;
    VkShaderStageFlags cooperativeMatrixSupportedStages;
} VkPhysicalDeviceCooperativeMatrixPropertiesKHR;
typedef struct VkCooperativeMatrixPropertiesKHR {
    VkStructureType sType;
    void *pNext;
    uint32_t MSize, NSize, KSize;
    int32_t AType, BType, CType, ResultType;
    VkBool32 saturatingAccumulation;
    int32_t scope;
} VkCooperativeMatrixPropertiesKHR;
typedef VkResult(VKAPI_PTR *PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR)(
    VkPhysicalDevice, uint32_t *, VkCooperativeMatrixPropertiesKHR *);
#endif
#ifndef VK_KHR_shader_bfloat16
#define VK_KHR_SHADER_BFLOAT16_EXTENSION_NAME "VK_KHR_shader_bfloat16"
#define VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR ((VkStructureType)1000141000)
typedef struct VkPhysicalDeviceShaderBfloat16FeaturesKHR {
    VkStructureType sType;
    void *pNext;
    VkBool32 shaderBFloat16Type;
    VkBool32 shaderBFloat16DotProduct;
    VkBool32 shaderBFloat16CooperativeMatrix;
} VkPhysicalDeviceShaderBfloat16FeaturesKHR;
#endif

#ifndef VK_NV_cooperative_matrix2
#define VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME "VK_NV_cooperative_matrix2"
#define VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_2_FEATURES_NV \
    ((VkStructureType)1000593000)
#define VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_FLEXIBLE_DIMENSIONS_PROPERTIES_NV \
    ((VkStructureType)1000593001)
typedef struct VkPhysicalDeviceCooperativeMatrix2FeaturesNV {
    VkStructureType sType;
    void *pNext;
    VkBool32 cooperativeMatrixWorkgroupScope;
    VkBool32 cooperativeMatrixFlexibleDimensions;
    VkBool32 cooperativeMatrixReductions;
    VkBool32 cooperativeMatrixConversions;
    VkBool32 cooperativeMatrixPerElementOperations;
    VkBool32 cooperativeMatrixTensorAddressing;
    VkBool32 cooperativeMatrixBlockLoads;
} VkPhysicalDeviceCooperativeMatrix2FeaturesNV;
typedef struct VkCooperativeMatrixFlexibleDimensionsPropertiesNV {
    VkStructureType sType;
    void *pNext;
    uint32_t MGranularity, NGranularity, KGranularity;
    int32_t AType, BType, CType, ResultType;
    VkBool32 saturatingAccumulation;
    int32_t scope;
    uint32_t workgroupInvocations;
} VkCooperativeMatrixFlexibleDimensionsPropertiesNV;
typedef VkResult(VKAPI_PTR *PFN_vkGetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV)(
    VkPhysicalDevice, uint32_t *, VkCooperativeMatrixFlexibleDimensionsPropertiesNV *);
#endif

#ifndef VK_EXT_cooperative_matrix_maintenance1
#define VK_EXT_COOPERATIVE_MATRIX_MAINTENANCE_1_EXTENSION_NAME \
    "VK_EXT_cooperative_matrix_maintenance1"
#define VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_MAINTENANCE_1_FEATURES_EXT \
    ((VkStructureType)1000659000)
#define VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_INFO_2_EXT \
    ((VkStructureType)1000659001)
#define VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_2_EXT ((VkStructureType)1000659002)
typedef struct VkPhysicalDeviceCooperativeMatrixMaintenance1FeaturesEXT {
    VkStructureType sType;
    void *pNext;
    VkBool32 cooperativeMatrixProperties2;
    VkBool32 cooperativeMatrixReductions;
    VkBool32 cooperativeMatrixConversions;
    VkBool32 cooperativeMatrixPerElementOperations;
    VkBool32 cooperativeMatrixGetCoordinate;
} VkPhysicalDeviceCooperativeMatrixMaintenance1FeaturesEXT;
typedef struct VkPhysicalDeviceCooperativeMatrixInfo2EXT {
    VkStructureType sType;
    const void *pNext;
    int32_t scope;
    uint32_t invocations, subgroupSize;
    VkFlags flags;
} VkPhysicalDeviceCooperativeMatrixInfo2EXT;
typedef struct VkCooperativeMatrixProperties2EXT {
    VkStructureType sType;
    void *pNext;
    uint32_t MGranularity, NGranularity, KGranularity;
    int32_t AType, BType, CType, ResultType;
} VkCooperativeMatrixProperties2EXT;
typedef VkResult(VKAPI_PTR *PFN_vkGetPhysicalDeviceCooperativeMatrixProperties2EXT)(
    VkPhysicalDevice, const VkPhysicalDeviceCooperativeMatrixInfo2EXT *, uint32_t *,
    VkCooperativeMatrixProperties2EXT *);
#endif

#ifndef VK_VALVE_shader_mixed_float_dot_product
#define VK_VALVE_SHADER_MIXED_FLOAT_DOT_PRODUCT_EXTENSION_NAME \
    "VK_VALVE_shader_mixed_float_dot_product"
#define VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_MIXED_FLOAT_DOT_PRODUCT_FEATURES_VALVE \
    ((VkStructureType)1000673000)
typedef struct VkPhysicalDeviceShaderMixedFloatDotProductFeaturesVALVE {
    VkStructureType sType;
    void *pNext;
    VkBool32 shaderMixedFloatDotProductFloat16AccFloat32;
    VkBool32 shaderMixedFloatDotProductFloat16AccFloat16;
    VkBool32 shaderMixedFloatDotProductBFloat16Acc;
    VkBool32 shaderMixedFloatDotProductFloat8AccFloat32;
} VkPhysicalDeviceShaderMixedFloatDotProductFeaturesVALVE;
#endif

/* In the headers of beta extensions alone. A device that has it wants it enabled. */
#define PORTABILITY_SUBSET "VK_KHR_portability_subset"

#define VK_INSTANCE_FUNCTIONS(F)                   \
    F(vkDestroyInstance)                           \
    F(vkEnumeratePhysicalDevices)                  \
    F(vkGetPhysicalDeviceProperties)               \
    F(vkGetPhysicalDeviceProperties2)              \
    F(vkGetPhysicalDeviceFeatures2)                \
    F(vkGetPhysicalDeviceMemoryProperties)         \
    F(vkGetPhysicalDeviceMemoryProperties2)        \
    F(vkGetPhysicalDeviceQueueFamilyProperties)    \
    F(vkGetPhysicalDeviceExternalBufferProperties) \
    F(vkEnumerateDeviceExtensionProperties)        \
    F(vkCreateDevice)                              \
    F(vkGetDeviceProcAddr)

struct vk_instance {
    VkInstance handle;
    uint32_t api_version; /* of the instance: at most that of the loader */
    bool borrowed;        /* the handle is the application's */
    PFN_vkGetInstanceProcAddr vkGetInstanceProcAddr; /* which loaded all functions */
    bool debug_utils;
    VkDebugUtilsMessengerEXT messenger;
    PFN_vkCreateDebugUtilsMessengerEXT vkCreateDebugUtilsMessengerEXT;
    PFN_vkDestroyDebugUtilsMessengerEXT vkDestroyDebugUtilsMessengerEXT;
    PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR
        vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR; /* NULL where absent */
    PFN_vkGetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV
        vkGetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV; /* NULL where absent */
    PFN_vkGetPhysicalDeviceCooperativeMatrixProperties2EXT
        vkGetPhysicalDeviceCooperativeMatrixProperties2EXT; /* NULL where absent */
#define F(name) PFN_##name name;
    VK_INSTANCE_FUNCTIONS(F)
#undef F
};

/* Loads Vulkan and makes an instance. NO_DEVICE (no loader or driver); UNSUPPORTED (below 1.1).
 * Validation messages go to log, which must outlive the instance. Any thread. */
enum vka_status vk_instance_create(struct log *log, bool validation, bool labels,
                                   struct vk_instance *instance);

/* Uses an application's instance; get NULL: the function of the Vulkan loader. NO_DEVICE (no
 * loader). Any thread. */
enum vka_status vk_instance_adopt(struct log *log, VkInstance handle, uint32_t api_version,
                                  PFN_vkGetInstanceProcAddr get, struct vk_instance *instance);
void vk_instance_destroy(struct vk_instance *instance);

/* Keeps the driver of a GPU loaded until the process ends: one instance is made and never destroyed.
 * NVIDIA's driver cannot be loaded again after some fifty devices, one after the other, and loading it
 * takes most of the time of a device. Any thread; no failure, as all works without. */
void vk_keep_driver(void);

/* Loads the functions of a device into its table. Any thread. */
void vk_load_device(const struct vk_instance *instance, VkDevice device,
                    struct VolkDeviceTable *table);

/* Logs a failed VkResult and returns its status; call is the source text of the call. */
enum vka_status vk_error(struct log *log, VkResult result, const char *call);

/* For functions with `status`, `log` and a label `fail`. */
#define VK(call)                                      \
    do {                                              \
        VkResult vk_result = (call);                  \
        if (vk_result != VK_SUCCESS) {                \
            status = vk_error(log, vk_result, #call); \
            goto fail;                                \
        }                                             \
    } while (0)

/* For functions with `log` that have nothing to release. */
#define ENSURE_VK(call)                             \
    do {                                            \
        VkResult vk_result = (call);                \
        if (vk_result != VK_SUCCESS)                \
            return vk_error(log, vk_result, #call); \
    } while (0)

enum vka_status vk_allocate_commands(struct log *log, const struct VolkDeviceTable *vk,
                                     VkDevice device, VkCommandPool pool, uint32_t n,
                                     VkCommandBuffer *commands);

enum vka_status vk_begin(struct log *log, const struct VolkDeviceTable *vk,
                         VkCommandBuffer commands, VkCommandBufferUsageFlags flags);

/* Records a barrier for all memory; one of execution alone where no access is given. */
void vk_barrier(const struct VolkDeviceTable *vk, VkCommandBuffer commands,
                VkPipelineStageFlags from, VkPipelineStageFlags to, VkAccessFlags before,
                VkAccessFlags after);

bool vk_has_extension(const struct vk_instance *instance, VkPhysicalDevice physical,
                      const char *name);

#endif
