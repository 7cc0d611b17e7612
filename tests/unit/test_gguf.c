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

#include "gguf_cases.h"
#include "io/gguf.h"

#define COUNTOF(array) (sizeof(array) / sizeof((array)[0]))

/* A file of its own allocation, so that a sanitizer sees any step past it. */
static unsigned char *build(const char *words, size_t *size)
{
    static unsigned char room[GGUF_ROOM];
    unsigned char *bytes;

    *size = gguf_build(words, room);
    bytes = malloc(*size ? *size : 1);
    assert_non_null(bytes);
    memcpy(bytes, room, *size);
    return bytes;
}

/* The status, and where it is a failure the sentence: one line, not empty, with the path. */
static enum vka_status parse(const void *bytes, size_t size, struct vka_gguf **file,
                             char error[VKA_IO_ERROR_SIZE])
{
    enum vka_status status;

    memset(error, 'x', VKA_IO_ERROR_SIZE);
    *file = (struct vka_gguf *)error; /* to be overwritten */
    status = vka_gguf_parse("some/path", bytes, size, error, file);
    if (status) {
        assert_null(*file);
        assert_non_null(memchr(error, '\0', VKA_IO_ERROR_SIZE));
        assert_memory_equal(error, "some/path: ", 11);
        assert_true(strlen(error) > 20);
        assert_null(strpbrk(error, "\n\r\t\x1b"));
    }
    return status;
}

static bool lies_in(const void *part, size_t part_size, const unsigned char *bytes, size_t size)
{
    const uintptr_t first = (uintptr_t)part, begin = (uintptr_t)bytes;

    return first >= begin && first - begin <= size && part_size <= size - (first - begin);
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
        assert_true(tensor->rank <= VKA_MAX_RANK && tensor->size > 0 && tensor->offset % 8 == 0);
        assert_true(lies_in(tensor->data, tensor->size, bytes, size));
        assert_ptr_equal(tensor->data, bytes + tensor->offset);
        assert_ptr_equal(vka_gguf_find(file, tensor->name), tensor);
        for (size_t j = 0; j < i; j++) {
            const struct vka_gguf_tensor *other = vka_gguf_at(file, j);

            assert_true(tensor->offset >= other->offset + other->size ||
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
        if (tensor->dtype != VKA_DTYPE_COUNT) {
            assert_string_equal(vka_dtype_name(tensor->dtype), gguf_types[i].name);
            assert_int_equal(vka_dtype_block(tensor->dtype, &values, &block), VKA_OK);
            assert_true(values == gguf_types[i].values && block == gguf_types[i].size);
            ours++;
        }
        vka_gguf_close(&file);
        free(bytes);
    }
    assert_int_equal(ours, VKA_DTYPE_COUNT - 3); /* but bool, i4_g128 and f8_e4m3 */
}

#define SAMPLE                                                                                \
    HEAD(2, 4)                                                                                \
    U32(ALIGNMENT, 16)                                                                        \
    KEY("s", 8)                                                                               \
    "=text " KEY("list", 9) "w8 d2 =one =three " KEY("b", 7) "b1 " TENSOR("weight", 32, 8, 0) \
        TENSOR("norm", 4, 0, 48) "p16 z64"
#define SAMPLE_DATA 64

static void test_truncation(void **state)
{
    char error[VKA_IO_ERROR_SIZE];
    struct vka_gguf *file;
    size_t size;
    unsigned char *bytes = build(SAMPLE, &size);

    (void)state;
    for (size_t cut = 0; cut < size; cut++) {
        unsigned char *copy = malloc(cut + 1);

        assert_non_null(copy);
        memcpy(copy + 1, bytes, cut);
        assert_int_equal(parse(copy + 1, cut, &file, error), VKA_IO);
        free(copy);
    }
    assert_int_equal(parse(bytes, size, &file, error), VKA_OK);
    vka_gguf_close(&file);
    free(bytes);
}

/* Every other value of every byte. A change to the data, a name or a value is still a good file. */
static void test_mutation(void **state)
{
    char error[VKA_IO_ERROR_SIZE];
    struct vka_gguf *file;
    size_t size, accepted = 0, refused = 0;
    unsigned char *bytes = build(SAMPLE, &size);

    (void)state;
    for (size_t i = 0; i < size; i++) {
        for (unsigned flip = 1; flip < 256; flip++) {
            enum vka_status status;

            bytes[i] ^= (unsigned char)flip;
            status = parse(bytes, size, &file, error);
            if (status == VKA_OK) {
                check_invariants(file, bytes, size);
                accepted++;
            } else {
                assert_int_equal(status, VKA_IO);
                refused++;
            }
            vka_gguf_close(&file);
            bytes[i] ^= (unsigned char)flip;
        }
    }
    assert_true(accepted >= SAMPLE_DATA * 255 && refused > 255 * 100);
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

    (void)state;
    assert_int_equal(parse(bytes, size, &file, error), VKA_IO);
    assert_string_equal(error, "some/path: tensor 'so?"
                               "?"
                               "?' has the unknown type 99");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_malformed), cmocka_unit_test(test_wellformed),
        cmocka_unit_test(test_types),     cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_mutation),  cmocka_unit_test(test_many),
        cmocka_unit_test(test_sentence),  cmocka_unit_test(test_strings),
        cmocka_unit_test(test_numbers),   cmocka_unit_test(test_rope_row),
        cmocka_unit_test(test_lookup),    cmocka_unit_test(test_arguments),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
