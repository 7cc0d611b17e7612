/* What a plan tells once it is finished: the times of its passes, its workspace and what a limit makes of
 * it, and its description. SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "patience.h"
#include "core/status.h"
#include "gpu/device.h"
#include "layers/layer_case.h"
#include "test_program.h"

static VKAPI_ATTR VkResult VKAPI_CALL no_device(VkPhysicalDevice physical,
                                                const VkDeviceCreateInfo *info,
                                                const VkAllocationCallbacks *allocator,
                                                VkDevice *device)
{
    (void)physical, (void)info, (void)allocator, (void)device;
    return VK_ERROR_OUT_OF_HOST_MEMORY;
}

/* A device that is lost for good: what was measured is gone. */
static void no_times(struct vka_device *device, struct vka_plan *plan)
{
    struct vka_pass_info pass;
    const PFN_vkCreateDevice real = device->instance.vkCreateDevice;
    assert_int_equal(device->vk.vkDeviceWaitIdle(device->handle), VK_SUCCESS);
    device->lost = true;
    device->instance.vkCreateDevice = no_device;
    assert_int_equal(vka_device_recover(device), VKA_OUT_OF_HOST_MEMORY);
    assert_int_equal(vka_plan_pass(plan, 0, &pass), VKA_OK);
    assert_true(pass.gpu_ms < 0);
    device->instance.vkCreateDevice = real;
    assert_int_equal(vka_device_recover(device), VKA_OK);
}

static void timestamps(void **state)
{
    struct vka_device *device = *state;
    struct layer_rig rig;
    struct vka_pass_info pass;
    rig_create(&rig, device, &layer_plain, 31);
    for (int on = 0; on < 2; on++) {
        struct vka_plan *plan = rig_plan(&rig, VKA_INFO(vka_plan_info, .timestamps = on));
        bool measured = on && vka_device_properties(device)->timestamps;
        size_t n = vka_plan_pass_count(plan);
        assert_true(n > 0);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(vka_plan_pass(plan, i, &pass), VKA_OK);
            assert_true(pass.gpu_ms < 0); /* not run yet */
            assert_true(pass.name[0] && pass.kernel[0] && pass.detail[0] && pass.reason[0]);
        }
        for (int run = 0; run < 3; run++) {
            assert_true(rig_run(&rig, plan) <= LAYER_NMSE);
            double sum = 0;
            for (size_t i = 0; i < n; i++) {
                assert_int_equal(vka_plan_pass(plan, i, &pass), VKA_OK);
                assert_true(measured ? pass.gpu_ms >= 0 : pass.gpu_ms < 0);
                sum += pass.gpu_ms;
            }
            assert_true(!measured || (sum > 0 && sum * 1e6 < PATIENCE));
        }
        if (measured)
            no_times(device, plan);
        vka_plan_destroy(&plan);
    }
    rig_destroy(&rig);
}

static void small_workspace(void **state)
{
    struct layer_rig rig;
    static float usual[2 * 37 * 96], cut[2 * 37 * 96];
    rig_create(&rig, *state, &layer_plain, 41);
    assert_int_equal(rig_count(&rig), COUNTOF(usual));
    struct vka_plan *plan = rig_plan(&rig, VKA_INFO(vka_plan_info, .path = VKA_PATH_UNFUSED));
    size_t n_pass = vka_plan_pass_count(plan);
    uint64_t workspace = vka_plan_workspace(plan);
    rig_run(&rig, plan);
    rig_read(&rig, usual);
    vka_plan_destroy(&plan);
    /* All of one batch element, some heads, some rows of one head, a single row. */
    static const uint64_t limits[] = {50000, 13000, 3000, 1};
    for (size_t i = 0; i < COUNTOF(limits); i++) {
        plan = rig_plan(
            &rig, VKA_INFO(vka_plan_info, .path = VKA_PATH_UNFUSED, .workspace_limit = limits[i]));
        assert_true(vka_plan_pass_count(plan) > n_pass);
        assert_true(vka_plan_workspace(plan) < workspace);
        n_pass = vka_plan_pass_count(plan);
        workspace = vka_plan_workspace(plan);
        assert_true(rig_run(&rig, plan) <= LAYER_NMSE);
        rig_read(&rig, cut);
        for (size_t j = 0; j < COUNTOF(cut); j++)
            assert_float_equal(cut[j], usual[j], 1e-6f);
        vka_plan_destroy(&plan);
    }
    rig_destroy(&rig);
}

static void description(void **state)
{
    struct layer_rig rig;
    char whole[8192], less[8192];
    rig_create(&rig, *state, &layer_plain, 51);
    struct vka_plan *plan = rig_plan(&rig, NULL);
    size_t length = vka_plan_describe(plan, whole, sizeof whole), lines = 0;
    assert_in_range(length, 1, sizeof whole - 1);
    assert_int_equal(strlen(whole), length);
    for (size_t i = 0; i < length; i++)
        lines += whole[i] == '\n';
    assert_int_equal(lines, vka_plan_pass_count(plan));
    assert_int_equal(vka_plan_describe(plan, NULL, 0), length);
    for (size_t room = 1; room <= length + 1; room++) {
        memset(less, 0x5a, sizeof less);
        assert_int_equal(vka_plan_describe(plan, less, room), length);
        assert_int_equal(less[room - 1], '\0');
        assert_memory_equal(less, whole, room - 1);
        assert_int_equal(less[room], 0x5a);
    }
    vka_plan_destroy(&plan);
    rig_destroy(&rig);
}

/* By timeline semaphores, and by fences. */
TEST_PROGRAM(plan_info)
{
    int failed = 0;
    if (!have_device("what plans tell"))
        return 77;
    for (int fences = 0; fences < 2; fences++) {
        struct vka_device *device = NULL;
        if (vka_device_create(VKA_INFO(vka_device_info, .no_timeline = fences), &device) != VKA_OK)
            return 1;
        const struct CMUnitTest tests[] = {
            cmocka_unit_test_prestate(timestamps, device),
            cmocka_unit_test_prestate(small_workspace, device),
            cmocka_unit_test_prestate(description, device),
        };
        failed += cmocka_run_group_tests_name(fences ? "fences" : "timeline semaphores", tests,
                                              NULL, NULL);
        vka_device_destroy(&device);
    }
    return failed;
}
