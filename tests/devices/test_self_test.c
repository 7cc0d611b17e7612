/* Kernels that a driver gets wrong are found before a plan uses them, and what was found is kept.
 * SPDX-License-Identifier: MIT */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "gpu/blob.h"
#include "problems/turns.h"
#include "selftest/self_test.h"
#include "test_program.h"
#include "self_test_case.h"

#define ALL set_all_but(NO_KERNELS)

static void *get_blob(struct vka_device *device, size_t *size)
{
    assert_int_equal(vka_device_pipeline_cache(device, NULL, size), VKA_OK);
    void *blob = malloc(*size);
    assert_non_null(blob);
    assert_int_equal(vka_device_pipeline_cache(device, blob, size), VKA_OK);
    return blob;
}

/* Kernels to be tried here: not the one that SwiftShader's compiler, with its subgroups of 4, does
 * not come to an end with. */
static bool is_tried(const struct vka_device *device, enum kernel kernel)
{
    bool narrow = device->caps.properties.subgroup_size < 8;
    return !kernel_missing(kernel, &device->caps) && !(narrow && kernel == KERNEL_matmul_lane4);
}

/* Whether the device calls the kernel wrong. */
static bool is_wrong(struct vka_device *device, enum kernel kernel)
{
    struct vka_kernel_info info;
    assert_int_equal(vka_device_kernel(device, kernel, &info), VKA_OK);
    assert_true(info.tested);
    bool wrong = info.missing && strstr(info.missing, "failed its self-test");
    assert_int_equal(wrong, info.missing != NULL);
    return wrong;
}

static void right_kernels_pass(void **state)
{
    (void)state;
    struct heard heard = {0};
    struct vka_device *device = open_device(NULL, 0, false, &heard);
    size_t n = 0;
    for (int i = 0; i < KERNEL_COUNT; i++) {
        enum kernel kernel = (enum kernel)i;
        if (!is_tried(device, kernel))
            continue;
        miscompile(device, MISTAKE_SUMS, NO_KERNELS);
        bool first = !set_has(tested(device), kernel);
        assert_int_equal(self_test_kernel(device, kernel, 0), VKA_OK);
        if (is_wrong(device, kernel) || (first && !miscompile_used(kernel)))
            fail_msg("%s", kernel_table[i].name);
        miscompile(device, MISTAKE_SUMS, NO_KERNELS);
        assert_int_equal(self_test_kernel(device, kernel, 0), VKA_OK);
        assert_int_equal(miscompile_dispatches(), 0); /* not twice */
        n++;
    }
    print_message("%zu kernels pass\n", n);
    assert_in_range(n, 10, KERNEL_COUNT);
    assert_int_equal(heard.now + heard.before, 0);
    assert_true(set_is_empty(device->caps.without));
    vka_device_destroy(&device);
}

/* Those that move or count words or turns: no operation on floats changes what they do. */
static bool has_sums(enum kernel kernel)
{
    const struct kernel_set others =
        KERNEL_SET(KERNEL_copy, KERNEL_nonfinite, KERNEL_attention_map, KERNEL_cache_advance,
                   KERNEL_cache_gather, KERNEL_loop_probe, KERNEL_scatter, KERNEL_argmax);
    return !set_has(others, kernel);
}

/* Tests one kernel with a mistake in it; whether that was one: of a single workgroup, the first is
 * all. */
static bool find_mistake(struct vka_device *device, struct heard *heard, enum kernel kernel,
                         enum mistake mistake)
{
    heard->now = 0;
    bool wanted = is_tried(device, kernel) && (mistake != MISTAKE_SUMS || has_sums(kernel));
    if (wanted) {
        miscompile(device, mistake, KERNEL_SET(kernel));
        assert_int_equal(self_test_kernel(device, kernel, 0), VKA_OK);
        wanted = mistake != MISTAKE_FIRST || miscompile_used_many(kernel);
        if (wanted && (!is_wrong(device, kernel) || heard->now < 1))
            fail_msg("%s with mistake %d passed", kernel_table[kernel].name, (int)mistake);
    }
    return wanted;
}

