/* Every Vulkan call made to fail in turn, with each error it may return: the library says so, stays
 * usable (or lost, after the loss of the device), gives the same bits afterwards and leaks nothing.
 * A sample by default; --all tries every error on every call. SPDX-License-Identifier: MIT */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include <gpu/command.h>

#include "../patience.h"
#include "driver.h"
#include "scenario.h"
#include "test_program.h"

static bool all_errors;
static size_t made_good; /* allocations that failed once and were asked for again */
static struct scenario clean[SCENARIO_TESTED + 1];

static void print_failures(const struct scenario *s)
{
    for (size_t i = 0; i < s->n_failure && i < SCENARIO_MAX_FAILURES; i++)
        print_message("  %s: %.60s\n", vka_status_name(s->failures[i]), s->calls[i]);
    print_message("  %s\n", s->error);
}

/* The status for an error; VKA_OK where any failure will do. */
static enum vka_status expected(VkResult error)
{
    switch ((int)error) {
    case VK_ERROR_OUT_OF_HOST_MEMORY:
        return VKA_OUT_OF_HOST_MEMORY;
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
        return VKA_OUT_OF_DEVICE_MEMORY;
    case VK_ERROR_DEVICE_LOST:
        return VKA_DEVICE_LOST;
    case VK_TIMEOUT:
        return VKA_TIMEOUT;
    default:
        return VKA_OK;
    }
}

/* A pipeline that the driver refuses: another kernel takes its place and the result is right, or none
 * can. Then there is want of memory, and the same call does again, or the kernel stays out. */
static const char *judge_refusal(enum scenario_kind kind, VkResult error, const struct scenario *s)
{
    const bool memory = expected(error) != VKA_OK;
    const enum vka_status want = memory ? expected(error) : VKA_UNSUPPORTED;
    if (s->n_failure > 0 && (s->failures[0] != want || !strstr(s->error, "vkCreate")))
        return "another status or sentence was expected";
    if (s->n_failure > (memory ? 1 : 2))
        return "what failed once failed again";
    if (s->n_failure < 2 && !s->complete)
        return "it is not complete";
    for (size_t i = 0; s->complete && i < SCENARIO_FLOATS; i++)
        if (!(fabsf(s->output[i] - clean[kind].output[i]) <= 1e-5f))
            return "another result than without the failure";
    return NULL;
}

/* Why the outcome of a run is not as it must be; NULL where it is. */
static const char *judge_run(enum scenario_kind kind, const char *call, VkResult error,
                             const struct scenario *s)
{
    /* What cannot be asked counts as absent, and is not needed. */
    bool optional = strcmp(call, "vkEnumerateDeviceExtensionProperties") == 0;
    enum vka_status want = expected(error);
    /* Answers, not failures: times that are not there yet, and data of a cache that has grown, which a
     * driver gives only where it was given room. */
    optional |= error == VK_NOT_READY || error == VK_INCOMPLETE;
    if (error == VK_NOT_READY && s->n_failure > 0)
        return "it is no failure";
    /* Where the device has no memory, empty blocks are given back and less is asked for. */
    if (error == VK_ERROR_OUT_OF_DEVICE_MEMORY && strcmp(call, "vkAllocateMemory") == 0) {
        optional = true;
        made_good += s->n_failure == 0;
    }
    if (strcmp(call, "vkCreateComputePipelines") == 0 || strcmp(call, "vkCreateShaderModule") == 0)
        return judge_refusal(kind, error, s);
    if (s->n_failure == 0 && !optional)
        return "the failure went unnoticed";
    if (s->n_failure > 0 && want != VKA_OK && s->failures[0] != want)
        return "another status was expected";
    if (s->n_failure > 0 && !strstr(s->error, error == VK_TIMEOUT ? " s" : call))
        return "the sentence does not name the call";
    if (error == VK_ERROR_DEVICE_LOST && strcmp(call, "vkCreateDevice") != 0)
        return s->n_failure == 2 && s->failures[1] == VKA_DEVICE_LOST ? NULL : "loss did not stick";
    if (s->n_failure > 1 || !s->complete)
        return "what failed once failed again";
    if (memcmp(s->output, clean[kind].output, sizeof s->output) != 0)
        return "other bits than without the failure";
    return NULL;
}

static const char *judge(enum scenario_kind kind, const char *call, VkResult error,
                         const struct scenario *s)
{
    if (driver_alive() != 0)
        return "objects were leaked";
    if (driver_freed_in_flight() != 0)
        return "something was freed under the device's hands";
    return judge_run(kind, call, error, s);
}

