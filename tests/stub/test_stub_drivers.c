/* What drivers answer that is legal and rare, on the stub's device "rebar", and a device that cannot be
 * opened.
 * SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <gpu/device.h>
#include <vkattn/vkattn_model.h>

#define MIB (1u << 20)
#define PATIENCE UINT64_C(10000000000) /* nanoseconds */

static struct vka_device *device;
static char told[512]; /* the last error */

static void keep(void *user, enum vka_log_level level, const char *message)
{
    (void)user;
    if (level == VKA_LOG_ERROR)
        snprintf(told, sizeof told, "%s", message);
}

static enum vka_status open_device(const char *name, bool no_mapped_memory)
{
    told[0] = '\0';
    return vka_device_create(VKA_INFO(vka_device_info, .device = name, .skip_self_test = true,
                                      .no_mapped_memory = no_mapped_memory, .log = keep),
                             &device);
}

static int open_rebar(void **state)
{
    (void)state;
    return open_device("rebar", false) == VKA_OK ? 0 : -1;
}

static int close_device(void **state)
{
    (void)state;
    vka_device_destroy(&device);
    return 0;
}

static struct vka_tensor *add(uint32_t rows)
{
    struct vka_tensor *tensor = NULL;
    const uint32_t shape[] = {rows, 64}; /* 256 bytes a row */
    assert_int_equal(vka_tensor_create(device, VKA_F32, 2, shape, &tensor), VKA_OK);
    return tensor;
}

/* A host that reads memory without a cache gets some 50 MB/s of a discrete GPU's: what is long is
 * copied to the host's own memory first. */
static void long_reads_are_copied(void **state)
{
    (void)state;
    const size_t bytes = MIB;
    uint32_t *written = malloc(bytes), *read = calloc(1, bytes);
    struct vka_tensor *tensor = add(MIB / 256), *row = NULL, *column = NULL;
    for (uint32_t i = 0; i < bytes / 4; i++)
        written[i] = i;
    assert_true(vka_device_properties(device)->mapped_memory);
    const uint64_t before = device->queue.submitted;
    assert_int_equal(vka_tensor_write(tensor, written, bytes), VKA_OK);
    assert_int_equal(device->queue.submitted, before); /* in place */
    assert_int_equal(vka_tensor_read(tensor, read, bytes), VKA_OK);
    assert_memory_equal(read, written, bytes);
    assert_true(device->queue.submitted > before);

    const uint64_t then = device->queue.submitted;
    assert_int_equal(vka_tensor_slice(tensor, 0, 7, 1, &row), VKA_OK);
    assert_int_equal(vka_tensor_read(row, read, 256), VKA_OK);
    assert_memory_equal(read, written + 7 * 64, 256);
    assert_int_equal(device->queue.submitted, then); /* a short one in place */

    assert_int_equal(vka_tensor_slice(tensor, 1, 3, 2, &column), VKA_OK);
    assert_int_equal(vka_tensor_read(column, read, bytes / 32), VKA_OK);
    for (uint32_t i = 0; i < MIB / 256; i++)
        assert_int_equal(read[2 * i + 1], i * 64 + 4);
    assert_true(device->queue.submitted > then);
    vka_tensor_destroy(&column);
    vka_tensor_destroy(&row);
    vka_tensor_destroy(&tensor);
    free(written);
    free(read);
}

/* The first type of device memory has 16 MiB in all. */
static void small_heaps_come_last(void **state)
{
    (void)state;
    assert_int_equal(open_device("rebar", true), VKA_OK);
    struct vka_tensor *tensor = add(400 * (MIB / 256));
    vka_tensor_destroy(&tensor);
    close_device(NULL);
}

/* A buffer takes whole 64 KiB, and an allocation has at most 4 GiB - 1. */
static void largest_allocation_is_had(void **state)
{
    (void)state;
    const uint64_t most = vka_device_properties(device)->max_allocation;
    struct vka_tensor *tensor = add((uint32_t)(most / 256));
    const uint32_t more[] = {(uint32_t)(most / 256 + 1), 64};
    vka_tensor_destroy(&tensor);
    assert_int_equal(vka_tensor_create(device, VKA_F32, 2, more, &tensor), VKA_UNSUPPORTED);
}

static struct vka_plan *plan_of(struct vka_tensor *from, struct vka_tensor *to)
{
    struct vka_plan *plan = NULL;
    assert_int_equal(vka_plan_create(device, VKA_INFO(vka_plan_info, .timestamps = true), &plan),
                     VKA_OK);
    assert_int_equal(vka_plan_add_activation(plan, VKA_INFO(vka_activation_op, .input = from,
                                                            .output = to, .kind = VKA_SILU)),
                     VKA_OK);
    assert_int_equal(vka_plan_finish(plan), VKA_OK);
    return plan;
}

/* A run whose times the driver does not have yet has run, and is not measured. */
static void late_times(void **state)
{
    (void)state;
    struct vka_tensor *from = add(4), *to = add(4);
    struct vka_plan *plan = plan_of(from, to);
    struct vka_pass_info pass = {0};
    assert_int_equal(vka_plan_run(plan, PATIENCE), VKA_OK);
    assert_int_equal(vka_plan_pass(plan, 0, &pass), VKA_OK);
    assert_true(pass.gpu_ms < 0);
    assert_int_equal(vka_plan_run(plan, PATIENCE), VKA_OK);
    assert_int_equal(vka_plan_pass(plan, 0, &pass), VKA_OK);
    assert_true(pass.gpu_ms > 0);
    vka_plan_destroy(&plan);
    vka_tensor_destroy(&from);
    vka_tensor_destroy(&to);
}

/* A driver that compiles in threads of its own has more to keep from one question to the next: what there
 * was room for is a cache, too. */
static void growing_cache(void **state)
{
    (void)state;
    size_t size = 0; /* rises by 8 each time that the driver is asked */
    assert_int_equal(vka_device_pipeline_cache(device, NULL, &size), VKA_OK);
    const size_t room = size + 8;
    char *data = malloc(room);
    assert_int_equal(vka_device_pipeline_cache(device, data, &(size_t){room}), VKA_OK);
    assert_int_equal(vka_device_pipeline_cache(device, data, &(size_t){room}), VKA_INVALID);
    size = room;
    close_device(NULL);
    assert_int_equal(vka_device_create(
                         VKA_INFO(vka_device_info, .device = "rebar", .skip_self_test = true,
                                  .log = keep, .pipeline_cache = data, .pipeline_cache_size = size),
                         &device),
                     VKA_OK);
    free(data);
}

/* Who asks for the most capable device and cannot have it is told which it was, and what to do. */
static void device_that_cannot_be_opened(void **state)
{
    (void)state;
    assert_int_equal(open_device(NULL, false), VKA_NO_DEVICE);
    assert_non_null(strstr(told, "stub broken"));
    assert_non_null(strstr(told, "name another device"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(long_reads_are_copied, open_rebar, close_device),
        cmocka_unit_test(small_heaps_come_last),
        cmocka_unit_test_setup_teardown(largest_allocation_is_had, open_rebar, close_device),
        cmocka_unit_test_setup_teardown(late_times, open_rebar, close_device),
        cmocka_unit_test_setup_teardown(growing_cache, open_rebar, close_device),
    };
    const struct CMUnitTest alone[] = {cmocka_unit_test(device_that_cannot_be_opened)};
    setenv("VKATTN_STUB", "rebar", 1);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    setenv("VKATTN_STUB", "cpu,broken", 1);
    return failed + cmocka_run_group_tests(alone, NULL, NULL);
}
