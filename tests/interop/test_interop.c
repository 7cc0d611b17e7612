/* vkattn on an application's device: buffers, command buffers, semaphores and host memory shared.
 * SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include "../patience.h"
#include "app.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define SIDE 8
#define MATRIX (SIDE * SIDE * sizeof(float))
#define STORAGE VK_BUFFER_USAGE_STORAGE_BUFFER_BIT
#define COPIED (STORAGE | VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT)

static void set_diagonal(float *matrix, float value)
{
    memset(matrix, 0, MATRIX);
    for (int i = 0; i < SIDE; i++)
        matrix[i * SIDE + i] = value;
}

static void expect_diagonal(const float *matrix, float value)
{
    for (int i = 0; i < SIDE * SIDE; i++) {
        float want = i % (SIDE + 1) ? 0 : value;
        if (matrix[i] != want)
            fail_msg("[%d][%d] is %g, not %g", i / SIDE, i % SIDE, (double)matrix[i], (double)want);
    }
}

static unsigned n_error; /* logged since the last device was adopted */

static void count_errors(void *user, enum vka_log_level level, const char *message)
{
    (void)user, (void)message;
    n_error += level == VKA_LOG_ERROR;
}

/* The application's x, and y = x two^T by vkattn: all three are buffers of the application. */
struct doubling {
    struct app app;
    struct vka_device *device;
    struct app_buffer x, y, two;
    struct vka_tensor *in, *out;
    struct vka_plan *plan;
};

static void doubling_create(struct doubling *d, enum app_features features)
{
    app_create(&d->app, features);
    d->app.vulkan.allow_missing = features == APP_BARE;
    n_error = 0;
    d->device = app_adopt(&d->app, VKA_INFO(vka_device_info, .log = count_errors));
    d->x = app_buffer_create(&d->app, MATRIX, COPIED);
    d->y = app_buffer_create(&d->app, MATRIX, COPIED);
    d->two = app_buffer_create(&d->app, MATRIX, STORAGE);
    set_diagonal(d->x.mapped, 3);
    set_diagonal(d->two.mapped, 2);
    d->in = app_wrap(d->device, &d->x, SIDE, SIDE);
    d->out = app_wrap(d->device, &d->y, SIDE, SIDE);
    struct vka_tensor *two = app_wrap(d->device, &d->two, SIDE, SIDE);
    d->plan = app_linear(d->device, d->in, two, d->out);
    vka_tensor_destroy(&two);
}

static void doubling_destroy(struct doubling *d)
{
    vka_plan_destroy(&d->plan);
    vka_tensor_destroy(&d->in);
    vka_tensor_destroy(&d->out);
    vka_device_destroy(&d->device);
    /* The application's device is still there, and works. */
    VkCommandBuffer commands = app_begin(&d->app);
    vkCmdFillBuffer(commands, d->x.handle, 0, MATRIX, 0x40e00000);
    app_submit(&d->app, commands);
    assert_true(d->x.mapped[0] == 7);
    app_buffer_destroy(&d->app, &d->x);
    app_buffer_destroy(&d->app, &d->y);
    app_buffer_destroy(&d->app, &d->two);
    app_destroy(&d->app);
}

/* ---- Devices --------------------------------------------------------------------------------- */

static void run_on(enum app_features features)
{
    struct doubling d;
    doubling_create(&d, features);
    OK(vka_plan_run(d.plan, PATIENCE));
    expect_diagonal(d.y.mapped, 6);
    /* By a copy, as vkattn does not know where the application mapped it. */
    float values[SIDE * SIDE];
    OK(vka_tensor_read(d.out, values, sizeof values));
    expect_diagonal(values, 6);
    set_diagonal(values, 5);
    OK(vka_tensor_write(d.in, values, sizeof values));
    OK(vka_plan_run(d.plan, PATIENCE));
    expect_diagonal(d.y.mapped, 10);
    doubling_destroy(&d);
}

static void adopted(void **state)
{
    (void)state;
    run_on(APP_REQUESTED);
    run_on(APP_UMBRELLA);
    run_on(APP_BARE);
}

