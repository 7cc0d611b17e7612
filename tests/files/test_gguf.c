/* GGUF, reading: the malformed is refused with a sentence, the rest comes back whole. */
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
#include "mutated.h"
#include "test_program.h"

#define COUNTOF(array) (sizeof(array) / sizeof((array)[0]))

static bool lies_in(const void *data, size_t data_size, const unsigned char *bytes, size_t size)
{
    const uintptr_t first = (uintptr_t)data, begin = (uintptr_t)bytes;

    return first >= begin && first - begin <= size && data_size <= size - (first - begin);
}

static void check_value(const struct vka_gguf_value *value, const unsigned char *bytes, size_t size)
{
    size_t at = 0, text_size, strings = 0;
    const char *text;
    int64_t number = 77;
    double real = 77;

    assert_in_range(strlen(value->key), 1, 65535);
    assert_true((unsigned)value->type < VKA_GGUF_TYPE_COUNT && value->item != VKA_GGUF_ARRAY);
    assert_true(value->type == VKA_GGUF_ARRAY || (value->item == value->type && value->count == 1));
    assert_true(lies_in(value->data, value->size, bytes, size));
    while (vka_gguf_string(value, &at, &text, &text_size)) {
        assert_true(lies_in(text, text_size, value->data, value->size));
        strings++;
    }
    if (value->item == VKA_GGUF_STRING)
        assert_true(strings == value->count);
    else
        assert_true(strings == 0 && value->size == value->count * vka_gguf_type_size(value->item));
    for (uint64_t i = 0; i < value->count; i++)
        assert_false(vka_gguf_integer(value, i, &number) && vka_gguf_real(value, i, &real));
    assert_false(vka_gguf_integer(value, value->count, &number));
    assert_false(vka_gguf_real(value, value->count, &real));
}

/* What must hold of any file that was accepted. */
static void check_invariants(const struct vka_gguf *file, const unsigned char *bytes, size_t size)
{
    const size_t count = vka_gguf_count(file), values = vka_gguf_metadata_count(file);

    for (size_t i = 0; i < count; i++) {
        const struct vka_gguf_tensor *tensor = vka_gguf_at(file, i);

        assert_in_range(strlen(tensor->name), 1, 64);
        assert_true(tensor->rank <= VKA_MAX_RANK);
        assert_true(!tensor->size || tensor->offset % 8 == 0);
        assert_true(lies_in(tensor->data, tensor->size, bytes, size));
        assert_ptr_equal(tensor->data, bytes + tensor->offset);
        assert_ptr_equal(vka_gguf_find(file, tensor->name), tensor);
        for (size_t j = 0; j < i; j++) {
            const struct vka_gguf_tensor *other = vka_gguf_at(file, j);

            assert_true(!tensor->size || !other->size ||
                        tensor->offset >= other->offset + other->size ||
                        other->offset >= tensor->offset + tensor->size);
        }
    }
    for (size_t i = 0; i < values; i++) {
        check_value(vka_gguf_metadata_at(file, i), bytes, size);
        assert_ptr_equal(vka_gguf_metadata(file, vka_gguf_metadata_at(file, i)->key),
                         vka_gguf_metadata_at(file, i));
    }
    assert_null(vka_gguf_at(file, count));
    assert_null(vka_gguf_metadata_at(file, values));
}

static void test_malformed(void **state)
{
    (void)state;
    assert_true(COUNTOF(malformed_gguf) >= 150);
    for (size_t i = 0; i < COUNTOF(malformed_gguf); i++) {
        char error[VKA_IO_ERROR_SIZE];
        struct vka_gguf *file;
        size_t size;
        unsigned char *bytes = build(malformed_gguf[i].words, &size);
        enum vka_status status = parse(bytes, size, &file, error);

        if (status != VKA_IO || !strstr(error, malformed_gguf[i].told))
            fail_msg("%s, for '%s', gave %d: %s", malformed_gguf[i].words, malformed_gguf[i].told,
                     status, status ? error : "");
        free(bytes);
    }
}

