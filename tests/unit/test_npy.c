/* npy, reading: the malformed is refused with a sentence, the rest comes back in C order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vkattn/vkattn_io.h>

#define COUNTOF(array) (sizeof(array) / sizeof((array)[0]))

/* A header by its three values. */
#define H(descr, order, shape) \
    "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }"
#define DESCR(descr) H(descr, "False", "(1,)")
#define ORDER(order) H("'<f4'", order, "(1,)")
#define SHAPE(shape) H("'<f4'", "False", shape)

/* Each with data bytes behind a header of version 1. */
static const struct {
    const char *header;
    size_t data;
} malformed[] = {
    /* Not a dictionary of these three keys. */
    {"", 0},
    {" ", 0},
    {"\n", 0},
    {"{", 4},
    {"}", 4},
    {"{}", 4},
    {"{ }\n", 4},
    {"[]", 4},
    {"()", 4},
    {"None", 4},
    {"1", 4},
    {"''", 4},
    {"{{}}", 4},
    {"{,}", 4},
    {"{'descr'}", 4},
    {"{'descr': '<f4'}", 4},
    {"{'fortran_order': False}", 4},
    {"{'shape': (1,)}", 4},
    {"{'descr': '<f4', 'fortran_order': False}", 4},
    {"{'descr': '<f4', 'shape': (1,)}", 4},
    {"{'fortran_order': False, 'shape': (1,)}", 4},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}", 4},
    {"{'x': 1, 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 4},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'shape': (1,)}", 4},
    {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 4},
    {"{'descr': '<f4', 'fortran_order': False, 'fortran_order': False, 'shape': (1,)}", 4},
    {"{'Descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 4},
    {"{'descr ': '<f4', 'fortran_order': False, 'shape': (1,)}", 4},
    {"{'desc': '<f4', 'fortran_order': False, 'shape': (1,)}", 4},
    {"{'descrs': '<f4', 'fortran_order': False, 'shape': (1,)}", 4},
    {"{'': '<f4', 'fortran_order': False, 'shape': (1,)}", 4},
    {"{descr: '<f4', 'fortran_order': False, 'shape': (1,)}", 4},
    {"{'descr\": '<f4', 'fortran_order': False, 'shape': (1,)}", 4},
    {"{'des\\x63r': '<f4', 'fortran_order': False, 'shape': (1,)}", 4},
    {"{u'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 4},
    {"{b'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 4},
    {"{'descr' '<f4', 'fortran_order': False, 'shape': (1,)}", 4},
    {"{'descr'= '<f4', 'fortran_order': False, 'shape': (1,)}", 4},
    {"{'descr':: '<f4', 'fortran_order': False, 'shape': (1,)}", 4},
    {"{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}", 4},
    {"{'descr': '<f4'; 'fortran_order': False, 'shape': (1,)}", 4},
    {"{'descr': '<f4',, 'fortran_order': False, 'shape': (1,)}", 4},
    {"{, 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 4},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,),,}", 4},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)", 4},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)]", 4},
    {"['descr', '<f4', 'fortran_order', False, 'shape', (1,)]", 4},
    {"dict(descr='<f4', fortran_order=False, shape=(1,))", 4},
    {SHAPE("(1,)") "}", 4},
    {SHAPE("(1,)") "x", 4},
    {SHAPE("(1,)") " {}", 4},
    {SHAPE("(1,)") "\n\n#", 4},
    {SHAPE("(1,)") ",", 4},
    {SHAPE("(1,)") "\x01", 4},
    {"#\n" SHAPE("(1,)"), 4},
    {"x = " SHAPE("(1,)"), 4},
    {"\x01" SHAPE("(1,)"), 4},
    {"(" SHAPE("(1,)") ")", 4},
    {"{'descr': # c\n'<f4', 'fortran_order': False, 'shape': (1,)}", 4},
    /* A type that is none, big-endian, structured, or none of ours. */
    {DESCR("None"), 4},
    {DESCR("4"), 4},
    {DESCR(""), 4},
    {DESCR("''"), 4},
    {DESCR("<f4"), 4},
    {DESCR("'<f4"), 4},
    {DESCR("<f4'"), 4},
    {DESCR("'<f4\""), 4},
    {DESCR("'>f4'"), 4},
    {DESCR("'>f8'"), 8},
    {DESCR("'>i2'"), 2},
    {DESCR("'>b1'"), 1},
    {DESCR("'=f4'"), 4},
    {DESCR("'|f4'"), 4},
    {DESCR("'f4'"), 4},
    {DESCR("'<f'"), 4},
    {DESCR("'<f44'"), 4},
    {DESCR("'<f16'"), 16},
    {DESCR("'<f3'"), 3},
    {DESCR("'<c8'"), 8},
    {DESCR("'<U1'"), 4},
    {DESCR("'|S4'"), 4},
    {DESCR("'|V2'"), 2},
    {DESCR("'|O'"), 8},
    {DESCR("'<M8[ns]'"), 8},
    {DESCR("'<F4'"), 4},
    {DESCR("' <f4'"), 4},
    {DESCR("'<f4 '"), 4},
    {DESCR("'bool'"), 1},
    {DESCR("'float32'"), 4},
    {DESCR("u'<f4'"), 4},
    {DESCR("'<f' '4'"), 4},
    {DESCR("('<f4')"), 4},
    {DESCR("'\\x3cf4'"), 4},
    {DESCR("'<f4\n'"), 4},
    {DESCR("[('x', '<f4')]"), 4},
    {DESCR("('<f4', (1,))"), 4},
    {DESCR("'''<f4'''"), 4},
    /* An order that is not a truth value. */
    {ORDER("0"), 4},
    {ORDER("1"), 4},
    {ORDER("None"), 4},
    {ORDER("'False'"), 4},
    {ORDER(""), 4},
    {ORDER("false"), 4},
    {ORDER("FALSE"), 4},
    {ORDER("Falsey"), 4},
    {ORDER("Fals"), 4},
    {ORDER("True False"), 4},
    {ORDER("not True"), 4},
    {ORDER("[]"), 4},
    {ORDER("(False)"), 4},
    /* A shape that is not a tuple of whole numbers. */
    {SHAPE("1"), 4},
    {SHAPE("None"), 4},
    {SHAPE("[1]"), 4},
    {SHAPE("'1'"), 4},
    {SHAPE(""), 4},
    {SHAPE("(1)"), 4},
    {SHAPE("(,)"), 4},
    {SHAPE("(1,,)"), 4},
    {SHAPE("(,1)"), 4},
    {SHAPE("(1,"), 4},
    {SHAPE("(1"), 4},
    {SHAPE("("), 4},
    {SHAPE("1,"), 4},
    {SHAPE("(1 1)"), 4},
    {SHAPE("(-1,)"), 4},
    {SHAPE("(-0,)"), 0},
    {SHAPE("(+1,)"), 4},
    {SHAPE("(1.0,)"), 4},
    {SHAPE("(1e0,)"), 4},
    {SHAPE("(1L,)"), 4},
    {SHAPE("(0x1,)"), 4},
    {SHAPE("(01,)"), 4},
    {SHAPE("(00,)"), 0},
    {SHAPE("(1_0,)"), 40},
    {SHAPE("(True,)"), 4},
    {SHAPE("('1',)"), 4},
    {SHAPE("((1,),)"), 4},
    {SHAPE("((1),)"), 4},
    {SHAPE("(None,)"), 4},
    {SHAPE("(1+1,)"), 8},
    {SHAPE("(1, 1, 1, 1, 1, 1, 1, 1, 1)"), 4},
    {SHAPE("((((((((((1,),),),),),),),),),)"), 4},
    {SHAPE("(1;)"), 4},
    {SHAPE("(1,) * 2"), 4},
    /* Shapes that overflow. */
    {SHAPE("(9223372036854775807,)"), 4},
    {SHAPE("(9223372036854775808,)"), 0},
    {SHAPE("(18446744073709551615,)"), 4},
    {SHAPE("(18446744073709551616,)"), 0},
    {SHAPE("(18446744073709551617,)"), 4},
    {SHAPE("(99999999999999999999999999,)"), 4},
    {SHAPE("(4611686018427387904,)"), 0},
    {SHAPE("(4611686018427387905,)"), 4},
    {SHAPE("(2305843009213693952,)"), 0},
    {SHAPE("(4294967296, 4294967296)"), 0},
    {SHAPE("(4294967296, 4294967296, 0)"), 0},
    {SHAPE("(0, 4294967296, 4294967296)"), 0},
    {SHAPE("(65536, 65536, 65536, 65536)"), 0},
    {SHAPE("(4294967297, 4294967295)"), 4},
    {H("'<f4'", "True", "(4294967296, 1073741824)"), 0},
    /* Shapes that need more or less than is there. */
    {SHAPE("(1,)"), 0},
    {SHAPE("(1,)"), 3},
    {SHAPE("(1,)"), 5},
    {SHAPE("(1,)"), 8},
    {SHAPE("()"), 0},
    {SHAPE("()"), 8},
    {SHAPE("(0,)"), 1},
    {SHAPE("(0,)"), 4},
    {SHAPE("(2, 3)"), 20},
    {SHAPE("(2, 3)"), 28},
    {SHAPE("(1073741824,)"), 4},
    {H("'<f4'", "True", "(1073741824, 1)"), 4},
    {H("'<f4'", "True", "(32768, 32768)"), 0},
    {H("'|u1'", "False", "(3,)"), 2},
    {H("'<f2'", "False", "(3,)"), 3},
    {H("'<i8'", "True", "(2, 2)"), 31},
    {H("'<i8'", "True", "(2, 2)"), 33},
};

