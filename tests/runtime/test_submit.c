/* Plans after they are finished: many submits in flight, waiting, destroying in any order. Each on
 * timeline semaphores and on fences. SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "patience.h"
#include "core/status.h"
#include "gpu/device.h"
#include "gpu/tensor.h"
#include "layers/layer_case.h"
#include "test_program.h"

#define SIDE 8
#define RUNS 40 /* more than there are fences */

static struct vka_tensor *matrix(struct vka_device *device, float diagonal)
{
    const uint32_t shape[] = {SIDE, SIDE};
    float values[SIDE][SIDE] = {{0}};
    struct vka_tensor *tensor = NULL;
    for (int i = 0; i < SIDE; i++)
        values[i][i] = diagonal;
    assert_int_equal(vka_tensor_create(device, VKA_F32, 2, shape, &tensor), VKA_OK);
    assert_int_equal(vka_tensor_write(tensor, values, sizeof values), VKA_OK);
    return tensor;
}

static void assert_diagonal(struct vka_tensor *tensor, float want)
{
    float values[SIDE][SIDE];
    assert_int_equal(vka_tensor_read(tensor, values, sizeof values), VKA_OK);
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++)
            if (values[i][j] != (i == j ? want : 0))
                fail_msg("[%d][%d] is %g, the diagonal should be %g", i, j, (double)values[i][j],
                         (double)want);
}

/* Each run doubles x by way of y: runs that are lost, doubled or overlap change the result. */
struct doubler {
    struct vka_tensor *x;
    struct vka_plan *plan;
};

static struct doubler create_doubler(struct vka_device *device)
{
    struct doubler d = {.x = matrix(device, 1)};
    struct vka_tensor *y = matrix(device, 0), *two = matrix(device, 2), *one = matrix(device, 1);
    assert_int_equal(vka_plan_create(device, NULL, &d.plan), VKA_OK);
    assert_int_equal(vka_plan_add_linear(
                         d.plan, VKA_INFO(vka_linear_op, .input = d.x, .weight = two, .output = y)),
                     VKA_OK);
    assert_int_equal(vka_plan_add_linear(
                         d.plan, VKA_INFO(vka_linear_op, .input = y, .weight = one, .output = d.x)),
                     VKA_OK);
    assert_int_equal(vka_plan_finish(d.plan), VKA_OK);
    vka_tensor_destroy(&y); /* the plan keeps them */
    vka_tensor_destroy(&two);
    vka_tensor_destroy(&one);
    return d;
}

static void many_in_flight(void **state)
{
    struct doubler d = create_doubler(*state);
    uint64_t ticket[RUNS];
    for (int i = 0; i < RUNS; i++) {
        assert_int_equal(vka_plan_submit(d.plan, &ticket[i]), VKA_OK);
        assert_true(i == 0 || ticket[i] > ticket[i - 1]);
    }
    const int order[] = {3, 0, 17, 16, RUNS - 2, 1, RUNS - 1, 5};
    for (size_t i = 0; i < COUNTOF(order); i++)
        assert_int_equal(vka_plan_wait(d.plan, ticket[order[i]], PATIENCE), VKA_OK);
    for (int i = 0; i < RUNS; i++) /* all done: no time is needed */
        assert_int_equal(vka_plan_wait(d.plan, ticket[i], 0), VKA_OK);
    assert_diagonal(d.x, 0x1p40f);
    vka_plan_destroy(&d.plan);
    vka_tensor_destroy(&d.x);
}

/* Two plans on the same device take turns; reading waits for both without being told. */
static void two_plans(void **state)
{
    struct doubler a = create_doubler(*state), b = create_doubler(*state);
    uint64_t last = 0, ticket;
    for (int i = 0; i < RUNS; i++) {
        assert_int_equal(vka_plan_submit(i % 3 ? a.plan : b.plan, &ticket), VKA_OK);
        assert_true(ticket > last);
        last = ticket;
    }
    assert_int_equal(vka_plan_submit(b.plan, NULL), VKA_OK); /* nobody waits for this one */
    assert_diagonal(a.x, 0x1p26f);
    assert_diagonal(b.x, 0x1p15f);
    vka_plan_destroy(&a.plan);
    vka_plan_destroy(&b.plan);
    vka_tensor_destroy(&a.x);
    vka_tensor_destroy(&b.x);
}