/* Each kernel with each mistake; at a landing with one of them in turn (problems/turns.h). */
static void wrong_kernels_fail(void **state)
{
    (void)state;
    const enum mistake mistakes[] = {MISTAKE_SUMS, MISTAKE_NO_WORK, MISTAKE_FIRST};
    struct heard heard = {0};
    struct vka_device *device = open_device(NULL, 0, false, &heard);
    const struct caps caps = device->caps;
    for (size_t m = 0; m < COUNTOF(mistakes); m++) {
        size_t n = 0;
        for (int k = 0; k < KERNEL_COUNT; k++) {
            if (turn_of(3) < 3 && (size_t)k % 3 != (m + turn_of(3)) % 3)
                continue;
            renew_device(device, &caps);
            n += find_mistake(device, &heard, (enum kernel)k, mistakes[m]);
        }
        print_message("mistake %d: %zu wrong kernels found\n", (int)mistakes[m], n);
        assert_in_range(n, turn_of(3) < 3 ? 2 : 8, KERNEL_COUNT);
    }
    vka_device_destroy(&device);
}

/* A quantised cache tests two kernels at once: that which counts is not called wrong for the other. */
static void right_one_is_blamed(void **state)
{
    (void)state;
    struct heard heard = {0};
    struct vka_device *device = open_device(NULL, 0, false, &heard);
    if (is_tried(device, KERNEL_cache_quantise)) {
        miscompile(device, MISTAKE_NO_WORK, KERNEL_SET(KERNEL_cache_quantise));
        assert_int_equal(self_test_kernel(device, KERNEL_cache_quantise, 0), VKA_OK);
        assert_true(is_wrong(device, KERNEL_cache_quantise));
        assert_false(is_wrong(device, KERNEL_cache_advance));
        assert_true(heard.now == 1);
    }
    vka_device_destroy(&device);
}

static void skipped(void **state)
{
    (void)state;
    struct heard heard = {0};
    struct vka_device *device = open_device(NULL, 0, true, &heard);
    struct kernel_set kernels;
    miscompile(device, MISTAKE_NO_WORK, ALL);
    assert_int_equal(try_layer(device, VKA_PATH_UNFUSED, &kernels), VKA_OK);
    assert_int_equal(miscompile_dispatches(), 0);
    assert_true(set_is_empty(tested(device)));
    miscompile(device, MISTAKE_NO_WORK, KERNEL_SET(KERNEL_softmax_subgroup, KERNEL_softmax_shared));
    assert_int_equal(vka_device_self_test(device), VKA_OK); /* asked for all the same */
    assert_true(!set_is_empty(tested(device)) && heard.now >= 1);
    assert_int_equal(try_layer(device, VKA_PATH_UNFUSED, &kernels), VKA_UNSUPPORTED);
    vka_device_destroy(&device);
}

static void count_errors(void *user, enum vka_log_level level, const char *message)
{
    (void)message;
    *(unsigned *)user += level == VKA_LOG_ERROR;
}

/* A kernel whose known problem other kernels cannot take either: no error in the application's log. */
static void untestable(void **state)
{
    (void)state;
    struct vka_device *device = NULL;
    unsigned errors = 0;
    assert_int_equal(
        vka_device_create(VKA_INFO(vka_device_info, .log = count_errors, .log_user = &errors),
                          &device),
        VKA_OK);
    for (int k = 0; k < KERNEL_COUNT; k++)
        if (kernel_table[k].family == FAMILY_ATTENTION)
            set_add(&device->caps.without, k);
    assert_int_equal(device->self_test.run(device, KERNEL_attention_map, 64), VKA_OK);
    assert_int_equal(device->caps.kernels[KERNEL_attention_map], KERNEL_UNTESTED);
    assert_int_equal(errors, 0);
    struct kernel_set kernels;
    assert_int_equal(try_layer(device, VKA_PATH_FUSED, &kernels), VKA_UNSUPPORTED);
    assert_int_not_equal(errors, 0); /* what was asked for is one */
    vka_device_destroy(&device);
}

