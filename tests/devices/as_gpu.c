/* A Vulkan layer that lets a driver say that it is another kind of device, so that the rules choose the
 * kernels, tiles and lanes of a GPU on a CPU driver. By itself: a discrete GPU of NVIDIA.
 *
 *     AS_GPU_TYPE     a VkPhysicalDeviceType
 *     AS_GPU_VENDOR   a vendor's id of PCI
 *     AS_GPU_BUFFERS  the most storage buffers of a kernel
 *     AS_GPU_SHARED   bytes of shared memory, of which Mesa's CPU driver has more than it says
 *     AS_GPU_SUBSET   it lists VK_KHR_portability_subset, which the loader takes from the application, and
 *                     has no float64, as Metal has none
 *     AS_GPU_LANES    of a subgroup, for what runs nothing: the driver keeps its own
 *     AS_GPU_MATRICES it has matrices of float16 with float32 sums of so many rows, columns and k, and no
 *                     others, for modules without matrices (tests/compile/matrices.py)
 *     AS_GPU_MIXED    it has VK_VALVE_shader_mixed_float_dot_product of float16 and float32, for modules
 *                     without such products (tests/compile/mixed.py)
 *     AS_GPU_BFLOAT16 it has VK_KHR_shader_bfloat16, and its matrices of float16 with float32 sums are those
 *                     of bfloat16, for modules without that type (tests/compile/bfloat16.py)
 *
 * as_gpu.sh runs a program so. Name and ids of the driver stay, for what is known of this driver's
 * mistakes still holds. The layer stands between instances alone: the loader leaves one without
 * vkGetDeviceProcAddr out of the calls of a device.
 * SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <vulkan/vk_layer.h>

/* A VkCooperativeMatrixPropertiesKHR, which the oldest headers that we build with have not. */
struct matrix {
    VkStructureType type;
    void *next;
    uint32_t m, n, k;
    int32_t a, b, c, result; /* of VkComponentTypeKHR: 0 is float16, 1 float32 */
    VkBool32 saturating;
    int32_t scope; /* of VkScopeKHR: 3 is a subgroup */
};

/* A VkCooperativeMatrixFlexibleDimensionsPropertiesNV, whose first members are those of the other. */
struct flexible_matrix {
    struct matrix matrix;
    uint32_t invocations;
};

/* The features of VK_VALVE_shader_mixed_float_dot_product. */
#define MIXED_EXTENSION "VK_VALVE_shader_mixed_float_dot_product"
#define MIXED_FEATURES 1000673000
struct mixed {
    VkStructureType type;
    void *next;
    VkBool32 to_float32, others[3];
};

/* The features of VK_KHR_shader_bfloat16, and the type of a component. */
#define BFLOAT16_EXTENSION "VK_KHR_shader_bfloat16"
#define BFLOAT16_FEATURES 1000141000
#define BFLOAT16 1000141000
struct bfloat16 {
    VkStructureType type;
    void *next;
    VkBool32 has_type, dot, matrices;
};
typedef VkResult(VKAPI_PTR *list_matrices_function)(VkPhysicalDevice, uint32_t *, struct matrix *);
typedef VkResult(VKAPI_PTR *list_flexible_function)(VkPhysicalDevice, uint32_t *,
                                                    struct flexible_matrix *);

/* An instance, which its physical devices share the first word with: the loader's dispatch table. */
struct instance {
    struct instance *next;
    const void *table;
    PFN_vkGetInstanceProcAddr get;
    PFN_vkDestroyInstance destroy;
    PFN_vkGetPhysicalDeviceProperties properties;
    PFN_vkGetPhysicalDeviceProperties2 properties2;
    PFN_vkGetPhysicalDeviceFeatures features;
    PFN_vkGetPhysicalDeviceFeatures2 features2;
    PFN_vkEnumerateDeviceExtensionProperties extensions;
    list_matrices_function matrices;
    list_flexible_function flexible;
};

static struct instance *instances;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const void *table_of(const void *handle)
{
    return *(const void *const *)handle;
}

/* A copy of the instance that a handle belongs to; all NULL where it is not known. */
static struct instance find(const void *handle)
{
    struct instance found = {0};
    pthread_mutex_lock(&lock);
    for (const struct instance *i = instances; i; i = i->next)
        if (i->table == table_of(handle))
            found = *i;
    pthread_mutex_unlock(&lock);
    return found;
}

static uint32_t setting(const char *name, uint32_t usual)
{
    const char *text = getenv(name);
    return text ? (uint32_t)strtoul(text, NULL, 0) : usual;
}

static void pretend(VkPhysicalDeviceProperties *p)
{
    p->deviceType =
        (VkPhysicalDeviceType)setting("AS_GPU_TYPE", VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU);
    p->vendorID = setting("AS_GPU_VENDOR", 0x10de);
    p->limits.maxPerStageDescriptorStorageBuffers =
        setting("AS_GPU_BUFFERS", p->limits.maxPerStageDescriptorStorageBuffers);
    p->limits.maxComputeSharedMemorySize =
        setting("AS_GPU_SHARED", p->limits.maxComputeSharedMemorySize);
}

