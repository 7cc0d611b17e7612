/* A Vulkan layer that gives the driver other shader modules than the program's: in the folder
 * $MODULES_FOLDER, HASH.spv stands for the module whose words have that hash (FNV-1a of 64 bits, over
 * words, in 16 hexadecimal digits). tests/compile/orders.py writes such folders. A module that the folder
 * lacks ends the process, so that no test takes the program's own for another.
 *
 * With $MODULES_PLAIN it changes none, and a module with a specialization constant or float64 ends the
 * process: Metal takes no length of an array from one, and has no float64.
 *
 * The features of VK_VALVE_shader_mixed_float_dot_product and VK_KHR_shader_bfloat16 that as_gpu.c offers are
 * not asked of the driver.
 *
 * One driver only: the next functions of the chain are taken to be the same for all instances and all
 * devices. SPDX-License-Identifier: MIT */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vulkan/vk_layer.h>

static _Atomic(PFN_vkGetInstanceProcAddr) next_instance;
static _Atomic(PFN_vkGetDeviceProcAddr) next_device;

static uint64_t hash_of(const uint32_t *words, size_t n)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ words[i]) * 0x100000001b3;
    return hash;
}

static _Noreturn void fail(const char *path, const char *what)
{
    (void)fprintf(stderr, "FAIL: the layer of modules: %s %s\n", path, what);
    abort();
}

/* The words of a file, for free(); *size in bytes. */
static uint32_t *read_words(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END))
        fail(path, "is not there");
    long end = ftell(file);
    uint32_t *words = end > 0 ? malloc((size_t)end) : NULL;
    rewind(file);
    if (!words || fread(words, 1, (size_t)end, file) != (size_t)end || fclose(file))
        fail(path, "cannot be read");
    *size = (size_t)end;
    return words;
}

/* By the opcodes from OpSpecConstantTrue to OpSpecConstantOp. */
static bool has_constants(const uint32_t *words, size_t n)
{
    bool found = false;
    for (size_t at = 5; at < n && words[at] >> 16; at += words[at] >> 16)
        found |= (words[at] & 0xffff) >= 48 && (words[at] & 0xffff) <= 52;
    return found;
}

static bool has_float64(const uint32_t *words, size_t n)
{
    for (size_t at = 5; at + 1 < n && (words[at] & 0xffff) == 17; at += words[at] >> 16)
        if (words[at + 1] == 10) /* OpCapability Float64 */
            return true;
    return false;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_module(VkDevice device,
                                                    const VkShaderModuleCreateInfo *info,
                                                    const VkAllocationCallbacks *a,
                                                    VkShaderModule *module)
{
    const char *folder = getenv("MODULES_FOLDER");
    PFN_vkCreateShaderModule create =
        (PFN_vkCreateShaderModule)next_device(device, "vkCreateShaderModule");
    if (getenv("MODULES_PLAIN")) {
        if (has_constants(info->pCode, info->codeSize / sizeof *info->pCode))
            fail("a module", "has specialization constants");
        if (has_float64(info->pCode, info->codeSize / sizeof *info->pCode))
            fail("a module", "has float64");
        return create(device, info, a, module);
    }
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%016llx.spv", folder ? folder : "(no $MODULES_FOLDER)",
                   (unsigned long long)hash_of(info->pCode, info->codeSize / sizeof *info->pCode));
    VkShaderModuleCreateInfo other = *info;
    uint32_t *words = read_words(path, &other.codeSize);
    other.pCode = words;
    VkResult result = create(device, &other, a, module);
    free(words);
    return result;
}

/* What the loader gives a layer with vkCreateInstance or vkCreateDevice, and lets it change; NULL if it
 * is not there. Both have the same first members. */