/* Whether this error is tried on this call: with --all each, which the stub has time for. Else, on a
 * driver that computes, one error on the first call of every second function. */
static bool is_tried(enum scenario_kind kind, const char *const *names, size_t call, size_t error,
                     size_t n_error)
{
    size_t first = 0;
    while (names[first] != names[call])
        first++;
    return all_errors || (first == call && (first + kind) % 2 == 0 && first / 2 % n_error == error);
}

static void every_call(enum scenario_kind kind)
{
    static const char *names[4096];
    static VkResult errors[4096][DRIVER_MAX_ERRORS];
    static size_t n_error[4096];
    driver_reset();
    scenario_run(kind, &clean[kind]);
    if (!clean[kind].complete || clean[kind].n_failure)
        print_failures(&clean[kind]);
    assert_true(clean[kind].complete && clean[kind].n_failure == 0);
    assert_int_equal(driver_alive(), 0);
    size_t n = driver_calls(), runs = 0, wrong = 0;
    assert_in_range(n, 50, 4095);
    for (size_t i = 0; i < n; i++) {
        names[i] = driver_call_name(i);
        n_error[i] = driver_call_errors(i, errors[i]);
    }
    for (size_t i = 0; i < n; i++)
        for (size_t e = 0; e < n_error[i]; e++) {
            struct scenario s;
            if (!is_tried(kind, names, i, e, n_error[i]))
                continue;
            runs++;
            driver_reset();
            driver_fail(i, errors[i][e]);
            scenario_run(kind, &s);
            const char *why = judge(kind, names[i], errors[i][e], &s);
            if (why) {
                print_message("call %zu, %s giving %d: %s; %ld objects left\n", i, names[i],
                              (int)errors[i][e], why, driver_alive());
                print_failures(&s);
                wrong++;
            }
        }
    print_message("%zu calls, %zu failures injected, %zu not handled, %zu made good\n", n, runs,
                  wrong, made_good);
    assert_int_equal(wrong, 0);
    assert_true(made_good > 0 || !all_errors);
}

static void mapped(void **state)
{
    (void)state;
    every_call(SCENARIO_MAPPED);
}

static void staged(void **state)
{
    (void)state;
    every_call(SCENARIO_STAGED);
}

static void built(void **state)
{
    (void)state;
    every_call(SCENARIO_BUILT);
}

/* Failing between the submits of a run, too. */
static void cut(void **state)
{
    (void)state;
    every_call(SCENARIO_CUT);
}

/* Failing while kernels are tested: they are tested again then. */
static void tested(void **state)
{
    (void)state;
    if (!driver_computes())
        skip(); /* no kernel passes */
    every_call(SCENARIO_TESTED);
}

/* A driver that drops the work of a submit and says success. */
static void dropped(void **state)
{
    (void)state;
    for (int kind = 0; kind < SCENARIO_KIND_COUNT; kind++) {
        struct scenario s;
        static size_t calls[256];
        size_t submits = 0;
        driver_reset();
        scenario_run((enum scenario_kind)kind, &s);
        for (size_t i = 0; i < driver_calls(); i++)
            if (strcmp(driver_call_name(i), "vkQueueSubmit") == 0 && submits < COUNTOF(calls))
                calls[submits++] = i;
        for (size_t i = 0; i < submits; i++) {
            driver_reset();
            driver_drop(calls[i]);
            scenario_run((enum scenario_kind)kind, &s);
            if (s.failures[0] != VKA_DEVICE_LOST || s.failures[1] != VKA_DEVICE_LOST)
                fail_msg("submit %zu was dropped unnoticed", i);
            assert_non_null(strstr(s.error, "did not do it"));
            assert_int_equal(driver_alive(), 0);
        }
        print_message("%zu submits dropped in turn\n", submits);
        assert_in_range(submits, 2, 1000);
    }
}

