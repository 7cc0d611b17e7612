/* GPTQ's and AWQ's weights: decoded blocks have the values of the file's own definition; what blocks
 * of 128 cannot hold is refused with a sentence. */
#include "test_program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vkattn/vkattn_io.h>

#define COUNTOF(array) (sizeof(array) / sizeof((array)[0]))

/* Arrays of one layer, at odd addresses as in a mapped file. */
struct layer {
    struct vka_int4 weight;
    struct vka_io_array qweight, qzeros, scales, g_idx;
    unsigned char *bytes[4];
};

static uint64_t state;

static uint32_t draw(void)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(state >> 32);
}

static void make(struct vka_io_array *array, unsigned char **bytes, const char *name,
                 enum vka_io_dtype dtype, uint64_t rows, uint64_t columns)
{
    const size_t size = (size_t)(rows * columns) * vka_io_dtype_size(dtype);
    *bytes = malloc(size + 1);
    assert_non_null(*bytes);
    *array = (struct vka_io_array){.name = name,
                                   .dtype = dtype,
                                   .rank = 2,
                                   .shape = {rows, columns},
                                   .data = *bytes + 1,
                                   .size = size};
    for (size_t i = 0; i < size; i++)
        (*bytes)[1 + i] = (unsigned char)draw();
    for (size_t i = 1; dtype == VKA_IO_F16 && i < size; i += 2)
        if (((*bytes)[1 + i] & 0x7c) == 0x7c)
            (*bytes)[1 + i] &= 0x83; /* finite, subnormal numbers too */
}

static void put(const struct vka_io_array *array, uint64_t index, uint32_t word)
{
    for (int i = 0; i < 4; i++)
        ((unsigned char *)array->data)[4 * index + (uint64_t)i] = (unsigned char)(word >> 8 * i);
}

/* The struct points into itself. */
static void make_layer(struct layer *l, enum vka_int4_format format, uint64_t out, uint64_t in,
                       uint64_t groups)
{
    const bool awq = format == VKA_INT4_AWQ;
    make(&l->qweight, &l->bytes[0], "q.qweight", VKA_IO_I32, awq ? in : in / 8,
         awq ? out / 8 : out);
    make(&l->qzeros, &l->bytes[1], "q.qzeros", VKA_IO_I32, groups, out / 8);
    make(&l->scales, &l->bytes[2], "q.scales", VKA_IO_F16, groups, out);
    make(&l->g_idx, &l->bytes[3], "q.g_idx", VKA_IO_I32, in, 1);
    l->g_idx.rank = 1;
    for (uint64_t i = 0; i < in; i++)
        put(&l->g_idx, i, (uint32_t)(i * groups / in));
    l->weight = (struct vka_int4){
        .format = format, .qweight = &l->qweight, .qzeros = &l->qzeros, .scales = &l->scales};
}

static void free_layer(struct layer *l)
{
    for (size_t i = 0; i < COUNTOF(l->bytes); i++)
        free(l->bytes[i]);
}

/* Four bits of an array of words: number `nibble` of word [row][column]. */
static int four_bits(const struct vka_io_array *array, uint64_t row, uint64_t column,
                     uint64_t nibble)
{
    const unsigned char *word =
        (const unsigned char *)array->data + 4 * (row * array->shape[1] + column);
    return word[nibble / 2] >> (nibble % 2 * 4) & 15;
}

static double half_at(const struct vka_io_array *array, uint64_t index)
{
    const unsigned char *b = (const unsigned char *)array->data + 2 * index;
    const int exponent = b[1] >> 2 & 31, fraction = (b[1] & 3) << 8 | b[0];
    const double magnitude =
        exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return b[1] & 0x80 ? -magnitude : magnitude;
}

/* weight[o][i] as the formats define it. AWQ packs column order[k] of eight as the k-th nibble. */
static double value_of(const struct layer *l, uint64_t o, uint64_t i)
{
    static const uint64_t order[] = {0, 2, 4, 6, 1, 3, 5, 7};
    const uint64_t out = l->scales.shape[1], in = l->g_idx.shape[0];
    const uint64_t group = i * l->scales.shape[0] / in;
    uint64_t k = 0;
    int value, zero;
    if (l->weight.format == VKA_INT4_AWQ) {
        while (order[k] != o % 8)
            k++;
        value = four_bits(&l->qweight, i, o / 8, k);
        zero = four_bits(&l->qzeros, group, o / 8, k);
    } else {
        value = four_bits(&l->qweight, i / 8, o, i % 8);
        zero = four_bits(&l->qzeros, group, o / 8, o % 8);
        zero += l->weight.format == VKA_INT4_GPTQ;
    }
    return half_at(&l->scales, group * out + o) * (value - zero);
}