/* Well-formed ones; every element byte is the byte's index. */
static const struct {
    const char *header;
    size_t data;
    enum vka_io_dtype dtype;
    uint32_t rank;
    uint64_t shape[VKA_IO_MAX_RANK];
} wellformed[] = {
    {H("'<f4'", "False", "(1,)"), 4, VKA_IO_F32, 1, {1}},
    {H("'<f4'", "False", "(2, 3)") "      \n", 24, VKA_IO_F32, 2, {2, 3}},
    {H("'<f4'", "False", "()"), 4, VKA_IO_F32, 0, {0}},
    {H("'<f4'", "True", "()"), 4, VKA_IO_F32, 0, {0}},
    {H("'<f4'", "True", "(3,)"), 12, VKA_IO_F32, 1, {3}},
    {H("'<f4'", "False", "(0,)"), 0, VKA_IO_F32, 1, {0}},
    {H("'<f4'", "True", "(3, 0, 2)"), 0, VKA_IO_F32, 3, {3, 0, 2}},
    {H("'<f2'", "False", "(2,)"), 4, VKA_IO_F16, 1, {2}},
    {H("'<f8'", "False", "(2,)"), 16, VKA_IO_F64, 1, {2}},
    {H("'|b1'", "False", "(2,)"), 2, VKA_IO_BOOL, 1, {2}},
    {H("'|u1'", "False", "(2,)"), 2, VKA_IO_U8, 1, {2}},
    {H("'|i1'", "False", "(2,)"), 2, VKA_IO_I8, 1, {2}},
    {H("'<u2'", "False", "(2,)"), 4, VKA_IO_U16, 1, {2}},
    {H("'<i2'", "False", "(2,)"), 4, VKA_IO_I16, 1, {2}},
    {H("'<u4'", "False", "(2,)"), 8, VKA_IO_U32, 1, {2}},
    {H("'<i4'", "False", "(2,)"), 8, VKA_IO_I32, 1, {2}},
    {H("'<u8'", "False", "(2,)"), 16, VKA_IO_U64, 1, {2}},
    {H("'<i8'", "False", "(2,)"), 16, VKA_IO_I64, 1, {2}},
    {H("'|u1'", "False", "(1, 2, 1, 2, 1, 2, 1, 2)"), 16, VKA_IO_U8, 8, {1, 2, 1, 2, 1, 2, 1, 2}},
    {"{\"shape\":(2,3),\"fortran_order\":False,\"descr\":\"<f4\"}", 24, VKA_IO_F32, 2, {2, 3}},
    {"{'shape':(2,3,),'descr':\"<f4\",\"fortran_order\":False}\n", 24, VKA_IO_F32, 2, {2, 3}},
    {" \t{ 'shape'\n: ( 2 , 3 , ) ,\t'descr' :\r\n'<f4' , 'fortran_order'\f:False\n, } \n\t",
     24,
     VKA_IO_F32,
     2,
     {2, 3}},
};

