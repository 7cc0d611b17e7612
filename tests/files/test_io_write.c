/* vkattn_io, writing: what is written comes back, and wrong arguments are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <vkattn/vkattn_io.h>

#include "io/io.h"
#include "io_equal.h"
#include "test_program.h"
#include "unit/folder.h"

#define COUNTOF(array) (sizeof(array) / sizeof((array)[0]))

/* An array for every type and rank, and an empty one. */
#define ARRAY_COUNT (VKA_IO_DTYPE_COUNT * (VKA_IO_MAX_RANK + 2))

static unsigned char data[4096]; /* every array is a slice of it */
static struct vka_io_array arrays[ARRAY_COUNT];
static char names[ARRAY_COUNT][32];

static int set_up(void **state)
{
    static const uint64_t shape[] = {3, 2, 1, 4, 2, 1, 2, 3}; /* 288 elements */
    size_t n = 0;

    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 37 + i / 256);
    for (int dtype = 0; dtype < VKA_IO_DTYPE_COUNT; dtype++) {
        for (uint32_t rank = 0; rank <= VKA_IO_MAX_RANK + 1; rank++, n++) {
            struct vka_io_array *a = &arrays[n];

            snprintf(names[n], sizeof names[n], "%03zu \"\\\n\x01\xc3\xa9", n);
            *a = (struct vka_io_array){.name = names[n], .dtype = (enum vka_io_dtype)dtype};
            a->rank = rank > VKA_IO_MAX_RANK ? 3 : rank;
            memcpy(a->shape, shape, a->rank * sizeof shape[0]);
            if (rank > VKA_IO_MAX_RANK)
                a->shape[1] = 0;
            a->size = vka_io_dtype_size(a->dtype);
            for (uint32_t i = 0; i < a->rank; i++)
                a->size *= a->shape[i];
            a->data = data + n;
        }
    }
    assert_int_equal(n, ARRAY_COUNT);
    return folder_set_up(state);
}

static void test_safetensors_round_trip(void **state)
{
    static const struct vka_io_metadata metadata[] = {{"format", "x"},
                                                      {"", ""},
                                                      {"__metadata__", "a"},
                                                      {"quotes \"\\/", "\n\t\x7f\xf0\x9f\x98\x80"}};
    const char *path = in_folder("a.safetensors");
    char error[VKA_IO_ERROR_SIZE] = "";
    struct vka_safetensors *file;
    const unsigned char *first;

    (void)state;
    for (size_t count = 0; count <= ARRAY_COUNT; count += ARRAY_COUNT / 10) {
        if (vka_safetensors_write(path, arrays, count, metadata, COUNTOF(metadata), error))
            fail_msg("%s", error);
        if (vka_safetensors_open(path, error, &file))
            fail_msg("%s", error);
        assert_int_equal(vka_safetensors_count(file), count);
        for (size_t i = 0; i < count; i++) {
            check_equal(vka_safetensors_find(file, arrays[i].name), &arrays[i]);
            if (arrays[i].size)
                assert_string_equal(vka_safetensors_at(file, i)->name, arrays[i].name);
        }
        for (size_t i = 0; i < COUNTOF(metadata); i++)
            assert_string_equal(vka_safetensors_metadata(file, metadata[i].key), metadata[i].value);
        /* A mapping begins at a page: the data must begin at a multiple of 8. */
        first = count ? vka_safetensors_at(file, 0)->data : NULL;
        assert_int_equal((uintptr_t)first % 8, 0);
        vka_safetensors_close(&file);
        assert_int_equal(count_files(), 1);
    }
    assert_int_equal(vka_safetensors_write(path, NULL, 0, NULL, 0, error), VKA_OK);
    assert_int_equal(vka_safetensors_open(path, error, &file), VKA_OK);
    assert_null(vka_safetensors_metadata(file, "format"));
    vka_safetensors_close(&file);
    assert_int_equal(unlink(path), 0);
}

