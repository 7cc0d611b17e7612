/* Threads, as the header has them: one device used by 16 under the application's lock, the lock let
 * go while the device works; and each with a device of its own, sharing nothing. For the preset
 * tsan. SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "patience.h"
#include "core/status.h"
#include "layers/layer_case.h"
#include "test_program.h"

#define THREADS 16
#define DEVICES 4

static unsigned submits = 100; /* of each thread */

struct worker {
    struct vka_device *device;
    pthread_mutex_t *lock;
    float scale; /* of this thread's own weights */
    bool right;
};

/* y = scale x, as a plan of the thread's own: another thread's would show in the result. */
static bool work_locked(struct worker *w, pthread_mutex_t *lock)
{
    const uint32_t shape[] = {4, 4};
    float x[16], scale[16] = {0}, y[16] = {0};
    struct vka_tensor *in = NULL, *weight = NULL, *out = NULL;
    struct vka_plan *plan = NULL;
    bool right = true;
    for (int i = 0; i < 16; i++) {
        x[i] = (float)i;
        scale[i] = i % 5 == 0 ? w->scale : 0;
    }
    pthread_mutex_lock(lock);
    right &= vka_tensor_create(w->device, VKA_F32, 2, shape, &in) == VKA_OK &&
             vka_tensor_create(w->device, VKA_F32, 2, shape, &weight) == VKA_OK &&
             vka_tensor_create(w->device, VKA_F32, 2, shape, &out) == VKA_OK &&
             vka_tensor_write(in, x, sizeof x) == VKA_OK &&
             vka_tensor_write(weight, scale, sizeof scale) == VKA_OK &&
             vka_plan_create(w->device, NULL, &plan) == VKA_OK &&
             vka_plan_add_linear(plan, VKA_INFO(vka_linear_op, .input = in, .weight = weight,
                                                .output = out)) == VKA_OK &&
             vka_plan_finish(plan) == VKA_OK;
    for (unsigned i = 0; i < submits && right; i++) {
        uint64_t ticket = 0;
        right &= vka_plan_submit(plan, &ticket) == VKA_OK;
        pthread_mutex_unlock(lock);
        pthread_mutex_lock(lock);
        right &= vka_plan_wait(plan, ticket, PATIENCE) == VKA_OK;
    }
    right &= vka_tensor_read(out, y, sizeof y) == VKA_OK;
    for (int i = 0; i < 16; i++)
        right &= y[i] == w->scale * x[i];
    vka_plan_destroy(&plan);
    vka_tensor_destroy(&in);
    vka_tensor_destroy(&weight);
    vka_tensor_destroy(&out);
    pthread_mutex_unlock(lock);
    return right;
}

static void *share_device(void *argument)
{
    struct worker *w = argument;
    w->right = work_locked(w, w->lock);
    return NULL;
}

static void *own_device(void *argument)
{
    struct worker *w = argument;
    pthread_mutex_t none = PTHREAD_MUTEX_INITIALIZER;
    if (vka_device_create(NULL, &w->device) == VKA_OK)
        w->right = work_locked(w, &none);
    vka_device_destroy(&w->device);
    return NULL;
}

static void run_threads(void *(*run)(void *), struct worker *workers, size_t n)
{
    pthread_t threads[THREADS];
    for (size_t i = 0; i < n; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run, &workers[i]), 0);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (size_t i = 0; i < n; i++)
        assert_true(workers[i].right);
}

static void one_device(void **state)
{
    (void)state;
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct vka_device *device = NULL;
    struct worker workers[THREADS];
    assert_int_equal(vka_device_create(NULL, &device), VKA_OK);
    for (int i = 0; i < THREADS; i++)
        workers[i] = (struct worker){device, &lock, (float)(i + 1), false};
    run_threads(share_device, workers, THREADS);
    vka_device_destroy(&device);
}

static void many_devices(void **state)
{
    (void)state;
    struct worker workers[DEVICES];
    for (int i = 0; i < DEVICES; i++)
        workers[i] = (struct worker){NULL, NULL, (float)(i + 1), false};
    run_threads(own_device, workers, DEVICES);
}

TEST_PROGRAM_ARGUMENTS(threads)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_device),
                                       cmocka_unit_test(many_devices)};
    if (argc == 2)
        submits = (unsigned)strtoul(argv[1], NULL, 10);
    if (!have_device("threads"))
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
