/* GGUF, reading: keys, values and tensors of a file that was read, and wrong arguments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vkattn/vkattn_io.h>

#include "core/dtype.h"
#include "gguf_file.h"
#include "io/gguf_types.h"
#include "test_program.h"

#define COUNTOF(array) (sizeof(array) / sizeof((array)[0]))

static void check_string(const struct vka_gguf_value *value, size_t *at, const char *wanted)
{
    const char *text;
    size_t size;

    assert_true(vka_gguf_string(value, at, &text, &size));
    assert_int_equal(size, strlen(wanted));
    assert_memory_equal(text, wanted, size);
}

static void test_strings(void **state)
{
    char error[VKA_IO_ERROR_SIZE];
    const struct vka_gguf_value *list, *single;
    const char *text;
    struct vka_gguf *file;
    size_t size, at = 0, text_size;
    unsigned char *bytes = build(SAMPLE, &size);

    (void)state;
    assert_int_equal(parse(bytes, size, &file, error), VKA_OK);
    list = vka_gguf_metadata(file, "list");
    assert_int_equal(list->count, 2);
    check_string(list, &at, "one");
    check_string(list, &at, "three");
    assert_false(vka_gguf_string(list, &at, &text, &text_size));
    single = vka_gguf_metadata(file, "s");
    assert_int_equal(single->size, 4);
    assert_memory_equal(single->data, "text", 4);
    at = 0;
    check_string(single, &at, "text");
    assert_false(vka_gguf_string(single, &at, &text, &text_size));
    at = 0;
    assert_false(vka_gguf_string(vka_gguf_metadata(file, "b"), &at, &text, &text_size));
    assert_false(vka_gguf_string(NULL, &at, &text, &text_size));
    vka_gguf_close(&file);
    free(bytes);
}

static void test_numbers(void **state)
{
    static const struct {
        const char *words;
        bool is_integer, is_real;
        int64_t integer;
        double real;
    } rows[] = {
        {KEY("a", 0) "b200", true, false, 200, 0},
        {KEY("a", 1) "b200", true, false, -56, 0},
        {KEY("a", 2) "h0xfffe", true, false, 65534, 0},
        {KEY("a", 3) "h0xfffe", true, false, -2, 0},
        {KEY("a", 4) "w0xfffffffe", true, false, 4294967294, 0},
        {KEY("a", 5) "w0xfffffffe", true, false, -2, 0},
        {KEY("a", 6) "w0xbfc00000", false, true, 0, -1.5},
        {KEY("a", 7) "b1", true, false, 1, 0},
        {KEY("a", 8) "=5", false, false, 0, 0},
        {KEY("a", 10) "d0x7fffffffffffffff", true, false, INT64_MAX, 0},
        {KEY("a", 10) "d0x8000000000000000", false, false, 0, 0},
        {KEY("a", 11) "d0x8000000000000000", true, false, INT64_MIN, 0},
        {KEY("a", 12) "d0xc004000000000000", false, true, 0, -2.5},
        {KEY("a", 9) "w3 d3 h0xffff h1 h2", true, false, -1, 0},
        {KEY("a", 9) "w12 d1 d0xc004000000000000", false, true, 0, -2.5},
        {KEY("a", 9) "w8 d1 =5", false, false, 0, 0},
        {KEY("a", 9) "w4 d0", false, false, 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < COUNTOF(rows); i++) {
        char words[100], error[VKA_IO_ERROR_SIZE];
        const struct vka_gguf_value *value;
        struct vka_gguf *file;
        int64_t integer = 0;
        double real = 0;
        size_t size;
        unsigned char *bytes;

        sprintf(words, HEAD(0, 1) "%s", rows[i].words);
        bytes = build(words, &size);
        assert_int_equal(parse(bytes, size, &file, error), VKA_OK);
        value = vka_gguf_metadata(file, "a");
        assert_int_equal(vka_gguf_integer(value, 0, &integer), rows[i].is_integer);
        assert_int_equal(vka_gguf_real(value, 0, &real), rows[i].is_real);
        assert_true(integer == rows[i].integer && real == rows[i].real);
        if (value->count == 3)
            assert_true(vka_gguf_integer(value, 2, &integer) && integer == 2);
        assert_false(vka_gguf_integer(value, value->count, &integer));
        assert_false(vka_gguf_integer(value, UINT64_MAX, &integer));
        vka_gguf_close(&file);
        free(bytes);
    }
    assert_false(vka_gguf_integer(NULL, 0, NULL));
    assert_false(vka_gguf_real(NULL, 0, NULL));
}

/* A converter stores row p * dim / 2 + i of a head, p 0 or 1, as row 2 i + p. */
static void test_rope_row(void **state)
{
    static const uint32_t dims[] = {2, 4, 6, 64, 128};

    (void)state;
    for (size_t n = 0; n < COUNTOF(dims); n++) {
        const uint32_t dim = dims[n];

        for (uint64_t head = 0; head < 3; head++)
            for (uint32_t p = 0; p < 2; p++)
                for (uint32_t i = 0; i < dim / 2; i++)
                    assert_true(vka_gguf_rope_row(head * dim + p * dim / 2 + i, dim) ==
                                head * dim + 2 * i + p);
    }
    assert_true(vka_gguf_rope_row(5, 0) == 5);
    assert_true(vka_gguf_rope_row(5, 3) == 5);
    assert_true(vka_gguf_rope_row(UINT64_MAX, 2) == UINT64_MAX);
}

