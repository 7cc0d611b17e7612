/* GGUF, writing: what is written is read back the same; what a reader would refuse is not
 * written. */
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

#include "gguf_cases.h"
#include "test_program.h"

#define COUNTOF(array) (sizeof(array) / sizeof((array)[0]))

static char folder[] = "test_gguf_write-XXXXXX"; /* in the working directory */
static char path[64];
static unsigned char data[4096];

static int set_up(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 7 + 1);
    if (!mkdtemp(folder))
        return 1;
    snprintf(path, sizeof path, "%s/x.gguf", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static const struct vka_gguf_tensor weight = {
    .name = "weight", .dtype = VKA_Q8_0, .rank = 2, .shape = {3, 64}, .data = data, .size = 204};
static const struct vka_gguf_value version = {.key = "general.quantization_version",
                                              .type = VKA_GGUF_U32,
                                              .item = VKA_GGUF_U32,
                                              .count = 1,
                                              .data = "\2\0\0\0",
                                              .size = 4};

static void check_tensor(const struct vka_gguf_tensor *got, const struct vka_gguf_tensor *want)
{
    assert_string_equal(got->name, want->name);
    if (want->type)
        assert_string_equal(got->type, want->type);
    else
        assert_int_equal(got->dtype, want->dtype);
    assert_int_equal(got->rank, want->rank);
    assert_memory_equal(got->shape, want->shape, want->rank * sizeof want->shape[0]);
    assert_int_equal(got->size, want->size);
    assert_memory_equal(got->data, want->data, want->size);
}

static void check_value(const struct vka_gguf_value *got, const struct vka_gguf_value *want)
{
    assert_string_equal(got->key, want->key);
    assert_int_equal(got->type, want->type);
    assert_int_equal(got->item, want->item);
    assert_true(got->count == want->count);
    assert_int_equal(got->size, want->size);
    assert_memory_equal(got->data, want->data, want->size);
}

/* Writes what was read from bytes, and reads it again. */
static void check_round_trip(const unsigned char *bytes, size_t size)
{
    struct vka_gguf_tensor tensors[8];
    struct vka_gguf_value values[8];
    char error[VKA_IO_ERROR_SIZE] = "";
    struct vka_gguf *first, *second;
    size_t count, value_count;

    assert_int_equal(vka_gguf_parse("bytes", bytes, size, error, &first), VKA_OK);
    count = vka_gguf_count(first);
    value_count = vka_gguf_metadata_count(first);
    assert_true(count <= COUNTOF(tensors) && value_count <= COUNTOF(values));
    for (size_t i = 0; i < count; i++)
        tensors[i] = *vka_gguf_at(first, i);
    for (size_t i = 0; i < value_count; i++)
        values[i] = *vka_gguf_metadata_at(first, i);
    if (vka_gguf_write(path, tensors, count, values, value_count, error) ||
        vka_gguf_open(path, error, &second)) {
        assert_non_null(strstr(error, "general.alignment is 2147483648, more than 1048576"));
    } else {
        assert_int_equal(vka_gguf_count(second), count);
        assert_int_equal(vka_gguf_metadata_count(second), value_count);
        for (size_t i = 0; i < count; i++)
            check_tensor(vka_gguf_at(second, i), &tensors[i]);
        for (size_t i = 0; i < value_count; i++)
            check_value(vka_gguf_metadata_at(second, i), &values[i]);
        vka_gguf_close(&second);
    }
    vka_gguf_close(&first);
}

static void test_round_trip(void **state)
{
    static unsigned char bytes[GGUF_ROOM];

    (void)state;
    for (size_t i = 0; i < COUNTOF(wellformed_gguf); i++)
        check_round_trip(bytes, gguf_build(wellformed_gguf[i].words, bytes));
    for (size_t i = 0; i < GGUF_TYPE_COUNT; i++) {
        char words[200];

        sprintf(words, HEAD(1, 0) "=a w2 d%u d2 w%u d0 p32 z%u", gguf_types[i].values,
                gguf_types[i].number, 2 * gguf_types[i].size);
        check_round_trip(bytes, gguf_build(words, bytes));
    }
}

/* The bytes of a file, by hand. */
static void test_bytes(void **state)
{
    static unsigned char want[GGUF_ROOM], got[GGUF_ROOM];
    const struct vka_gguf_tensor tensors[] = {
        {.name = "a", .dtype = VKA_I8, .rank = 2, .shape = {2, 3}, .data = data, .size = 6},
        {.name = "b", .type = "f16", .dtype = VKA_F32, .data = data, .size = 2}};
    const size_t size = gguf_build(
        HEAD(2, 1) U32("general.quantization_version",
                       2) "=a w2 d3 d2 w24 d0 =b w0 w1 d32 p32 x01080f161d24 p32 x0108 p32",
        want);
    char error[VKA_IO_ERROR_SIZE] = "";
    FILE *file;

    (void)state;
    if (vka_gguf_write(path, tensors, 2, &version, 1, error))
        fail_msg("%s", error);
    file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(got, 1, sizeof got, file), size);
    fclose(file);
    assert_memory_equal(got, want, size);
}