/* A driver that tells of more submits than there were: a later one does not pass for done. */
static void boasted(void **state)
{
    (void)state;
    const uint32_t shape[] = {1, 1};
    struct vka_device *device = NULL;
    struct vka_tensor *x = NULL, *y = NULL;
    struct vka_plan *plan = NULL;
    uint64_t ticket = 0;
    driver_reset();
    assert_int_equal(vka_device_create(VKA_INFO(vka_device_info, .skip_self_test = true), &device),
                     VKA_OK);
    if (!vka_device_properties(device)->timeline) {
        vka_device_destroy(&device);
        skip();
    }
    assert_int_equal(vka_tensor_create(device, VKA_F32, 2, shape, &x), VKA_OK);
    assert_int_equal(vka_tensor_create(device, VKA_F32, 2, shape, &y), VKA_OK);
    assert_int_equal(vka_plan_create(device, NULL, &plan), VKA_OK);
    assert_int_equal(
        vka_plan_add_linear(plan, VKA_INFO(vka_linear_op, .input = x, .weight = x, .output = y)),
        VKA_OK);
    assert_int_equal(vka_plan_finish(plan), VKA_OK);
    driver_boast();
    for (int i = 0; i <= PAGE_RECEIPTS; i++) /* the last asks how far the device is */
        assert_int_equal(vka_plan_submit(plan, NULL), VKA_OK);
    driver_drop(driver_calls());
    assert_int_equal(vka_plan_submit(plan, &ticket), VKA_OK);
    assert_int_equal(vka_plan_wait(plan, ticket, PATIENCE), VKA_DEVICE_LOST);
    vka_plan_destroy(&plan);
    vka_tensor_destroy(&x);
    vka_tensor_destroy(&y);
    vka_device_destroy(&device);
    assert_int_equal(driver_alive(), 0);
}

/* A CPU driver that compiles for longer than finishing waits: the sentence says what, how long and what
 * to do, nothing can be added, and the next call waits on. */
static void compiled_for_long(void **state)
{
    (void)state;
    const uint32_t shape[] = {1, 1};
    size_t wait = DRIVER_NEVER;
    for (int fails = 0; fails < 2; fails++) {
        struct vka_device *device = NULL;
        struct vka_tensor *x = NULL, *y = NULL;
        struct vka_plan *plan = NULL;
        driver_reset();
        assert_int_equal(
            vka_device_create(VKA_INFO(vka_device_info, .skip_self_test = true), &device), VKA_OK);
        const bool cpu = vka_device_properties(device)->type == VKA_DEVICE_CPU;
        assert_int_equal(vka_tensor_create(device, VKA_F32, 2, shape, &x), VKA_OK);
        assert_int_equal(vka_tensor_create(device, VKA_F32, 2, shape, &y), VKA_OK);
        assert_int_equal(vka_plan_create(device, NULL, &plan), VKA_OK);
        const struct vka_linear_op *op =
            VKA_INFO(vka_linear_op, .input = x, .weight = x, .output = y);
        assert_int_equal(vka_plan_add_linear(plan, op), VKA_OK);
        if (fails)
            driver_fail(wait, VK_TIMEOUT);
        assert_int_equal(vka_plan_finish(plan), fails ? VKA_TIMEOUT : VKA_OK);
        if (fails) {
            assert_non_null(strstr(vka_device_error(device), "matmul"));
            assert_non_null(strstr(vka_device_error(device), "600 s: call it again"));
            assert_int_equal(vka_plan_add_linear(plan, op), VKA_INVALID);
            assert_int_equal(vka_plan_submit(plan, NULL), VKA_INVALID);
            assert_int_equal(vka_plan_finish(plan), VKA_OK);
        }
        for (size_t i = 0; i < driver_calls(); i++)
            if (strncmp(driver_call_name(i), "vkWaitFor", 9) == 0 ||
                strcmp(driver_call_name(i), "vkWaitSemaphores") == 0)
                wait = i; /* the last */
        assert_int_equal(vka_plan_run(plan, PATIENCE), VKA_OK);
        vka_plan_destroy(&plan);
        vka_tensor_destroy(&x);
        vka_tensor_destroy(&y);
        vka_device_destroy(&device);
        assert_int_equal(driver_alive(), 0);
        if (!cpu)
            skip();
        assert_true(wait != DRIVER_NEVER);
    }
}

TEST_PROGRAM_ARGUMENTS(vulkan_faults)
{
    all_errors = argc == 2 && strcmp(argv[1], "--all") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dropped), cmocka_unit_test(boasted), cmocka_unit_test(compiled_for_long),
        cmocka_unit_test(mapped),  cmocka_unit_test(staged),  cmocka_unit_test(cut),
        cmocka_unit_test(built),   cmocka_unit_test(tested)};
    size_t n = 0;
    if (!driver_open() || vka_device_list(NULL, NULL, &n) != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device, so failing Vulkan calls are not tested\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