static VKAPI_ATTR void VKAPI_CALL get_properties(VkPhysicalDevice device,
                                                 VkPhysicalDeviceProperties *p)
{
    find(device).properties(device, p);
    pretend(p);
}

/* Sets the size of subgroups wherever the chain tells it. */
static void pretend_lanes(VkBaseOutStructure *chain, uint32_t lanes)
{
    for (; chain; chain = chain->pNext) {
        void *s = chain;
        if (chain->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES)
            ((VkPhysicalDeviceSubgroupProperties *)s)->subgroupSize = lanes;
        if (chain->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES)
            ((VkPhysicalDeviceVulkan11Properties *)s)->subgroupSize = lanes;
        if (chain->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES) {
            VkPhysicalDeviceSubgroupSizeControlProperties *sizes = s;
            sizes->minSubgroupSize = sizes->maxSubgroupSize = lanes;
        }
        if (chain->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES) {
            VkPhysicalDeviceVulkan13Properties *sizes = s;
            sizes->minSubgroupSize = sizes->maxSubgroupSize = lanes;
        }
    }
}

static VKAPI_ATTR void VKAPI_CALL get_properties2(VkPhysicalDevice device,
                                                  VkPhysicalDeviceProperties2 *p)
{
    const uint32_t lanes = setting("AS_GPU_LANES", 0);
    find(device).properties2(device, p);
    pretend(&p->properties);
    if (lanes)
        pretend_lanes(p->pNext, lanes);
}

static VKAPI_ATTR void VKAPI_CALL get_features(VkPhysicalDevice device, VkPhysicalDeviceFeatures *f)
{
    find(device).features(device, f);
    if (getenv("AS_GPU_SUBSET"))
        f->shaderFloat64 = VK_FALSE;
}

static VKAPI_ATTR void VKAPI_CALL get_features2(VkPhysicalDevice device,
                                                VkPhysicalDeviceFeatures2 *f)
{
    find(device).features2(device, f);
    if (getenv("AS_GPU_SUBSET"))
        f->features.shaderFloat64 = VK_FALSE;
    for (VkBaseOutStructure *s = f->pNext; s && getenv("AS_GPU_MIXED"); s = s->pNext)
        if ((int)s->sType == MIXED_FEATURES)
            ((struct mixed *)(void *)s)->to_float32 = VK_TRUE;
    for (VkBaseOutStructure *s = f->pNext; s && getenv("AS_GPU_BFLOAT16"); s = s->pNext)
        if ((int)s->sType == BFLOAT16_FEATURES) {
            struct bfloat16 *features = (void *)s;
            features->has_type = features->matrices = VK_TRUE;
        }
}

/* The extension that the settings add to the driver's, or NULL. */
static const char *added_extension(void)
{
    return getenv("AS_GPU_SUBSET")     ? "VK_KHR_portability_subset"
           : getenv("AS_GPU_MIXED")    ? MIXED_EXTENSION
           : getenv("AS_GPU_BFLOAT16") ? BFLOAT16_EXTENSION
                                       : NULL;
}

static VKAPI_ATTR VkResult VKAPI_CALL list_extensions(VkPhysicalDevice device, const char *layer,
                                                      uint32_t *n, VkExtensionProperties *list)
{
    const char *added = added_extension();
    const bool more = !layer && added;
    uint32_t room = list && more && *n ? *n - 1 : *n;
    VkResult result = find(device).extensions(device, layer, &room, list);
    if (list && more && result == VK_SUCCESS)
        (void)strcpy(list[room].extensionName, added);
    *n = room + more;
    return result;
}

/* Makes matrices of float16 with float32 sums ones of bfloat16. */
static void make_bfloat16(struct matrix *matrix)
{
    if (getenv("AS_GPU_BFLOAT16") && matrix->a == 0 && matrix->b == 0 && matrix->c == 1 &&
        matrix->result == 1)
        matrix->a = matrix->b = BFLOAT16;
}