/* Refuses a file with one tensor and one key, and leaves what stands at path. */
static void check_refused(const struct vka_gguf_tensor *tensor, const struct vka_gguf_value *value,
                          const char *reason)
{
    char error[VKA_IO_ERROR_SIZE] = "";
    struct vka_gguf *file;

    assert_int_equal(vka_gguf_write(path, &weight, 1, &version, 1, error), VKA_OK);
    if (vka_gguf_write(path, tensor, 1, value, 1, error) != VKA_INVALID || !strstr(error, reason))
        fail_msg("for '%s': %s", reason, error);
    assert_memory_equal(error, path, strlen(path));
    assert_int_equal(vka_gguf_write(path, tensor, 1, value, 1, NULL), VKA_INVALID);
    assert_int_equal(vka_gguf_open(path, error, &file), VKA_OK);
    check_tensor(vka_gguf_at(file, 0), &weight);
    vka_gguf_close(&file);
}

static void test_bad_tensors(void **state)
{
    static const struct {
        struct vka_gguf_tensor tensor;
        const char *reason;
    } rows[] = {
        {{.dtype = VKA_I8, .rank = 1, .shape = {1}, .data = data, .size = 1}, "tensor 0 is NULL"},
        {{.name = "a", .dtype = VKA_I8, .rank = 1, .shape = {1}, .size = 1}, "tensor 0 is NULL"},
        {{.name = "", .dtype = VKA_I8, .data = data, .size = 1}, "has 0 bytes"},
        {{.name = LONG_64 "x", .dtype = VKA_I8, .data = data, .size = 1}, "has 65 bytes"},
        {{.name = "\xff", .dtype = VKA_I8, .data = data, .size = 1}, "is not UTF-8"},
        {{.name = "a", .dtype = VKA_I8, .rank = 5, .data = data, .size = 1}, "has 5 axes"},
        {{.name = "a", .dtype = VKA_I8, .rank = 1, .data = data, .size = 1}, "has 1 bytes, but"},
        {{.name = "a", .dtype = VKA_BOOL, .data = data, .size = 1}, "has no type of GGUF"},
        {{.name = "a", .dtype = VKA_I4_G128, .data = data, .size = 1}, "has no type of GGUF"},
        {{.name = "a", .dtype = VKA_DTYPE_COUNT, .data = data, .size = 1}, "has no type of GGUF"},
        {{.name = "a", .type = "f31", .data = data, .size = 1}, "has no type of GGUF"},
        {{.name = "a", .type = "q8_1", .data = data, .size = 1}, "has type q8_1"},
        {{.name = "a", .dtype = VKA_I8, .data = data, .size = 2}, "has 2 bytes, but its shape"},
        {{.name = "a", .dtype = VKA_F32, .data = data, .size = 1}, "has 1 bytes, but its shape"},
        {{.name = "a", .dtype = VKA_Q8_0, .rank = 1, .shape = {31}, .data = data, .size = 34},
         "has rows of 31"},
        {{.name = "a",
          .dtype = VKA_I8,
          .rank = 2,
          .shape = {UINT64_MAX, UINT64_MAX},
          .data = data,
          .size = 1},
         "has a shape that overflows"},
        {{.name = "a",
          .dtype = VKA_I8,
          .rank = 1,
          .shape = {INT64_MAX},
          .data = data,
          .size = INT64_MAX},
         "the sizes overflow"},
        {{.name = "a",
          .dtype = VKA_I8,
          .rank = 1,
          .shape = {UINT64_MAX},
          .data = data,
          .size = SIZE_MAX},
         "the sizes overflow"},
    };

    (void)state;
    for (size_t i = 0; i < COUNTOF(rows); i++)
        check_refused(&rows[i].tensor, &version, rows[i].reason);
}

