/* safetensors, reading: the malformed is refused with a sentence, the rest comes back whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <vkattn/vkattn_io.h>

#include "io_sentence.h"
#include "mutated.h"
#include "test_program.h"
#include "safetensors_cases.h"

#define COUNTOF(array) (sizeof(array) / sizeof((array)[0]))

static void put_length(unsigned char *bytes, uint64_t length)
{
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(length >> (8 * i));
}

/* A file of its own allocation, so that a sanitizer sees any step past it. */
static unsigned char *build(const char *header, size_t data, size_t *size)
{
    size_t length = strlen(header);
    unsigned char *bytes = malloc(8 + length + data);

    assert_non_null(bytes);
    put_length(bytes, length);
    for (size_t i = 0; i < length; i++)
        bytes[8 + i] = header[i] == '\'' ? '"' : (unsigned char)header[i];
    memset(bytes + 8 + length, 0x5a, data);
    *size = 8 + length + data;
    return bytes;
}

/* The status, and where it is a failure its sentence. */
static enum vka_status parse(const void *bytes, size_t size, struct vka_safetensors **file,
                             char error[VKA_IO_ERROR_SIZE])
{
    enum vka_status status;

    memset(error, 'x', VKA_IO_ERROR_SIZE);
    *file = (struct vka_safetensors *)error; /* to be overwritten */
    status = vka_safetensors_parse("some/path", bytes, size, error, file);
    if (status) {
        assert_null(*file);
        check_sentence(error);
    }
    return status;
}

/* What must hold of any file that was accepted. */
static void check_invariants(const struct vka_safetensors *file, const unsigned char *bytes,
                             size_t size)
{
    uint64_t length = 0;
    const unsigned char *next;

    for (int i = 7; i >= 0; i--)
        length = length << 8 | bytes[i];
    assert_true(length <= size - 8);
    next = bytes + 8 + length;
    for (size_t i = 0; i < vka_safetensors_count(file); i++) {
        const struct vka_io_array *array = vka_safetensors_at(file, i);
        uint64_t bytes_needed = vka_io_dtype_size(array->dtype);

        assert_true(array->rank <= VKA_IO_MAX_RANK);
        if (array->dtype == VKA_IO_DTYPE_COUNT) {
            assert_non_null(array->type);
            bytes_needed = array->size;
        } else {
            assert_true(bytes_needed > 0);
            assert_string_equal(array->type, vka_io_dtype_name(array->dtype));
            for (uint32_t axis = 0; axis < array->rank; axis++)
                bytes_needed *= array->shape[axis];
        }
        assert_true(array->size == bytes_needed);
        assert_ptr_equal(array->data, next);
        assert_ptr_equal(vka_safetensors_find(file, array->name), array);
        next += array->size;
    }
    assert_ptr_equal(next, bytes + size);
    assert_null(vka_safetensors_at(file, vka_safetensors_count(file)));
}

static void test_malformed(void **state)
{
    (void)state;
    assert_true(COUNTOF(malformed_safetensors) >= 150);
    for (size_t i = 0; i < COUNTOF(malformed_safetensors); i++) {
        char error[VKA_IO_ERROR_SIZE];
        struct vka_safetensors *file;
        size_t size;
        unsigned char *bytes =
            build(malformed_safetensors[i].header, malformed_safetensors[i].data, &size);
        enum vka_status status = parse(bytes, size, &file, error);

        if (status != VKA_IO || !strstr(error, malformed_safetensors[i].reason))
            fail_msg("%s with %zu bytes, for '%s', gave %d: %s", malformed_safetensors[i].header,
                     malformed_safetensors[i].data, malformed_safetensors[i].reason, status, error);
        free(bytes);
    }
}

