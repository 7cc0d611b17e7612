/* A driver whose compiler refuses the pipelines of one kernel after the other, with each of the
 * errors that drivers give: operations that took the kernel take another, are right, and say so; where
 * there is no other they say which kernel it was, and work again where memory was short. And kernels
 * whose specialization constants cannot be built in, on a portability device. One kernel a family by
 * default, at a landing of this device's kernels or of tiles in turn (problems/turns.h); --all:
 * each of both. SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include <gpu/fold.h>
#include <gpu/kernels_spv.h>

#include "driver.h"
#include "operations.h"
#include "problems/turns.h"
#include "scenario.h"
#include "test_program.h"

#define MAX_OPERATIONS 64

/* The kernels of CPU drivers: without them there are tiles, as on GPUs. */
static struct kernel_set of_cpus(void)
{
    return KERNEL_SET(KERNEL_attention_row, KERNEL_attention_texel, KERNEL_attention_address,
                      KERNEL_attention_feature, KERNEL_matmul_texel, KERNEL_matmul_address,
                      KERNEL_matmul_block, KERNEL_matmul_bytes, KERNEL_matmul_lane4,
                      KERNEL_matmul_lane8);
}

static const VkResult results[] = {VK_ERROR_UNKNOWN, VK_ERROR_INITIALIZATION_FAILED,
                                   VK_ERROR_OUT_OF_HOST_MEMORY};
static bool all_kernels;
static char warnings[4096];

static void listen(void *user, enum vka_log_level level, const char *message)
{
    size_t length = strlen(warnings);
    (void)user;
    if (level == VKA_LOG_WARNING)
        snprintf(warnings + length, sizeof warnings - length, "%s\n", message);
}

static struct vka_device *open_device(struct kernel_set without, bool tested)
{
    struct vka_device *device = NULL;
    warnings[0] = '\0';
    assert_int_equal(
        vka_device_create(VKA_INFO(vka_device_info, .log = listen, .skip_self_test = !tested),
                          &device),
        VKA_OK);
    set_join(&device->caps.without, without);
    for (int i = 0; i < KERNEL_COUNT; i++)
        device->rates.of[i] = (struct rate){1, 1};
    return device;
}

/* The first operation that asks for a pipeline of the kernel; NULL: none. */
static const struct operation *user_of(enum kernel kernel, struct kernel_set without)
{
    static const struct operation *found[2][KERNEL_COUNT];
    static bool done[2];
    const bool tiles = !set_is_empty(without);
    if (!done[tiles]) {
        const struct operation *o;
        driver_reset();
        struct vka_device *device = open_device(without, false);
        for (size_t i = 0; (o = operation_get(i)); i++) {
            bool right = false;
            if (operation_run(o, device, &right) != VKA_OK)
                fail_msg("%s: %s", o->name, vka_device_error(device));
            for (const struct pipeline *p = device->pipelines.list; p; p = p->next)
                if (!found[tiles][p->key.kernel])
                    found[tiles][p->key.kernel] = o;
        }
        vka_device_destroy(&device);
        done[tiles] = true;
    }
    return found[tiles][kernel];
}

/* Whether another kernel can do the work. Fused attention has none left where those for CPU drivers
 * are switched off. */
static bool has_rivals(enum kernel kernel, struct kernel_set without)
{
    enum kernel_family family = kernel_table[kernel].family;
    return family == FAMILY_PRODUCT || family == FAMILY_SOFTMAX ||
           (family == FAMILY_ATTENTION && set_is_empty(without));
}

static enum vka_status status_of(VkResult result)
{
    return result == VK_ERROR_OUT_OF_HOST_MEMORY ? VKA_OUT_OF_HOST_MEMORY : VKA_UNSUPPORTED;
}

static void check_sentence(const char *text, const char *kernel)
{
    if (!strstr(text, kernel) || !strstr(text, "vkCreateComputePipelines"))
        fail_msg("\"%s\" does not name %s and vkCreateComputePipelines", text, kernel);
}

