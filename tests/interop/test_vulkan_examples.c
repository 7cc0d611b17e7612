/* Compiles and runs the examples of sharing a device that the build takes from docs/building.md and
 * vkattn_vulkan.h, each in an application. SPDX-License-Identifier: MIT */
#include "../patience.h"
#include "app.h"

#include "page_vulkan.inc"

enum { N_HEAD = 3, N_TOKEN = 5, DIM = 64 };

static float value(int head, int dim)
{
    return (float)(head + 1) * ((float)dim - 30) / 64;
}

/* Where all rows of a head are the same, attention gives that row. */
static void page(void **state)
{
    (void)state;
    struct app app;
    struct vka_device *device = NULL;
    struct vka_plan *plan = NULL;
    app_create(&app, APP_REQUESTED);
    const VkDeviceSize size = N_HEAD * N_TOKEN * DIM * sizeof(float);
    struct app_buffer x = app_buffer_create(&app, size, VK_BUFFER_USAGE_STORAGE_BUFFER_BIT);
    struct app_buffer y = app_buffer_create(&app, size, VK_BUFFER_USAGE_STORAGE_BUFFER_BIT);
    for (int i = 0; i < N_HEAD * N_TOKEN * DIM; i++)
        x.mapped[i] = value(i / (N_TOKEN * DIM), i % DIM);
    VkCommandBuffer commands = app_begin(&app);
    OK(record_attention(&app.vulkan, x.handle, y.handle, N_HEAD, N_TOKEN, commands, &device,
                        &plan));
    app_submit(&app, commands);
    for (int i = 0; i < N_HEAD * N_TOKEN * DIM; i++) {
        float want = value(i / (N_TOKEN * DIM), i % DIM), difference = y.mapped[i] - want;
        if (!(difference <= 1e-6f && difference >= -1e-6f))
            fail_msg("[%d] is %g, not %g", i, (double)y.mapped[i], (double)want);
    }
    vka_plan_destroy(&plan);
    vka_device_destroy(&device);
    app_buffer_destroy(&app, &x);
    app_buffer_destroy(&app, &y);
    app_destroy(&app);
}

/* The header's makes a device, and vkattn on it. */
static void header(void **state)
{
    (void)state;
    struct app app;
    app_create(&app, APP_REQUESTED);
    const VkInstance instance = app.instance;
    const VkPhysicalDevice physical = app.physical;
    const uint32_t family = app.vulkan.queue_family;
    struct vka_vulkan_request *request = NULL;
    struct vka_device *device = NULL;
    VkDeviceCreateInfo create_info = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
        .queueCreateInfoCount = 1,
        .pQueueCreateInfos =
            &(VkDeviceQueueCreateInfo){
                .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                .queueFamilyIndex = family,
                .queueCount = 1,
                .pQueuePriorities = &(const float){1},
            },
    };
#include "header_vulkan.inc"
    assert_non_null(device);
    assert_null(request);
    struct vka_tensor *x = NULL, *y = NULL;
    OK(vka_tensor_create(device, VKA_F32, 2, (const uint32_t[]){4, 4}, &x));
    OK(vka_tensor_create(device, VKA_F32, 2, (const uint32_t[]){4, 4}, &y));
    struct vka_plan *plan = app_linear(device, x, x, y);
    OK(vka_plan_run(plan, PATIENCE));
    vka_plan_destroy(&plan);
    vka_tensor_destroy(&x);
    vka_tensor_destroy(&y);
    vka_device_destroy(&device);
    vkDestroyDevice(vulkan.device, NULL);
    app_destroy(&app);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(page), cmocka_unit_test(header)};
    if (!app_possible())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