static void test_wellformed(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNTOF(wellformed_safetensors); i++) {
        char error[VKA_IO_ERROR_SIZE], names[64] = "";
        struct vka_safetensors *file;
        size_t size;
        unsigned char *bytes =
            build(wellformed_safetensors[i].header, wellformed_safetensors[i].data, &size);
        enum vka_status status = parse(bytes, size, &file, error);

        if (!wellformed_safetensors[i].names) {
            assert_int_equal(status, VKA_IO);
        } else {
            if (status)
                fail_msg("%s: %s", wellformed_safetensors[i].header, error);
            check_invariants(file, bytes, size);
            for (size_t j = 0; j < vka_safetensors_count(file); j++) {
                strcat(names, j ? " " : "");
                strcat(names, vka_safetensors_at(file, j)->name);
            }
            assert_string_equal(names, wellformed_safetensors[i].names);
        }
        vka_safetensors_close(&file);
        free(bytes);
    }
}

static void test_header_length(void **state)
{
    static const uint64_t lengths[] = {
        0,          1,         3,          100000001,      UINT32_MAX,
        1ull << 32, INT64_MAX, 1ull << 63, UINT64_MAX - 8, UINT64_MAX - 7,
        UINT64_MAX};
    unsigned char bytes[10] = {0, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
    char error[VKA_IO_ERROR_SIZE];
    struct vka_safetensors *file;

    (void)state;
    for (size_t i = 0; i < COUNTOF(lengths); i++) {
        put_length(bytes, lengths[i]);
        assert_int_equal(parse(bytes, sizeof bytes, &file, error), VKA_IO);
    }
    assert_int_equal(parse(NULL, 0, &file, error), VKA_IO);
    put_length(bytes, 2);
    assert_int_equal(parse(bytes, sizeof bytes, &file, error), VKA_OK);
    vka_safetensors_close(&file);
}

/* A header just within the limit of 100 MB, and one eight bytes longer in a file that holds it. */
static void test_header_limit(void **state)
{
    const size_t limit = 100000000;
    unsigned char *bytes = malloc(limit + 16);
    char error[VKA_IO_ERROR_SIZE];
    struct vka_safetensors *file;

    (void)state;
    assert_non_null(bytes);
    memset(bytes, ' ', limit + 16);
    memcpy(bytes + 8, "{}", 2);
    put_length(bytes, limit);
    assert_int_equal(parse(bytes, limit + 8, &file, error), VKA_OK);
    vka_safetensors_close(&file);
    put_length(bytes, limit + 8);
    assert_int_equal(parse(bytes, limit + 16, &file, error), VKA_IO);
    free(bytes);
}

static void test_deep_and_long(void **state)
{
    const size_t depth = 1000000;
    char *text = malloc(2 * depth + 64), error[VKA_IO_ERROR_SIZE];
    struct vka_safetensors *file;
    unsigned char *bytes;
    size_t size;

    (void)state;
    assert_non_null(text);
    memcpy(text, "{'a':", 5);
    memset(text + 5, '[', depth);
    memset(text + 5 + depth, ']', depth);
    memcpy(text + 5 + 2 * depth, "}", 2);
    bytes = build(text, 0, &size);
    assert_int_equal(parse(bytes, size, &file, error), VKA_IO);
    free(bytes);
    /* A name far longer than a sentence, cut in the middle of its characters. */
    strcpy(text, "{'x");
    for (size_t i = 0; i < depth; i++)
        memcpy(text + 3 + 2 * i, "\xc3\xa9", 2);
    strcpy(text + 3 + 2 * depth, "\\n\\t\\u001b':{'dtype':1}}");
    bytes = build(text, 0, &size);
    assert_int_equal(parse(bytes, size, &file, error), VKA_IO);
    assert_non_null(strstr(error, "\xc3\xa9\xc3\xa9?'"));
    free(bytes);
    free(text);
}

/* The sentence names the tensor, its control characters made harmless. */
static void test_sentence(void **state)
{
    char error[VKA_IO_ERROR_SIZE];
    struct vka_safetensors *file;
    size_t size;
    unsigned char *bytes = build("{'some\\nname':{'shape':[1,1,1,1,1,1,1,1,1]}}", 4, &size);

    (void)state;
    assert_int_equal(parse(bytes, size, &file, error), VKA_IO);
    assert_string_equal(error, "some/path: tensor 'some?name' has a shape of more than 8 axes");
    assert_int_equal(vka_safetensors_parse("p", bytes, size, NULL, &file), VKA_IO);
    free(bytes);
}

static const char sample[] =
    "{'__metadata__':{'k':'v\\u00e9','format':'x'},'b':{'dtype':'BF16','shape':[2,3],"
    "'data_offsets':[0,12]},'a':{'dtype':'I64','shape':[],'data_offsets':[12,20]},"
    "'empty':{'dtype':'U8','shape':[0,7],'data_offsets':[20,20]}}   ";
#define SAMPLE_DATA 20

static bool read_mutated(const unsigned char *bytes, size_t size)
{
    char error[VKA_IO_ERROR_SIZE];
    struct vka_safetensors *file;
    enum vka_status status = parse(bytes, size, &file, error);

    if (status == VKA_OK)
        check_invariants(file, bytes, size);
    vka_safetensors_close(&file);
    assert_true(status == VKA_OK || status == VKA_IO);
    return status == VKA_OK;
}

/* A change to the data or to a name is still a good file. */
static void test_mutation(void **state)
{
    size_t size;
    unsigned char *bytes = build(sample, SAMPLE_DATA, &size);

    (void)state;
    check_cuts(bytes, size, read_mutated);
    check_mutants(bytes, size,
                  &(struct mutants){.least_accepted = SAMPLE_DATA * 255, .least_refused = 255 * 8},
                  read_mutated);
    free(bytes);
}

/* Reads as many tensors as any checkpoint has, their names and their places in other orders than the
 * header's: in n log n steps, so within the test's time by far. */
static void test_many(void **state)
{
    enum { MANY = 200000 };
    char *text = malloc((size_t)MANY * 96), error[VKA_IO_ERROR_SIZE], name[32];
    struct vka_safetensors *file;
    unsigned char *bytes;
    size_t size, used = 0;

    (void)state;
    assert_non_null(text);
    for (uint32_t i = 0; i < MANY; i++) {
        uint32_t place = (uint32_t)((uint64_t)i * 99991 % MANY); /* a permutation */

        used += (size_t)sprintf(text + used,
                                "%c'tensor.%u':{'dtype':'U8','shape':[1],'data_offsets':[%u,%u]}",
                                i ? ',' : '{', i, place, place + 1);
    }
    memcpy(text + used, "}", 2);
    bytes = build(text, MANY, &size);
    assert_int_equal(parse(bytes, size, &file, error), VKA_OK);
    assert_int_equal(vka_safetensors_count(file), MANY);
    for (uint32_t i = 0; i < MANY; i += 7) {
        sprintf(name, "tensor.%u", i);
        assert_ptr_equal(vka_safetensors_find(file, name)->data,
                         bytes + size - MANY + (uint64_t)i * 99991 % MANY);
    }
    vka_safetensors_close(&file);
    free(bytes);
    free(text);
}

/* Opens every case file under folder; returns how many. */
static size_t read_folder(const char *folder)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    size_t count = 0;

    assert_non_null(dir);
    while ((entry = readdir(dir))) {
        char path[4096], error[VKA_IO_ERROR_SIZE] = "";
        const char *dot = strrchr(entry->d_name, '.');
        struct vka_safetensors *file;
        struct stat info;

        assert_true(snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) < 4096);
        assert_int_equal(stat(path, &info), 0);
        if (entry->d_name[0] != '.' && S_ISDIR(info.st_mode))
            count += read_folder(path);
        if (!dot || strcmp(dot, ".safetensors") != 0)
            continue;
        if (vka_safetensors_open(path, error, &file))
            fail_msg("%s", error);
        assert_string_equal(vka_safetensors_metadata(file, "format"), "attention-case-1");
        bool op = strcmp(vka_safetensors_metadata(file, "kind"), "op") == 0;
        assert_non_null(vka_safetensors_find(file, op ? "input.0" : "query"));
        assert_non_null(vka_safetensors_find(file, op ? "expect.output.0" : "expect.output"));
        vka_safetensors_close(&file);
        assert_null(file);
        count++;
    }
    closedir(dir);
    return count;
}

