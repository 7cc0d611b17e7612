/* A Vulkan layer by which a driver that has VK_NV_cooperative_matrix2 says that it has
 * VK_EXT_cooperative_matrix_maintenance1 in its place, so that the modules for the second, which no driver
 * had in November 2026, run on Mesa's CPU driver. Both have the same instructions with the same numbers;
 * of the capabilities that of conversions alone has another one, which the layer changes in each module.
 *
 *     MAINTAINED      fixed: without the list of flexible sizes
 *
 * SPDX-License-Identifier: MIT */
#include "layer.h"

#include <stdlib.h>
#include <string.h>

#define NV_NAME "VK_NV_cooperative_matrix2"
#define EXT_NAME "VK_EXT_cooperative_matrix_maintenance1"

/* The structures of both extensions, which the oldest headers that we build with have not. */
#define NV_FEATURES ((VkStructureType)1000593000)
#define NV_SIZE ((VkStructureType)1000593001)
#define EXT_FEATURES ((VkStructureType)1000659000)

struct nv_features {
    VkStructureType type;
    void *next;
    VkBool32 workgroup, flexible, reductions, conversions, elements, tensors, blocks;
};

struct ext_features {
    VkStructureType type;
    void *next;
    VkBool32 sizes, reductions, conversions, elements, coordinates;
};

struct ext_info {
    VkStructureType type;
    const void *next;
    int32_t scope;
    uint32_t invocations, subgroup_size;
    VkFlags flags; /* 1: sums that saturate */
};

struct nv_size {
    VkStructureType type;
    void *next;
    uint32_t m, n, k;
    int32_t a, b, c, result;
    VkBool32 saturating;
    int32_t scope;
    uint32_t invocations;
};

struct ext_size {
    VkStructureType type;
    void *next;
    uint32_t m, n, k;
    int32_t a, b, c, result;
};

typedef VkResult(VKAPI_PTR *list_sizes_function)(VkPhysicalDevice, uint32_t *, struct nv_size *);

/* Capabilities of SPIR-V. */
#define CONVERSIONS_EXT 5429u
#define CONVERSIONS_NV 5431u

static VKAPI_ATTR VkResult VKAPI_CALL list_extensions(VkPhysicalDevice device, const char *layer,
                                                      uint32_t *n, VkExtensionProperties *list)
{
    VkResult result = ((PFN_vkEnumerateDeviceExtensionProperties)layer_next(
        "vkEnumerateDeviceExtensionProperties"))(device, layer, n, list);
    for (uint32_t i = 0; list && i < *n; i++)
        if (strcmp(list[i].extensionName, NV_NAME) == 0)
            strcpy(list[i].extensionName, EXT_NAME);
    return result;
}

static VKAPI_ATTR void VKAPI_CALL get_features2(VkPhysicalDevice device,
                                                VkPhysicalDeviceFeatures2 *f)
{
    struct nv_features nv = {.type = NV_FEATURES};
    VkPhysicalDeviceFeatures2 own = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &nv, {0}};
    PFN_vkGetPhysicalDeviceFeatures2 get =
        (PFN_vkGetPhysicalDeviceFeatures2)layer_next("vkGetPhysicalDeviceFeatures2");
    const char *setting = getenv("MAINTAINED");
    const bool fixed = setting && strcmp(setting, "fixed") == 0;
    get(device, f);
    get(device, &own);
    for (VkBaseOutStructure *s = f->pNext; s; s = s->pNext) {
        struct ext_features *ext = (void *)s;
        if (s->sType != EXT_FEATURES)
            continue;
        ext->sizes = nv.flexible && !fixed;
        ext->reductions = nv.reductions;
        ext->conversions = nv.conversions;
        ext->elements = nv.elements;
    }
}

