/* Operations whose allocations, then calls of Vulkan, fail in turn on a device that stays: the status
 * tells of it, no block is left, what is said to be done has the right result. A sample by default,
 * at a landing on one of three devices in turn (problems/turns.h); --all fails each on all, which
 * the stub has time for.
 * SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "driver.h"
#include "heap.h"
#include "operations.h"
#include "problems/turns.h"
#include "test_program.h"

#define MOST 4000 /* calls, or allocations, of an operation that ends */

/* The kernels of CPU drivers: without them there are tiles, as on GPUs. */
static struct kernel_set of_cpus(void)
{
    return KERNEL_SET(KERNEL_attention_row, KERNEL_attention_texel, KERNEL_attention_address,
                      KERNEL_attention_feature, KERNEL_matmul_texel, KERNEL_matmul_address,
                      KERNEL_matmul_lane4, KERNEL_matmul_lane8);
}

static size_t step = 24; /* every so many fail */

static bool is_over(const struct operation *o, size_t index)
{
    return index >= MOST || (o->most && index >= o->most);
}

static void run_well(const struct operation *o, struct vka_device *device)
{
    bool right = false;
    driver_reset();
    heap_fail(HEAP_NEVER);
    enum vka_status status = operation_run(o, device, &right);
    if (status != VKA_OK || !right)
        fail_msg("%s: %s: %s", o->name, vka_status_name(status), vka_device_error(device));
}

static size_t fail_allocations(const struct operation *o, struct vka_device *device)
{
    size_t i = 0, n = 0, unnoticed = 0;
    for (bool reached = true; reached && !is_over(o, i); i += step, n++) {
        bool right = false;
        heap_fail(i);
        enum vka_status status = operation_run(o, device, &right);
        reached = heap_count() > i;
        long left = heap_alive();
        heap_fail(HEAP_NEVER);
        if (left != 0)
            fail_msg("%s, allocation %zu: %ld blocks left", o->name, i, left);
        if (status == VKA_OK ? !right : !reached || status != VKA_OUT_OF_HOST_MEMORY)
            fail_msg("%s, allocation %zu: %s: %s", o->name, i, vka_status_name(status),
                     vka_device_error(device));
        unnoticed += status == VKA_OK;
    }
    assert_in_range(i, 2, MOST - 1);
    assert_in_range(unnoticed, 0, 1 + n / 2);
    return n - unnoticed;
}

static size_t fail_vulkan(const struct operation *o, struct vka_device *device)
{
    size_t i = 0, n = 0;
    for (bool reached = true; reached && !is_over(o, i); i += step, n++) {
        bool right = false;
        driver_reset();
        driver_fail(i, VK_ERROR_OUT_OF_DEVICE_MEMORY);
        enum vka_status status = operation_run(o, device, &right);
        reached = driver_calls() > i;
        const char *call = reached ? driver_call_name(i) : "";
        bool told = status == VKA_OUT_OF_DEVICE_MEMORY && strstr(vka_device_error(device), call);
        /* Device memory is asked for once more, when empty blocks are given back. */
        bool again = status == VKA_OK && right && strcmp(call, "vkAllocateMemory") == 0;
        if (reached ? !told && !again : status != VKA_OK || !right)
            fail_msg("%s, call %zu, %s: %s: %s", o->name, i, call, vka_status_name(status),
                     vka_device_error(device));
    }
    assert_in_range(i, 1, MOST - 1);
    driver_reset();
    return n - 1;
}

static void every_operation(const struct vka_device_info *info, struct kernel_set without)
{
    struct vka_device *device = NULL;
    const struct operation *o;
    driver_reset();
    assert_int_equal(vka_device_create(info, &device), VKA_OK);
    set_join(&device->caps.without, without);
    for (int i = 0; i < KERNEL_COUNT; i++) /* but where it is the operation: measured already */
        device->rates.of[i] = (struct rate){1, 1};
    for (size_t i = 0; (o = operation_get(i)); i++) {
        run_well(o, device);
        size_t allocations = fail_allocations(o, device), calls = fail_vulkan(o, device);
        run_well(o, device);
        print_message("%s: %zu allocations and %zu calls failed in turn\n", o->name, allocations,
                      calls);
    }
    vka_device_destroy(&device);
    assert_int_equal(driver_alive(), 0);
}

static void mapped(void **state)
{
    (void)state;
    every_operation(VKA_INFO(vka_device_info, .skip_self_test = true), NO_KERNELS);
}

static void tiles(void **state)
{
    (void)state;
    every_operation(VKA_INFO(vka_device_info, .skip_self_test = true), of_cpus());
}

/* A device has as little as it may have, and all copies go through staging. */
static void limited(void **state)
{
    (void)state;
    every_operation(VKA_INFO(vka_device_info, .skip_self_test = true, .no_mapped_memory = true,
                             .no_timeline = true, .max_buffer_range = 65536,
                             .max_allocation = 1u << 20),
                    NO_KERNELS);
}

TEST_PROGRAM_ARGUMENTS(operation_faults)
{
    if (argc == 2 && strcmp(argv[1], "--all") == 0)
        step = 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(mapped), cmocka_unit_test(tiles),
                                       cmocka_unit_test(limited)};
    const struct CMUnitTest in_turn[] = {tests[turn_of(3) % 3]};
    const bool turns = step > 1 && turn_of(3) < 3;
    size_t n = 0;
    if (!driver_open() || vka_device_list(NULL, NULL, &n) != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device, so failing operations are not tested\n");
        return 77;
    }
    return turns ? cmocka_run_group_tests_name("faults in turn", in_turn, NULL, NULL)
                 : cmocka_run_group_tests(tests, NULL, NULL);
}