static void bare_device(void **state)
{
    (void)state;
    struct app app;
    app_create(&app, APP_BARE);
    app.vulkan.allow_missing = true;
    struct vka_device *device = app_adopt(&app, NULL), *own = NULL;
    OK(vka_device_create(NULL, &own));
    const struct vka_device_properties *p = vka_device_properties(device);
    assert_false(p->timeline);
    assert_string_equal(p->name, vka_device_properties(own)->name);
    size_t usable = 0, usable_own = 0;
    for (size_t i = 0; i < vka_kernel_count(); i++) {
        struct vka_kernel_info kernel;
        OK(vka_device_kernel(device, i, &kernel));
        usable += !kernel.missing;
        OK(vka_device_kernel(own, i, &kernel));
        usable_own += !kernel.missing;
    }
    assert_true(usable > 0 && usable <= usable_own);
    vka_device_destroy(&own);
    vka_device_destroy(&device);
    app_destroy(&app);
}

/* ---- Buffers --------------------------------------------------------------------------------- */

/* Two wrappings of one buffer are known to be the same memory: each pass waits for the last. */
static void wrapped_twice(void **state)
{
    (void)state;
    struct doubling d;
    doubling_create(&d, APP_REQUESTED);
    struct vka_tensor *out = app_wrap(d.device, &d.y, SIDE, SIDE);
    struct vka_tensor *back = app_wrap(d.device, &d.x, SIDE, SIDE);
    struct vka_tensor *two = app_wrap(d.device, &d.two, SIDE, SIDE);
    struct vka_plan *plan = NULL;
    OK(vka_plan_create(d.device, NULL, &plan));
    OK(vka_plan_add_linear(plan,
                           VKA_INFO(vka_linear_op, .input = d.in, .weight = two, .output = d.out)));
    OK(vka_plan_add_linear(plan,
                           VKA_INFO(vka_linear_op, .input = out, .weight = two, .output = back)));
    OK(vka_plan_finish(plan));
    OK(vka_plan_run(plan, PATIENCE));
    OK(vka_plan_run(plan, PATIENCE));
    expect_diagonal(d.x.mapped, 48);
    vka_plan_destroy(&plan);
    vka_tensor_destroy(&out);
    vka_tensor_destroy(&back);
    vka_tensor_destroy(&two);
    doubling_destroy(&d);
}

/* vkattn's own tensors, filled and read by the application's copies. */
static void exported(void **state)
{
    (void)state;
    struct doubling d;
    doubling_create(&d, APP_REQUESTED);
    struct vka_tensor *own = NULL, *row = NULL;
    struct vka_buffer where, where_row;
    OK(vka_tensor_create(d.device, VKA_F32, 2, (const uint32_t[]){SIDE, SIDE}, &own));
    OK(vka_tensor_slice(own, 0, 3, 1, &row));
    OK(vka_tensor_buffer(own, &where));
    OK(vka_tensor_buffer(row, &where_row));
    assert_int_equal(where.size, MATRIX);
    assert_int_equal(where.usage & COPIED, COPIED);
    assert_true(where_row.buffer == where.buffer);
    assert_int_equal(where_row.offset, where.offset + 3 * SIDE * sizeof(float));
    assert_int_equal(where_row.size, SIDE * sizeof(float));
    VkCommandBuffer commands = app_begin(&d.app);
    vkCmdCopyBuffer(commands, d.x.handle, where.buffer, 1,
                    &(VkBufferCopy){0, where.offset, MATRIX});
    app_submit(&d.app, commands);
    float values[SIDE * SIDE];
    OK(vka_tensor_read(own, values, sizeof values));
    expect_diagonal(values, 3);
    /* What was wrapped comes back as it was given, and an export can be wrapped. */
    struct vka_tensor *again = NULL;
    OK(vka_tensor_buffer(d.in, &where_row));
    assert_true(where_row.buffer == d.x.handle && where_row.offset == 0);
    assert_int_equal(where_row.size, MATRIX);
    OK(vka_tensor_wrap(d.device, &where, VKA_F32, 1, (const uint32_t[]){SIDE * SIDE}, &again));
    OK(vka_tensor_read(again, values, sizeof values));
    expect_diagonal(values, 3);
    /* A plan that reads and writes it as one wrapped: whatever usages it has are made good. */
    struct vka_tensor *square = NULL, *two = app_wrap(d.device, &d.two, SIDE, SIDE);
    OK(vka_tensor_reshape(again, 2, (const uint32_t[]){SIDE, SIDE}, &square));
    struct vka_plan *plan = app_linear(d.device, two, square, d.out);
    OK(vka_plan_run(plan, PATIENCE));
    expect_diagonal(d.y.mapped, 6);
    vka_plan_destroy(&plan);
    plan = app_linear(d.device, square, two, d.out);
    OK(vka_plan_run(plan, PATIENCE));
    expect_diagonal(d.y.mapped, 6);
    vka_plan_destroy(&plan);
    vka_tensor_destroy(&square);
    vka_tensor_destroy(&two);
    vka_tensor_destroy(&again);
    vka_tensor_destroy(&own);
    vka_tensor_destroy(&row);
    doubling_destroy(&d);
}