static VkLayerInstanceCreateInfo *link_of(const void *next, VkStructureType type)
{
    VkLayerInstanceCreateInfo *chain = (VkLayerInstanceCreateInfo *)(uintptr_t)next;
    while (chain && (chain->sType != type || chain->function != VK_LAYER_LINK_INFO))
        chain = (VkLayerInstanceCreateInfo *)(uintptr_t)chain->pNext;
    return chain;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo *info,
                                                      const VkAllocationCallbacks *a,
                                                      VkInstance *instance)
{
    VkLayerInstanceCreateInfo *link =
        link_of(info->pNext, VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO);
    if (!link)
        return VK_ERROR_INITIALIZATION_FAILED;
    PFN_vkGetInstanceProcAddr get = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    next_instance = get;
    return ((PFN_vkCreateInstance)get(NULL, "vkCreateInstance"))(info, a, instance);
}

#define MIXED_FEATURES 1000673000    /* of VK_VALVE_shader_mixed_float_dot_product */
#define BFLOAT16_FEATURES 1000141000 /* of VK_KHR_shader_bfloat16 */

/* Takes a structure out of a chain, which is put back with *place = *left. */
static const void **take_out(const VkDeviceCreateInfo *info, int type, const void **left)
{
    VkBaseInStructure *before = (VkBaseInStructure *)(uintptr_t)info;
    while (before->pNext && (int)before->pNext->sType != type)
        before = (VkBaseInStructure *)(uintptr_t)before->pNext;
    *left = before->pNext;
    if (before->pNext)
        before->pNext = before->pNext->pNext;
    return *left ? (const void **)&before->pNext : NULL;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice physical,
                                                    const VkDeviceCreateInfo *info,
                                                    const VkAllocationCallbacks *a,
                                                    VkDevice *device)
{
    VkLayerDeviceCreateInfo *link = (VkLayerDeviceCreateInfo *)link_of(
        info->pNext, VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO);
    if (!link)
        return VK_ERROR_INITIALIZATION_FAILED;
    PFN_vkGetInstanceProcAddr get = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    next_device = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    const void *mixed, **mixed_place = take_out(info, MIXED_FEATURES, &mixed);
    const void *bfloat16, **place = take_out(info, BFLOAT16_FEATURES, &bfloat16);
    VkResult result = ((PFN_vkCreateDevice)get(NULL, "vkCreateDevice"))(physical, info, a, device);
    if (place)
        *place = bfloat16;
    if (mixed_place)
        *mixed_place = mixed;
    return result;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_device(VkDevice device, const char *name)
{
    if (strcmp(name, "vkGetDeviceProcAddr") == 0)
        return (PFN_vkVoidFunction)get_device;
    if (strcmp(name, "vkCreateShaderModule") == 0)
        return (PFN_vkVoidFunction)create_module;
    PFN_vkGetDeviceProcAddr next = next_device;
    return next ? next(device, name) : NULL;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_instance(VkInstance instance, const char *name)
{
    if (strcmp(name, "vkGetInstanceProcAddr") == 0)
        return (PFN_vkVoidFunction)get_instance;
    if (strcmp(name, "vkCreateInstance") == 0)
        return (PFN_vkVoidFunction)create_instance;
    if (strcmp(name, "vkCreateDevice") == 0)
        return (PFN_vkVoidFunction)create_device;
    if (strcmp(name, "vkGetDeviceProcAddr") == 0)
        return (PFN_vkVoidFunction)get_device;
    if (strcmp(name, "vkCreateShaderModule") == 0)
        return (PFN_vkVoidFunction)create_module;
    PFN_vkGetInstanceProcAddr next = next_instance;
    return instance && next ? next(instance, name) : NULL;
}

VKAPI_ATTR VkResult VKAPI_CALL
vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface *version);

__attribute__((visibility("default"))) VKAPI_ATTR VkResult VKAPI_CALL
vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface *version)
{
    version->loaderLayerInterfaceVersion = 2;
    version->pfnGetInstanceProcAddr = get_instance;
    version->pfnGetDeviceProcAddr = get_device;
    version->pfnGetPhysicalDeviceProcAddr = NULL;
    return VK_SUCCESS;
}