static void test_case_files(void **state)
{
    (void)state;
    assert_true(read_folder(CASES_DIR) >= 100);
}

static void test_lookup(void **state)
{
    char error[VKA_IO_ERROR_SIZE];
    struct vka_safetensors *file;
    size_t size;
    unsigned char *bytes = build(sample, SAMPLE_DATA, &size);

    (void)state;
    assert_int_equal(parse(bytes, size, &file, error), VKA_OK);
    assert_int_equal(vka_safetensors_count(file), 3);
    assert_int_equal(vka_safetensors_find(file, "b")->dtype, VKA_IO_BF16);
    assert_int_equal(vka_safetensors_find(file, "b")->shape[1], 3);
    assert_int_equal(vka_safetensors_find(file, "a")->rank, 0);
    assert_int_equal(vka_safetensors_find(file, "empty")->size, 0);
    assert_null(vka_safetensors_find(file, "c"));
    assert_null(vka_safetensors_find(file, "__metadata__"));
    assert_null(vka_safetensors_find(file, NULL));
    assert_string_equal(vka_safetensors_metadata(file, "k"), "v\xc3\xa9");
    assert_null(vka_safetensors_metadata(file, "a"));
    assert_null(vka_safetensors_metadata(file, NULL));
    assert_int_equal(vka_safetensors_metadata_count(file), 2);
    assert_string_equal(vka_safetensors_metadata_at(file, 0)->key, "format");
    assert_string_equal(vka_safetensors_metadata_at(file, 0)->value, "x");
    assert_string_equal(vka_safetensors_metadata_at(file, 1)->key, "k");
    assert_null(vka_safetensors_metadata_at(file, 2));
    vka_safetensors_close(&file);
    assert_null(file);
    vka_safetensors_close(&file);
    vka_safetensors_close(NULL);
    assert_int_equal(vka_safetensors_count(NULL), 0);
    assert_null(vka_safetensors_at(NULL, 0));
    assert_null(vka_safetensors_find(NULL, "a"));
    assert_null(vka_safetensors_metadata(NULL, "a"));
    assert_int_equal(vka_safetensors_metadata_count(NULL), 0);
    assert_null(vka_safetensors_metadata_at(NULL, 0));
    free(bytes);
}