static void kept(void **state)
{
    (void)state;
    struct heard heard = {0};
    struct kernel_set kernels, again, done;
    struct vka_device *device = open_device(NULL, 0, false, &heard);
    assert_int_equal(try_layer(device, VKA_PATH_UNFUSED, &kernels), VKA_OK);
    assert_true(miscompile_dispatches() >= 2); /* the tests' own */
    done = tested(device);
    assert_true(set_is_empty(set_minus(kernels, done)));
    size_t size, same_size;
    unsigned char *blob = get_blob(device, &size);
    vka_device_destroy(&device);

    device = open_device(blob, size, false, &heard);
    assert_true(set_is_equal(tested(device), done));
    assert_int_equal(try_layer(device, VKA_PATH_UNFUSED, &again), VKA_OK);
    assert_int_equal(miscompile_dispatches(), 0);
    assert_true(set_is_equal(again, kernels));
    vka_device_destroy(&device);

    device = open_device(blob, size, true, &heard); /* skipping forgets nothing */
    unsigned char *same = get_blob(device, &same_size);
    assert_memory_equal(same + same_size - BLOB_TAIL, blob + size - BLOB_TAIL, BLOB_TAIL);
    free(same);
    vka_device_destroy(&device);

    assert_int_equal(heard.now + heard.before, 0);
    free(blob);
}

/* The driver sees nothing of a blob that is not as it was written, and nothing else is believed. */
static void torn(void **state)
{
    (void)state;
    size_t size;
    struct vka_device *device = open_device(NULL, 0, false, NULL);
    assert_int_equal(self_test_kernel(device, KERNEL_copy, 0), VKA_OK);
    unsigned char *blob = get_blob(device, &size);
    vka_device_destroy(&device);
    device = open_device(NULL, 0, false, NULL);
    for (size_t byte = 0; byte < size; byte += 1 + size / 4096) {
        blob[byte] ^= 0x10;
        assert_int_equal(blob_read(device, blob, size), 0);
        blob[byte] ^= 0x10;
        assert_int_equal(blob_read(device, blob, byte), 0);
        assert_int_equal(blob_read(device, blob + byte + 1, size - byte - 1), 0);
    }
    device->caps.properties.driver_version++;
    size_t driver =
        blob_read(device, blob, size); /* what was compiled may be of use all the same */
    assert_true(driver == 0 || driver == size - BLOB_TAIL);
    assert_true(set_is_empty(tested(device)));
    device->caps.properties.driver_version--;
    assert_int_equal(blob_read(device, blob, size), driver);
    assert_true(set_is_equal(tested(device), KERNEL_SET(KERNEL_copy, KERNEL_loop_probe)));
    vka_device_destroy(&device);
    free(blob);
}

static void failure_kept(void **state)
{
    (void)state;
    struct heard heard = {0};
    size_t size;
    struct vka_device *device = open_device(NULL, 0, false, &heard);
    miscompile(device, MISTAKE_NO_WORK, KERNEL_SET(KERNEL_copy));
    assert_int_equal(self_test_kernel(device, KERNEL_copy, 0), VKA_OK);
    assert_true(heard.now == 1 && heard.before == 0);
    void *blob = get_blob(device, &size);
    vka_device_destroy(&device);
    device = open_device(blob, size, false, &heard);
    assert_true(heard.now == 1 && heard.before == 1);
    assert_true(is_wrong(device, KERNEL_copy));
    vka_device_destroy(&device);
    device = open_device(blob, size, true, &heard);
    assert_null(kernel_missing(KERNEL_copy, &device->caps));
    assert_true(heard.now == 1 && heard.before == 1);
    vka_device_destroy(&device);
    free(blob);
}