/* Host memory as input and output: written before the run and read after it, with no copy. */
static void imported(void **state)
{
    (void)state;
    struct doubling d;
    doubling_create(&d, APP_REQUESTED);
    size_t alignment = vka_device_host_alignment(d.device);
    if (!alignment) {
        print_message("SKIPPED: the device has no VK_EXT_external_memory_host\n");
        doubling_destroy(&d);
        return;
    }
    void *whole[2];
    float *x = app_aligned(alignment, alignment, &whole[0]);
    float *y = app_aligned(alignment, alignment, &whole[1]);
    struct vka_tensor *in = NULL, *out = NULL, *two = app_wrap(d.device, &d.two, SIDE, SIDE);
    const uint32_t shape[] = {SIDE, SIDE};
    OK(vka_tensor_import(d.device, x, alignment, VKA_F32, 2, shape, &in));
    OK(vka_tensor_import(d.device, y, alignment, VKA_F32, 2, shape, &out));
    struct vka_plan *plan = app_linear(d.device, in, two, out);
    for (int run = 1; run < 4; run++) {
        set_diagonal(x, (float)run);
        OK(vka_plan_run(plan, PATIENCE));
        expect_diagonal(y, 2 * (float)run);
    }
    vka_plan_destroy(&plan);
    vka_tensor_destroy(&in);
    vka_tensor_destroy(&out);
    vka_tensor_destroy(&two);
    doubling_destroy(&d);
    free(whole[0]);
    free(whole[1]);
}

/* ---- Commands and semaphores ----------------------------------------------------------------- */

static void barrier_to_copy(VkCommandBuffer commands)
{
    const VkMemoryBarrier barrier = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_TRANSFER_READ_BIT,
    };
    vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
                         VK_PIPELINE_STAGE_TRANSFER_BIT, 0, 1, &barrier, 0, NULL, 0, NULL);
}

/* A copy of the application, the plan twice with a copy back between, and a copy after it: one
 * command buffer, among submits of the plan's own. */
static void recorded(void **state)
{
    (void)state;
    struct doubling d;
    doubling_create(&d, APP_REQUESTED);
    const VkBufferCopy all = {0, 0, MATRIX};
    struct app_buffer source = app_buffer_create(&d.app, MATRIX, COPIED);
    struct app_buffer result = app_buffer_create(&d.app, MATRIX, COPIED);
    for (int run = 1; run < 4; run++) {
        set_diagonal(source.mapped, (float)run);
        OK(vka_plan_submit(d.plan, NULL));
        VkCommandBuffer commands = app_begin(&d.app);
        barrier_to_copy(commands); /* the submit before reads what is written here */
        vkCmdCopyBuffer(commands, source.handle, d.x.handle, 1, &all);
        OK(vka_plan_record(d.plan, commands));
        barrier_to_copy(commands);
        vkCmdCopyBuffer(commands, d.y.handle, d.x.handle, 1, &all);
        OK(vka_plan_record(d.plan, commands));
        barrier_to_copy(commands);
        vkCmdCopyBuffer(commands, d.y.handle, result.handle, 1, &all);
        app_submit(&d.app, commands);
        expect_diagonal(result.mapped, 4 * (float)run);
        OK(vka_plan_run(d.plan, PATIENCE));
        expect_diagonal(d.y.mapped, 4 * (float)run);
    }
    app_buffer_destroy(&d.app, &source);
    app_buffer_destroy(&d.app, &result);
    doubling_destroy(&d);
}

