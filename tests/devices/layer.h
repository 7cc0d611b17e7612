/* What Vulkan layers for tests have in common: the chain of layers, and functions found by their names.
 * One driver only: the next functions of the chain are taken to be the same for all instances and all
 * devices. */
#ifndef TESTS_DEVICES_LAYER_H
#define TESTS_DEVICES_LAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <vulkan/vk_layer.h>

/* Functions that the layer has of its own, and whether they belong to a device; those of the chain are
 * not listed. */
extern const struct layer_function {
    const char *name;
    PFN_vkVoidFunction function;
    bool of_device;
} layer_functions[];
extern const size_t n_layer_function;

/* The next function of the chain: of the newest instance, of a device. */
PFN_vkVoidFunction layer_next(const char *name);
PFN_vkVoidFunction layer_next_of_device(VkDevice device, const char *name);

/* What the layer does for vkCreateDevice: calls create, which is the next one. */
VkResult layer_create_device(PFN_vkCreateDevice create, VkPhysicalDevice physical,
                             const VkDeviceCreateInfo *info, const VkAllocationCallbacks *a,
                             VkDevice *device);

#endif