static VKAPI_ATTR VkResult VKAPI_CALL list_sizes(VkPhysicalDevice device,
                                                 const struct ext_info *info, uint32_t *n,
                                                 struct ext_size *list)
{
    struct nv_size all[64] = {{.type = NV_SIZE}};
    uint32_t count = sizeof all / sizeof all[0], found = 0;
    for (uint32_t i = 0; i < count; i++)
        all[i].type = NV_SIZE;
    VkResult result = ((list_sizes_function)layer_next(
        "vkGetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV"))(device, &count, all);
    for (uint32_t i = 0; i < count; i++) {
        const struct nv_size *s = &all[i];
        if (s->scope != info->scope || s->saturating != (info->flags & 1))
            continue;
        if (list && found < *n)
            list[found] = (struct ext_size){
                list[found].type, list[found].next, s->m, s->n, s->k, s->a, s->b, s->c, s->result};
        found++;
    }
    if (list && found > *n)
        return VK_INCOMPLETE;
    *n = found;
    return result;
}

/* Asks the driver for its own extension and features where the program asks for the other's. */
VkResult layer_create_device(PFN_vkCreateDevice create, VkPhysicalDevice physical,
                             const VkDeviceCreateInfo *info, const VkAllocationCallbacks *a,
                             VkDevice *device)
{
    struct nv_features nv = {.type = NV_FEATURES};
    VkDeviceCreateInfo other = *info;
    const char **names = malloc((info->enabledExtensionCount + 1) * sizeof *names);
    VkBaseOutStructure *before = (VkBaseOutStructure *)(uintptr_t)info;
    while (before->pNext && before->pNext->sType != EXT_FEATURES)
        before = before->pNext;
    struct ext_features *ext = (void *)before->pNext;
    if (!names)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    for (uint32_t i = 0; i < info->enabledExtensionCount; i++) {
        const char *name = info->ppEnabledExtensionNames[i];
        names[i] = strcmp(name, EXT_NAME) == 0 ? NV_NAME : name;
    }
    other.ppEnabledExtensionNames = names;
    if (ext) {
        nv = (struct nv_features){.type = NV_FEATURES,
                                  .next = ext->next,
                                  .flexible = ext->sizes,
                                  .reductions = ext->reductions,
                                  .conversions = ext->conversions,
                                  .elements = ext->elements};
        if ((const void *)before == info)
            other.pNext = &nv;
        before->pNext = (void *)&nv;
    }
    VkResult result = create(physical, &other, a, device);
    if (ext)
        before->pNext = (void *)ext;
    free(names);
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_module(VkDevice device,
                                                    const VkShaderModuleCreateInfo *info,
                                                    const VkAllocationCallbacks *a,
                                                    VkShaderModule *module)
{
    const size_t n = info->codeSize / sizeof *info->pCode;
    VkShaderModuleCreateInfo other = *info;
    uint32_t *words = malloc(info->codeSize);
    if (!words)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    memcpy(words, info->pCode, info->codeSize);
    for (size_t at = 5; at + 1 < n && (words[at] & 0xffff) == 17; at += words[at] >> 16)
        if (words[at + 1] == CONVERSIONS_EXT) /* of an OpCapability, which all stand first */
            words[at + 1] = CONVERSIONS_NV;
    other.pCode = words;
    VkResult result = ((PFN_vkCreateShaderModule)layer_next_of_device(
        device, "vkCreateShaderModule"))(device, &other, a, module);
    free(words);
    return result;
}

const struct layer_function layer_functions[] = {
    {"vkCreateShaderModule", (PFN_vkVoidFunction)create_module, true},
    {"vkGetPhysicalDeviceFeatures2", (PFN_vkVoidFunction)get_features2, false},
    {"vkGetPhysicalDeviceFeatures2KHR", (PFN_vkVoidFunction)get_features2, false},
    {"vkEnumerateDeviceExtensionProperties", (PFN_vkVoidFunction)list_extensions, false},
    {"vkGetPhysicalDeviceCooperativeMatrixProperties2EXT", (PFN_vkVoidFunction)list_sizes, false},
};
const size_t n_layer_function = sizeof layer_functions / sizeof layer_functions[0];