static void recovered(void **state)
{
    (void)state;
    struct vka_device *device = open_device(NULL, 0, false, NULL);
    struct kernel_set kernels, again;
    miscompile(device, MISTAKE_NO_WORK, KERNEL_SET(KERNEL_softmax_subgroup));
    assert_int_equal(try_layer(device, VKA_PATH_UNFUSED, &kernels), VKA_OK);
    device->lost = true;
    assert_int_equal(vka_device_recover(device), VKA_OK);
    miscompile(device, MISTAKE_NO_WORK, NO_KERNELS);
    assert_int_equal(try_layer(device, VKA_PATH_UNFUSED, &again), VKA_OK);
    assert_int_equal(miscompile_dispatches(), 0);
    assert_true(set_is_equal(again, kernels));
    assert_true(set_has(kernels, KERNEL_softmax_shared) &&
                !set_has(kernels, KERNEL_softmax_subgroup));
    vka_device_destroy(&device);
}

/* A kernel that takes the device with it is given up the second time: the first may have been
 * another's fault. */
static void losses(void **state)
{
    (void)state;
    struct vka_device *device = open_device(NULL, 0, false, NULL);
    const struct kernel_set subgroup = KERNEL_SET(KERNEL_softmax_subgroup);
    struct kernel_set kernels;
    if (kernel_missing(KERNEL_softmax_subgroup, &device->caps))
        skip();
    for (int i = 0; i < 2; i++) {
        miscompile(device, MISTAKE_LOSS, subgroup);
        assert_int_equal(try_layer(device, VKA_PATH_UNFUSED, &kernels), VKA_DEVICE_LOST);
        assert_true(set_is_equal(in_state(device, KERNEL_WRONG), i ? subgroup : NO_KERNELS));
        assert_int_equal(vka_device_recover(device), VKA_OK);
    }
    miscompile(device, MISTAKE_LOSS, subgroup);
    assert_int_equal(try_layer(device, VKA_PATH_UNFUSED, &kernels), VKA_OK);
    assert_true(set_has(kernels, KERNEL_softmax_shared) && !set_meets(kernels, subgroup));
    assert_true(set_has(tested(device), KERNEL_softmax_shared));
    vka_device_destroy(&device);
}

static double now_ms(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* Creation submits nothing: the least times with and without are those of the same work. */
static void creation_time(void **state)
{
    (void)state;
    double least[2] = {INFINITY, INFINITY};
    for (int i = 0; i < 6; i++) {
        double begin = now_ms();
        struct vka_device *device = open_device(NULL, 0, i % 2, NULL);
        least[i % 2] = fmin(least[i % 2], now_ms() - begin);
        assert_int_equal(device->queue.submitted, 0);
        vka_device_destroy(&device);
    }
    print_message("a device in %.1f ms, with skip_self_test in %.1f ms\n", least[0], least[1]);
}

/* `self_test kept`: only what is kept of tests, and where. */
TEST_PROGRAM_ARGUMENTS(self_test)
{
    const struct CMUnitTest kernels[] = {
        cmocka_unit_test(creation_time),
        cmocka_unit_test(right_kernels_pass),
        cmocka_unit_test(wrong_kernels_fail),
        cmocka_unit_test(right_one_is_blamed),
    };
    const struct CMUnitTest results[] = {
        cmocka_unit_test(skipped), cmocka_unit_test(untestable),   cmocka_unit_test(kept),
        cmocka_unit_test(torn),    cmocka_unit_test(failure_kept), cmocka_unit_test(recovered),
        cmocka_unit_test(losses),
    };
    if (!have_device("the self-test of kernels"))
        return 77;
    int failed = 0;
    if (argc < 2 || strcmp(argv[1], "kept") != 0)
        failed = cmocka_run_group_tests_name("kernels", kernels, NULL, NULL);
    return failed + cmocka_run_group_tests_name("results", results, NULL, NULL);
}
