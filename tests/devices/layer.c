#include "layer.h"

#include <stdatomic.h>
#include <string.h>

static _Atomic(PFN_vkGetInstanceProcAddr) next_instance;
static _Atomic(PFN_vkGetDeviceProcAddr) next_device;
static _Atomic(VkInstance) last_instance;

PFN_vkVoidFunction layer_next(const char *name)
{
    PFN_vkGetInstanceProcAddr get = next_instance;
    return get(last_instance, name);
}

PFN_vkVoidFunction layer_next_of_device(VkDevice device, const char *name)
{
    PFN_vkGetDeviceProcAddr get = next_device;
    return get ? get(device, name) : NULL;
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
    VkResult result = ((PFN_vkCreateInstance)get(NULL, "vkCreateInstance"))(info, a, instance);
    if (result == VK_SUCCESS)
        last_instance = *instance;
    return result;
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
    return layer_create_device((PFN_vkCreateDevice)get(NULL, "vkCreateDevice"), physical, info, a,
                               device);
}

static PFN_vkVoidFunction find_own(const char *name, bool of_device)
{
    for (size_t i = 0; i < n_layer_function; i++)
        if (strcmp(name, layer_functions[i].name) == 0 &&
            (layer_functions[i].of_device || !of_device))
            return layer_functions[i].function;
    return NULL;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_device(VkDevice device, const char *name)
{
    if (strcmp(name, "vkGetDeviceProcAddr") == 0)
        return (PFN_vkVoidFunction)get_device;
    PFN_vkVoidFunction own = find_own(name, true);
    return own ? own : layer_next_of_device(device, name);
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_instance(VkInstance instance, const char *name)
{
    static const struct {
        const char *name;
        PFN_vkVoidFunction function;
    } chain[] = {
        {"vkGetInstanceProcAddr", (PFN_vkVoidFunction)get_instance},
        {"vkCreateInstance", (PFN_vkVoidFunction)create_instance},
        {"vkCreateDevice", (PFN_vkVoidFunction)create_device},
        {"vkGetDeviceProcAddr", (PFN_vkVoidFunction)get_device},
    };
    for (size_t i = 0; i < sizeof chain / sizeof chain[0]; i++)
        if (strcmp(name, chain[i].name) == 0)
            return chain[i].function;
    PFN_vkVoidFunction own = find_own(name, false);
    PFN_vkGetInstanceProcAddr next = next_instance;
    if (own)
        return own;
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
