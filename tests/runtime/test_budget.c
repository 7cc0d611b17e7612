/* Memory budgets, of the application and of the driver: what passes one is OUT_OF_DEVICE_MEMORY,
 * and everything made before works on. SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "core/status.h"
#include "gpu/device.h"
#include "layers/layer_case.h"
#include "test_program.h"

#define MIB (1u << 20)
#define MOST 64

static const uint32_t mebibyte[] = {MIB / 4}; /* a tensor's shape */

/* Tensors of 1 MiB until no more are given; their number. */
static size_t fill(struct vka_device *device, struct vka_tensor *tensors[MOST])
{
    size_t n = 0;
    enum vka_status status = VKA_OK;
    while (n < MOST &&
           (status = vka_tensor_create(device, VKA_F32, 1, mebibyte, &tensors[n])) == VKA_OK)
        n++;
    assert_int_equal(status, VKA_OUT_OF_DEVICE_MEMORY);
    assert_non_null(strstr(vka_device_error(device), "max_memory"));
    assert_null(tensors[n]);
    return n;
}

/* Each tensor holds its own number, and gives one back for another. */
static void use(struct vka_device *device, struct vka_tensor *tensors[], size_t n)
{
    float *values = malloc(MIB);
    assert_non_null(values);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < MIB / 4; j++)
            values[j] = (float)i;
        assert_int_equal(vka_tensor_write(tensors[i], values, MIB), VKA_OK);
    }
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(vka_tensor_read(tensors[i], values, MIB), VKA_OK);
        for (size_t j = 0; j < MIB / 4; j++)
            assert_true(values[j] == (float)i);
    }
    free(values);
    vka_tensor_destroy(&tensors[n - 1]);
    assert_int_equal(vka_tensor_create(device, VKA_F32, 1, mebibyte, &tensors[n - 1]), VKA_OK);
}

static void destroy(struct vka_tensor *tensors[], size_t n)
{
    for (size_t i = 0; i < n; i++)
        vka_tensor_destroy(&tensors[i]);
}

static void limited(void **state)
{
    (void)state;
    struct vka_device *device = NULL;
    struct vka_tensor *tensors[MOST + 1] = {0};
    assert_int_equal(vka_device_create(VKA_INFO(vka_device_info, .max_memory = 8 * MIB), &device),
                     VKA_OK);
    size_t n = fill(device, tensors);
    assert_in_range(n, 6, 8);
    use(device, tensors, n);
    destroy(tensors, n);
    assert_int_equal(fill(device, tensors), n); /* all of it came back */
    destroy(tensors, n);
    vka_device_destroy(&device);
}

/* A plan whose workspace passes the budget, and a layer's run beside it with the bits of before. */
static void plans(void **state)
{
    (void)state;
    struct vka_device *device = NULL;
    struct layer_rig rig;
    struct vka_tensor *big[2] = {0};
    struct vka_plan *plan = NULL, *refused = NULL;
    static float before[2 * 37 * 96], after[2 * 37 * 96];
    assert_int_equal(vka_device_create(VKA_INFO(vka_device_info, .max_memory = 24 * MIB), &device),
                     VKA_OK);
    rig_create(&rig, device, &layer_plain, 3);
    assert_int_equal(sizeof before, rig_count(&rig) * sizeof(float));
    plan = rig_plan(&rig, NULL);
    assert_true(rig_run(&rig, plan) <= LAYER_NMSE);
    rig_read(&rig, before);
    const uint32_t shape[] = {1, 1, 1u << 16, 8}; /* 2 MiB; the slice of scores would take 64 */
    for (int i = 0; i < 2; i++)
        assert_int_equal(vka_tensor_create(device, VKA_F32, 4, shape, &big[i]), VKA_OK);
    assert_int_equal(
        vka_plan_create(device, VKA_INFO(vka_plan_info, .path = VKA_PATH_UNFUSED), &refused),
        VKA_OK);
    const struct vka_attention_op op =
        *VKA_INFO(vka_attention_op, .q = big[0], .k = big[0], .v = big[0], .output = big[1]);
    for (int i = 0; i < 3; i++) /* again and again: nothing is left behind */
        assert_int_equal(vka_plan_add_attention(refused, &op), VKA_OUT_OF_DEVICE_MEMORY);
    vka_plan_destroy(&refused);
    assert_true(rig_run(&rig, plan) <= LAYER_NMSE);
    rig_read(&rig, after);
    assert_memory_equal(before, after, sizeof before);
    vka_plan_destroy(&plan);
    for (int i = 0; i < 2; i++)
        vka_tensor_destroy(&big[i]);
    rig_destroy(&rig);
    vka_device_destroy(&device);
}

static uint64_t driver_budget;
static PFN_vkGetPhysicalDeviceMemoryProperties real_properties;

/* A driver with VK_EXT_memory_budget that gives this much of each heap, all still free. */
static VKAPI_ATTR void VKAPI_CALL say_budget(VkPhysicalDevice physical,
                                             VkPhysicalDeviceMemoryProperties2 *properties)
{
    real_properties(physical, &properties->memoryProperties);
    VkPhysicalDeviceMemoryBudgetPropertiesEXT *budget = properties->pNext;
    for (uint32_t i = 0; i < VK_MAX_MEMORY_HEAPS; i++) {
        budget->heapBudget[i] = driver_budget;
        budget->heapUsage[i] = 0;
    }
}

static void drivers(void **state)
{
    (void)state;
    struct vka_device *device = NULL;
    struct vka_tensor *first = NULL, *more = NULL;
    assert_int_equal(vka_device_create(VKA_INFO(vka_device_info, .max_memory = 32 * MIB), &device),
                     VKA_OK);
    real_properties = device->instance.vkGetPhysicalDeviceMemoryProperties;
    device->instance.vkGetPhysicalDeviceMemoryProperties2 = say_budget;
    device->memory.has_budget = true;
    driver_budget = 3 * MIB;
    assert_int_equal(vka_tensor_create(device, VKA_F32, 1, mebibyte, &first), VKA_OK);
    driver_budget = 0; /* what lies in the block of before is still there to be had */
    assert_int_equal(vka_tensor_create(device, VKA_F32, 1, mebibyte, &more), VKA_OK);
    vka_tensor_destroy(&more);
    const uint32_t large[] = {4 * MIB / 4};
    assert_int_equal(vka_tensor_create(device, VKA_F32, 1, large, &more), VKA_OUT_OF_DEVICE_MEMORY);
    driver_budget = 16 * MIB;
    assert_int_equal(vka_tensor_create(device, VKA_F32, 1, large, &more), VKA_OK);
    use(device, &first, 1);
    vka_tensor_destroy(&more);
    vka_tensor_destroy(&first);
    vka_device_destroy(&device);
}

TEST_PROGRAM(budget)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limited),
        cmocka_unit_test(plans),
        cmocka_unit_test(drivers),
    };
    if (!have_device("memory budgets"))
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
