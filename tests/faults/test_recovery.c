/* A device lost at each call that can lose it, and recovered: the same plan gives the same bits,
 * and where the recovery itself fails, at any of its calls, it can be tried again.
 * SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include <gpu/device.h>

#include "../patience.h"
#include "driver.h"
#include "scenario.h"
#include "test_program.h"

#define MAX_LOSSES 256

struct losses {
    struct scenario clean;
    size_t calls[MAX_LOSSES]; /* that may give DEVICE_LOST, once there is a device */
    size_t n;
};

/* Every so many calls of the recovery fail; 1 with --all. */
static size_t step = 30;

static void find_losses(enum scenario_kind kind, struct losses *losses)
{
    VkResult errors[DRIVER_MAX_ERRORS];
    driver_reset();
    scenario_run(kind, &losses->clean);
    assert_true(losses->clean.complete && losses->clean.n_failure == 0);
    losses->n = 0;
    for (size_t i = 0; i < driver_calls(); i++) {
        size_t n = driver_call_errors(i, errors);
        bool loses = false;
        for (size_t e = 0; e < n; e++)
            loses |= errors[e] == VK_ERROR_DEVICE_LOST;
        if (loses && strcmp(driver_call_name(i), "vkCreateDevice") != 0 && losses->n < MAX_LOSSES)
            losses->calls[losses->n++] = i;
    }
    assert_in_range(losses->n, 4, MAX_LOSSES - 1);
}

static void check(const struct scenario *s, const struct scenario *clean, size_t n_failure)
{
    if (s->failures[0] != VKA_DEVICE_LOST || s->failures[1] != VKA_DEVICE_LOST)
        fail_msg("loss did not stick: %s", s->error);
    if (!s->complete || s->n_failure != n_failure)
        fail_msg("%zu failures, the last %s: %.50s", s->n_failure,
                 vka_status_name(s->failures[s->n_failure - 1]), s->calls[s->n_failure - 1]);
    if (memcmp(s->output, clean->output, sizeof s->output) != 0)
        fail_msg("other bits than before the loss");
    assert_int_equal(driver_alive(), 0);
    assert_int_equal(driver_freed_in_flight(), 0);
}

static void each_loss(void **state)
{
    (void)state;
    for (int kind = 0; kind < SCENARIO_KIND_COUNT; kind++) {
        struct losses losses;
        struct scenario s;
        find_losses((enum scenario_kind)kind, &losses);
        for (size_t i = 0; i<losses.n; i += step> 1 ? 3 : 1) {
            driver_reset();
            driver_fail(losses.calls[i], VK_ERROR_DEVICE_LOST);
            scenario_run_recovering((enum scenario_kind)kind, &s, NULL);
            check(&s, &losses.clean, 2);
        }
        print_message("of %zu losses%s recovered from\n", losses.n, step > 1 ? " every third" : "");
    }
}

static size_t fail_after; /* calls into the recovery */
static size_t failing;    /* the call */

static void fail_in_recovery(void)
{
    failing = driver_calls() + fail_after;
    driver_fail(failing, VK_ERROR_OUT_OF_DEVICE_MEMORY);
}

/* Calls of the recovery fail in turn, up to the first that is no longer of it. */
static void failing_recovery(void **state)
{
    (void)state;
    for (int kind = 0; kind < SCENARIO_KIND_COUNT; kind++) {
        struct losses losses;
        struct scenario s;
        find_losses((enum scenario_kind)kind, &losses);
        for (fail_after = 0;; fail_after += step) {
            driver_reset();
            driver_fail(losses.calls[losses.n - 1], VK_ERROR_DEVICE_LOST);
            scenario_run_recovering((enum scenario_kind)kind, &s, fail_in_recovery);
            if (s.n_failure == 2 && strcmp(driver_call_name(failing), "vkAllocateMemory") == 0)
                continue; /* it was asked for once more */
            if (s.n_failure < 3 || !strstr(s.calls[2], "vka_device_recover"))
                break;
            assert_int_equal(s.failures[2], VKA_OUT_OF_DEVICE_MEMORY);
            check(&s, &losses.clean, 3);
        }
        print_message("%zu of %zu calls of a recovery failed in turn\n", fail_after / step,
                      fail_after);
        assert_in_range(fail_after, 10, 10000);
    }
}

