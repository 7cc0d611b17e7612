/* Every case file has the same bits on a device with lower limits (limits.h).
 * SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include <dirent.h>

#include "patience.h"
#include "case/case.h"
#include "case/numbers.h"
#include "vkattn/attend.h"
#include "problems/limits.h"
#include "test_program.h"

/* The device as it is, and with lower limits. */
static struct vka_device *usual, *lowered;

static void run(struct vka_device *device, enum vka_path path, const struct case_file *c,
                struct attend *a)
{
    struct tool_device tool = {.device = device, .timeout = PATIENCE};
    *a = (struct attend){.problem = c, .path = path};
    a->present = c->expect_present_key || c->expect_present_value;
    for (int i = 0; i < ATTEND_RESULT_COUNT; i++)
        a->result_dtype[i] = case_dtype(c->query->dtype);
    if (attend_run(&tool, a) != VKA_OK)
        fail_msg("%s, path %d: %s", c->name, (int)path, vka_device_error(device));
}

static void check(const struct case_file *c, enum vka_path path)
{
    struct attend want, got;
    run(usual, path, c, &want);
    run(lowered, path, c, &got);
    assert_true(want.count[ATTEND_OUTPUT] > 0);
    for (int i = 0; i < ATTEND_RESULT_COUNT; i++) {
        assert_int_equal(got.count[i], want.count[i]);
        if (want.count[i] &&
            memcmp(got.values[i], want.values[i], want.count[i] * sizeof *want.values[i]) != 0)
            fail_msg("%s, path %d: other bits of %s", c->name, (int)path,
                     attend_result_name((enum attend_result)i));
    }
    attend_free(&want);
    attend_free(&got);
}

/* Every case in a folder; returns how many. */
static size_t check_folder(const char *folder)
{
    static const enum vka_path paths[] = {VKA_PATH_UNFUSED, VKA_PATH_FUSED};
    char path[1024], error[VKA_IO_ERROR_SIZE];
    size_t count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        struct case_file *c = NULL;
        if (!strstr(entry->d_name, ".safetensors"))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        assert_int_equal(case_open(path, error, &c), VKA_OK);
        for (size_t j = 0; j < sizeof paths / sizeof paths[0]; j++)
            check(c, paths[j]);
        case_close(&c);
        count++;
    }
    closedir(dir);
    return count;
}

static void every_case(void **state)
{
    size_t count = 0;
    (void)state;
    count += check_folder(CASES_DIR "/seeds");
    count += check_folder(CASES_DIR "/onnx/opset23");
    count += check_folder(CASES_DIR "/onnx/opset24");
    assert_true(count >= 100);
    print_message("%zu cases: the same bits, unfused and fused\n", count);
}

TEST_PROGRAM(case_bits)
{
    const struct vka_device_info info = limits_info(*VKA_INFO(vka_device_info, .device = NULL));
    if (vka_device_create(NULL, &usual) != VKA_OK || vka_device_create(&info, &lowered) != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device, no case was run\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_case)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    vka_device_destroy(&lowered);
    vka_device_destroy(&usual);
    return failed;
}