static void test_bad_values(void **state)
{
    static const char bytes[32] = {3, 0, 0, 0, 0, 0, 0, 0, 'a', 'b', 'c'};
    static const struct {
        struct vka_gguf_value value;
        const char *reason;
    } rows[] = {
        {{NULL, VKA_GGUF_U8, VKA_GGUF_U8, 1, bytes, 1}, "key 0 is NULL"},
        {{"", VKA_GGUF_U8, VKA_GGUF_U8, 1, bytes, 1}, "has 0 bytes"},
        {{"\xff", VKA_GGUF_U8, VKA_GGUF_U8, 1, bytes, 1}, "is not UTF-8"},
        {{"k", VKA_GGUF_U8, VKA_GGUF_U8, 1, NULL, 1}, "do not give its 1 bytes"},
        {{"k", VKA_GGUF_U32, VKA_GGUF_U32, 1, bytes, 3}, "do not give its 3 bytes"},
        {{"k", VKA_GGUF_U32, VKA_GGUF_U32, 1, bytes, 8}, "do not give its 8 bytes"},
        {{"k", VKA_GGUF_TYPE_COUNT, VKA_GGUF_U8, 1, bytes, 1}, "do not give its"},
        {{"k", VKA_GGUF_ARRAY, VKA_GGUF_ARRAY, 1, bytes, 8}, "do not give its 8 bytes"},
        {{"k", VKA_GGUF_ARRAY, VKA_GGUF_U32, 3, bytes, 8}, "do not give its 8 bytes"},
        {{"k", VKA_GGUF_ARRAY, VKA_GGUF_U32, 1u << 30, bytes, 8}, "do not give its 8 bytes"},
        {{"k", VKA_GGUF_ARRAY, VKA_GGUF_STRING, 1, bytes, 10}, "do not give its 10 bytes"},
        {{"k", VKA_GGUF_ARRAY, VKA_GGUF_STRING, 1, bytes, 12}, "do not give its 12 bytes"},
        {{"k", VKA_GGUF_ARRAY, VKA_GGUF_STRING, 2, bytes, 11}, "do not give its 11 bytes"},
        {{"k", VKA_GGUF_ARRAY, VKA_GGUF_STRING, 0, bytes, 11}, "do not give its 11 bytes"},
        {{"k", VKA_GGUF_ARRAY, VKA_GGUF_STRING, 1, bytes, 7}, "do not give its 7 bytes"},
        {{"k", VKA_GGUF_BOOL, VKA_GGUF_BOOL, 1, bytes, 1}, "has a bool of 3"},
        {{ALIGNMENT, VKA_GGUF_U32, VKA_GGUF_U32, 1, bytes, 4}, "is 3, not a power of two"},
        {{ALIGNMENT, VKA_GGUF_U32, VKA_GGUF_U32, 1, bytes + 4, 4}, "is 0, not a power of two"},
        {{ALIGNMENT, VKA_GGUF_U32, VKA_GGUF_U32, 1, bytes + 5, 4}, "is 1627389952, more than"},
        {{ALIGNMENT, VKA_GGUF_U64, VKA_GGUF_U64, 1, bytes, 8}, "is of type u64"},
    };

    (void)state;
    for (size_t i = 0; i < COUNTOF(rows); i++)
        check_refused(&weight, &rows[i].value, rows[i].reason);
}

static void test_arguments(void **state)
{
    const struct vka_gguf_tensor twice[] = {weight, weight};
    const struct vka_gguf_value values[] = {version, version};
    char error[VKA_IO_ERROR_SIZE] = "", no_folder[96];

    (void)state;
    assert_int_equal(vka_gguf_write(NULL, &weight, 1, NULL, 0, error), VKA_INVALID);
    assert_int_equal(vka_gguf_write(path, NULL, 1, NULL, 0, error), VKA_INVALID);
    assert_int_equal(vka_gguf_write(path, &weight, 1, NULL, 1, error), VKA_INVALID);
    assert_int_equal(vka_gguf_write(path, twice, 2, NULL, 0, error), VKA_INVALID);
    assert_non_null(strstr(error, "the name 'weight' occurs twice"));
    assert_int_equal(vka_gguf_write(path, NULL, 0, values, 2, error), VKA_INVALID);
    assert_non_null(strstr(error, "the key 'general.quantization_version' occurs twice"));
    snprintf(no_folder, sizeof no_folder, "%s/no/x.gguf", folder);
    assert_int_equal(vka_gguf_write(no_folder, &weight, 1, NULL, 0, error), VKA_IO);
    assert_memory_equal(error, no_folder, strlen(no_folder));
    assert_int_equal(vka_gguf_write(path, NULL, 0, NULL, 0, error), VKA_OK);
}

TEST_PROGRAM(gguf_write)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),  cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_bad_tensors), cmocka_unit_test(test_bad_values),
        cmocka_unit_test(test_arguments),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