static enum vka_status create_device(struct vka_device **device)
{
    return vka_device_create(VKA_INFO(vka_device_info, .skip_self_test = !driver_computes()),
                             device);
}

static void weights_not_kept(void **state)
{
    (void)state;
    static const float w[4] = {1, 0, 0, 1};
    const uint32_t shape[] = {1, 1, 2};
    const float x[2] = {1, 2};
    float y[2] = {0};
    uint64_t ticket = 0, before = 0;
    struct vka_device *device = NULL;
    struct vka_tensor *in = NULL, *out = NULL;
    driver_reset();
    assert_int_equal(create_device(&device), VKA_OK);
    assert_int_equal(vka_device_recover(device), VKA_INVALID); /* not lost */
    assert_int_equal(vka_tensor_create(device, VKA_F32, 3, shape, &in), VKA_OK);
    assert_int_equal(vka_tensor_create(device, VKA_F32, 3, shape, &out), VKA_OK);
    assert_int_equal(vka_tensor_write(in, x, sizeof x), VKA_OK);
    struct vka_layer *layers[2] = {NULL};
    struct vka_plan *plans[2] = {NULL};
    for (int kept = 0; kept < 2; kept++) {
        assert_int_equal(
            vka_layer_create(device,
                             VKA_INFO(vka_layer_info, .n_head = 1, .head_dim = 2, .query_dim = 2,
                                      .keep_weights = kept, .query = {w, NULL}, .key = {w, NULL},
                                      .value = {w, NULL}),
                             &layers[kept]),
            VKA_OK);
        assert_int_equal(vka_plan_create(device, NULL, &plans[kept]), VKA_OK);
        assert_int_equal(
            vka_plan_add_layer(plans[kept], VKA_INFO(vka_layer_op, .layer = layers[kept],
                                                     .query = in, .output = out)),
            VKA_OK);
        assert_int_equal(vka_plan_finish(plans[kept]), VKA_OK);
        assert_int_equal(vka_plan_submit(plans[kept], &before), VKA_OK);
        assert_int_equal(vka_plan_wait(plans[kept], before, PATIENCE), VKA_OK);
    }
    driver_fail(driver_calls(), VK_ERROR_DEVICE_LOST);
    assert_int_equal(vka_plan_submit(plans[1], &ticket), VKA_DEVICE_LOST);
    assert_int_equal(vka_device_recover(device), VKA_OK);
    assert_int_equal(vka_plan_submit(plans[0], &ticket), VKA_DEVICE_LOST);
    assert_non_null(strstr(vka_device_error(device), "keep_weights"));
    assert_int_equal(vka_plan_wait(plans[1], before, 0), VKA_DEVICE_LOST);
    assert_int_equal(vka_tensor_write(in, x, sizeof x), VKA_OK);
    assert_int_equal(vka_plan_run(plans[1], PATIENCE), VKA_OK);
    assert_int_equal(vka_tensor_read(out, y, sizeof y), VKA_OK);
    assert_true(!driver_computes() || (y[0] == 1 && y[1] == 2));
    for (int kept = 0; kept < 2; kept++) {
        vka_plan_destroy(&plans[kept]);
        vka_layer_destroy(&layers[kept]);
    }
    vka_tensor_destroy(&in);
    vka_tensor_destroy(&out);
    vka_device_destroy(&device);
    assert_int_equal(driver_alive(), 0);
}