static void check_layer(struct layer *l, const char *what)
{
    char error[VKA_IO_ERROR_SIZE] = "";
    uint32_t out, in;
    size_t size;
    if (vka_int4_size(&l->weight, error, &out, &in, &size))
        fail_msg("%s: %s", what, error);
    assert_int_equal(out, l->scales.shape[1]);
    assert_int_equal(in, l->g_idx.shape[0]);
    assert_int_equal(size, (size_t)out * (in / 128) * 68);
    unsigned char *blocks = malloc(size + 1);
    float *x = malloc(sizeof *x * out * in);
    assert_true(blocks && x);
    blocks[size] = 0xa5;
    if (vka_int4_repack(&l->weight, blocks, size, error))
        fail_msg("%s: %s", what, error);
    assert_int_equal(blocks[size], 0xa5);
    assert_int_equal(vka_dtype_decode(VKA_I4_G128, blocks, size / 68, x), VKA_OK);
    for (uint64_t o = 0; o < out; o++)
        for (uint64_t i = 0; i < in; i++)
            if ((double)x[o * in + i] != value_of(l, o, i))
                fail_msg("%s: weight[%llu][%llu] is %g, not %g", what, (unsigned long long)o,
                         (unsigned long long)i, (double)x[o * in + i], value_of(l, o, i));
    free(blocks);
    free(x);
}

static void test_values(void **unused)
{
    static const uint64_t shapes[][3] = {/* out, in, groups */
                                         {8, 128, 1},   {16, 256, 2},   {40, 640, 5},
                                         {24, 768, 3},  {8, 1024, 1},   {136, 128, 1},
                                         {64, 1152, 3}, {8, 16384, 128}};
    (void)unused;
    state = 17;
    for (int format = 0; format < VKA_INT4_FORMAT_COUNT; format++)
        for (size_t i = 0; i < COUNTOF(shapes); i++) {
            struct layer l;
            char what[64];
            snprintf(what, sizeof what, "format %d, shape %zu", format, i);
            make_layer(&l, (enum vka_int4_format)format, shapes[i][0], shapes[i][1], shapes[i][2]);
            check_layer(&l, what);
            l.weight.group_size = (uint32_t)(shapes[i][1] / shapes[i][2]);
            l.weight.g_idx = format == VKA_INT4_AWQ ? NULL : &l.g_idx;
            check_layer(&l, what);
            free_layer(&l);
        }
}

/* 640 inputs in groups of 256: the last one is half a group, which group_size alone says. */
static void test_last_group(void **unused)
{
    struct layer l;
    char error[VKA_IO_ERROR_SIZE];
    unsigned char blocks[8 * 5 * 68];
    (void)unused;
    make_layer(&l, VKA_INT4_GPTQ, 8, 640, 3);
    assert_int_equal(vka_int4_repack(&l.weight, blocks, sizeof blocks, error), VKA_IO);
    assert_non_null(strstr(error, "3 groups do not divide 640 inputs"));
    l.weight.group_size = 256;
    assert_int_equal(vka_int4_repack(&l.weight, blocks, sizeof blocks, error), VKA_OK);
    for (uint64_t o = 0; o < 8; o++)
        for (uint64_t b = 0; b < 5; b++) {
            const unsigned char *block = blocks + (o * 5 + b) * 68;
            assert_memory_equal(block + 64, (const char *)l.scales.data + 2 * (b / 2 * 8 + o), 2);
            assert_int_equal(block[66], four_bits(&l.qzeros, b / 2, 0, o) + 1);
        }
    free_layer(&l);
}

/* Each changes one thing of a right layer of GPTQ, [16][256] in 2 groups. */
static void two_bits(struct layer *l)
{
    l->qzeros.shape[1] = 1;
    l->qzeros.size /= 2;
}

static void eight_bits(struct layer *l)
{
    free_layer(l);
    make_layer(l, VKA_INT4_GPTQ, 16, 256, 2);
    l->qzeros.shape[0] = 1;
    l->qzeros.shape[1] = 4;
}

static void groups_of_64(struct layer *l)
{
    free_layer(l);
    make_layer(l, VKA_INT4_GPTQ, 16, 256, 4);
}

static void groups_of_32(struct layer *l)
{
    free_layer(l);
    make_layer(l, VKA_INT4_AWQ, 16, 256, 8);
}