/* What was read, in the words of wellformed_gguf. */
static void describe(const struct vka_gguf *file, char text[512])
{
    *text = '\0';
    for (size_t i = 0; i < vka_gguf_metadata_count(file); i++) {
        const struct vka_gguf_value *value = vka_gguf_metadata_at(file, i);

        sprintf(text + strlen(text), "%s%s:%s", *text ? " " : "", value->key,
                vka_gguf_type_name(value->type));
        if (value->type == VKA_GGUF_ARRAY)
            sprintf(text + strlen(text), ":%s:%u", vka_gguf_type_name(value->item),
                    (unsigned)value->count);
    }
    for (size_t i = 0; i < vka_gguf_count(file); i++) {
        const struct vka_gguf_tensor *tensor = vka_gguf_at(file, i);

        sprintf(text + strlen(text), "%s%s:%s[", *text ? " " : "", tensor->name, tensor->type);
        for (uint32_t axis = 0; axis < tensor->rank; axis++)
            sprintf(text + strlen(text), "%s%u", axis ? "," : "", (unsigned)tensor->shape[axis]);
        sprintf(text + strlen(text), "]@%u+%zu", (unsigned)tensor->offset, tensor->size);
    }
}

static void test_wellformed(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNTOF(wellformed_gguf); i++) {
        char error[VKA_IO_ERROR_SIZE], text[512];
        struct vka_gguf *file;
        size_t size;
        unsigned char *bytes = build(wellformed_gguf[i].words, &size);

        if (parse(bytes, size, &file, error))
            fail_msg("%s: %s", wellformed_gguf[i].words, error);
        check_invariants(file, bytes, size);
        describe(file, text);
        assert_string_equal(text, wellformed_gguf[i].told);
        vka_gguf_close(&file);
        free(bytes);
    }
}

/* Rows of two blocks, three of them, of every type; those of vkattn lie as vkattn has them. */
static void test_types(void **state)
{
    unsigned ours = 0;

    (void)state;
    for (size_t i = 0; i < GGUF_TYPE_COUNT; i++) {
        char words[200], error[VKA_IO_ERROR_SIZE];
        const unsigned row = 2 * gguf_types[i].values, bytes_wanted = 6 * gguf_types[i].size;
        const struct vka_gguf_tensor *tensor;
        struct vka_gguf *file;
        uint32_t values, block;
        size_t size;
        unsigned char *bytes;

        sprintf(words, HEAD(1, 0) "=a w2 d%u d3 w%u d0 p32 z%u", row, gguf_types[i].number,
                bytes_wanted);
        bytes = build(words, &size);
        if (parse(bytes, size - 1, &file, error) != VKA_IO || parse(bytes, size, &file, error))
            fail_msg("%s: %s", gguf_types[i].name, error);
        tensor = vka_gguf_at(file, 0);
        assert_string_equal(tensor->type, gguf_types[i].name);
        assert_int_equal(tensor->size, bytes_wanted);
        assert_true(tensor->shape[0] == 3 && tensor->shape[1] == row);
        int same = 0;
        while (same < VKA_DTYPE_COUNT &&
               strcmp(vka_dtype_name((enum vka_dtype)same), gguf_types[i].name) != 0)
            same++;
        assert_int_equal(tensor->dtype, same);
        if (same != VKA_DTYPE_COUNT) {
            assert_int_equal(vka_dtype_block(tensor->dtype, &values, &block), VKA_OK);
            assert_true(values == gguf_types[i].values && block == gguf_types[i].size);
            ours++;
        }
        vka_gguf_close(&file);
        free(bytes);
    }
    /* All but bool, types of caches alone, and groups of 64 or 128 values. */
    int wanted = 0;
    for (int dtype = 0; dtype < VKA_DTYPE_COUNT; dtype++)
        wanted += dtype != VKA_BOOL && !dtype_is_head_scaled((enum vka_dtype)dtype) &&
                  !strstr(vka_dtype_name((enum vka_dtype)dtype), "_g");
    assert_int_equal(ours, wanted);
}

static bool read_mutated(const unsigned char *bytes, size_t size)
{
    char error[VKA_IO_ERROR_SIZE];
    struct vka_gguf *file;
    enum vka_status status = parse(bytes, size, &file, error);

    if (status == VKA_OK)
        check_invariants(file, bytes, size);
    vka_gguf_close(&file);
    assert_true(status == VKA_OK || status == VKA_IO);
    return status == VKA_OK;
}

/* A change to the data, a name or a value is still a good file. */
static void test_mutation(void **state)
{
    size_t size;
    unsigned char *bytes = build(SAMPLE, &size);

    (void)state;
    check_cuts(bytes, size, read_mutated);
    check_mutants(
        bytes, size,
        &(struct mutants){.least_accepted = SAMPLE_DATA * 255, .least_refused = 255 * 100},
        read_mutated);
    free(bytes);
}