static void test_npy_round_trip(void **state)
{
    const char *path = in_folder("a.npy");
    char error[VKA_IO_ERROR_SIZE] = "";

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT; i++) {
        enum vka_status status = vka_npy_write(path, &arrays[i], error);
        struct vka_npy *file = NULL;

        if (arrays[i].dtype == VKA_IO_BF16 || arrays[i].dtype == VKA_IO_F8_E4M3 ||
            arrays[i].dtype == VKA_IO_F8_E5M2 || arrays[i].dtype == VKA_IO_F8_E8M0) {
            assert_int_equal(status, VKA_INVALID);
            continue;
        }
        if (status || vka_npy_open(path, error, &file))
            fail_msg("%s", error);
        check_equal(vka_npy_array(file), &arrays[i]);
        assert_int_equal((uintptr_t)vka_npy_array(file)->data % 64, 0);
        vka_npy_close(&file);
    }
    assert_int_equal(count_files(), 1);
    assert_int_equal(unlink(path), 0);
}

/* An array in Fortran's order owns its copy: the file may go before it. */
static void test_npy_fortran_file(void **state)
{
    static const char text[] = "\x93NUMPY\x01\0\x3d\0{'descr': '|u1', 'fortran_order': True, "
                               "'shape': (2, 2), }  \n"
                               "acbd";
    const char *path = in_folder("f.npy");
    FILE *out = fopen(path, "wb");
    struct vka_npy *file;

    (void)state;
    assert_non_null(out);
    assert_int_equal(fwrite(text, 1, sizeof text - 1, out), sizeof text - 1);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(vka_npy_open(path, NULL, &file), VKA_OK);
    assert_int_equal(truncate(path, 0), 0);
    assert_memory_equal(vka_npy_array(file)->data, "abcd", 4);
    vka_npy_close(&file);
    assert_int_equal(vka_npy_open(path, NULL, &file), VKA_IO); /* empty now */
    assert_int_equal(unlink(path), 0);
}

/* Extreme shapes fit the npy header. */
static void test_npy_long_shape(void **state)
{
    const struct vka_io_array array = {
        .dtype = VKA_IO_U8, .rank = 8, .shape = {INT64_MAX, 0, 1, 0, 1, 0, 1, 0}};
    const struct vka_io_array wide = {
        .dtype = VKA_IO_U8, .rank = 8, .shape = {127, 127, 127, 127, 127, 127, 127, 0}};
    const char *path = in_folder("l.npy");
    struct vka_npy *file;

    (void)state;
    assert_int_equal(vka_npy_write(path, &array, NULL), VKA_OK);
    assert_int_equal(vka_npy_open(path, NULL, &file), VKA_OK);
    check_equal(vka_npy_array(file), &array);
    vka_npy_close(&file);
    assert_int_equal(vka_npy_write(path, &wide, NULL), VKA_OK);
    assert_int_equal(vka_npy_open(path, NULL, &file), VKA_OK);
    check_equal(vka_npy_array(file), &wide);
    vka_npy_close(&file);
    assert_int_equal(unlink(path), 0);
}

static const struct vka_io_array good = {
    .name = "a", .dtype = VKA_IO_F32, .rank = 2, .shape = {2, 3}, .data = data, .size = 24};

static void test_array_arguments(void **state)
{
    struct vka_io_array bad[10];
    char error[VKA_IO_ERROR_SIZE];

    (void)state;
    for (size_t i = 0; i < COUNTOF(bad); i++)
        bad[i] = good;
    bad[0].dtype = VKA_IO_DTYPE_COUNT;
    bad[1].dtype = (enum vka_io_dtype) - 1;
    bad[2].rank = VKA_IO_MAX_RANK + 1;
    bad[3].rank = UINT32_MAX;
    bad[4].shape[0] = 1;
    bad[5].shape[0] = UINT64_MAX;
    bad[6].shape[0] = 1ull << 63;
    bad[7].size = 23;
    bad[8].size = 0;
    bad[9].data = NULL;
    for (size_t i = 0; i < COUNTOF(bad); i++) {
        error[0] = '\0';
        assert_int_equal(vka_safetensors_write(in_folder("x"), &bad[i], 1, NULL, 0, error),
                         VKA_INVALID);
        assert_non_null(strstr(error, "'a'"));
        assert_int_equal(vka_npy_write(in_folder("x"), &bad[i], error), VKA_INVALID);
    }
    assert_int_equal(vka_npy_write(NULL, &good, error), VKA_INVALID);
    assert_int_equal(vka_npy_write(in_folder("x"), NULL, error), VKA_INVALID);
    assert_int_equal(count_files(), 0);
}