/* A layer whose weights are in tensors keeps none: its plans run again with what is written there. */
static void weights_in_tensors(void **state)
{
    (void)state;
    static const float before[4] = {2, 0, 0, 2}, after[4] = {1, 0, 0, 1}, x[2] = {1, 2};
    const uint32_t shape[] = {1, 1, 2}, square[] = {2, 2};
    float y[2] = {0};
    struct vka_device *device = NULL;
    struct vka_tensor *in = NULL, *out = NULL, *w = NULL;
    struct vka_layer *layer = NULL;
    struct vka_plan *plan = NULL;
    driver_reset();
    assert_int_equal(create_device(&device), VKA_OK);
    assert_int_equal(vka_tensor_create(device, VKA_F32, 3, shape, &in), VKA_OK);
    assert_int_equal(vka_tensor_create(device, VKA_F32, 3, shape, &out), VKA_OK);
    assert_int_equal(vka_tensor_create(device, VKA_F32, 2, square, &w), VKA_OK);
    assert_int_equal(vka_tensor_write(w, before, sizeof before), VKA_OK);
    assert_int_equal(vka_tensor_write(in, x, sizeof x), VKA_OK);
    assert_int_equal(
        vka_layer_create(device,
                         VKA_INFO(vka_layer_info, .n_head = 1, .head_dim = 2, .query_dim = 2,
                                  .query_tensors = {w, NULL}, .key_tensors = {w, NULL},
                                  .value_tensors = {w, NULL}),
                         &layer),
        VKA_OK);
    assert_int_equal(vka_plan_create(device, NULL, &plan), VKA_OK);
    assert_int_equal(vka_plan_add_layer(
                         plan, VKA_INFO(vka_layer_op, .layer = layer, .query = in, .output = out)),
                     VKA_OK);
    assert_int_equal(vka_plan_finish(plan), VKA_OK);
    assert_int_equal(vka_plan_run(plan, PATIENCE), VKA_OK);
    assert_int_equal(vka_tensor_read(out, y, sizeof y), VKA_OK);
    assert_true(!driver_computes() || (y[0] == 2 && y[1] == 4));
    driver_fail(driver_calls(), VK_ERROR_DEVICE_LOST);
    assert_int_equal(vka_plan_run(plan, PATIENCE), VKA_DEVICE_LOST);
    assert_int_equal(vka_device_recover(device), VKA_OK);
    assert_int_equal(vka_tensor_write(in, x, sizeof x), VKA_OK);
    assert_int_equal(vka_tensor_write(w, after, sizeof after), VKA_OK);
    assert_int_equal(vka_plan_run(plan, PATIENCE), VKA_OK);
    assert_int_equal(vka_tensor_read(out, y, sizeof y), VKA_OK);
    assert_true(!driver_computes() || (y[0] == 1 && y[1] == 2));
    vka_plan_destroy(&plan);
    vka_layer_destroy(&layer);
    vka_tensor_destroy(&in);
    vka_tensor_destroy(&out);
    vka_tensor_destroy(&w);
    vka_device_destroy(&device);
    assert_int_equal(driver_alive(), 0);
}

/* One plan of attention, with what it read and wrote. */
struct attention {
    struct vka_device *device;
    struct vka_tensor *x, *y;
    struct vka_plan *plan;
    float want[4 * 8];
};

/* False where the driver is none that compiles in a first run. */
static bool open_attention(struct attention *a)
{
    const uint32_t shape[] = {1, 1, 4, 8};
    driver_reset();
    *a = (struct attention){.device = NULL};
    assert_int_equal(create_device(&a->device), VKA_OK);
    if (vka_device_properties(a->device)->type != VKA_DEVICE_CPU) {
        vka_device_destroy(&a->device);
        return false;
    }
    assert_int_equal(vka_tensor_create(a->device, VKA_F32, 4, shape, &a->x), VKA_OK);
    assert_int_equal(vka_tensor_create(a->device, VKA_F32, 4, shape, &a->y), VKA_OK);
    assert_int_equal(vka_plan_create(a->device, NULL, &a->plan), VKA_OK);
    assert_int_equal(
        vka_plan_add_attention(
            a->plan, VKA_INFO(vka_attention_op, .q = a->x, .k = a->x, .v = a->x, .output = a->y)),
        VKA_OK);
    return true;
}

static void close_attention(struct attention *a)
{
    vka_plan_destroy(&a->plan);
    vka_tensor_destroy(&a->x);
    vka_tensor_destroy(&a->y);
    vka_device_destroy(&a->device);
    assert_int_equal(driver_alive(), 0);
    assert_int_equal(driver_freed_in_flight(), 0);
}

/* Writes the input and runs; the first time keeps the output, then compares it. */
static void run_attention(struct attention *a, bool first)
{
    float x[4 * 8], y[4 * 8];
    for (int i = 0; i < 4 * 8; i++)
        x[i] = (float)(i * 7 % 11) - 5;
    assert_int_equal(vka_tensor_write(a->x, x, sizeof x), VKA_OK);
    assert_int_equal(vka_plan_run(a->plan, PATIENCE), VKA_OK);
    assert_int_equal(vka_tensor_read(a->y, y, sizeof y), VKA_OK);
    if (!driver_computes())
        memset(y, 0, sizeof y); /* what the memory held */
    if (first)
        memcpy(a->want, y, sizeof y);
    assert_memory_equal(y, a->want, sizeof y);
}

