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

#include "io_sentence.h"
#include "mutated.h"
#include "npy_cases.h"
#include "test_program.h"

#define COUNTOF(array) (sizeof(array) / sizeof((array)[0]))

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

/* The status, and where it is a failure its sentence. */
static enum vka_status parse(const void *bytes, size_t size, struct vka_npy **file,
                             char error[VKA_IO_ERROR_SIZE])
{
    enum vka_status status;

    memset(error, 'x', VKA_IO_ERROR_SIZE);
    *file = (struct vka_npy *)error; /* to be overwritten */
    status = vka_npy_parse("some/path", bytes, size, error, file);
    if (status) {
        assert_null(*file);
        check_sentence(error);
    }
    return status;
}

static void test_malformed(void **state)
{
    (void)state;
    assert_true(COUNTOF(malformed_npy) >= 100);
    for (size_t i = 0; i < COUNTOF(malformed_npy); i++) {
        for (unsigned version = 1; version <= 3; version++) {
            char error[VKA_IO_ERROR_SIZE];
            struct vka_npy *file;
            size_t size;
            unsigned char *bytes =
                build(version, malformed_npy[i].header, malformed_npy[i].data, &size);
            enum vka_status status = parse(bytes, size, &file, error);

            if (status != VKA_IO || !strstr(error, malformed_npy[i].reason))
                fail_msg("%s with %zu bytes, for '%s', gave %d: %s", malformed_npy[i].header,
                         malformed_npy[i].data, malformed_npy[i].reason, status, error);
            free(bytes);
        }
    }
}

static void test_wellformed(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNTOF(wellformed_npy); i++) {
        for (unsigned version = 1; version <= 3; version++) {
            char error[VKA_IO_ERROR_SIZE];
            const struct vka_io_array *array;
            struct vka_npy *file;
            size_t size;
            unsigned char *bytes =
                build(version, wellformed_npy[i].header, wellformed_npy[i].data, &size);

            if (parse(bytes, size, &file, error))
                fail_msg("%s: %s", wellformed_npy[i].header, error);
            array = vka_npy_array(file);
            assert_null(array->name);
            assert_int_equal(array->dtype, wellformed_npy[i].dtype);
            assert_int_equal(array->rank, wellformed_npy[i].rank);
            assert_memory_equal(array->shape, wellformed_npy[i].shape, sizeof array->shape);
            assert_int_equal(array->size, wellformed_npy[i].data);
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
        unsigned char *bytes = build(1, AXES("(1,)"), 4, &size);

        bytes[changes[i].index] = changes[i].value;
        assert_int_equal(parse(bytes, size, &file, error), VKA_IO);
        free(bytes);
    }
    for (size_t i = 8; i < 12; i++) {
        unsigned char *bytes = build(2, AXES("(1,)"), 4, &size);

        bytes[i] = 255;
        assert_int_equal(parse(bytes, size, &file, error), VKA_IO);
        free(bytes);
    }
    assert_int_equal(parse(NULL, 0, &file, error), VKA_IO);
}

/* What is accepted has its bytes inside the file or owns them. */
static bool read_mutated(const unsigned char *bytes, size_t size)
{
    char error[VKA_IO_ERROR_SIZE];
    unsigned char sum[24] = {0};
    struct vka_npy *file;
    enum vka_status status = parse(bytes, size, &file, error);

    if (status == VKA_OK) {
        const struct vka_io_array *array = vka_npy_array(file);
        uint64_t needed = vka_io_dtype_size(array->dtype);

        for (uint32_t axis = 0; axis < array->rank; axis++)
            needed *= array->shape[axis];
        assert_int_equal(array->size, needed);
        assert_int_equal(array->size, sizeof sum);
        memcpy(sum, array->data, sizeof sum); /* a sanitizer watches */
    }
    vka_npy_close(&file);
    assert_true(status == VKA_OK || status == VKA_IO);
    return status == VKA_OK;
}

static void test_mutation(void **state)
{
    (void)state;
    for (unsigned version = 1; version <= 3; version++) {
        size_t size;
        unsigned char *bytes = build(version, H("'<i2'", "True", "(3, 4)") "   \n", 24, &size);

        check_cuts(bytes, size, read_mutated);
        if (version == 1)
            check_mutants(bytes, size,
                          &(struct mutants){.least_accepted = 24 * 255, .least_refused = 255 * 8},
                          read_mutated);
        free(bytes);
    }
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

TEST_PROGRAM(npy)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_malformed), cmocka_unit_test(test_wellformed),
        cmocka_unit_test(test_prefix),    cmocka_unit_test(test_mutation),
        cmocka_unit_test(test_fortran),   cmocka_unit_test(test_arguments),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