static void test_name_arguments(void **state)
{
    static const char *const bad_names[] = {
        NULL, "__metadata__", "\xff", "a\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "b"};
    const char *path = in_folder("x");
    char error[VKA_IO_ERROR_SIZE];

    (void)state;
    for (size_t i = 0; i < COUNTOF(bad_names); i++) {
        struct vka_io_array pair[2] = {good, good};
        struct vka_io_metadata metadata[2] = {{"b", "v"}, {bad_names[i], "v"}};

        pair[0].name = "b";
        pair[1].name = bad_names[i];
        error[0] = '\0';
        assert_int_equal(vka_safetensors_write(path, pair, 2, NULL, 0, error), VKA_INVALID);
        assert_true(strlen(error) > 20);
        if (i != 1) /* a metadata key may be called so */
            assert_int_equal(vka_safetensors_write(path, &good, 1, metadata, 2, error),
                             VKA_INVALID);
        metadata[1] = (struct vka_io_metadata){"k", bad_names[i]};
        if (i != 1 && i != 7)
            assert_int_equal(vka_safetensors_write(path, &good, 1, metadata, 2, error),
                             VKA_INVALID);
    }
    assert_int_equal(vka_safetensors_write(NULL, &good, 1, NULL, 0, error), VKA_INVALID);
    assert_int_equal(vka_safetensors_write(path, NULL, 1, NULL, 0, error), VKA_INVALID);
    assert_int_equal(vka_safetensors_write(path, &good, 1, NULL, 1, error), VKA_INVALID);
    assert_int_equal(count_files(), 0);
}

/* Any bytes, none too. */
static void test_other_files(void **state)
{
    const char *path = in_folder("bytes");
    char error[VKA_IO_ERROR_SIZE] = "";
    unsigned char back[sizeof data + 1];

    (void)state;
    for (size_t size = sizeof data; size <= sizeof data; size -= sizeof data) {
        assert_int_equal(vka_file_write(path, size ? data : NULL, size, error), VKA_OK);
        FILE *file = fopen(path, "rb");

        assert_non_null(file);
        assert_int_equal(fread(back, 1, sizeof back, file), size);
        fclose(file);
        assert_memory_equal(back, data, size);
    }
    assert_int_equal(vka_file_write(NULL, data, 1, error), VKA_INVALID);
    assert_int_equal(vka_file_write(path, NULL, 1, error), VKA_INVALID);
    assert_memory_equal(error, path, strlen(path));
    assert_int_equal(vka_file_write("no/such/folder/x", data, 1, error), VKA_IO);
    assert_int_equal(count_files(), 1);
    assert_int_equal(unlink(path), 0);
}

static void test_dtypes(void **state)
{
    static const char *const dtype_names[] = {"F32", "F16",     "BF16",    "F64",    "BOOL", "U8",
                                              "I8",  "U16",     "I16",     "U32",    "I32",  "U64",
                                              "I64", "F8_E4M3", "F8_E5M2", "F8_E8M0"};
    static const size_t sizes[] = {4, 2, 2, 8, 1, 1, 1, 2, 2, 4, 4, 8, 8, 1, 1, 1};

    (void)state;
    assert_int_equal(COUNTOF(dtype_names), VKA_IO_DTYPE_COUNT);
    for (int i = 0; i < VKA_IO_DTYPE_COUNT; i++) {
        assert_string_equal(vka_io_dtype_name((enum vka_io_dtype)i), dtype_names[i]);
        assert_int_equal(vka_io_dtype_size((enum vka_io_dtype)i), sizes[i]);
    }
    assert_string_equal(vka_io_dtype_name(VKA_IO_DTYPE_COUNT), "?");
    assert_int_equal(vka_io_dtype_size(VKA_IO_DTYPE_COUNT), 0);
    assert_int_equal(vka_io_dtype_size((enum vka_io_dtype) - 1), 0);
}

TEST_PROGRAM(io_write)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_safetensors_round_trip),
        cmocka_unit_test(test_npy_round_trip),
        cmocka_unit_test(test_npy_fortran_file),
        cmocka_unit_test(test_npy_long_shape),
        cmocka_unit_test(test_array_arguments),
        cmocka_unit_test(test_name_arguments),
        cmocka_unit_test(test_other_files),
        cmocka_unit_test(test_dtypes),
    };

    return cmocka_run_group_tests(tests, set_up, folder_tear_down);
}