static void test_lookup(void **state)
{
    char error[VKA_IO_ERROR_SIZE];
    struct vka_gguf *file;
    size_t size;
    unsigned char *bytes = build(SAMPLE, &size);

    (void)state;
    assert_int_equal(parse(bytes, size, &file, error), VKA_OK);
    assert_int_equal(vka_gguf_count(file), 2);
    assert_int_equal(vka_gguf_metadata_count(file), 4);
    assert_int_equal(vka_gguf_find(file, "weight")->dtype, VKA_Q8_0);
    assert_int_equal(vka_gguf_find(file, "norm")->dtype, VKA_F32);
    assert_null(vka_gguf_find(file, "s"));
    assert_null(vka_gguf_find(file, ""));
    assert_null(vka_gguf_find(file, NULL));
    assert_string_equal(vka_gguf_metadata_at(file, 3)->key, "b");
    assert_null(vka_gguf_metadata(file, "weight"));
    assert_null(vka_gguf_metadata(file, NULL));
    vka_gguf_close(&file);
    assert_null(file);
    vka_gguf_close(&file);
    vka_gguf_close(NULL);
    assert_int_equal(vka_gguf_count(NULL), 0);
    assert_int_equal(vka_gguf_metadata_count(NULL), 0);
    assert_null(vka_gguf_at(NULL, 0));
    assert_null(vka_gguf_find(NULL, "a"));
    assert_null(vka_gguf_metadata_at(NULL, 0));
    assert_null(vka_gguf_metadata(NULL, "a"));
    free(bytes);
    assert_int_equal(vka_gguf_type_size(VKA_GGUF_TYPE_COUNT), 0);
    assert_string_equal(vka_gguf_type_name(VKA_GGUF_TYPE_COUNT), "?");
}

static void test_arguments(void **state)
{
    char error[VKA_IO_ERROR_SIZE];
    struct vka_gguf *file = NULL;

    (void)state;
    assert_int_equal(vka_gguf_open(NULL, error, &file), VKA_INVALID);
    assert_int_equal(vka_gguf_open("x", error, NULL), VKA_INVALID);
    assert_int_equal(vka_gguf_parse(NULL, "x", 1, error, &file), VKA_INVALID);
    assert_int_equal(vka_gguf_parse("x", NULL, 1, error, &file), VKA_INVALID);
    assert_int_equal(vka_gguf_parse("x", "x", SIZE_MAX, error, &file), VKA_INVALID);
    assert_int_equal(vka_gguf_parse("x", "x", 1, error, NULL), VKA_INVALID);
    assert_int_equal(vka_gguf_parse("x", NULL, 0, error, &file), VKA_IO);
    assert_int_equal(vka_gguf_open("no/such.gguf", error, &file), VKA_IO);
    assert_non_null(strstr(error, "no/such.gguf: cannot open: "));
    assert_int_equal(vka_gguf_open("/", error, &file), VKA_IO);
    assert_int_equal(vka_gguf_open("/dev/zero", error, &file), VKA_IO);
    assert_null(file);
}

/* A type that vkattn has not is refused by a sentence that says what to do; one of no bytes, or of
 * whole numbers, is not. */
static void test_check_types(void **state)
{
    static const char told[] =
        "some/path: tensor 'token_embd.weight' has type q8_K, which is not supported: make a file "
        "of other types by llama-quantize (f32, f16, q4_0, ";
    static const char words[] = HEAD(4, 0) TENSOR("empty", 0, 15, 0) TENSOR("number", 1, 26, 0)
        TENSOR("good", 32, 8, 32) TENSOR("token_embd.weight", 256, 15, 96) "p32 z388";
    char error[VKA_IO_ERROR_SIZE] = "";
    struct vka_gguf *file;
    size_t size;
    unsigned char *bytes = build(words, &size);

    (void)state;
    assert_int_equal(parse(bytes, size, &file, error), VKA_OK);
    assert_int_equal(vka_gguf_check_types(file, "some/path", error), VKA_UNSUPPORTED);
    check_sentence(error);
    assert_memory_equal(error, told, sizeof told - 1);
    for (int dtype = 0; dtype < VKA_DTYPE_COUNT; dtype++) {
        const char *name = vka_dtype_name((enum vka_dtype)dtype);
        const bool listed = strstr(error, name) != NULL;

        /* All but i32, bool, i8 and those that GGUF has not: of caches alone, and groups of 64 or 128. */
        assert_int_equal(listed, dtype != VKA_I32 && dtype != VKA_BOOL && dtype != VKA_I8 &&
                                     !dtype_is_head_scaled((enum vka_dtype)dtype) &&
                                     !strstr(name, "_g"));
    }
    assert_int_equal(error[strlen(error) - 1], ')');
    assert_int_equal(vka_gguf_check_types(file, NULL, NULL), VKA_UNSUPPORTED);
    assert_int_equal(vka_gguf_check_types(NULL, "some/path", error), VKA_OK);
    vka_gguf_close(&file);
    free(bytes);
    bytes = build(SAMPLE, &size);
    assert_int_equal(parse(bytes, size, &file, error), VKA_OK);
    assert_int_equal(vka_gguf_check_types(file, "some/path", error), VKA_OK);
    vka_gguf_close(&file);
    free(bytes);
}

TEST_PROGRAM(gguf_values)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strings),   cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_rope_row),  cmocka_unit_test(test_lookup),
        cmocka_unit_test(test_arguments), cmocka_unit_test(test_check_types),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