static unsigned char *build(unsigned version, const char *header, size_t data, size_t *size)
{
    const size_t length = strlen(header), first = version == 1 ? 10 : 12;
    unsigned char *bytes = malloc(first + length + data);

    assert_non_null(bytes);
    memcpy(bytes, "\x93NUMPY", 6);
    bytes[6] = (unsigned char)version;
    bytes[7] = 0;
    for (size_t i = 8; i < first; i++)
        bytes[i] = (unsigned char)(length >> (8 * (i - 8)));
    memcpy(bytes + first, header, length);
    for (size_t i = 0; i < data; i++)
        bytes[first + length + i] = (unsigned char)i;
    *size = first + length + data;
    return bytes;
}

/* The status, and where it is a failure the sentence: one line, not empty, with the path. */
static enum vka_status parse(const void *bytes, size_t size, struct vka_npy **file,
                             char error[VKA_IO_ERROR_SIZE])
{
    enum vka_status status;

    memset(error, 'x', VKA_IO_ERROR_SIZE);
    *file = (struct vka_npy *)error; /* to be overwritten */
    status = vka_npy_parse("some/path", bytes, size, error, file);
    if (status) {
        assert_null(*file);
        assert_non_null(memchr(error, '\0', VKA_IO_ERROR_SIZE));
        assert_memory_equal(error, "some/path: ", 11);
        assert_true(strlen(error) > 20);
        assert_null(strpbrk(error, "\n\r\t\x1b"));
    }
    return status;
}