static void lose(struct attention *a)
{
    driver_fail(driver_calls(), VK_ERROR_DEVICE_LOST);
    assert_int_equal(vka_plan_run(a->plan, PATIENCE), VKA_DEVICE_LOST);
}

/* The last call that waits, counted from call `begin` on. */
static size_t last_wait(size_t begin)
{
    size_t i = driver_calls();
    while (i-- > begin)
        if (strcmp(driver_call_name(i), "vkWaitSemaphores") == 0)
            return i - begin;
    fail_msg("nothing was waited for");
    return 0;
}

static void check_compiled(const struct attention *a)
{
    assert_non_null(a->device->pipelines.list);
    for (const struct pipeline *p = a->device->pipelines.list; p; p = p->next)
        assert_true(p->warm);
}

static void check_timeout(const struct attention *a, enum vka_status status, const char *caller)
{
    assert_int_equal(status, VKA_TIMEOUT);
    assert_non_null(strstr(vka_device_error(a->device), caller));
    assert_non_null(strstr(vka_device_error(a->device), "has not compiled"));
}

/* What a CPU driver compiles in first runs it compiles in the recovery, whose wait may run out: the
 * device works then, and the wait goes on. */
static void recovery_compiles(void **state)
{
    (void)state;
    struct attention a;
    if (!open_attention(&a))
        skip();
    assert_int_equal(vka_plan_finish(a.plan), VKA_OK);
    run_attention(&a, true);
    lose(&a);
    size_t begin = driver_calls();
    assert_int_equal(vka_device_recover(a.device), VKA_OK);
    check_compiled(&a);
    const size_t wait = last_wait(begin);
    run_attention(&a, false);
    lose(&a);
    driver_fail(driver_calls() + wait, VK_TIMEOUT);
    check_timeout(&a, vka_device_recover(a.device), "vka_device_recover");
    run_attention(&a, false);
    assert_int_equal(vka_device_recover(a.device), VKA_OK);
    check_compiled(&a);
    assert_int_equal(vka_device_recover(a.device), VKA_INVALID);
    run_attention(&a, false);
    lose(&a); /* and while it compiles: the plan is in flight when it is destroyed */
    driver_fail(driver_calls() + wait, VK_TIMEOUT);
    check_timeout(&a, vka_device_recover(a.device), "vka_device_recover");
    close_attention(&a);
}

/* A device lost between two calls of vka_plan_finish. */
static void lost_while_compiling(void **state)
{
    (void)state;
    struct attention a;
    if (!open_attention(&a))
        skip();
    size_t begin = driver_calls();
    assert_int_equal(vka_plan_finish(a.plan), VKA_OK);
    const size_t wait = last_wait(begin);
    run_attention(&a, true);
    const struct attention first = a;
    close_attention(&a);
    open_attention(&a);
    memcpy(a.want, first.want, sizeof a.want);
    driver_fail(driver_calls() + wait, VK_TIMEOUT);
    check_timeout(&a, vka_plan_finish(a.plan), "vka_plan_finish");
    driver_fail(driver_calls(), VK_ERROR_DEVICE_LOST);
    assert_int_equal(vka_plan_finish(a.plan), VKA_DEVICE_LOST);
    assert_int_equal(vka_device_recover(a.device), VKA_OK);
    assert_int_equal(vka_plan_finish(a.plan), VKA_OK);
    run_attention(&a, false);
    close_attention(&a);
}

TEST_PROGRAM_ARGUMENTS(recovery)
{
    if (argc == 2 && strcmp(argv[1], "--all") == 0)
        step = 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_loss),         cmocka_unit_test(failing_recovery),
        cmocka_unit_test(weights_not_kept),  cmocka_unit_test(weights_in_tensors),
        cmocka_unit_test(recovery_compiles), cmocka_unit_test(lost_while_compiling)};
    size_t n = 0;
    if (!driver_open() || vka_device_list(NULL, NULL, &n) != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device, so the loss of one is not tested\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