static void timeline_semaphores(void **state)
{
    (void)state;
    struct doubling d;
    doubling_create(&d, APP_REQUESTED);
    VkSemaphore go = app_semaphore(&d.app, true), done = app_semaphore(&d.app, true);
    const struct vka_semaphore waits[] = {{go, 5}, {go, 4}}, signals[] = {{done, 7}};
    uint64_t ticket = 0, value = 0;
    OK(vka_plan_submit_with(d.plan,
                            VKA_INFO(vka_submit_info, .waits = waits, .n_wait = COUNTOF(waits),
                                     .signals = signals, .n_signal = COUNTOF(signals)),
                            &ticket));
    assert_int_equal(vka_plan_wait(d.plan, ticket, 0), VKA_TIMEOUT); /* a question */
    assert_int_equal(n_error, 0);
    assert_string_equal(vka_device_error(d.device), "the run is not done yet");
    assert_int_equal(vka_plan_wait(d.plan, ticket, 50000000), VKA_TIMEOUT);
    assert_int_equal(n_error, 1);
    assert_non_null(strstr(vka_device_error(d.device), "is not done after"));
    assert_true(d.y.mapped[0] == 0);
    OK(vkGetSemaphoreCounterValue(d.app.device, done, &value));
    assert_int_equal(value, 0);
    OK(vkSignalSemaphore(d.app.device,
                         &(VkSemaphoreSignalInfo){.sType = VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO,
                                                  .semaphore = go,
                                                  .value = 5}));
    OK(vkWaitSemaphores(d.app.device,
                        &(VkSemaphoreWaitInfo){.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                               .semaphoreCount = 1,
                                               .pSemaphores = &done,
                                               .pValues = &signals[0].value},
                        PATIENCE));
    OK(vka_plan_wait(d.plan, ticket, PATIENCE));
    expect_diagonal(d.y.mapped, 6);
    OK(vka_plan_submit_with(d.plan, NULL, &ticket)); /* no semaphores */
    OK(vka_plan_wait(d.plan, ticket, PATIENCE));
    vkDestroySemaphore(d.app.device, go, NULL);
    vkDestroySemaphore(d.app.device, done, NULL);
    doubling_destroy(&d);
}

/* The application signals, vkattn waits and signals, the application waits: by timeline semaphores
 * inside, and by fences. */
static void binary_semaphores(void **state)
{
    (void)state;
    const enum app_features inside[] = {APP_REQUESTED, APP_BARE};
    for (size_t i = 0; i < COUNTOF(inside); i++) {
        struct doubling d;
        doubling_create(&d, inside[i]);
        VkSemaphore go = app_semaphore(&d.app, false), done = app_semaphore(&d.app, false);
        for (int run = 1; run < 20; run++) {
            set_diagonal(d.x.mapped, (float)run);
            app_pass_on(&d.app, VK_NULL_HANDLE, go);
            OK(vka_plan_submit_with(d.plan,
                                    VKA_INFO(vka_submit_info, .n_wait = 1, .n_signal = 1,
                                             .waits = &(struct vka_semaphore){go, 0},
                                             .signals = &(struct vka_semaphore){done, 0}),
                                    NULL));
            app_pass_on(&d.app, done, VK_NULL_HANDLE);
            OK(vkQueueWaitIdle(d.app.queue));
            expect_diagonal(d.y.mapped, 2 * (float)run);
        }
        vkDestroySemaphore(d.app.device, go, NULL);
        vkDestroySemaphore(d.app.device, done, NULL);
        doubling_destroy(&d);
    }
}

/* ---- The queue's lock ------------------------------------------------------------------------ */

struct shared_queue {
    struct app *app;
    pthread_mutex_t mutex;
    unsigned locks, unlocks; /* under the mutex */
};

static void lock(void *user)
{
    struct shared_queue *shared = user;
    OK(pthread_mutex_lock(&shared->mutex));
    shared->locks++;
}

static void unlock(void *user)
{
    struct shared_queue *shared = user;
    shared->unlocks++;
    OK(pthread_mutex_unlock(&shared->mutex));
}