static void not_whole_blocks(struct layer *l)
{
    free_layer(l);
    make_layer(l, VKA_INT4_GPTQ, 16, 192, 1);
}

static void permuted(struct layer *l)
{
    l->weight.g_idx = &l->g_idx;
    put(&l->g_idx, 127, 1);
}

static void negative_group(struct layer *l)
{
    l->weight.g_idx = &l->g_idx;
    put(&l->g_idx, 0, UINT32_MAX);
}

static void short_g_idx(struct layer *l)
{
    l->weight.g_idx = &l->g_idx;
    l->g_idx.shape[0] = 255;
    l->g_idx.size -= 4;
}

static void awq_g_idx(struct layer *l)
{
    free_layer(l);
    make_layer(l, VKA_INT4_AWQ, 16, 256, 2);
    l->weight.g_idx = &l->g_idx;
}

static void infinite(struct layer *l)
{
    memcpy((char *)l->scales.data + 2 * 21, "\x00\xfc", 2);
}

static void not_a_number(struct layer *l)
{
    memcpy((char *)l->scales.data, "\x01\x7c", 2);
}

static void other_format(struct layer *l)
{
    l->weight.format = VKA_INT4_AWQ;
}

static void wide_scales(struct layer *l)
{
    l->scales.dtype = VKA_IO_F32;
    l->scales.shape[1] /= 2;
}

static void flat_scales(struct layer *l)
{
    l->scales.rank = 1;
    l->scales.shape[0] = 32;
}

static void empty(struct layer *l)
{
    l->qweight.shape[0] = l->qweight.size = 0;
}

static void other_zeros(struct layer *l)
{
    l->qzeros.shape[0] = 1;
    l->qzeros.size /= 2;
}

static void other_group(struct layer *l)
{
    l->weight.group_size = 256;
}

static void huge(struct layer *l)
{
    l->qweight.shape[0] = UINT64_C(1) << 40;
    l->qweight.size = (size_t)(l->qweight.shape[0] * 64);
}

static void overflowing(struct layer *l)
{
    l->qweight.shape[0] = UINT64_MAX;
}

static void shorter(struct layer *l)
{
    l->qweight.size--;
}

static void absent(struct layer *l)
{
    l->weight.qzeros = NULL;
}

static void unknown_format(struct layer *l)
{
    l->weight.format = VKA_INT4_FORMAT_COUNT;
}

static const struct {
    void (*change)(struct layer *l);
    enum vka_status status;
    const char *reason;
    bool of_contents; /* vka_int4_size does not see it */
} refused[] = {
    {two_bits, VKA_IO, "'q.qzeros': 2 bits a value are not supported, only 4", false},
    {eight_bits, VKA_IO, "'q.qzeros': 8 bits a value", false},
    {groups_of_64, VKA_IO, "'q.scales': groups of 64 inputs are not supported", false},
    {groups_of_32, VKA_IO, "'q.scales': groups of 32 inputs are not supported", false},
    {not_whole_blocks, VKA_IO, "'q.qweight': 192 inputs are not whole blocks of 128", false},
    {permuted, VKA_IO, "'q.g_idx': input 127 is not of group 0: g_idx in the order of act", true},
    {negative_group, VKA_IO, "'q.g_idx': input 0 is not of group 0", true},
    {short_g_idx, VKA_IO, "'q.g_idx': it has not one group for each input", false},
    {awq_g_idx, VKA_IO, "'q.g_idx': AWQ has no g_idx", false},
    {infinite, VKA_IO, "'q.scales': the scale of group 1, column 5 is NaN or infinite", true},
    {not_a_number, VKA_IO, "'q.scales': the scale of group 0, column 0 is NaN", true},
    {other_format, VKA_IO, "'q.qweight': its columns do not fit those of scales", false},
    {wide_scales, VKA_IO, "'q.scales': expected F16 of 2 axes, got F32 of 2", false},
    {flat_scales, VKA_IO, "'q.scales': expected F16 of 2 axes, got F16 of 1", false},
    {empty, VKA_IO, "'q.qweight': an axis is empty", false},
    {other_zeros, VKA_IO, "'q.qzeros': it has other groups than scales", false},
    {other_group, VKA_IO, "'q.scales': 2 groups do not divide 256 inputs", false},
    {huge, VKA_IO, "'q.qweight': an axis exceeds 2^32 - 1", false},
    {overflowing, VKA_INVALID, "'q.qweight' overflows", false},
    {shorter, VKA_INVALID, "'q.qweight' has 2047 bytes", false},
    {absent, VKA_INVALID, "qzeros or scales is NULL", false},
    {unknown_format, VKA_INVALID, "format 3 is unknown", false},
};

