/* A device with the least that vkattn takes, played between volk and the loader of this machine: Vulkan
 * 1.1 without an extension, so no timeline; no 16-bit storage; 8 storage buffers a stage; 16 KiB of
 * shared memory; workgroups of 128 or 256; subgroups of 1 or 128 without operations. Layers and
 * random attention problems come right, and nothing asks for more than is there. One with the 4
 * storage buffers that Vulkan demands at the least is refused.
 *
 *     test_small_device [--all]    few problems, or many */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "layers/layer_case.h"
#include "loader.h"
#include "problems/problem.h"
#include "test_program.h"

#define SHARED_MEMORY 16384u
#define N_PROBLEM 2 /* each new kernel takes a CPU driver half a second to compile */
#define N_PROBLEM_ALL 200

static PFN_vkGetInstanceProcAddr real;
static PFN_vkGetDeviceProcAddr real_device_function;
static PFN_vkGetPhysicalDeviceProperties real_properties;
static PFN_vkGetPhysicalDeviceProperties2 real_properties2;
static PFN_vkGetPhysicalDeviceFeatures2 real_features2;
static PFN_vkCreateDevice real_create;
static PFN_vkCreateDescriptorSetLayout real_layout;
static PFN_vkCmdDispatch real_dispatch;

/* What is played; invocations 0: nothing. */
static struct small {
    uint32_t invocations, bindings, subgroup;
} small;
static uint64_t n_problem = N_PROBLEM;
static uint32_t most_bindings, dispatches; /* seen */

static void shrink(VkPhysicalDeviceProperties *p)
{
    p->apiVersion = VK_API_VERSION_1_1;
    p->limits.maxPerStageDescriptorStorageBuffers = small.bindings;
    p->limits.maxComputeSharedMemorySize = SHARED_MEMORY;
    p->limits.maxComputeWorkGroupInvocations = small.invocations;
    for (int i = 0; i < 3; i++)
        p->limits.maxComputeWorkGroupSize[i] = i < 2 ? small.invocations : 64;
}

static VKAPI_ATTR void VKAPI_CALL get_properties(VkPhysicalDevice physical,
                                                 VkPhysicalDeviceProperties *p)
{
    real_properties(physical, p);
    shrink(p);
}

static VKAPI_ATTR void VKAPI_CALL get_properties2(VkPhysicalDevice physical,
                                                  VkPhysicalDeviceProperties2 *p)
{
    real_properties2(physical, p);
    shrink(&p->properties);
    for (VkBaseOutStructure *s = p->pNext; s; s = s->pNext)
        if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES) {
            VkPhysicalDeviceSubgroupProperties *subgroup = (VkPhysicalDeviceSubgroupProperties *)s;
            subgroup->subgroupSize = small.subgroup;
            subgroup->supportedOperations = VK_SUBGROUP_FEATURE_BASIC_BIT;
        }
}

/* None at all. */
static VKAPI_ATTR void VKAPI_CALL get_features2(VkPhysicalDevice physical,
                                                VkPhysicalDeviceFeatures2 *f)
{
    real_features2(physical, f);
    memset(&f->features, 0, sizeof f->features);
    for (VkBaseOutStructure *s = f->pNext; s; s = s->pNext)
        if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES)
            ((VkPhysicalDevice16BitStorageFeatures *)s)->storageBuffer16BitAccess = VK_FALSE;
}

static VKAPI_ATTR VkResult VKAPI_CALL list_extensions(VkPhysicalDevice physical, const char *layer,
                                                      uint32_t *n, VkExtensionProperties *list)
{
    (void)physical, (void)layer, (void)list;
    *n = 0;
    return VK_SUCCESS;
}

/* Nothing that the device has not is enabled. */
static VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice physical,
                                                    const VkDeviceCreateInfo *info,
                                                    const VkAllocationCallbacks *a,
                                                    VkDevice *device)
{
    assert_int_equal(info->enabledExtensionCount, 0);
    for (const VkBaseInStructure *s = info->pNext; s; s = s->pNext) {
        assert_int_not_equal(s->sType,
                             VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES);
        if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES)
            assert_false(
                ((const VkPhysicalDevice16BitStorageFeatures *)s)->storageBuffer16BitAccess);
    }
    return real_create(physical, info, a, device);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_layout(VkDevice device,
                                                    const VkDescriptorSetLayoutCreateInfo *info,
                                                    const VkAllocationCallbacks *a,
                                                    VkDescriptorSetLayout *layout)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < info->bindingCount; i++)
        if (info->pBindings[i].descriptorType == VK_DESCRIPTOR_TYPE_STORAGE_BUFFER)
            n += info->pBindings[i].descriptorCount;
    most_bindings = n > most_bindings ? n : most_bindings;
    return real_layout(device, info, a, layout);
}

