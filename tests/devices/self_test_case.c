#include "self_test_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

struct kernel_set in_state(const struct vka_device *device, enum kernel_state state)
{
    struct kernel_set kernels = NO_KERNELS;
    for (int k = 0; k < KERNEL_COUNT; k++)
        if (device->caps.kernels[k] == state)
            set_add(&kernels, k);
    return kernels;
}

struct kernel_set tested(const struct vka_device *device)
{
    return set_union(in_state(device, KERNEL_RIGHT), in_state(device, KERNEL_WRONG));
}

static char last_error[512];

static void listen(void *user, enum vka_log_level level, const char *message)
{
    struct heard *heard = user;
    if (level == VKA_LOG_ERROR)
        snprintf(last_error, sizeof last_error, "%s", message);
    if (!heard)
        return;
    bool is_one = level == VKA_LOG_WARNING && strstr(message, "self-test");
    heard->before += is_one && strstr(message, "earlier run");
    heard->now += is_one && !strstr(message, "earlier run");
}

struct vka_device *open_device(const void *blob, size_t size, bool skip, struct heard *heard)
{
    static unsigned n_open;
    struct vka_device *device = NULL;
    if (vka_device_create(VKA_INFO(vka_device_info, .pipeline_cache = blob,
                                   .pipeline_cache_size = size, .skip_self_test = skip,
                                   .log = listen, .log_user = heard),
                          &device))
        fail_msg("device %u of this process: %s", n_open + 1, last_error);
    n_open++;
    miscompile(device, MISTAKE_SUMS, NO_KERNELS);
    return device;
}

void renew_device(struct vka_device *device, const struct caps *caps)
{
    pipelines_finish(device);
    device->pipelines = (struct pipelines){0};
    assert_int_equal(pipelines_init(device, NULL, 0), VKA_OK);
    device->caps = *caps;
    miscompile_forget();
}

enum vka_status try_layer_without(struct vka_device *device, enum vka_path path,
                                  struct kernel_set gone, struct kernel_set *kernels)
{
    static const float weight[64 * 64];
    const struct vka_linear_weights w = {weight, NULL};
    const uint32_t shape[] = {1, 40, 64};
    struct vka_layer *layer = NULL;
    struct vka_tensor *x = NULL, *y = NULL;
    struct vka_plan *plan = NULL;
    enum vka_status status =
        vka_layer_create(device,
                         VKA_INFO(vka_layer_info, .n_head = 4, .head_dim = 16, .query_dim = 64,
                                  .output_dim = 64, .query = w, .key = w, .value = w, .output = w),
                         &layer);
    assert_int_equal(vka_tensor_create(device, VKA_F32, 3, shape, &x), VKA_OK);
    assert_int_equal(vka_tensor_create(device, VKA_F32, 3, shape, &y), VKA_OK);
    assert_int_equal(vka_plan_create(device, VKA_INFO(vka_plan_info, .path = path), &plan), VKA_OK);
    set_join(&device->caps.without, gone);
    if (status == VKA_OK)
        status = vka_plan_add_layer(
            plan, VKA_INFO(vka_layer_op, .layer = layer, .query = x, .output = y));
    *kernels = NO_KERNELS;
    for (size_t i = 0; status == VKA_OK && i < plan->n_pass; i++)
        set_add(kernels, plan->passes[i].key.kernel);
    vka_plan_destroy(&plan);
    vka_layer_destroy(&layer);
    vka_tensor_destroy(&x);
    vka_tensor_destroy(&y);
    return status;
}

enum vka_status try_layer(struct vka_device *device, enum vka_path path, struct kernel_set *kernels)
{
    return try_layer_without(device, path, NO_KERNELS, kernels);
}
