/* Host allocations of the library made to fail in turn: OUT_OF_HOST_MEMORY, nothing leaked, and the
 * same call again does what it should. A sample by default; --all fails every one.
 * SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include <vkattn/vkattn_io.h>

#include "driver.h"
#include "heap.h"
#include "scenario.h"
#include "test_program.h"

/* ---- The library ----------------------------------------------------------------------------- */

static size_t step = 9; /* every so many allocations fail */

static void every_allocation(enum scenario_kind kind)
{
    struct scenario clean, s;
    heap_fail(HEAP_NEVER);
    scenario_run(kind, &clean);
    size_t n = heap_count();
    assert_true(clean.complete && clean.n_failure == 0);
    assert_int_equal(heap_alive(), 0);
    assert_in_range(n, 20, 10000);
    size_t unnoticed = 0;
    for (size_t i = 0; i < n; i += step) {
        driver_reset();
        heap_fail(i);
        scenario_run(kind, &s);
        if (!s.complete || s.n_failure > 1)
            fail_msg("allocation %zu: failed again: %s", i, s.error);
        if (s.n_failure == 1 && s.failures[0] != VKA_OUT_OF_HOST_MEMORY)
            fail_msg("allocation %zu: %s: %s", i, vka_status_name(s.failures[0]), s.error);
        if (memcmp(s.output, clean.output, sizeof s.output) != 0)
            fail_msg("allocation %zu: other bits than without the failure", i);
        if (heap_alive() != 0 || driver_alive() != 0)
            fail_msg("allocation %zu: %ld blocks and %ld objects left", i, heap_alive(),
                     driver_alive());
        unnoticed += s.n_failure == 0;
    }
    print_message("%zu of %zu allocations failed in turn; %zu were not needed\n",
                  (n + step - 1) / step, n, unnoticed);
    assert_in_range(unnoticed, 0, n / 2);
}

static void mapped(void **state)
{
    (void)state;
    every_allocation(SCENARIO_MAPPED);
}

static void staged(void **state)
{
    (void)state;
    every_allocation(SCENARIO_STAGED);
}

static void built(void **state)
{
    (void)state;
    every_allocation(SCENARIO_BUILT);
}

/* ---- Files ----------------------------------------------------------------------------------- */

static char folder[] = "test_heap_faults-XXXXXX"; /* in the working directory */
static char safetensors_path[64], npy_path[64], gguf_path[64];

static const float numbers[6] = {1, 2, 3, 4, 5, 6};
static const struct vka_io_array array = {.name = "a rather long name, longer than one token",
                                          .dtype = VKA_IO_F32,
                                          .rank = 2,
                                          .shape = {2, 3},
                                          .data = numbers,
                                          .size = sizeof numbers};

static enum vka_status write_safetensors(char *error)
{
    const struct vka_io_metadata metadata = {"format", "pt, and \"quoted\""};
    return vka_safetensors_write(safetensors_path, &array, 1, &metadata, 1, error);
}

static enum vka_status read_safetensors(char *error)
{
    struct vka_safetensors *file = NULL;
    enum vka_status status = vka_safetensors_open(safetensors_path, error, &file);
    const struct vka_io_array *found = vka_safetensors_find(file, array.name);
    if (status == VKA_OK) /* no failure may change what is read */
        assert_true(found && found->size == sizeof numbers &&
                    memcmp(found->data, numbers, sizeof numbers) == 0);
    vka_safetensors_close(&file);
    return status;
}

static enum vka_status write_npy(char *error)
{
    return vka_npy_write(npy_path, &array, error);
}

static enum vka_status read_npy(char *error)
{
    /* Fortran's order, which the reader copies. */
    static const char header[] = "\x93NUMPY\x01\x00\x3a\x00"
                                 "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }";
    char bytes[sizeof header - 1 + sizeof numbers];
    struct vka_npy *file = NULL;
    memcpy(bytes, header, sizeof header - 1);
    memcpy(bytes + sizeof header - 1, numbers, sizeof numbers);
    enum vka_status status = vka_npy_parse("bytes", bytes, sizeof bytes, error, &file);
    if (status == VKA_OK)
        assert_true(((const float *)vka_npy_array(file)->data)[1] == 3);
    vka_npy_close(&file);
    return status;
}

static enum vka_status write_gguf(char *error)
{
    const struct vka_gguf_tensor tensor = {.name = "a",
                                           .dtype = VKA_F32,
                                           .rank = 2,
                                           .shape = {2, 3},
                                           .data = numbers,
                                           .size = sizeof numbers};
    const struct vka_gguf_value values[] = {
        {"format", VKA_GGUF_STRING, VKA_GGUF_STRING, 1, "text", 4},
        {"number", VKA_GGUF_U32, VKA_GGUF_U32, 1, numbers, 4}};
    return vka_gguf_write(gguf_path, &tensor, 1, values, 2, error);
}

static enum vka_status read_gguf(char *error)
{
    struct vka_gguf *file = NULL;
    enum vka_status status = vka_gguf_open(gguf_path, error, &file);
    const struct vka_gguf_tensor *found = vka_gguf_find(file, "a");
    if (status == VKA_OK)
        assert_true(found && found->size == sizeof numbers &&
                    memcmp(found->data, numbers, sizeof numbers) == 0);
    vka_gguf_close(&file);
    return status;
}

static void files(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum vka_status (*call)(char *error);
    } rows[] = {{"writing safetensors", write_safetensors},
                {"reading safetensors", read_safetensors},
                {"writing npy", write_npy},
                {"reading npy", read_npy},
                {"writing GGUF", write_gguf},
                {"reading GGUF", read_gguf}};
    char error[VKA_IO_ERROR_SIZE];
    for (size_t row = 0; row < COUNTOF(rows); row++) {
        heap_fail(HEAP_NEVER);
        assert_int_equal(rows[row].call(error), VKA_OK);
        size_t n = heap_count();
        assert_in_range(n, 1, 1000);
        assert_int_equal(heap_alive(), 0);
        for (size_t i = 0; i < n; i++) {
            heap_fail(i);
            enum vka_status status = rows[row].call(error);
            if (status != VKA_OUT_OF_HOST_MEMORY)
                fail_msg("%s, allocation %zu: %s", rows[row].name, i, vka_status_name(status));
            assert_int_equal(heap_alive(), 0);
        }
        heap_fail(HEAP_NEVER);
        print_message("%s: %zu allocations failed in turn\n", rows[row].name, n);
    }
}

TEST_PROGRAM_ARGUMENTS(heap_faults)
{
    if (argc == 2 && strcmp(argv[1], "--all") == 0)
        step = 1;
    const struct CMUnitTest library[] = {cmocka_unit_test(mapped), cmocka_unit_test(staged),
                                         cmocka_unit_test(built)};
    const struct CMUnitTest io[] = {cmocka_unit_test(files)};
    size_t n = 0;
    if (!mkdtemp(folder))
        return 1;
    snprintf(safetensors_path, sizeof safetensors_path, "%s/x.safetensors", folder);
    snprintf(npy_path, sizeof npy_path, "%s/x.npy", folder);
    snprintf(gguf_path, sizeof gguf_path, "%s/x.gguf", folder);
    int failed = cmocka_run_group_tests_name("files", io, NULL, NULL);
    unlink(safetensors_path);
    unlink(npy_path);
    unlink(gguf_path);
    rmdir(folder);
    if (!driver_open() || vka_device_list(NULL, NULL, &n) != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device, so failing allocations are not tested\n");
        return failed ? failed : 77;
    }
    return failed + cmocka_run_group_tests_name("library", library, NULL, NULL);
}