static void *use_queue(void *user)
{
    struct shared_queue *shared = user;
    for (int i = 0; i < 200; i++) {
        pthread_mutex_lock(&shared->mutex);
        VkResult result = vkQueueSubmit(shared->app->queue, 0, NULL, VK_NULL_HANDLE);
        pthread_mutex_unlock(&shared->mutex);
        if (result != VK_SUCCESS)
            return user;
        sched_yield();
    }
    return NULL;
}

static void queue_lock(void **state)
{
    (void)state;
    struct app app;
    app_create(&app, APP_REQUESTED);
    struct shared_queue shared = {.app = &app, .mutex = PTHREAD_MUTEX_INITIALIZER};
    app.vulkan.queue_lock = lock;
    app.vulkan.queue_unlock = unlock;
    app.vulkan.queue_user = &shared;
    struct vka_device *device = app_adopt(&app, NULL);
    struct app_buffer x = app_buffer_create(&app, MATRIX, STORAGE);
    struct app_buffer y = app_buffer_create(&app, MATRIX, STORAGE);
    struct vka_tensor *in = app_wrap(device, &x, SIDE, SIDE);
    struct vka_tensor *out = app_wrap(device, &y, SIDE, SIDE);
    struct vka_plan *plan = app_linear(device, in, in, out);
    unsigned before = shared.locks;
    pthread_t thread;
    OK(pthread_create(&thread, NULL, use_queue, &shared));
    for (int i = 0; i < 50; i++)
        OK(vka_plan_run(plan, PATIENCE));
    void *failed;
    OK(pthread_join(thread, &failed));
    assert_null(failed);
    assert_int_equal(shared.locks, before + 50);
    assert_int_equal(shared.unlocks, before + 50);
    vka_plan_destroy(&plan);
    vka_tensor_destroy(&in);
    vka_tensor_destroy(&out);
    vka_device_destroy(&device);
    app_buffer_destroy(&app, &x);
    app_buffer_destroy(&app, &y);
    app_destroy(&app);
}

/* ---- Two of volk ----------------------------------------------------------------------------- */

/* The pointers of the application's volk are its own: what vkattn loads changes none of them, and
 * vkattn goes on when the application loads others. */
static void two_of_volk(void **state)
{
    (void)state;
    struct doubling first, second;
    doubling_create(&first, APP_REQUESTED);
    volkLoadInstance(first.app.instance);
    volkLoadDevice(first.app.device);
    const PFN_vkCreateDevice create_device = vkCreateDevice;
    const PFN_vkQueueSubmit queue_submit = vkQueueSubmit;
    const PFN_vkGetInstanceProcAddr get = vkGetInstanceProcAddr;
    const PFN_vkCmdDispatch dispatch = vkCmdDispatch;
    size_t count = 0;
    struct vka_device *own = NULL;
    OK(vka_device_list(NULL, NULL, &count));
    OK(vka_device_create(NULL, &own));
    OK(vka_plan_run(first.plan, PATIENCE));
    assert_true(volkGetLoadedInstance() == first.app.instance);
    assert_true(volkGetLoadedDevice() == first.app.device);
    assert_true(vkCreateDevice == create_device && vkQueueSubmit == queue_submit);
    assert_true(vkGetInstanceProcAddr == get && vkCmdDispatch == dispatch);
    vka_device_destroy(&own);
    doubling_create(&second, APP_UMBRELLA); /* loads its own instance and device */
    OK(vka_plan_run(first.plan, PATIENCE));
    OK(vka_plan_run(second.plan, PATIENCE));
    expect_diagonal(first.y.mapped, 6);
    expect_diagonal(second.y.mapped, 6);
    doubling_destroy(&second);
    volkLoadInstance(first.app.instance);
    volkLoadDevice(first.app.device);
    doubling_destroy(&first);
}

static void no_messages(void **state)
{
    (void)state;
    assert_int_equal(app_messages(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adopted),
        cmocka_unit_test(bare_device),
        cmocka_unit_test(wrapped_twice),
        cmocka_unit_test(exported),
        cmocka_unit_test(imported),
        cmocka_unit_test(recorded),
        cmocka_unit_test(timeline_semaphores),
        cmocka_unit_test(binary_semaphores),
        cmocka_unit_test(queue_lock),
        cmocka_unit_test(two_of_volk),
        cmocka_unit_test(no_messages),
    };
    if (!app_possible())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