static VKAPI_ATTR VkResult VKAPI_CALL list_matrices(VkPhysicalDevice device, uint32_t *n,
                                                    struct matrix *list)
{
    const uint32_t size = setting("AS_GPU_MATRICES", 0), room = *n;
    if (!size) {
        VkResult result = find(device).matrices(device, n, list);
        for (uint32_t i = 0; list && i < *n; i++)
            make_bfloat16(&list[i]);
        return result;
    }
    *n = list && room == 0 ? 0 : 1;
    if (list && room == 0)
        return VK_INCOMPLETE;
    if (list)
        *list = (struct matrix){list->type, list->next, size, size, size, 0, 0, 1, 1, VK_FALSE, 3};
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL list_flexible(VkPhysicalDevice device, uint32_t *n,
                                                    struct flexible_matrix *list)
{
    VkResult result = find(device).flexible(device, n, list);
    for (uint32_t i = 0; list && i < *n; i++)
        make_bfloat16(&list[i].matrix);
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo *info,
                                                      const VkAllocationCallbacks *a,
                                                      VkInstance *handle)
{
    /* The loader's own, which it lets layers change. */
    VkLayerInstanceCreateInfo *chain = (VkLayerInstanceCreateInfo *)(uintptr_t)info->pNext;
    while (chain && (chain->sType != VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO ||
                     chain->function != VK_LAYER_LINK_INFO))
        chain = (VkLayerInstanceCreateInfo *)(uintptr_t)chain->pNext;
    struct instance *i = calloc(1, sizeof *i);
    if (!chain || !i) {
        free(i);
        return chain ? VK_ERROR_OUT_OF_HOST_MEMORY : VK_ERROR_INITIALIZATION_FAILED;
    }
    i->get = chain->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    chain->u.pLayerInfo = chain->u.pLayerInfo->pNext;
    PFN_vkCreateInstance create = (PFN_vkCreateInstance)i->get(NULL, "vkCreateInstance");
    VkResult result = create(info, a, handle);
    if (result != VK_SUCCESS) {
        free(i);
        return result;
    }
    i->table = table_of(*handle);
    i->destroy = (PFN_vkDestroyInstance)i->get(*handle, "vkDestroyInstance");
    i->properties =
        (PFN_vkGetPhysicalDeviceProperties)i->get(*handle, "vkGetPhysicalDeviceProperties");
    i->properties2 =
        (PFN_vkGetPhysicalDeviceProperties2)i->get(*handle, "vkGetPhysicalDeviceProperties2");
    i->features = (PFN_vkGetPhysicalDeviceFeatures)i->get(*handle, "vkGetPhysicalDeviceFeatures");
    i->features2 =
        (PFN_vkGetPhysicalDeviceFeatures2)i->get(*handle, "vkGetPhysicalDeviceFeatures2");
    i->extensions = (PFN_vkEnumerateDeviceExtensionProperties)i->get(
        *handle, "vkEnumerateDeviceExtensionProperties");
    i->matrices = (list_matrices_function)i->get(
        *handle, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
    i->flexible = (list_flexible_function)i->get(
        *handle, "vkGetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV");
    pthread_mutex_lock(&lock);
    i->next = instances;
    instances = i;
    pthread_mutex_unlock(&lock);
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL destroy_instance(VkInstance handle,
                                                   const VkAllocationCallbacks *a)
{
    struct instance *gone = NULL;
    if (!handle)
        return;
    pthread_mutex_lock(&lock);
    for (struct instance **i = &instances; *i && !gone; i = gone ? i : &(*i)->next)
        if ((*i)->table == table_of(handle)) {
            gone = *i;
            *i = gone->next;
        }
    pthread_mutex_unlock(&lock);
    if (gone)
        gone->destroy(handle, a);
    free(gone);
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_proc(VkInstance handle, const char *name)
{
    static const struct {
        const char *name;
        PFN_vkVoidFunction function;
    } own[] = {
        {"vkGetInstanceProcAddr", (PFN_vkVoidFunction)get_proc},
        {"vkCreateInstance", (PFN_vkVoidFunction)create_instance},
        {"vkDestroyInstance", (PFN_vkVoidFunction)destroy_instance},
        {"vkGetPhysicalDeviceProperties", (PFN_vkVoidFunction)get_properties},
        {"vkGetPhysicalDeviceProperties2", (PFN_vkVoidFunction)get_properties2},
        {"vkGetPhysicalDeviceProperties2KHR", (PFN_vkVoidFunction)get_properties2},
        {"vkGetPhysicalDeviceFeatures", (PFN_vkVoidFunction)get_features},
        {"vkGetPhysicalDeviceFeatures2", (PFN_vkVoidFunction)get_features2},
        {"vkGetPhysicalDeviceFeatures2KHR", (PFN_vkVoidFunction)get_features2},
        {"vkEnumerateDeviceExtensionProperties", (PFN_vkVoidFunction)list_extensions},
        {"vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR", (PFN_vkVoidFunction)list_matrices},
        {"vkGetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV",
         (PFN_vkVoidFunction)list_flexible},
    };
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (strcmp(name, own[i].name) == 0)
            return own[i].function;
    PFN_vkGetInstanceProcAddr next = handle ? find(handle).get : NULL;
    return next ? next(handle, name) : NULL;
}

VKAPI_ATTR VkResult VKAPI_CALL
vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface *version);

__attribute__((visibility("default"))) VKAPI_ATTR VkResult VKAPI_CALL
vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface *version)
{
    version->loaderLayerInterfaceVersion = 2;
    version->pfnGetInstanceProcAddr = get_proc;
    version->pfnGetDeviceProcAddr = NULL;
    version->pfnGetPhysicalDeviceProcAddr = NULL;
    return VK_SUCCESS;
}