static void test_arguments(void **state)
{
    char error[VKA_IO_ERROR_SIZE];
    struct vka_safetensors *file = NULL;

    (void)state;
    assert_int_equal(vka_safetensors_open(NULL, error, &file), VKA_INVALID);
    assert_int_equal(vka_safetensors_open("x", error, NULL), VKA_INVALID);
    assert_int_equal(vka_safetensors_parse(NULL, "x", 1, error, &file), VKA_INVALID);
    assert_int_equal(vka_safetensors_parse("x", NULL, 1, error, &file), VKA_INVALID);
    assert_int_equal(vka_safetensors_parse("x", "x", SIZE_MAX, error, &file), VKA_INVALID);
    assert_int_equal(vka_safetensors_parse("x", "x", 1, error, NULL), VKA_INVALID);
    assert_int_equal(vka_safetensors_open("no/such.safetensors", error, &file), VKA_IO);
    assert_non_null(strstr(error, "no/such.safetensors: cannot open: "));
    assert_int_equal(vka_safetensors_open(CASES_DIR, error, &file), VKA_IO);
    assert_int_equal(vka_safetensors_open("/dev/zero", error, &file), VKA_IO);
    assert_null(file);
}

TEST_PROGRAM(safetensors)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_malformed),     cmocka_unit_test(test_wellformed),
        cmocka_unit_test(test_header_length), cmocka_unit_test(test_header_limit),
        cmocka_unit_test(test_deep_and_long), cmocka_unit_test(test_sentence),
        cmocka_unit_test(test_mutation),      cmocka_unit_test(test_many),
        cmocka_unit_test(test_case_files),    cmocka_unit_test(test_lookup),
        cmocka_unit_test(test_arguments),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