static void tickets_of_another(void **state)
{
    struct doubler d = create_doubler(*state);
    uint64_t ticket = 0;
    assert_int_equal(vka_plan_wait(d.plan, 1, 0), VKA_INVALID); /* none yet */
    assert_int_equal(vka_plan_submit(d.plan, &ticket), VKA_OK);
    assert_int_equal(vka_plan_wait(d.plan, 0, PATIENCE), VKA_INVALID);
    assert_int_equal(vka_plan_wait(d.plan, ticket + 1, PATIENCE), VKA_INVALID);
    assert_int_equal(vka_plan_wait(d.plan, UINT64_MAX, PATIENCE), VKA_INVALID);
    assert_int_equal(vka_plan_wait(d.plan, ticket, PATIENCE), VKA_OK);
    vka_plan_destroy(&d.plan);
    vka_tensor_destroy(&d.x);
}

static void no_time(void **state)
{
    struct doubler d = create_doubler(*state);
    for (int i = 0; i < RUNS; i++) {
        enum vka_status status = vka_plan_run(d.plan, 0);
        assert_true(status == VKA_OK || status == VKA_TIMEOUT);
    }
    uint64_t ticket;
    assert_int_equal(vka_plan_submit(d.plan, &ticket), VKA_OK);
    enum vka_status status = vka_plan_wait(d.plan, ticket, 0);
    assert_true(status == VKA_OK || status == VKA_TIMEOUT);
    assert_int_equal(vka_plan_wait(d.plan, ticket, PATIENCE), VKA_OK);
    assert_diagonal(d.x, 0x1p41f);
    vka_plan_destroy(&d.plan);
    vka_tensor_destroy(&d.x);
}

/* ---- Adding --------------------------------------------------------------------------------- */

static int n_wait, n_submit; /* calls since hook() */
static PFN_vkWaitSemaphores wait_semaphores;
static PFN_vkWaitForFences wait_for_fences;
static PFN_vkQueueSubmit submit_to_queue;

static VKAPI_ATTR VkResult VKAPI_CALL count_semaphores(VkDevice device,
                                                       const VkSemaphoreWaitInfo *info,
                                                       uint64_t timeout)
{
    n_wait++;
    return wait_semaphores(device, info, timeout);
}

static VKAPI_ATTR VkResult VKAPI_CALL count_fences(VkDevice device, uint32_t n,
                                                   const VkFence *fences, VkBool32 all,
                                                   uint64_t timeout)
{
    n_wait++;
    return wait_for_fences(device, n, fences, all, timeout);
}

static VKAPI_ATTR VkResult VKAPI_CALL count_submits(VkQueue queue, uint32_t n,
                                                    const VkSubmitInfo *infos, VkFence fence)
{
    n_submit++;
    return submit_to_queue(queue, n, infos, fence);
}

static void hook(struct vka_device *device)
{
    wait_semaphores = device->vk.vkWaitSemaphores;
    wait_for_fences = device->vk.vkWaitForFences;
    submit_to_queue = device->vk.vkQueueSubmit;
    device->vk.vkWaitSemaphores = count_semaphores;
    device->vk.vkWaitForFences = count_fences;
    device->vk.vkQueueSubmit = count_submits;
    n_wait = n_submit = 0;
}

static void unhook(struct vka_device *device)
{
    device->vk.vkWaitSemaphores = wait_semaphores;
    device->vk.vkWaitForFences = wait_for_fences;
    device->vk.vkQueueSubmit = submit_to_queue;
}

/* ---- Waiting --------------------------------------------------------------------------------- */

static PFN_vkGetSemaphoreCounterValue read_counter;
static uint64_t read_behind; /* the ticket that is done when the counter is read */
static int n_read;

static VKAPI_ATTR VkResult VKAPI_CALL late_counter(VkDevice device, VkSemaphore semaphore,
                                                   uint64_t *value)
{
    const VkSemaphoreWaitInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                      .semaphoreCount = 1,
                                      .pSemaphores = &semaphore,
                                      .pValues = &read_behind};
    n_read++;
    const VkResult result = wait_semaphores(device, &info, PATIENCE);
    return result == VK_SUCCESS ? read_counter(device, semaphore, value) : result;
}

/* A GPU is asked whether a run is done before the wait sleeps; a CPU driver needs the processor. */
static void waits_awake(void **state)
{
    struct vka_device *device = *state;
    if (!device->queue.timeline)
        return;
    const enum vka_device_type own = device->caps.properties.type;
    struct doubler d = create_doubler(device);
    for (int gpu = 0; gpu < 2; gpu++) {
        assert_int_equal(vka_plan_submit(d.plan, &read_behind), VKA_OK);
        hook(device);
        read_counter = device->vk.vkGetSemaphoreCounterValue;
        device->vk.vkGetSemaphoreCounterValue = late_counter;
        device->caps.properties.type = gpu ? VKA_DEVICE_INTEGRATED : VKA_DEVICE_CPU;
        n_read = 0;
        const enum vka_status status = vka_plan_wait(d.plan, read_behind, PATIENCE);
        device->caps.properties.type = own;
        device->vk.vkGetSemaphoreCounterValue = read_counter;
        unhook(device);
        assert_int_equal(status, VKA_OK);
        assert_int_equal(n_read, gpu);
        assert_int_equal(n_wait, !gpu);
    }
    vka_plan_destroy(&d.plan);
    vka_tensor_destroy(&d.x);
}

