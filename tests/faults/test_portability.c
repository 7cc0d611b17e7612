/* A loader that hides its driver unless VK_KHR_portability_enumeration is asked for, and a device that
 * has to be asked for VK_KHR_portability_subset, as MoltenVK and its loader are: played between volk
 * and the loader of this machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "loader.h"
#include "test_program.h"

static PFN_vkGetInstanceProcAddr real;
static bool played;                       /* else all calls go to this machine's loader */
static bool offered;                      /* the loader knows the extension */
static unsigned instances, devices, bare; /* made; made without their extension */

static PFN_vkVoidFunction real_function(VkInstance instance, const char *name)
{
    return real(instance, name);
}

/* Copies a list of names without one; returns how many are left. */
static uint32_t take_out(const char *const *names, uint32_t n, const char *name, const char **left)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(names[i], name) != 0)
            left[kept++] = names[i];
    return kept;
}

static VKAPI_ATTR VkResult VKAPI_CALL list_instance_extensions(const char *layer, uint32_t *n,
                                                               VkExtensionProperties *list)
{
    PFN_vkEnumerateInstanceExtensionProperties get =
        (PFN_vkEnumerateInstanceExtensionProperties)real_function(
            NULL, "vkEnumerateInstanceExtensionProperties");
    VkResult result = get(layer, n, list);
    if (layer || !list || result != VK_SUCCESS)
        return result;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < *n; i++)
        if (strcmp(list[i].extensionName, VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME) != 0)
            list[kept++] = list[i];
    if (offered)
        strcpy(list[kept++].extensionName, VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME);
    *n = kept;
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo *info,
                                                      const VkAllocationCallbacks *a,
                                                      VkInstance *instance)
{
    const char *left[8];
    VkInstanceCreateInfo plain = *info;
    assert_in_range(info->enabledExtensionCount, 0, COUNTOF(left));
    plain.ppEnabledExtensionNames = left;
    plain.enabledExtensionCount =
        take_out(info->ppEnabledExtensionNames, info->enabledExtensionCount,
                 VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME, left);
    const bool asked = plain.enabledExtensionCount < info->enabledExtensionCount;
    const bool flagged = info->flags & VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR;
    assert_int_equal(asked, flagged); /* one without the other is wrong */
    plain.flags = 0;
    instances++;
    if (!flagged)
        return VK_ERROR_INCOMPATIBLE_DRIVER;
    return ((PFN_vkCreateInstance)real_function(NULL, "vkCreateInstance"))(&plain, a, instance);
}

static PFN_vkEnumerateDeviceExtensionProperties real_list;
static PFN_vkCreateDevice real_create;

static VKAPI_ATTR VkResult VKAPI_CALL list_device_extensions(VkPhysicalDevice physical,
                                                             const char *layer, uint32_t *n,
                                                             VkExtensionProperties *list)
{
    uint32_t room = list ? *n - 1 : 0;
    VkResult result = real_list(physical, layer, list ? &room : n, list);
    if (list && result == VK_SUCCESS)
        strcpy(list[room].extensionName, PORTABILITY_SUBSET);
    *n = (list ? room : *n) + 1;
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice physical,
                                                    const VkDeviceCreateInfo *info,
                                                    const VkAllocationCallbacks *a,
                                                    VkDevice *device)
{
    const char *left[16];
    VkDeviceCreateInfo plain = *info;
    assert_in_range(info->enabledExtensionCount, 0, COUNTOF(left));
    plain.ppEnabledExtensionNames = left;
    plain.enabledExtensionCount = take_out(info->ppEnabledExtensionNames,
                                           info->enabledExtensionCount, PORTABILITY_SUBSET, left);
    devices++;
    bare += plain.enabledExtensionCount == info->enabledExtensionCount;
    return real_create(physical, &plain, a, device);
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_function(VkInstance instance, const char *name)
{
    PFN_vkVoidFunction function = real_function(instance, name);
    if (!function || !played)
        return function;
    if (strcmp(name, "vkEnumerateInstanceExtensionProperties") == 0)
        return (PFN_vkVoidFunction)list_instance_extensions;
    if (strcmp(name, "vkCreateInstance") == 0)
        return (PFN_vkVoidFunction)create_instance;
    if (strcmp(name, "vkEnumerateDeviceExtensionProperties") == 0) {
        real_list = (PFN_vkEnumerateDeviceExtensionProperties)function;
        return (PFN_vkVoidFunction)list_device_extensions;
    }
    if (strcmp(name, "vkCreateDevice") == 0) {
        real_create = (PFN_vkCreateDevice)function;
        return (PFN_vkVoidFunction)create_device;
    }
    return function;
}

PFN_vkGetInstanceProcAddr driver_put_between(PFN_vkGetInstanceProcAddr get)
{
    real = get;
    return get_function;
}

static void is_asked_for(void **state)
{
    struct vka_device *device = NULL;
    (void)state;
    offered = true;
    assert_int_equal(vka_device_create(NULL, &device), VKA_OK);
    assert_in_range(instances, 1, 8);
    assert_in_range(devices, 1, 8);
    assert_int_equal(bare, 0);
    vka_device_destroy(&device);
}

/* Where the loader does not know it, it is not asked for. */
static void is_not_there(void **state)
{
    struct vka_device *device = NULL;
    (void)state;
    offered = false;
    assert_int_equal(vka_device_create(NULL, &device), VKA_NO_DEVICE);
    assert_null(device);
}

TEST_PROGRAM(portability)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(is_asked_for),
                                       cmocka_unit_test(is_not_there)};
    size_t n = 0;
    if (!loader_open() || vka_device_list(NULL, NULL, &n) != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device, so the portability subset is not tested\n");
        return 77;
    }
    played = true;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