static void test_malformed(void **state)
{
    (void)state;
    assert_true(COUNTOF(malformed) >= 100);
    for (size_t i = 0; i < COUNTOF(malformed); i++) {
        for (unsigned version = 1; version <= 3; version++) {
            char error[VKA_IO_ERROR_SIZE];
            struct vka_npy *file;
            size_t size;
            unsigned char *bytes = build(version, malformed[i].header, malformed[i].data, &size);
            enum vka_status status = parse(bytes, size, &file, error);

            if (status != VKA_IO)
                fail_msg("%s with %zu bytes gave %d", malformed[i].header, malformed[i].data,
                         status);
            free(bytes);
        }
    }
}

static void test_wellformed(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNTOF(wellformed); i++) {
        for (unsigned version = 1; version <= 3; version++) {
            char error[VKA_IO_ERROR_SIZE];
            const struct vka_io_array *array;
            struct vka_npy *file;
            size_t size;
            unsigned char *bytes = build(version, wellformed[i].header, wellformed[i].data, &size);

            if (parse(bytes, size, &file, error))
                fail_msg("%s: %s", wellformed[i].header, error);
            array = vka_npy_array(file);
            assert_null(array->name);
            assert_int_equal(array->dtype, wellformed[i].dtype);
            assert_int_equal(array->rank, wellformed[i].rank);
            assert_memory_equal(array->shape, wellformed[i].shape, sizeof array->shape);
            assert_int_equal(array->size, wellformed[i].data);
            assert_ptr_equal(array->data, bytes + size - array->size);
            vka_npy_close(&file);
            free(bytes);
        }
    }
}

/* What stands before the header. */
static void test_prefix(void **state)
{
    static const struct {
        size_t index; /* of the byte that is changed */
        unsigned char value;
    } changes[] = {{0, 0x92}, {0, 'P'}, {1, 'n'}, {5, 'y'}, {6, 0}, {6, 4},
                   {6, 255},  {7, 1},   {8, 0},   {8, 1},   {9, 1}, {9, 255}};
    char error[VKA_IO_ERROR_SIZE];
    struct vka_npy *file;
    size_t size;

    (void)state;
    for (size_t i = 0; i < COUNTOF(changes); i++) {
        unsigned char *bytes = build(1, SHAPE("(1,)"), 4, &size);

        bytes[changes[i].index] = changes[i].value;
        assert_int_equal(parse(bytes, size, &file, error), VKA_IO);
        free(bytes);
    }
    for (size_t i = 8; i < 12; i++) {
        unsigned char *bytes = build(2, SHAPE("(1,)"), 4, &size);

        bytes[i] = 255;
        assert_int_equal(parse(bytes, size, &file, error), VKA_IO);
        free(bytes);
    }
    assert_int_equal(parse(NULL, 0, &file, error), VKA_IO);
}

static void test_truncation(void **state)
{
    char error[VKA_IO_ERROR_SIZE];
    struct vka_npy *file;
    size_t size;

    (void)state;
    for (unsigned version = 1; version <= 3; version++) {
        unsigned char *bytes = build(version, H("'<i2'", "True", "(3, 4)") "   \n", 24, &size);

        for (size_t cut = 0; cut < size; cut++) {
            unsigned char *copy = malloc(cut + 1);

            assert_non_null(copy);
            memcpy(copy + 1, bytes, cut);
            assert_int_equal(parse(copy + 1, cut, &file, error), VKA_IO);
            free(copy);
        }
        assert_int_equal(parse(bytes, size, &file, error), VKA_OK);
        vka_npy_close(&file);
        free(bytes);
    }
}