static void test_refused(void **unused)
{
    (void)unused;
    state = 5;
    for (size_t i = 0; i < COUNTOF(refused); i++) {
        struct layer l;
        char error[VKA_IO_ERROR_SIZE] = "";
        unsigned char blocks[16 * 2 * 68], untouched[sizeof blocks];
        uint32_t out = 7, in = 7;
        size_t size = 7;
        make_layer(&l, VKA_INT4_GPTQ, 16, 256, 2);
        refused[i].change(&l);
        memset(untouched, 0xcd, sizeof untouched);
        memcpy(blocks, untouched, sizeof blocks);
        enum vka_status status = vka_int4_size(&l.weight, error, &out, &in, &size);
        assert_int_equal(status, refused[i].of_contents ? VKA_OK : refused[i].status);
        assert_true(refused[i].of_contents || (!out && !in && !size));
        status = vka_int4_repack(&l.weight, blocks, sizeof blocks, error);
        if (status != refused[i].status || !strstr(error, refused[i].reason))
            fail_msg("case %zu: %d, %s; expected %s", i, status, error, refused[i].reason);
        assert_memory_equal(blocks, untouched, sizeof blocks);
        assert_int_equal(vka_int4_repack(&l.weight, blocks, sizeof blocks, NULL), status);
        free_layer(&l);
    }
}

static void test_arguments(void **unused)
{
    struct layer l;
    char error[VKA_IO_ERROR_SIZE];
    unsigned char blocks[16 * 2 * 68];
    uint32_t out, in;
    size_t size;
    (void)unused;
    make_layer(&l, VKA_INT4_GPTQ_V2, 16, 256, 2);
    assert_int_equal(vka_int4_size(NULL, error, &out, &in, &size), VKA_INVALID);
    assert_int_equal(vka_int4_size(&l.weight, error, NULL, &in, &size), VKA_INVALID);
    assert_int_equal(vka_int4_repack(NULL, blocks, sizeof blocks, error), VKA_INVALID);
    assert_int_equal(vka_int4_repack(&l.weight, NULL, sizeof blocks, error), VKA_INVALID);
    assert_int_equal(vka_int4_repack(&l.weight, blocks, sizeof blocks - 1, error), VKA_INVALID);
    assert_non_null(strstr(error, "2175 bytes are not the 2176 of 16 rows of 256"));
    assert_int_equal(vka_int4_repack(&l.weight, blocks, sizeof blocks, error), VKA_OK);
    free_layer(&l);
}

static void test_find(void **unused)
{
    static const char header[] =
        "{\"a.qweight\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[0,4]},"
        "\"a.qzeros\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[4,8]},"
        "\"a.scales\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[8,12]},"
        "\"b.qweight\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[12,16]},"
        "\"b.g_idx\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[16,20]}}";
    unsigned char bytes[8 + sizeof header - 1 + 20] = {(sizeof header - 1) & 255,
                                                       (sizeof header - 1) >> 8};
    struct vka_safetensors *file = NULL;
    char error[VKA_IO_ERROR_SIZE];
    struct vka_int4 w = {.format = VKA_INT4_AWQ, .group_size = 128};
    (void)unused;
    memcpy(bytes + 8, header, sizeof header - 1);
    assert_int_equal(vka_safetensors_parse("x", bytes, sizeof bytes, error, &file), VKA_OK);
    assert_int_equal(vka_int4_find(file, "a", error, &w), VKA_OK);
    assert_ptr_equal(w.qweight, vka_safetensors_find(file, "a.qweight"));
    assert_ptr_equal(w.qzeros, vka_safetensors_find(file, "a.qzeros"));
    assert_ptr_equal(w.scales, vka_safetensors_find(file, "a.scales"));
    assert_null(w.g_idx);
    assert_int_equal(w.format, VKA_INT4_AWQ);
    assert_int_equal(w.group_size, 128);
    assert_int_equal(vka_int4_find(file, "b", error, &w), VKA_IO);
    assert_non_null(strstr(error, "there is no array 'b.qzeros'"));
    assert_int_equal(vka_int4_find(file, NULL, error, &w), VKA_INVALID);
    assert_int_equal(vka_int4_find(NULL, "a", error, &w), VKA_INVALID);
    vka_safetensors_close(&file);
}

TEST_PROGRAM(int4)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),  cmocka_unit_test(test_last_group),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_find),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
