/* Everything that vkattn_vulkan.h refuses: the status, the sentence, and nothing made.
 * SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include "../patience.h"
#include "app.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STORAGE VK_BUFFER_USAGE_STORAGE_BUFFER_BIT

struct world {
    struct app app, bare;
    struct vka_device *device, *fences, *own; /* fences: over bare; own: made by vkattn */
    char heard[512];
};

static void listen(void *user, enum vka_log_level level, const char *message)
{
    struct world *w = user;
    if (level == VKA_LOG_ERROR)
        snprintf(w->heard, sizeof w->heard, "%s", message);
}

static int create(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    app_create(&w->bare, APP_BARE);
    app_create(&w->app, APP_REQUESTED);
    w->device = app_adopt(&w->app, NULL);
    w->bare.vulkan.allow_missing = true;
    w->fences = app_adopt(&w->bare, NULL);
    OK(vka_device_create(NULL, &w->own));
    *state = w;
    return 0;
}

static int destroy(void **state)
{
    struct world *w = *state;
    vka_device_destroy(&w->device);
    vka_device_destroy(&w->fences);
    vka_device_destroy(&w->own);
    app_destroy(&w->app);
    app_destroy(&w->bare);
    free(w);
    return 0;
}

/* ---- Devices --------------------------------------------------------------------------------- */

/* A refused adoption: what was changed in the application's info, the status, and words of the
 * sentence. */
static void refuse(struct world *w, const struct vka_vulkan_info *vulkan,
                   const struct vka_device_info *info, enum vka_status want, const char *words,
                   int line)
{
    struct vka_device_info with_log = info ? *info : (struct vka_device_info){0};
    struct vka_device *made = w->device;
    if (!info)
        with_log.struct_size = sizeof with_log;
    with_log.log = listen;
    with_log.log_user = w;
    w->heard[0] = '\0';
    enum vka_status got = vka_device_adopt(vulkan, &with_log, &made);
    if (got != want || !strstr(w->heard, words) || made)
        fail_msg("line %d: %s, \"%s\", not %s with \"%s\"", line, vka_status_name(got), w->heard,
                 vka_status_name(want), words);
}

#define REFUSED(want, words, ...)                        \
    do {                                                 \
        struct vka_vulkan_info vulkan = w->app.vulkan;   \
        __VA_ARGS__;                                     \
        refuse(w, &vulkan, NULL, want, words, __LINE__); \
    } while (0)

static void handles(void **state)
{
    struct world *w = *state;
    const char *const null_name[] = {NULL};
    const VkPhysicalDeviceFeatures2 no_features = {.sType = 0};
    REFUSED(VKA_INVALID, "struct_size", vulkan.struct_size--);
    REFUSED(VKA_INVALID, "instance", vulkan.instance = VK_NULL_HANDLE);
    REFUSED(VKA_INVALID, "physical_device", vulkan.physical_device = VK_NULL_HANDLE);
    REFUSED(VKA_INVALID, "device", vulkan.device = VK_NULL_HANDLE);
    REFUSED(VKA_INVALID, "queue", vulkan.queue = VK_NULL_HANDLE);
    REFUSED(VKA_INVALID, "queue_family 99 does not support compute", vulkan.queue_family = 99);
    REFUSED(VKA_INVALID, "extensions is NULL", vulkan.extensions = NULL, vulkan.n_extension = 1);
    REFUSED(VKA_INVALID, "extensions[0]", vulkan.extensions = null_name, vulkan.n_extension = 1);
    REFUSED(VKA_INVALID, "features", vulkan.features = &no_features);
    REFUSED(VKA_INVALID, "queue_lock", vulkan.queue_lock = (vka_queue_callback *)abort);
    REFUSED(VKA_INVALID, "queue_unlock", vulkan.queue_unlock = (vka_queue_callback *)abort);
    REFUSED(VKA_UNSUPPORTED, "Vulkan 1.1", vulkan.api_version = 0);
    REFUSED(VKA_UNSUPPORTED, "Vulkan 1.1", vulkan.api_version = VK_API_VERSION_1_0);
    refuse(w, NULL, NULL, VKA_INVALID, "vulkan is NULL", __LINE__);
    assert_int_equal(vka_device_adopt(&w->app.vulkan, NULL, NULL), VKA_INVALID);
    VkQueueFamilyProperties families[16];
    uint32_t count = COUNTOF(families);
    vkGetPhysicalDeviceQueueFamilyProperties(w->app.physical, &count, families);
    for (uint32_t i = 0; i < count; i++)
        if (!(families[i].queueFlags & VK_QUEUE_COMPUTE_BIT))
            REFUSED(VKA_INVALID, "does not support compute", vulkan.queue_family = i);
}

