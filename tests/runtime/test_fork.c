/* A fork of the process has none of the driver's threads, and locks that nobody opens: there every
 * call on a device that was made before comes back, with a sentence, and destroying too. Meanwhile
 * the process itself goes on. SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include <vkattn/vkattn_vulkan.h>

#include "patience.h"
#include "layers/layer_case.h"
#include "test_program.h"

#define POLL 10000000 /* nanoseconds */
#define SIDE 256u     /* of the product that is in flight */
#define IN_FLIGHT 12
#define THREADS 3
#define FORKS 10

/* One of each noun, and a run in flight where `ticket` is not 0. */
struct rig {
    struct vka_device *device;
    struct vka_tensor *x, *w, *y, *view;
    struct vka_layer *layer;
    struct vka_cache *cache;
    struct vka_plan *plan, *unfinished;
    uint64_t ticket;
};

/* In a child, which has no cmocka: the line of the first failed check becomes its exit status. */
static int failed_line;
#define EXPECT(expr)                        \
    do {                                    \
        if (!(expr) && !failed_line) {      \
            failed_line = __LINE__;         \
            fprintf(stderr, "%s\n", #expr); \
        }                                   \
    } while (0)

/* Refused, and told why. */
#define REFUSED(call)                                                  \
    do {                                                               \
        EXPECT((call) == VKA_INVALID);                                 \
        EXPECT(strstr(vka_device_error(r->device), "forked") != NULL); \
    } while (0)

static void make_rig(struct rig *r, const struct vka_device_info *info)
{
    static float weights[64 * 64], data[SIDE * SIDE];
    const struct vka_linear_weights some = {.weight = weights};
    const uint32_t shape[] = {SIDE, SIDE};
    *r = (struct rig){0};
    for (size_t i = 0; i < SIDE * SIDE; i++)
        data[i] = i % (SIDE + 1) == 0 ? 1 : 0; /* the unit matrix */
    assert_int_equal(vka_device_create(info, &r->device), VKA_OK);
    assert_int_equal(vka_tensor_create(r->device, VKA_F32, 2, shape, &r->x), VKA_OK);
    assert_int_equal(vka_tensor_create(r->device, VKA_F32, 2, shape, &r->w), VKA_OK);
    assert_int_equal(vka_tensor_create(r->device, VKA_F32, 2, shape, &r->y), VKA_OK);
    assert_int_equal(vka_tensor_slice(r->x, 0, 0, 8, &r->view), VKA_OK);
    assert_int_equal(vka_tensor_write(r->x, data, sizeof data), VKA_OK);
    assert_int_equal(vka_tensor_write(r->w, data, sizeof data), VKA_OK);
    assert_int_equal(
        vka_layer_create(r->device,
                         VKA_INFO(vka_layer_info, .n_head = 4, .head_dim = 16, .query_dim = 64,
                                  .query = some, .key = some, .value = some),
                         &r->layer),
        VKA_OK);
    assert_int_equal(vka_cache_create(r->device,
                                      VKA_INFO(vka_cache_info, .batch = 2, .n_kv_head = 4,
                                               .head_dim = 16, .capacity = 32, .page_size = 16),
                                      &r->cache),
                     VKA_OK);
    const struct vka_linear_op product = {
        .struct_size = sizeof product, .input = r->x, .weight = r->w, .output = r->y};
    assert_int_equal(vka_plan_create(r->device, NULL, &r->plan), VKA_OK);
    assert_int_equal(vka_plan_add_linear(r->plan, &product), VKA_OK);
    assert_int_equal(vka_plan_finish(r->plan), VKA_OK);
    assert_int_equal(vka_plan_create(r->device, NULL, &r->unfinished), VKA_OK);
    assert_int_equal(vka_plan_add_linear(r->unfinished, &product), VKA_OK);
    assert_int_equal(vka_plan_run(r->plan, PATIENCE), VKA_OK); /* compiles */
}

static void submit(struct rig *r)
{
    for (int i = 0; i < IN_FLIGHT; i++)
        assert_int_equal(vka_plan_submit(r->plan, &r->ticket), VKA_OK);
}

static void destroy_rig(struct rig *r)
{
    vka_plan_destroy(&r->plan);
    vka_plan_destroy(&r->unfinished);
    vka_tensor_destroy(&r->view);
    vka_tensor_destroy(&r->x);
    vka_tensor_destroy(&r->w);
    vka_tensor_destroy(&r->y);
    vka_layer_destroy(&r->layer);
    vka_cache_destroy(&r->cache);
    vka_device_destroy(&r->device);
}

static void use_tensors(struct rig *r)
{
    static float data[SIDE * SIDE];
    const uint32_t shape[] = {SIDE, SIDE};
    struct vka_tensor *t = NULL;
    REFUSED(vka_tensor_create(r->device, VKA_F32, 2, shape, &t));
    EXPECT(!t);
    REFUSED(vka_tensor_write(r->x, data, sizeof data));
    REFUSED(vka_tensor_read(r->y, data, sizeof data));
    const struct vka_buffer buffer = {
        .buffer = (VkBuffer)(uintptr_t)16, /* never looked at */
        .size = sizeof data,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT,
    };
    REFUSED(vka_tensor_wrap(r->device, &buffer, VKA_F32, 2, shape, &t));
    void *memory = NULL;
    const size_t alignment = vka_device_host_alignment(r->device);
    if (alignment && posix_memalign(&memory, alignment, 1 << 20) == 0)
        REFUSED(vka_tensor_import(r->device, memory, 1 << 20, VKA_F32, 2, shape, &t));
    free(memory);
    /* What is the host's alone still works. */
    EXPECT(vka_tensor_slice(r->x, 0, 1, 2, &t) == VKA_OK);
    EXPECT(vka_tensor_shape(t, 0) == 2);
    vka_tensor_destroy(&t);
}

static void use_caches(struct rig *r)
{
    struct vka_cache *cache = NULL;
    uint32_t length = 0;
    REFUSED(vka_cache_create(
        r->device,
        VKA_INFO(vka_cache_info, .batch = 1, .n_kv_head = 1, .head_dim = 4, .capacity = 4),
        &cache));
    REFUSED(vka_cache_length(r->cache, 0, &length));
    REFUSED(vka_cache_truncate(r->cache, 0, 0));
    REFUSED(vka_cache_fork(r->cache, 0, 1));
    REFUSED(vka_cache_set_pages(r->cache, 0, 0, 1, &length));
}

static void use_plans(struct rig *r)
{
    const struct vka_linear_op product = {
        .struct_size = sizeof product, .input = r->x, .weight = r->w, .output = r->y};
    struct vka_plan *plan = NULL;
    struct vka_pass_info pass;
    EXPECT(vka_plan_create(r->device, NULL, &plan) == VKA_OK);
    REFUSED(vka_plan_add_linear(plan, &product));
    REFUSED(vka_plan_add_linear(r->unfinished, &product));
    REFUSED(vka_plan_add_attention(r->unfinished,
                                   VKA_INFO(vka_attention_op, .q = r->x, .k = r->x, .v = r->x)));
    REFUSED(vka_plan_add_layer(
        r->unfinished, VKA_INFO(vka_layer_op, .layer = r->layer, .query = r->x, .output = r->y)));
    REFUSED(vka_plan_finish(r->unfinished));
    REFUSED(vka_plan_submit(r->plan, NULL));
    REFUSED(vka_plan_submit_with(r->plan, NULL, NULL));
    REFUSED(vka_plan_run(r->plan, PATIENCE));
    REFUSED(vka_plan_record(r->plan, (VkCommandBuffer)(uintptr_t)16));
    if (r->ticket)
        REFUSED(vka_plan_wait(r->plan, r->ticket, PATIENCE));
    EXPECT(vka_plan_pass(r->plan, 0, &pass) == VKA_OK);
    vka_plan_destroy(&plan);
}

static void use_device(struct rig *r)
{
    static const float weights[64 * 64];
    const struct vka_linear_weights some = {.weight = weights};
    struct vka_layer *layer = NULL;
    size_t size = 0;
    REFUSED(vka_layer_create(r->device,
                             VKA_INFO(vka_layer_info, .n_head = 4, .head_dim = 16, .query_dim = 64,
                                      .query = some, .key = some, .value = some),
                             &layer));
    REFUSED(vka_device_self_test(r->device));
    REFUSED(vka_device_pipeline_cache(r->device, NULL, &size));
    REFUSED(vka_device_recover(r->device));
    EXPECT(vka_device_properties(r->device)->name[0] != '\0');
}

static void child_uses(struct rig *r)
{
    use_tensors(r);
    use_caches(r);
    use_plans(r);
    use_device(r);
    destroy_rig(r);
    EXPECT(!r->device && !r->plan && !r->x && !r->layer && !r->cache);
}

/* Runs child(rigs) in a fork, which has to end by itself. */
static void run_child(void (*child)(struct rig *rig), struct rig *rigs, size_t n)
{
    int status = 0;
    pid_t ended = 0, pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL); /* cmocka's handler would go on with the next test */
        for (size_t i = 0; i < n; i++)
            child(&rigs[i]);
        if (failed_line)
            fprintf(stderr, "test_fork.c:%d failed in the child\n", failed_line);
        _exit(failed_line != 0);
    }
    for (uint64_t waited = 0; waited < PATIENCE && ended == 0; waited += POLL) {
        nanosleep(&(struct timespec){.tv_nsec = POLL}, NULL);
        ended = waitpid(pid, &status, WNOHANG);
    }
    if (ended == 0) {
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        fail_msg("the child did not end");
    }
    assert_int_equal(ended, pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* The process itself: what was in flight is done, and more can be run. */
static void go_on(struct rig *r)
{
    static float y[SIDE * SIDE];
    if (r->ticket)
        assert_int_equal(vka_plan_wait(r->plan, r->ticket, PATIENCE), VKA_OK);
    assert_int_equal(vka_plan_run(r->plan, PATIENCE), VKA_OK);
    assert_int_equal(vka_tensor_read(r->y, y, sizeof y), VKA_OK);
    for (size_t i = 0; i < SIDE * SIDE; i++)
        assert_true(y[i] == (i % (SIDE + 1) == 0 ? 1 : 0));
}

static void fork_with(const struct vka_device_info *info, bool in_flight)
{
    struct rig r;
    make_rig(&r, info);
    if (in_flight)
        submit(&r);
    run_child(child_uses, &r, 1);
    run_child(destroy_rig, &r, 1);
    go_on(&r);
    destroy_rig(&r);
}

static void idle(void **state)
{
    (void)state;
    fork_with(NULL, false);
}

static void in_flight(void **state)
{
    (void)state;
    fork_with(NULL, true);
}

static void staged_and_fenced(void **state)
{
    (void)state;
    fork_with(VKA_INFO(vka_device_info, .no_mapped_memory = true, .no_timeline = true), true);
}

static atomic_bool stop;

static void *keep_busy(void *argument)
{
    struct rig *r = argument;
    bool right = true;
    while (!atomic_load(&stop) && right)
        right = vka_plan_submit(r->plan, &r->ticket) == VKA_OK &&
                vka_plan_wait(r->plan, r->ticket, PATIENCE) == VKA_OK;
    return right ? r : NULL;
}

/* Each on a device of its own, so that the fork finds locks of the driver taken. */
static void other_threads_submit(void **state)
{
    (void)state;
    static struct rig rigs[THREADS];
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        make_rig(&rigs[i], NULL);
    atomic_store(&stop, false);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, keep_busy, &rigs[i]), 0);
    for (int i = 0; i < FORKS; i++)
        run_child(i % 2 ? child_uses : destroy_rig, rigs, THREADS);
    atomic_store(&stop, true);
    for (size_t i = 0; i < THREADS; i++) {
        void *right = NULL;
        assert_int_equal(pthread_join(threads[i], &right), 0);
        assert_ptr_equal(right, &rigs[i]);
        go_on(&rigs[i]);
        destroy_rig(&rigs[i]);
    }
}

TEST_PROGRAM(fork)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle),
        cmocka_unit_test(in_flight),
        cmocka_unit_test(staged_and_fenced),
        cmocka_unit_test(other_threads_submit),
    };
    if (!have_device("fork"))
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