/* Every other value of every byte. What is accepted has its bytes inside the file or owns them. */
static void test_mutation(void **state)
{
    char error[VKA_IO_ERROR_SIZE];
    size_t size, accepted = 0, refused = 0;
    unsigned char *bytes = build(1, H("'<i2'", "True", "(3, 4)") "   \n", 24, &size);

    (void)state;
    for (size_t i = 0; i < size; i++) {
        for (unsigned flip = 1; flip < 256; flip++) {
            unsigned char sum[24] = {0};
            struct vka_npy *file;
            enum vka_status status;

            bytes[i] ^= (unsigned char)flip;
            status = parse(bytes, size, &file, error);
            if (status == VKA_OK) {
                const struct vka_io_array *array = vka_npy_array(file);
                uint64_t needed = vka_io_dtype_size(array->dtype);

                for (uint32_t axis = 0; axis < array->rank; axis++)
                    needed *= array->shape[axis];
                assert_int_equal(array->size, needed);
                assert_int_equal(array->size, sizeof sum);
                memcpy(sum, array->data, sizeof sum); /* a sanitizer watches */
                accepted++;
            } else {
                assert_int_equal(status, VKA_IO);
                refused++;
            }
            vka_npy_close(&file);
            bytes[i] ^= (unsigned char)flip;
        }
    }
    assert_true(accepted >= sizeof(unsigned char[24]) * 255 && refused > 255 * 8);
    free(bytes);
}

/* Fortran's order against its definition: element (i, j, k) is at i + n_i (j + n_j k). */
static void test_fortran(void **state)
{
    static const struct {
        const char *descr;
        size_t size;
    } types[] = {{"'|u1'", 1}, {"'<i2'", 2}, {"'<f4'", 4}, {"'<f8'", 8}};

    (void)state;
    for (size_t t = 0; t < COUNTOF(types); t++) {
        const size_t element = types[t].size, count = 2 * 3 * 5;
        char header[128], error[VKA_IO_ERROR_SIZE];
        struct vka_npy *file;
        size_t size;
        unsigned char *bytes;
        const unsigned char *from, *to;

        snprintf(header, sizeof header,
                 "{'descr': %s, 'fortran_order': True, 'shape': (2, 3, 5)}\n", types[t].descr);
        bytes = build(1, header, count * element, &size);
        assert_int_equal(parse(bytes, size, &file, error), VKA_OK);
        from = bytes + size - count * element;
        to = vka_npy_array(file)->data;
        for (size_t i = 0; i < 2; i++)
            for (size_t j = 0; j < 3; j++)
                for (size_t k = 0; k < 5; k++)
                    assert_memory_equal(to + ((i * 3 + j) * 5 + k) * element,
                                        from + (i + 2 * (j + 3 * k)) * element, element);
        vka_npy_close(&file);
        free(bytes);
    }
}

static void test_arguments(void **state)
{
    char error[VKA_IO_ERROR_SIZE];
    struct vka_npy *file = NULL;

    (void)state;
    assert_int_equal(vka_npy_open(NULL, error, &file), VKA_INVALID);
    assert_int_equal(vka_npy_open("x", error, NULL), VKA_INVALID);
    assert_int_equal(vka_npy_parse(NULL, "x", 1, error, &file), VKA_INVALID);
    assert_int_equal(vka_npy_parse("x", NULL, 1, error, &file), VKA_INVALID);
    assert_int_equal(vka_npy_parse("x", "x", SIZE_MAX, error, &file), VKA_INVALID);
    assert_int_equal(vka_npy_parse("x", "x", 1, error, NULL), VKA_INVALID);
    assert_int_equal(vka_npy_open("no/such.npy", error, &file), VKA_IO);
    assert_non_null(strstr(error, "no/such.npy: cannot open: "));
    assert_int_equal(vka_npy_open(".", NULL, &file), VKA_IO);
    assert_null(file);
    assert_null(vka_npy_array(NULL));
    vka_npy_close(&file);
    vka_npy_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_malformed), cmocka_unit_test(test_wellformed),
        cmocka_unit_test(test_prefix),    cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_mutation),  cmocka_unit_test(test_fortran),
        cmocka_unit_test(test_arguments),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