static size_t put(unsigned char *to, uint64_t number, size_t size)
{
    for (size_t i = 0; i < size; i++)
        to[i] = (unsigned char)(number >> 8 * i);
    return size;
}

static size_t put_name(unsigned char *to, const char *prefix, uint32_t number)
{
    char name[32];
    const int length = sprintf(name, "%s.%u", prefix, (unsigned)number);

    put(to, (uint64_t)length, 8);
    memcpy(to + 8, name, (size_t)length);
    return 8 + (size_t)length;
}

/* More tensors and keys than any model has, their places in other orders than the header's: in
 * n log n steps, so within the test's time by far. */
static void test_many(void **state)
{
    enum { MANY = 100000 };
    unsigned char *bytes = calloc(MANY, 160), *at = bytes;
    char error[VKA_IO_ERROR_SIZE], name[32];
    struct vka_gguf *file;
    size_t used;

    (void)state;
    assert_non_null(bytes);
    memcpy(at, "GGUF\3\0\0\0", 8);
    at += 8;
    at += put(at, MANY, 8);
    at += put(at, MANY, 8);
    for (uint32_t i = 0; i < MANY; i++) {
        at += put_name(at, "some.key", i);
        at += put(at, VKA_GGUF_U32, 4);
        at += put(at, i, 4);
    }
    for (uint32_t i = 0; i < MANY; i++) {
        at += put_name(at, "blk.weight", i);
        at += put(at, 1, 4);
        at += put(at, 32, 8);
        at += put(at, 24, 4);
        at += put(at, (uint64_t)i * 99991 % MANY * 32, 8); /* a permutation */
    }
    used = (size_t)(at - bytes + 31) / 32 * 32 + (size_t)MANY * 32;
    assert_true(used <= (size_t)MANY * 160);
    assert_int_equal(parse(bytes, used, &file, error), VKA_OK);
    assert_int_equal(vka_gguf_count(file), MANY);
    assert_int_equal(vka_gguf_metadata_count(file), MANY);
    for (uint32_t i = 0; i < MANY; i += 7) {
        int64_t number;

        sprintf(name, "blk.weight.%u", (unsigned)i);
        assert_ptr_equal(vka_gguf_find(file, name), vka_gguf_at(file, i));
        sprintf(name, "some.key.%u", (unsigned)i);
        assert_true(vka_gguf_integer(vka_gguf_metadata(file, name), 0, &number) && number == i);
    }
    vka_gguf_close(&file);
    free(bytes);
}

/* The sentence names the tensor or key, its control characters made harmless and its length cut. */
static void test_sentence(void **state)
{
    char error[VKA_IO_ERROR_SIZE];
    struct vka_gguf *file;
    size_t size;
    unsigned char *bytes = build(HEAD(1, 0) "d5 'so x0a1b7f w1 d1 w99 d0 z32", &size);

    static const char expected[] = "some/path: tensor 'so?"
                                   "?"
                                   "?' has the unknown type 99: make a file of other types by "
                                   "llama-quantize (f32, f16, q4_0, ";

    (void)state;
    assert_int_equal(parse(bytes, size, &file, error), VKA_IO);
    assert_memory_equal(error, expected, sizeof expected - 1);
    assert_int_equal(vka_gguf_parse("p", bytes, size, NULL, &file), VKA_IO);
    free(bytes);
    bytes = build(HEAD(0, 1) "=" LONG_64 "0123456789abcdef0123456789abcdef0123456789abcdef w77 d0",
                  &size);
    assert_int_equal(parse(bytes, size, &file, error), VKA_IO);
    assert_string_equal(error, "some/path: key '" LONG_64 "0123456789abcdef0123456789abcdef0123"
                               "' has a value of type 77, but 0 to 12 were expected");
    free(bytes);
    /* A name that twice as many bytes would not fit in a sentence. */
    bytes = build(HEAD(0, 1) "d60000 z60000 w4 w1", &size);
    assert_int_equal(parse(bytes, size, &file, error), VKA_IO);
    free(bytes);
}

TEST_PROGRAM(gguf)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_malformed), cmocka_unit_test(test_wellformed),
        cmocka_unit_test(test_types),     cmocka_unit_test(test_mutation),
        cmocka_unit_test(test_many),      cmocka_unit_test(test_sentence),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