/* What becomes of an operation whose first choice is refused. */
static bool refuse(const struct operation *o, enum kernel kernel, struct kernel_set without,
                   bool tested, VkResult result)
{
    const char *name = kernel_table[kernel].name;
    bool right = false;
    driver_reset();
    driver_refuse(kernel_spv_table[kernel]->words, result, 0);
    struct vka_device *device = open_device(without, tested);
    struct vka_kernel_info info;
    enum vka_status status = operation_run(o, device, &right);
    if (driver_refusals() == 0)
        fail_msg("%s did not ask for %s", o->name, name);
    check_sentence(warnings, name);
    bool passed = status == VKA_OK;
    if (passed && !right)
        fail_msg("%s is wrong without %s", o->name, name);
    if (!passed && (status != status_of(result) || has_rivals(kernel, without)))
        fail_msg("%s without %s: %s: %s", o->name, name, vka_status_name(status),
                 vka_device_error(device));
    if (!passed && status == VKA_UNSUPPORTED)
        check_sentence(vka_device_error(device), name);
    assert_int_equal(vka_device_kernel(device, kernel, &info), VKA_OK);
    assert_non_null(info.refused);
    if (tested && passed) { /* else memory may be there the next time */
        assert_non_null(info.missing);
        assert_non_null(strstr(info.missing, "vkCreateComputePipelines"));
    }
    /* Every plan gives that: nothing is asked for twice where another kernel was found. */
    size_t asked = driver_refusals();
    enum vka_status again = operation_run(o, device, &right);
    assert_int_equal(again, status);
    if (passed)
        assert_int_equal(driver_refusals(), asked);
    if (!passed && result == VK_ERROR_OUT_OF_HOST_MEMORY) {
        driver_refuse(NULL, VK_SUCCESS, 0);
        device->caps.without = without;
        driver_refuse(kernel_spv_table[kernel]->words, result, SIZE_MAX);
        right = false;
        assert_int_equal(operation_run(o, device, &right), VKA_OK);
        assert_true(right);
    }
    vka_device_destroy(&device);
    assert_int_equal(driver_alive(), 0);
    return passed;
}

/* At a landing the first kernel of a family that is found, and two that have no rivals. */
static bool is_tried(enum kernel kernel, size_t tried[])
{
    enum kernel_family family = kernel_table[kernel].family;
    return all_kernels || tried[family] < (family == FAMILY_MOVE ? 2 : 1);
}

static void every_kernel(struct kernel_set without)
{
    size_t tried[FAMILY_BACKWARD + 1] = {0}, passed = 0, n = 0;
    for (int k = 0; k < KERNEL_COUNT; k++) {
        const struct operation *o = user_of((enum kernel)k, without);
        if (!o || set_has(without, k) || !is_tried((enum kernel)k, tried))
            continue;
        tried[kernel_table[k].family]++;
        for (size_t r = 0; r < sizeof results / sizeof *results; r++)
            for (int tested = 0; tested < (driver_computes() ? 2 : 1); tested++) {
                if (tested && !all_kernels && r != tried[kernel_table[k].family] % 3)
                    continue;
                bool ok = refuse(o, (enum kernel)k, without, tested, results[r]);
                passed += ok;
                n++;
                if (r == 0 && !tested)
                    print_message("%s: without %s %s\n", o->name, kernel_table[k].name,
                                  ok ? "by another" : "not at all");
            }
    }
    print_message("%zu refusals, %zu made good by another kernel\n", n, passed);
    assert_true(passed >= 6);
}

static void of_this_device(void **state)
{
    (void)state;
    every_kernel(NO_KERNELS);
}

static void tiles(void **state)
{
    (void)state;
    every_kernel(of_cpus());
}

/* Layers, whose weights are packed for a kernel before a pipeline of it is refused. */
static void layers(void **state)
{
    (void)state;
    static struct scenario clean, s;
    driver_reset();
    scenario_run(SCENARIO_STAGED, &clean);
    assert_true(clean.complete && clean.n_failure == 0);
    bool takes[KERNEL_COUNT];
    for (int k = 0; k < KERNEL_COUNT; k++)
        takes[k] = driver_saw(kernel_spv_table[k]->words);
    for (int k = 0; k < KERNEL_COUNT; k++) {
        if (!takes[k])
            continue;
        driver_reset();
        driver_refuse(kernel_spv_table[k]->words, VK_ERROR_UNKNOWN, 0);
        scenario_run(SCENARIO_STAGED, &s);
        if (driver_refusals() == 0)
            continue;
        print_message("a layer without %s: %s\n", kernel_table[k].name,
                      s.complete ? "by another" : s.error);
        if (kernel_table[k].family != FAMILY_MOVE)
            assert_true(s.complete && s.n_failure == 0);
        for (size_t i = 0; s.complete && i < SCENARIO_FLOATS; i++)
            assert_float_equal(s.output[i], clean.output[i], 1e-5);
        assert_int_equal(driver_alive(), 0);
    }
}

/* Attention by blocks of keys, whose state has the size of a kernel that is refused later: at the latest
 * when it is tried again, all is that of another kernel. */