static void infos(void **state)
{
    struct world *w = *state;
    const struct vka_vulkan_info *v = &w->app.vulkan;
    refuse(w, v, VKA_INFO(vka_device_info, .device = "0"), VKA_INVALID, "device", __LINE__);
    refuse(w, v, VKA_INFO(vka_device_info, .validation = true), VKA_INVALID, "validation",
           __LINE__);
    refuse(w, v, VKA_INFO(vka_device_info, .max_allocation = 1), VKA_INVALID, "max_allocation",
           __LINE__);
    refuse(w, v, VKA_INFO(vka_device_info, .pipeline_cache_size = 1), VKA_INVALID, "pipeline_cache",
           __LINE__);
    refuse(w, v, &(struct vka_device_info){.struct_size = 3}, VKA_INVALID, "struct_size", __LINE__);
}

/* What the bare device lacks is all that vkattn asks for, each by its name; leaving out one feature
 * names that one alone. */
static void missing(void **state)
{
    struct world *w = *state;
    struct vka_vulkan_info bare = w->bare.vulkan;
    bare.allow_missing = false;
    refuse(w, &bare, NULL, VKA_UNSUPPORTED, "the device was made without ", __LINE__);
    const VkPhysicalDeviceFeatures2 *all = w->app.request->features;
    unsigned named = 0;
    for (const VkBaseInStructure *s = all->pNext; s; s = s->pNext) {
        named++;
        if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES)
            assert_non_null(strstr(w->heard, "timelineSemaphore"));
        else if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES)
            assert_non_null(strstr(w->heard, "subgroupSizeControl, computeFullSubgroups"));
        else
            named--;
    }
    assert_true(named > 0);
    VkPhysicalDeviceFeatures2 some = *all;
    if (some.features.shaderInt64) {
        assert_non_null(strstr(w->heard, "shaderInt64"));
        some.features.shaderInt64 = VK_FALSE;
        REFUSED(VKA_UNSUPPORTED, "made without shaderInt64", vulkan.features = &some);
        assert_null(strstr(w->heard, ","));
    }
    /* An application of Vulkan 1.1 needs the extensions too. */
    REFUSED(VKA_UNSUPPORTED, VK_KHR_TIMELINE_SEMAPHORE_EXTENSION_NAME,
            vulkan.api_version = VK_API_VERSION_1_1);
}

/* What few_function says of the physical device. */
static uint32_t storage_buffers;

static VKAPI_ATTR void VKAPI_CALL few_properties(VkPhysicalDevice physical,
                                                 VkPhysicalDeviceProperties *p)
{
    vkGetPhysicalDeviceProperties(physical, p);
    p->limits.maxPerStageDescriptorStorageBuffers = storage_buffers;
}