static VKAPI_ATTR void VKAPI_CALL dispatch(VkCommandBuffer commands, uint32_t x, uint32_t y,
                                           uint32_t z)
{
    dispatches++;
    real_dispatch(commands, x, y, z);
}

/* Function F of the device: keeps the real one. */
#define REPLACE(F, mine, kept)           \
    if (strcmp(name, #F) == 0) {         \
        kept = (PFN_##F)function;        \
        return (PFN_vkVoidFunction)mine; \
    }

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_device_function(VkDevice device,
                                                                    const char *name)
{
    PFN_vkVoidFunction function = real_device_function(device, name);
    REPLACE(vkCreateDescriptorSetLayout, create_layout, real_layout)
    REPLACE(vkCmdDispatch, dispatch, real_dispatch)
    return function;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_function(VkInstance instance, const char *name)
{
    PFN_vkVoidFunction function = real(instance, name);
    PFN_vkEnumerateDeviceExtensionProperties unused = NULL;
    if (!function || !small.invocations)
        return function;
    REPLACE(vkGetPhysicalDeviceProperties, get_properties, real_properties)
    REPLACE(vkGetPhysicalDeviceProperties2, get_properties2, real_properties2)
    REPLACE(vkGetPhysicalDeviceFeatures2, get_features2, real_features2)
    REPLACE(vkEnumerateDeviceExtensionProperties, list_extensions, unused)
    REPLACE(vkCreateDevice, create_device, real_create)
    REPLACE(vkGetDeviceProcAddr, get_device_function, real_device_function)
    (void)unused;
    return function;
}

PFN_vkGetInstanceProcAddr driver_put_between(PFN_vkGetInstanceProcAddr get)
{
    real = get;
    return get_function;
}

static const struct layer_case layers[] = {
    {"grouped, causal", .batch = 2, .n_q = 37, .n_head = 4, .n_kv_head = 2, .head_dim = 24,
     .query_dim = 96, .biases = BIAS_ALL, .causal = true},
    {"cross, f16", .batch = 2, .n_q = 9, .n_kv = 70, .n_head = 3, .head_dim = 5, .query_dim = 13,
     .key_dim = 28, .lengths = true, .dtype = VKA_F16, .biases = BIAS_QUERY | BIAS_OUTPUT},
};

static void check_contract(struct vka_device *device)
{
    for (size_t i = 0; i < COUNTOF(layers); i++) {
        double error = layer_check(device, &layers[i], i);
        if (!(error <= LAYER_NMSE))
            fail_msg("workgroups of %u: layer '%s': NMSE %.3g", small.invocations, layers[i].name,
                     error);
    }
    for (uint64_t seed = 0; seed < n_problem; seed++) {
        struct problem p;
        struct problem_result result;
        char text[PROBLEM_TEXT];
        problem_draw(&p, 19000000 + seed, seed % 2 ? VKA_PATH_AUTO : VKA_PATH_UNFUSED);
        if (!problem_check(device, &p, NULL, &result))
            fail_msg("workgroups of %u: %s: %s", small.invocations, result.why,
                     problem_text(&p, text));
    }
}

static void least_devices(void **state)
{
    static const struct small played[] = {{128, 8, 1}, {256, 8, 128}};
    (void)state;
    for (size_t i = 0; i < COUNTOF(played); i++) {
        struct vka_device *device = NULL;
        small = played[i];
        most_bindings = dispatches = 0;
        assert_int_equal(vka_device_create(NULL, &device), VKA_OK);
        const struct vka_device_properties *p = vka_device_properties(device);
        assert_int_equal(p->max_workgroup, small.invocations);
        assert_int_equal(p->max_shared_memory, SHARED_MEMORY);
        assert_int_equal(p->subgroup_size, small.subgroup);
        assert_false(p->timeline || p->storage16 || p->subgroup_arithmetic);
        check_contract(device);
        assert_in_range(most_bindings, 1, small.bindings);
        assert_in_range(dispatches, n_problem, UINT32_MAX);
        vka_device_destroy(&device);
    }
}

static void keep_text(void *user, enum vka_log_level level, const char *text)
{
    (void)level;
    snprintf(user, 256, "%s", text);
}

static void too_few_buffers(void **state)
{
    struct vka_device *device = NULL;
    char text[256] = "";
    (void)state;
    small = (struct small){128, 4, 1};
    assert_int_equal(
        vka_device_create(VKA_INFO(vka_device_info, .log = keep_text, .log_user = text), &device),
        VKA_UNSUPPORTED);
    assert_null(device);
    assert_non_null(strstr(text, "maxPerStageDescriptorStorageBuffers is 4"));
}

TEST_PROGRAM_ARGUMENTS(small_device)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(least_devices),
                                       cmocka_unit_test(too_few_buffers)};
    size_t n = 0;
    if (argc > 1 && strcmp(argv[1], "--all") == 0)
        n_problem = N_PROBLEM_ALL;
    if (!loader_open() || vka_device_list(NULL, NULL, &n) != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device, so no small one is played\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