static void blocks(void **state)
{
    (void)state;
    const struct operation *o;
    size_t i = 0, n = 0;
    while ((o = operation_get(i)) && strcmp(o->name, "blocks of keys") != 0)
        i++;
    assert_non_null(o);
    driver_reset();
    struct vka_device *device = open_device(NO_KERNELS, false);
    bool right = false, takes[KERNEL_COUNT];
    assert_int_equal(operation_run(o, device, &right), VKA_OK);
    for (int k = 0; k < KERNEL_COUNT; k++)
        takes[k] = driver_saw(kernel_spv_table[k]->words);
    vka_device_destroy(&device);
    for (int k = 0; k < KERNEL_COUNT; k++) {
        if (!takes[k] || kernel_table[k].family != FAMILY_ATTENTION)
            continue;
        right = false;
        driver_reset();
        driver_refuse(kernel_spv_table[k]->words, VK_ERROR_UNKNOWN, 0);
        device = open_device(NO_KERNELS, false);
        enum vka_status status = operation_run(o, device, &right);
        if (status == VKA_INVALID)
            status = operation_run(o, device, &right);
        if (driver_refusals() > 0 && (status != VKA_OK || !right))
            fail_msg("blocks without %s: %s: %s", kernel_table[k].name, vka_status_name(status),
                     vka_device_error(device));
        n += driver_refusals() > 0;
        vka_device_destroy(&device);
    }
    assert_true(n > 0);
}

#define UNFOLDED "has OpSpecConstantOp of OpFAdd, which is not built in"

static const uint32_t *unfolded; /* the words of the kernel that is refused; NULL: none */

/* Under the static library. */
enum vka_status __wrap_fold_module(const uint32_t *words, size_t n_word, const uint32_t *values,
                                   uint32_t n_value, struct folded *result);
enum vka_status __real_fold_module(const uint32_t *words, size_t n_word, const uint32_t *values,
                                   uint32_t n_value, struct folded *result);

enum vka_status __wrap_fold_module(const uint32_t *words, size_t n_word, const uint32_t *values,
                                   uint32_t n_value, struct folded *result)
{
    if (words != unfolded)
        return __real_fold_module(words, n_word, values, n_value, result);
    *result = (struct folded){.why = UNFOLDED};
    return VKA_UNSUPPORTED;
}

/* Runs the operation on a portability device that cannot have the kernel; whether another has
 * taken its place. */
static bool run_unfolded(const struct operation *o, enum kernel kernel)
{
    const char *name = kernel_table[kernel].name;
    bool right = false;
    struct vka_device *device = open_device(NO_KERNELS, false);
    device->caps.portability = true;
    unfolded = kernel_spv_table[kernel]->words;
    enum vka_status status = operation_run(o, device, &right);
    unfolded = NULL;
    if (!strstr(warnings, name) || !strstr(warnings, UNFOLDED))
        fail_msg("\"%s\" does not name %s and why it is refused", warnings, name);
    if (status == VKA_OK)
        assert_true(right);
    else if (status != VKA_UNSUPPORTED || !strstr(vka_device_error(device), name) ||
             !strstr(vka_device_error(device), UNFOLDED))
        fail_msg("%s without %s: %s: %s", o->name, name, vka_status_name(status),
                 vka_device_error(device));
    vka_device_destroy(&device);
    assert_int_equal(driver_alive(), 0);
    return status == VKA_OK;
}

/* A kernel whose constants cannot be built in is refused like one that a compiler refuses. */
static void constants(void **state)
{
    (void)state;
    size_t tried[2] = {0}; /* without a rival; with */
    for (int k = 0; k < KERNEL_COUNT; k++) {
        const struct operation *o = user_of((enum kernel)k, NO_KERNELS);
        const bool rivals = has_rivals((enum kernel)k, NO_KERNELS);
        if (!o || (tried[rivals] && !all_kernels))
            continue;
        driver_reset();
        const bool passed = run_unfolded(o, (enum kernel)k);
        print_message("%s: without the constants of %s %s\n", o->name, kernel_table[k].name,
                      passed ? "by another" : "not at all");
        if (passed != rivals && !all_kernels)
            fail_msg("%s: %s", o->name, passed ? "what took its place?" : "no other");
        tried[rivals]++;
    }
    assert_true(tried[0] > 0 && tried[1] > 0);
}

TEST_PROGRAM_ARGUMENTS(refusals)
{
    all_kernels = argc == 2 && strcmp(argv[1], "--all") == 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(layers), cmocka_unit_test(blocks),
                                       cmocka_unit_test(constants), cmocka_unit_test(tiles),
                                       cmocka_unit_test(of_this_device)};
    const struct CMUnitTest in_turn[] = {tests[0], tests[1], tests[2], tests[3 + turn_of(2) % 2]};
    const bool turns = !all_kernels && turn_of(2) < 2;
    size_t n = 0;
    if (!driver_open() || vka_device_list(NULL, NULL, &n) != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device, so refused pipelines are not tested\n");
        return 77;
    }
    return turns ? cmocka_run_group_tests_name("refusals in turn", in_turn, NULL, NULL)
                 : cmocka_run_group_tests(tests, NULL, NULL);
}
