/* An application's Vulkan that lacks a function, and what is said of VkResults.
 * SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "gpu/vk.h"
#include "test_program.h"

static const char *lacking; /* the function that is not there */
static struct log log_ = {0};

static void VKAPI_CALL any_function(void)
{
}

static PFN_vkVoidFunction VKAPI_CALL get_function(VkInstance instance, const char *name)
{
    (void)instance;
    return lacking && strcmp(name, lacking) == 0 ? NULL : any_function;
}

static void missing_functions(void **state)
{
    (void)state;
    static const char *const names[] = {
#define F(name) #name,
        VK_INSTANCE_FUNCTIONS(F)
#undef F
    };
    struct vk_instance instance;
    for (size_t i = 0; i < COUNTOF(names); i++) {
        lacking = names[i];
        assert_int_equal(
            vk_instance_adopt(&log_, VK_NULL_HANDLE, VK_API_VERSION_1_2, get_function, &instance),
            VKA_INTERNAL);
        assert_non_null(strstr(log_.error, names[i]));
    }
    lacking = NULL;
    assert_int_equal(vk_instance_adopt(&log_, VK_NULL_HANDLE, VK_MAKE_API_VERSION(0, 1, 9, 0),
                                       get_function, &instance),
                     VKA_OK);
    assert_true(instance.borrowed && instance.api_version == VK_API_VERSION_1_3);
    vk_instance_destroy(&instance);
    assert_null(instance.vkCreateDevice);
}

static void results(void **state)
{
    (void)state;
    static const struct {
        VkResult result;
        enum vka_status status;
        const char *call, *sentence;
    } rows[] = {
        {VK_ERROR_DEVICE_LOST, VKA_DEVICE_LOST, "device->vk.vkQueueSubmit(queue, 1)",
         "vkQueueSubmit: device lost"},
        {VK_ERROR_OUT_OF_HOST_MEMORY, VKA_OUT_OF_HOST_MEMORY, "instance->vkCreateDevice(x)",
         "vkCreateDevice: out of host memory"},
        {VK_TIMEOUT, VKA_TIMEOUT, "vkWaitForFences(device)", "vkWaitForFences: timed out"},
        {(VkResult)-12345, VKA_INTERNAL, "vkNone()", "vkNone: VkResult -12345"},
    };
    for (size_t i = 0; i < COUNTOF(rows); i++) {
        assert_int_equal(vk_error(&log_, rows[i].result, rows[i].call), rows[i].status);
        assert_string_equal(log_.error, rows[i].sentence);
    }
}

TEST_PROGRAM(vk)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(missing_functions),
                                       cmocka_unit_test(results)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