static VKAPI_ATTR void VKAPI_CALL few_properties2(VkPhysicalDevice physical,
                                                  VkPhysicalDeviceProperties2 *p)
{
    vkGetPhysicalDeviceProperties2(physical, p);
    p->properties.limits.maxPerStageDescriptorStorageBuffers = storage_buffers;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL few_function(VkInstance instance, const char *name)
{
    if (strcmp(name, "vkGetPhysicalDeviceProperties") == 0)
        return (PFN_vkVoidFunction)few_properties;
    if (strcmp(name, "vkGetPhysicalDeviceProperties2") == 0)
        return (PFN_vkVoidFunction)few_properties2;
    return vkGetInstanceProcAddr(instance, name);
}

/* A device with fewer than 8 storage buffers a stage is refused by the name of the limit, by the
 * request too; one with 8 is adopted. */
static void few_bindings(void **state)
{
    struct world *w = *state;
    const struct vka_device_info info = {.struct_size = sizeof info, .log = listen, .log_user = w};
    for (storage_buffers = 4; storage_buffers < 8; storage_buffers++) {
        char want[64];
        struct vka_vulkan_request *request = w->app.request;
        struct vka_vulkan_info vulkan = w->app.vulkan;
        vulkan.get_instance_proc_addr = few_function;
        snprintf(want, sizeof want, "maxPerStageDescriptorStorageBuffers is %u", storage_buffers);
        refuse(w, &vulkan, NULL, VKA_UNSUPPORTED, want, __LINE__);
        w->heard[0] = '\0';
        assert_int_equal(vka_vulkan_request_create(&vulkan, &info, &request), VKA_UNSUPPORTED);
        assert_null(request);
        assert_non_null(strstr(w->heard, want));
    }
    struct app eight = w->app;
    eight.vulkan.get_instance_proc_addr = few_function;
    struct vka_device *device = app_adopt(&eight, NULL);
    vka_device_destroy(&device);
}

static void requests(void **state)
{
    struct world *w = *state;
    const struct vka_device_info info = {.struct_size = sizeof info, .log = listen, .log_user = w};
    struct vka_vulkan_request *request = w->app.request;
    assert_int_equal(vka_vulkan_request_create(NULL, &info, &request), VKA_INVALID);
    assert_null(request);
    assert_non_null(strstr(w->heard, "vulkan is NULL"));
    struct vka_vulkan_info vulkan = w->app.vulkan;
    vulkan.queue_family = 99;
    assert_int_equal(vka_vulkan_request_create(&vulkan, &info, &request), VKA_INVALID);
    assert_non_null(strstr(w->heard, "does not support compute"));
    assert_int_equal(vka_vulkan_request_create(&vulkan, &info, NULL), VKA_INVALID);
    vka_vulkan_request_destroy(&request);
    vka_vulkan_request_destroy(NULL);
}

/* ---- Buffers --------------------------------------------------------------------------------- */

#define WRAP(want, words, ...)                                                                    \
    do {                                                                                          \
        struct vka_buffer b = good;                                                               \
        __VA_ARGS__;                                                                              \
        made = (struct vka_tensor *)w;                                                            \
        EXPECT(w->device, want, words, vka_tensor_wrap(w->device, &b, VKA_F32, 2, shape, &made)); \
        assert_null(made);                                                                        \
    } while (0)

static void wrapping(void **state)
{
    struct world *w = *state;
    const uint32_t shape[] = {3, 5}, large[] = {3, 1000}, empty[] = {3, 0};
    struct app_buffer buffer = app_buffer_create(&w->app, 1024, STORAGE);
    const struct vka_buffer good = app_buffer_info(&buffer, 0);
    struct vka_tensor *made = NULL;
    WRAP(VKA_INVALID, "buffer is VK_NULL_HANDLE", b.buffer = VK_NULL_HANDLE);
    WRAP(VKA_INVALID, "usage has no VK_BUFFER_USAGE_STORAGE_BUFFER_BIT",
         b.usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT);
    WRAP(VKA_INVALID, "offset 4 is not a multiple", b.offset = 4);
    WRAP(VKA_INVALID, "size is 0 bytes", b.size = 0);
    WRAP(VKA_INVALID, "size is 60 bytes, but the elements need 64", b.size = 60);
    WRAP(VKA_INVALID, "exceed the buffer", b.offset = 1u << 20);
    WRAP(VKA_INVALID, "exceed the buffer", b.size = UINT64_MAX);
    EXPECT(w->device, VKA_INVALID, "buffer is NULL",
           vka_tensor_wrap(w->device, NULL, VKA_F32, 2, shape, &made));
    EXPECT(w->device, VKA_INVALID, "size is 1024 bytes, but the elements need 12000",
           vka_tensor_wrap(w->device, &good, VKA_F32, 2, large, &made));
    EXPECT(w->device, VKA_INVALID, "axis of 0",
           vka_tensor_wrap(w->device, &good, VKA_F32, 2, empty, &made));
    EXPECT(w->device, VKA_INVALID, "rank",
           vka_tensor_wrap(w->device, &good, VKA_F32, 5, shape, &made));
    EXPECT(w->device, VKA_INVALID, "shape is NULL",
           vka_tensor_wrap(w->device, &good, VKA_F32, 2, NULL, &made));
    EXPECT(w->device, VKA_INVALID, "dtype",
           vka_tensor_wrap(w->device, &good, VKA_DTYPE_COUNT, 2, shape, &made));
    EXPECT(w->device, VKA_INVALID, "tensor is NULL",
           vka_tensor_wrap(w->device, &good, VKA_F32, 2, shape, NULL));
    assert_int_equal(vka_tensor_wrap(NULL, &good, VKA_F32, 2, shape, &made), VKA_INVALID);
    app_buffer_destroy(&w->app, &buffer);
}

static void using_wrapped(void **state)
{
    struct world *w = *state;
    struct app_buffer buffer = app_buffer_create(&w->app, 1024, STORAGE);
    struct vka_tensor *one = app_wrap(w->device, &buffer, 8, 8);
    struct vka_tensor *two = app_wrap(w->device, &buffer, 8, 8), *own = NULL;
    float values[64];
    /* No copies without their usage. */
    EXPECT(w->device, VKA_INVALID, "TRANSFER_SRC", vka_tensor_read(one, values, sizeof values));
    EXPECT(w->device, VKA_INVALID, "TRANSFER", vka_tensor_write(one, values, sizeof values));
    /* One buffer twice overlaps, and another device's tensor is a stranger. */
    struct vka_plan *plan = NULL;
    OK(vka_tensor_create(w->own, VKA_F32, 2, (const uint32_t[]){8, 8}, &own));
    OK(vka_plan_create(w->device, NULL, &plan));
    EXPECT(w->device, VKA_INVALID, "shares",
           vka_plan_add_linear(
               plan, VKA_INFO(vka_linear_op, .input = one, .weight = one, .output = two)));
    EXPECT(w->device, VKA_INVALID, "another device",
           vka_plan_add_linear(
               plan, VKA_INFO(vka_linear_op, .input = own, .weight = own, .output = two)));
    vka_plan_destroy(&plan);
    OK(vka_plan_create(w->own, NULL, &plan));
    EXPECT(w->own, VKA_INVALID, "output belongs to another device",
           vka_plan_add_linear(
               plan, VKA_INFO(vka_linear_op, .input = own, .weight = own, .output = one)));
    vka_plan_destroy(&plan);
    vka_tensor_destroy(&own);
    vka_tensor_destroy(&one);
    vka_tensor_destroy(&two);
    app_buffer_destroy(&w->app, &buffer);
}

static void exporting(void **state)
{
    struct world *w = *state;
    struct vka_buffer where;
    struct vka_tensor *own = NULL;
    OK(vka_tensor_create(w->device, VKA_F32, 1, (const uint32_t[]){3}, &own));
    assert_int_equal(vka_tensor_buffer(NULL, &where), VKA_INVALID);
    EXPECT(w->device, VKA_INVALID, "buffer is NULL", vka_tensor_buffer(own, NULL));
    vka_tensor_destroy(&own);
}

static void importing(void **state)
{
    struct world *w = *state;
    const uint32_t shape[] = {3, 5};
    struct vka_tensor *made = NULL;
    size_t alignment = vka_device_host_alignment(w->device);
    assert_int_equal(vka_device_host_alignment(NULL), 0);
    assert_int_equal(vka_device_host_alignment(w->fences), 0);
    EXPECT(w->fences, VKA_UNSUPPORTED, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME,
           vka_tensor_import(w->fences, w, 64, VKA_F32, 2, shape, &made));
    assert_int_equal(vka_tensor_import(NULL, w, 64, VKA_F32, 2, shape, &made), VKA_INVALID);
    if (!alignment)
        return;
    void *whole;
    char *memory = app_aligned(alignment, 2 * alignment, &whole), *bytes = memory;
    EXPECT(w->device, VKA_INVALID, "memory is NULL",
           vka_tensor_import(w->device, NULL, alignment, VKA_F32, 2, shape, &made));
    EXPECT(w->device, VKA_INVALID, "memory is not aligned",
           vka_tensor_import(w->device, bytes + 64, alignment, VKA_F32, 2, shape, &made));
    EXPECT(w->device, VKA_INVALID, "size is 0",
           vka_tensor_import(w->device, memory, 0, VKA_F32, 2, shape, &made));
    EXPECT(w->device, VKA_INVALID, "not a multiple",
           vka_tensor_import(w->device, memory, alignment + 64, VKA_F32, 2, shape, &made));
    EXPECT(w->device, VKA_INVALID, "the elements need",
           vka_tensor_import(w->device, memory, alignment, VKA_F32, 1,
                             (const uint32_t[]){(uint32_t)alignment}, &made));
    EXPECT(w->device, VKA_INVALID, "tensor is NULL",
           vka_tensor_import(w->device, memory, alignment, VKA_F32, 2, shape, NULL));
    assert_null(made);
    free(whole);
}

static void importing_too_much(void **state)
{
    struct world *w = *state;
    struct vka_device *small =
        app_adopt(&w->app, VKA_INFO(vka_device_info, .max_allocation = 1u << 20));
    size_t alignment = vka_device_host_alignment(small), size = 2u << 20;
    struct vka_tensor *made = NULL;
    void *whole = NULL;
    if (alignment && size % alignment == 0) {
        void *memory = app_aligned(alignment, size, &whole);
        EXPECT(small, VKA_UNSUPPORTED, "largest allocation",
               vka_tensor_import(small, memory, size, VKA_F32, 1, (const uint32_t[]){4}, &made));
        assert_null(made);
    }
    free(whole);
    vka_device_destroy(&small);
}

/* ---- Plans ----------------------------------------------------------------------------------- */

static void recording(void **state)
{
    struct world *w = *state;
    struct vka_plan *plan = NULL;
    struct vka_tensor *x = NULL, *y = NULL;
    VkCommandBuffer commands = app_begin(&w->app);
    OK(vka_tensor_create(w->device, VKA_F32, 2, (const uint32_t[]){4, 4}, &x));
    OK(vka_tensor_create(w->device, VKA_F32, 2, (const uint32_t[]){4, 4}, &y));
    OK(vka_plan_create(w->device, NULL, &plan));
    EXPECT(w->device, VKA_INVALID, "not finished", vka_plan_record(plan, commands));
    EXPECT(w->device, VKA_INVALID, "not finished", vka_plan_submit_with(plan, NULL, NULL));
    vka_plan_destroy(&plan);
    plan = app_linear(w->device, x, x, y);
    EXPECT(w->device, VKA_INVALID, "commands is VK_NULL_HANDLE",
           vka_plan_record(plan, VK_NULL_HANDLE));
    assert_int_equal(vka_plan_record(NULL, commands), VKA_INVALID);
    app_submit(&w->app, commands);
    vka_plan_destroy(&plan);
    vka_tensor_destroy(&x);
    vka_tensor_destroy(&y);
}

static void semaphores_of(struct vka_device *device, VkSemaphore semaphore, bool timeline)
{
    struct vka_tensor *x = NULL, *y = NULL;
    struct vka_semaphore list[VKA_MAX_SEMAPHORES + 1] = {{semaphore, 1}, {VK_NULL_HANDLE, 1}};
    OK(vka_tensor_create(device, VKA_F32, 2, (const uint32_t[]){4, 4}, &x));
    OK(vka_tensor_create(device, VKA_F32, 2, (const uint32_t[]){4, 4}, &y));
    struct vka_plan *plan = app_linear(device, x, x, y);
#define SUBMIT(want, words, ...) \
    EXPECT(device, want, words,  \
           vka_plan_submit_with(plan, VKA_INFO(vka_submit_info, __VA_ARGS__), NULL))
    EXPECT(device, VKA_INVALID, "struct_size",
           vka_plan_submit_with(plan, &(struct vka_submit_info){.struct_size = 8}, NULL));
    SUBMIT(VKA_INVALID, "waits is NULL", .n_wait = 1);
    SUBMIT(VKA_INVALID, "signals is NULL", .n_signal = 1);
    SUBMIT(VKA_INVALID, "waits has 17", .waits = list, .n_wait = COUNTOF(list));
    SUBMIT(VKA_INVALID, "signals has 17", .signals = list, .n_signal = COUNTOF(list));
    SUBMIT(VKA_INVALID, "signals[0] is VK_NULL_HANDLE", .signals = list + 1, .n_signal = 1);
    SUBMIT(VKA_INVALID, "waits[0] is VK_NULL_HANDLE", .waits = list + 1, .n_wait = 1);
    if (!timeline)
        SUBMIT(VKA_UNSUPPORTED, "timelineSemaphore", .signals = list, .n_signal = 1);
#undef SUBMIT
    assert_int_equal(vka_plan_submit_with(NULL, NULL, NULL), VKA_INVALID);
    OK(vka_plan_run(plan, PATIENCE)); /* nothing has been submitted, and all is well */
    vka_plan_destroy(&plan);
    vka_tensor_destroy(&x);
    vka_tensor_destroy(&y);
}

static void semaphores(void **state)
{
    struct world *w = *state;
    VkSemaphore semaphore = app_semaphore(&w->app, true);
    semaphores_of(w->device, semaphore, true);
    semaphores_of(w->fences, semaphore, false);
    vkDestroySemaphore(w->app.device, semaphore, NULL);
}

static void no_messages(void **state)
{
    (void)state;
    assert_int_equal(app_messages(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handles),       cmocka_unit_test(infos),
        cmocka_unit_test(missing),       cmocka_unit_test(few_bindings),
        cmocka_unit_test(requests),      cmocka_unit_test(wrapping),
        cmocka_unit_test(using_wrapped), cmocka_unit_test(exporting),
        cmocka_unit_test(importing),     cmocka_unit_test(importing_too_much),
        cmocka_unit_test(recording),     cmocka_unit_test(semaphores),
        cmocka_unit_test(no_messages),
    };
    if (!app_possible())
        return 77;
    return cmocka_run_group_tests(tests, create, destroy);
}