static struct vka_plan *attention_plan(struct vka_device *device, struct vka_tensor *x,
                                       struct vka_tensor *y)
{
    struct vka_plan *plan = NULL;
    struct vka_attention_op op = {.struct_size = sizeof op, .q = x, .k = x, .v = x, .output = y};
    op.options.rope.dim = SIDE;
    assert_int_equal(
        vka_plan_create(device, VKA_INFO(vka_plan_info, .path = VKA_PATH_FUSED), &plan), VKA_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(vka_plan_add_attention(plan, &op), VKA_OK);
    return plan;
}

/* Kernels that are tested already are added without a submit or a wait, while others run. */
static void adding_waits_for_nothing(void **state)
{
    struct vka_device *device = *state;
    struct doubler d = create_doubler(device);
    const uint32_t shape[] = {1, 2, 3, SIDE};
    struct vka_tensor *x = NULL, *y = NULL;
    assert_int_equal(vka_tensor_create(device, VKA_F32, 4, shape, &x), VKA_OK);
    assert_int_equal(vka_tensor_create(device, VKA_F32, 4, shape, &y), VKA_OK);
    struct vka_plan *plan = attention_plan(device, x, y); /* tests the kernels */
    vka_plan_destroy(&plan);
    assert_int_equal(vka_plan_submit(d.plan, NULL), VKA_OK);
    hook(device);
    plan = attention_plan(device, x, y);
    unhook(device);
    assert_int_equal(n_wait, 0);
    assert_int_equal(n_submit, 0);
    assert_int_equal(vka_plan_finish(plan), VKA_OK);
    assert_int_equal(vka_plan_run(plan, PATIENCE), VKA_OK);
    vka_plan_destroy(&plan);
    vka_plan_destroy(&d.plan);
    vka_tensor_destroy(&d.x);
    vka_tensor_destroy(&x);
    vka_tensor_destroy(&y);
}

/* ---- Destroying ------------------------------------------------------------------------------ */

static void inputs_before_plan(void **state)
{
    struct layer_rig rig;
    rig_create(&rig, *state, &layer_plain, 21);
    struct vka_plan *plan = rig_plan(&rig, NULL);
    vka_layer_destroy(&rig.layer);
    vka_tensor_destroy(&rig.query);
    vka_tensor_destroy(&rig.output_base); /* rig.output is a view */
    /* What was freed by mistake would be handed out again, and overwritten. */
    struct layer_rig other;
    rig_create(&other, *state, &layer_plain, 22);
    assert_true(rig_run(&rig, plan) <= LAYER_NMSE);
    vka_tensor_destroy(&rig.output);
    assert_int_equal(vka_plan_run(plan, PATIENCE), VKA_OK);
    vka_plan_destroy(&plan);
    rig_destroy(&rig);
    rig_destroy(&other);
}

static void plan_in_flight(void **state)
{
    struct doubler d = create_doubler(*state);
    for (int i = 0; i < 10; i++)
        assert_int_equal(vka_plan_submit(d.plan, NULL), VKA_OK);
    vka_plan_destroy(&d.plan);
    assert_null(d.plan);
    struct doubler next = create_doubler(*state); /* takes none of its memory */
    assert_int_equal(vka_plan_run(next.plan, PATIENCE), VKA_OK);
    assert_diagonal(d.x, 0x1p10f);
    assert_diagonal(next.x, 2);
    vka_plan_destroy(&next.plan);
    vka_tensor_destroy(&next.x);
    vka_tensor_destroy(&d.x);
}

static VKAPI_ATTR VkResult VKAPI_CALL no_patience(VkDevice device, const VkSemaphoreWaitInfo *info,
                                                  uint64_t timeout)
{
    (void)device, (void)info, (void)timeout;
    return VK_TIMEOUT;
}

static VKAPI_ATTR VkResult VKAPI_CALL no_patience_fences(VkDevice device, uint32_t n,
                                                         const VkFence *fences, VkBool32 all,
                                                         uint64_t timeout)
{
    (void)device, (void)n, (void)fences, (void)all, (void)timeout;
    return VK_TIMEOUT;
}

/* A fast device would be done before it is waited for. */
static VKAPI_ATTR VkResult VKAPI_CALL never_done(VkDevice device, VkSemaphore semaphore,
                                                 uint64_t *value)
{
    (void)device, (void)semaphore;
    *value = 0;
    return VK_SUCCESS;
}

static struct memory_range range_of(struct vka_device *device, struct vka_tensor **x)
{
    assert_int_equal(vka_tensor_create(device, VKA_F32, 1, (const uint32_t[]){4096}, x), VKA_OK);
    return (*x)->storage->range;
}

static bool same_range(struct memory_range a, struct memory_range b)
{
    return a.block == b.block && a.offset == b.offset;
}

/* Memory of a tensor is given to no other while a copy to it, not waited for, may be in flight. */
static void copy_in_flight(void **state)
{
    (void)state;
    static float data[4096];
    struct vka_device *device = NULL;
    struct vka_tensor *x = NULL, *other = NULL, *again = NULL;
    assert_int_equal(
        vka_device_create(VKA_INFO(vka_device_info, .no_mapped_memory = true), &device), VKA_OK);
    struct memory_range first = range_of(device, &x);
    vka_tensor_destroy(&x);
    assert_true(same_range(range_of(device, &x), first)); /* else the test would show nothing */
    hook(device);
    device->vk.vkWaitSemaphores = no_patience;
    device->vk.vkWaitForFences = no_patience_fences;
    PFN_vkGetSemaphoreCounterValue counter = device->vk.vkGetSemaphoreCounterValue;
    device->vk.vkGetSemaphoreCounterValue = never_done;
    assert_int_equal(vka_tensor_write(x, data, sizeof data), VKA_TIMEOUT);
    device->vk.vkGetSemaphoreCounterValue = counter;
    unhook(device);
    vka_tensor_destroy(&x);
    assert_false(same_range(range_of(device, &other), first));
    assert_int_equal(vka_tensor_write(other, data, sizeof data), VKA_OK);
    assert_true(same_range(range_of(device, &again), first)); /* the copy is done */
    vka_tensor_destroy(&other);
    vka_tensor_destroy(&again);
    vka_device_destroy(&device);
}

static void device_in_flight(void **state)
{
    const struct vka_device_properties *p = vka_device_properties(*state);
    struct vka_device *device = NULL;
    assert_int_equal(
        vka_device_create(VKA_INFO(vka_device_info, .no_timeline = !p->timeline), &device), VKA_OK);
    struct doubler d = create_doubler(device);
    for (int i = 0; i < 20; i++)
        assert_int_equal(vka_plan_submit(d.plan, NULL), VKA_OK);
    vka_plan_destroy(&d.plan);
    vka_tensor_destroy(&d.x);
    vka_device_destroy(&device);
    assert_null(device);
}

static void nothing_to_destroy(void **state)
{
    (void)state;
    struct vka_device *device = NULL;
    struct vka_tensor *tensor = NULL;
    struct vka_layer *layer = NULL;
    struct vka_plan *plan = NULL;
    vka_device_destroy(NULL);
    vka_device_destroy(&device);
    vka_tensor_destroy(NULL);
    vka_tensor_destroy(&tensor);
    vka_layer_destroy(NULL);
    vka_layer_destroy(&layer);
    vka_plan_destroy(NULL);
    vka_plan_destroy(&plan);
    assert_true(!device && !tensor && !layer && !plan);
}

static int open_timeline(void **state)
{
    struct vka_device *device = NULL;
    int status = vka_device_create(NULL, &device);
    *state = device;
    return status;
}

static int open_fences(void **state)
{
    struct vka_device *device = NULL;
    int status = vka_device_create(VKA_INFO(vka_device_info, .no_timeline = true), &device);
    *state = device;
    return status;
}

static int close_device(void **state)
{
    struct vka_device *device = *state;
    vka_device_destroy(&device);
    return 0;
}

TEST_PROGRAM(submit)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_in_flight),           cmocka_unit_test(two_plans),
        cmocka_unit_test(tickets_of_another),       cmocka_unit_test(no_time),
        cmocka_unit_test(inputs_before_plan),       cmocka_unit_test(plan_in_flight),
        cmocka_unit_test(device_in_flight),         cmocka_unit_test(nothing_to_destroy),
        cmocka_unit_test(copy_in_flight),           cmocka_unit_test(waits_awake),
        cmocka_unit_test(adding_waits_for_nothing),
    };
    if (!have_device("submitting plans"))
        return 77;
    return cmocka_run_group_tests_name("timeline semaphores", tests, open_timeline, close_device) +
           cmocka_run_group_tests_name("fences", tests, open_fences, close_device);
}
