/* Case files: the golden ones against the oracle, legal variants, weight files, and numbers.
 * SPDX-License-Identifier: MIT */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "case_recipe.h"
#include "case/numbers.h"
#include "case/reference.h"
#include "case/shape.h"
#include "test_program.h"

/* ---- Golden cases ---------------------------------------------------------------------------- */

static double *room(const struct vka_io_array *expected)
{
    double *out = expected ? calloc(case_count(expected), sizeof *out) : NULL;
    assert_true(out || !expected);
    return out;
}

/* Frees got. */
static void assert_matches(const struct case_file *c, const char *path, double *got,
                           const struct vka_io_array *expected)
{
    if (!expected)
        return;
    struct case_result result;
    double *want = case_doubles(expected);
    assert_non_null(want);
    size_t width = (size_t)expected->shape[expected->rank - 1];
    case_compare(got, want, case_count(expected), width, c->rtol, c->atol, &result);
    if (!result.pass)
        fail_msg("%s: %s[%zu] is %g, want %g", path, expected->name, result.worst, result.got,
                 result.want);
    free(want);
    free(got);
}

static void check_golden(const char *path)
{
    char error[VKA_IO_ERROR_SIZE] = "";
    struct case_file *c;
    if (case_open(path, error, &c) != VKA_OK)
        fail_msg("%s", error);
    double *output = room(c->expect_output), *scores = room(c->expect_scores);
    double *key = room(c->expect_present_key), *value = room(c->expect_present_value);
    assert_int_equal(case_reference(c, output, scores, key, value), VKA_OK);
    assert_matches(c, path, output, c->expect_output);
    assert_matches(c, path, scores, c->expect_scores);
    assert_matches(c, path, key, c->expect_present_key);
    assert_matches(c, path, value, c->expect_present_value);
    case_close(&c);
    assert_null(c);
}

static size_t check_folder(const char *folder)
{
    char path[1024];
    size_t count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (!strstr(entry->d_name, ".safetensors"))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        check_golden(path);
        count++;
    }
    closedir(dir);
    return count;
}

static void golden_seeds(void **state)
{
    (void)state;
    assert_int_equal(check_folder(TEST_DIR "/../cases/seeds"), 26);
}

static void golden_onnx(void **state)
{
    (void)state;
    assert_int_equal(check_folder(TEST_DIR "/../cases/onnx/opset23"), 65);
    assert_int_equal(check_folder(TEST_DIR "/../cases/onnx/opset24"), 11);
    assert_int_equal(check_folder(TEST_DIR "/../cases/onnx/opset25"), 1);
}

/* ---- Legal ones ------------------------------------------------------------------------------ */

/* What may be changed in a good case and still opens. words: also give BSD an empty past. */
static const struct change GOOD[] = {
    META(BHSD, "source", "", ""),
    META(BHSD, "rtol", "0", ""),
    CONFIG(BHSD, MORE("\"scale\":-2"), ""),
    CONFIG(BHSD, MORE("\"softcap\":0"), ""),
    CONFIG(BHSD, MORE("\"softmax_precision\":10"), ""),
    CONFIG(BHSD, MORE("\"softmax_precision\":11"), ""),
    CONFIG(BHSD, MORE("\"softmax_precision\":16"), ""),
    CONFIG(BHSD, MORE("\"qkv_heads\":\"blocked\""), ""),
    CONFIG(BHSD, MORE("\"window\":[-1,2147483647]"), ""),
    CONFIG(BHSD, MORE("\"rope\":{\"dim\":6}"), ""),
    WITHOUT(BHSD, "mask", ""),
    WITHOUT(BHSD, "expect.present_key", ""),
    TENSOR(BHSD, "mask", "BF16", "[3, 4]", ""),
    TENSOR(BHSD, "mask", "F16", "[4, 1, 1]", ""),
    TENSOR(BHSD, "mask", "BOOL", "[1]", ""),
    TENSOR(BHSD, "mask", "F32", "[2, 4, 3, 6]", ""),
    TENSOR(BHSD, "query", "BF16", "[2, 4, 3, 6]", ""),
    FILLED(BHSD, "kv_length", "[1]", INT32_MAX, ""),
    FILLED(BHSD, "query_offset", "[2]", INT32_MIN, ""),
    TENSOR(BSD, "past_key", "F32", "[2, 2, 0, 6]", "past"),
    TENSOR(BSD, "expect.present_value", "F64", "[2, 2, 5, 7]", ""),
    WITHOUT(LAYER, "o_proj.bias", ""),
    WITHOUT(LAYER, "q_proj.bias", ""),
};

static void legal(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNTOF(GOOD); i++) {
        char error[VKA_IO_ERROR_SIZE] = "";
        struct recipe recipe = recipe_changed(&GOOD[i]);
        struct case_file *c;
        unsigned char *bytes;
        if (strcmp(GOOD[i].words, "past") == 0)
            recipe_put_tensor(&recipe, (struct tensor){"past_value", "F16", "[2, 2, 0, 7]", 0});
        if (recipe_parse(&recipe, error, &c, &bytes) != VKA_OK)
            fail_msg("row %zu: %s", i, error);
        /* Zeros in: a computed case has no reason to be anything but finite. */
        double *output = room(c->expect_output);
        assert_int_equal(case_reference(c, output, NULL, NULL, NULL), VKA_OK);
        for (size_t j = 0; j < case_count(c->expect_output); j++)
            assert_true(output[j] == 0);
        free(output);
        case_close(&c);
        free(bytes);
    }
}

static void fields(void **state)
{
    (void)state;
    struct case_file *c;
    unsigned char *bytes;
    struct recipe recipe = RECIPE_BHSD;
    recipe_put_metadata(&recipe, "config",
                        MORE("\"scale\":0.5,\"softcap\":2,\"causal\":true,\"window\":[3,-1],"
                             "\"masked_row\":\"nan\",\"rope\":{\"base\":500,\"dim\":4,"
                             "\"interleaved\":true},\"softmax_precision\":11"));
    assert_int_equal(recipe_parse(&recipe, NULL, &c, &bytes), VKA_OK);
    assert_int_equal(c->kind, CASE_SDPA);
    assert_string_equal(c->name, "made");
    assert_string_equal(c->source, "here");
    assert_true(c->rtol == 1e-4 && c->atol == 1e-5);
    assert_true(c->config.scale == 0.5 && c->config.softcap == 2 && c->config.causal);
    assert_true(c->config.window && c->config.window_left == 3 && c->config.window_right == -1);
    assert_int_equal(c->config.masked_row, VKA_MASKED_NAN);
    assert_int_equal(c->config.scores, VKA_SCORES_RAW);
    assert_true(c->config.rope.base == 500 && c->config.rope.dim == 4);
    assert_true(c->config.rope.interleaved && c->config.softmax_precision == 11);
    const uint32_t sizes[] = {c->batch,  c->n_head, c->n_kv_head, c->n_q,      c->n_new,
                              c->n_past, c->n_kv,   c->head_dim,  c->value_dim};
    assert_memory_equal(sizes, ((const uint32_t[]){2, 4, 2, 3, 5, 1, 6, 6, 7}), sizeof sizes);
    case_close(&c);
    free(bytes);
    assert_int_equal(recipe_parse(&RECIPE_LAYER, NULL, &c, &bytes), VKA_OK);
    const uint32_t widths[] = {c->query_dim,  c->key_dim, c->value_input_dim,
                               c->output_dim, c->batch,   c->n_q,
                               c->n_kv,       c->n_past};
    assert_memory_equal(widths, ((const uint32_t[]){8, 9, 10, 11, 2, 3, 5, 0}), sizeof widths);
    case_close(&c);
    case_close(&c);
    case_close(NULL);
    free(bytes);
}

/* ---- Heads, weight files, numbers ------------------------------------------------------------ */

/* Rows d * heads + h from rows h * dim + d; of a weight or a bias. data is freed by the caller. */
static struct vka_io_array interleave(const struct vka_io_array *array, size_t heads)
{
    struct vka_io_array out = *array;
    size_t rows = (size_t)array->shape[0], bytes = array->size / rows, dim = rows / heads;
    char *data = malloc(array->size);
    assert_non_null(data);
    for (size_t row = 0; row < rows; row++)
        memcpy(data + (row % dim * heads + row / dim) * bytes,
               (const char *)array->data + row * bytes, bytes);
    out.data = data;
    return out;
}

static void interleaved_heads(void **state)
{
    (void)state;
    static const char PATH[] = TEST_DIR "/../cases/seeds/seed000_bias_cross_pad.safetensors";
    struct vka_io_array moved[6];
    struct case_file *c;
    assert_int_equal(case_open(PATH, NULL, &c), VKA_OK);
    struct case_linear *linears[] = {&c->q_proj, &c->k_proj, &c->v_proj};
    c->config.interleaved = true;
    for (int i = 0; i < 3; i++) {
        moved[2 * i] = interleave(linears[i]->weight, c->n_head);
        moved[2 * i + 1] = interleave(linears[i]->bias, c->n_head);
        *linears[i] = (struct case_linear){&moved[2 * i], &moved[2 * i + 1]};
    }
    double *output = room(c->expect_output), *scores = room(c->expect_scores);
    assert_int_equal(case_reference(c, output, scores, NULL, NULL), VKA_OK);
    assert_matches(c, PATH, output, c->expect_output);
    assert_matches(c, PATH, scores, c->expect_scores);
    for (int i = 0; i < 6; i++)
        free((void *)moved[i].data);
    case_close(&c);
}

static void layer_file(void **state)
{
    (void)state;
    static const char PATH[] = TEST_DIR "/../mnist/documented.safetensors";
    char error[VKA_IO_ERROR_SIZE] = "";
    struct case_file *c;
    assert_int_equal(case_open_layer(PATH, error, &c), VKA_OK);
    assert_true(c->config.interleaved && c->config.layout == CASE_BSD);
    assert_int_equal(case_layer_sizes(c, PATH, error), VKA_OK);
    const uint32_t sizes[] = {c->n_head,    c->n_kv_head, c->head_dim,        c->value_dim,
                              c->query_dim, c->key_dim,   c->value_input_dim, c->output_dim};
    assert_memory_equal(sizes, ((const uint32_t[]){16, 16, 49, 49, 49, 49, 49, 49}), sizeof sizes);
    c->config.num_heads = 5;
    assert_int_equal(case_layer_sizes(c, PATH, error), VKA_IO);
    assert_non_null(strstr(error, "documented.safetensors: tensor \"q_proj.weight\" has axis 0"));
    c->config.num_heads = 0;
    assert_int_equal(case_layer_sizes(c, PATH, error), VKA_IO);
    assert_non_null(strstr(error, "--heads"));
    case_close(&c);
}

static void layer_file_refused(void **state)
{
    (void)state;
    char error[VKA_IO_ERROR_SIZE] = "";
    struct case_file *c;
    assert_int_equal(case_open_layer(TEST_DIR "/../mnist/executed.safetensors", error, &c), VKA_IO);
    assert_non_null(strstr(error, "executed.safetensors: config key \"attend\" is unknown"));
    assert_null(c);
    static const char SDPA[] = TEST_DIR "/../cases/onnx/opset23/3d.safetensors";
    assert_int_equal(case_open_layer(SDPA, error, &c), VKA_IO);
    assert_non_null(strstr(error, "\"q_proj.weight\" is missing, expected in a layer file"));
    assert_int_equal(case_open_layer(TEST_DIR "/nothing", error, &c), VKA_IO);
    assert_non_null(strstr(error, "/nothing"));
    assert_int_equal(case_open(TEST_DIR "/nothing", error, &c), VKA_IO);
    assert_null(c);
}

/* A layer file with a tensor that would be left out, or under another name. */
static void layer_file_names(void **state)
{
    (void)state;
    static const float data[16] = {1};
    static const char *const plain[] = {"q_proj.weight", "k_proj.weight", "v_proj.weight",
                                        "out_proj.weight"};
    static const struct {
        const char *more, *refused; /* refused NULL: it is read */
    } rows[] = {{"out_proj.bias", NULL},
                {"query", NULL},
                {"expect.output", NULL},
                {"o_proj.bias", "\"o_proj.bias\" does not belong to \"out_proj.weight\""},
                {"o_proj.weight", "is there twice"},
                {"dense.weight", "\"dense.weight\" is unknown"},
                {"q_norm.weight", "\"q_norm.weight\" is unknown"},
                {"sinks", "\"sinks\" is unknown"},
                {"Q_proj.weight", "is unknown"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct vka_io_array arrays[5];
        char error[VKA_IO_ERROR_SIZE] = "";
        struct case_file *c;
        bool vector = strstr(rows[i].more, "bias") || strstr(rows[i].more, "norm");
        for (int j = 0; j < 5; j++)
            arrays[j] = (struct vka_io_array){.name = j < 4 ? plain[j] : rows[i].more,
                                              .dtype = VKA_IO_F32,
                                              .rank = j == 4 && vector ? 1 : 2,
                                              .shape = {4, 4},
                                              .data = data,
                                              .size = j == 4 && vector ? 16 : 64};
        assert_int_equal(vka_safetensors_write("test_case_names", arrays, 5, NULL, 0, error),
                         VKA_OK);
        enum vka_status status = case_open_layer("test_case_names", error, &c);
        assert_int_equal(status, rows[i].refused ? VKA_IO : VKA_OK);
        if (rows[i].refused && !strstr(error, rows[i].refused))
            fail_msg("%s", error);
        if (c)
            assert_int_equal(c->o_proj.bias != NULL, strcmp(rows[i].more, "out_proj.bias") == 0);
        if (c)
            assert_non_null(c->o_proj.weight);
        case_close(&c);
    }
    remove("test_case_names");
}

static void compare(void **state)
{
    (void)state;
    const double want[] = {1, -10, 0, NAN, INFINITY, -INFINITY};
    double got[] = {1.0001, -10.0005, 1e-6, NAN, INFINITY, -INFINITY};
    struct case_result result;
    case_compare(got, want, 6, 6, 1e-4, 1e-5, &result);
    assert_true(result.pass && result.worst == 0);
    assert_true(fabs(result.max_abs - 5e-4) < 1e-9 && fabs(result.max_rel - 1e-4) < 1e-9);
    assert_true(result.row_nmse > 0 && result.row_nmse < 1e-8);
    got[2] = 3e-5;
    case_compare(got, want, 6, 3, 1e-4, 1e-5, &result);
    assert_true(!result.pass && result.worst == 2 && result.got == 3e-5 && result.want == 0);
    for (size_t i = 3; i < 6; i++) {
        const double held = got[i],
                     others[] = {0, 7, i == 5 ? INFINITY : -INFINITY, i == 3 ? INFINITY : NAN};
        for (size_t j = 0; j < COUNTOF(others); j++) {
            got[i] = others[j];
            case_compare(got, want, 6, 2, 1, 1, &result);
            assert_true(!result.pass && result.worst == i && isinf(result.max_abs));
            assert_true(isinf(result.max_rel) && isinf(result.row_nmse));
        }
        got[i] = held;
    }
    got[0] = NAN;
    case_compare(got, want, 6, 6, 1, 1, &result);
    assert_true(!result.pass && result.worst == 0);
    case_compare(want, want, 6, 3, 0, 0, &result);
    assert_true(result.pass && result.max_abs == 0 && result.row_nmse == 0);
    case_compare(got, want, 0, 1, 0, 0, &result);
    assert_true(result.pass);
}

/* Each type at an odd address, as arrays in a file may be. */
static void numbers(void **state)
{
    (void)state;
    static const struct {
        enum vka_io_dtype dtype;
        unsigned char bytes[8];
        double want;
    } ROWS[] = {
        {VKA_IO_F32, {0, 0, 0x20, 0xc0}, -2.5},
        {VKA_IO_F16, {0, 0xc1}, -2.5},
        {VKA_IO_BF16, {0x20, 0xc0}, -2.5},
        {VKA_IO_F64, {0, 0, 0, 0, 0, 0, 4, 0xc0}, -2.5},
        {VKA_IO_BOOL, {200}, 1},
        {VKA_IO_U8, {200}, 200},
        {VKA_IO_I8, {200}, -56},
        {VKA_IO_U16, {0, 200}, 51200},
        {VKA_IO_I16, {0, 200}, -14336},
        {VKA_IO_U32, {0, 0, 0, 200}, 3355443200.0},
        {VKA_IO_I32, {0, 0, 0, 200}, -939524096.0},
        {VKA_IO_U64, {1, 0, 0, 0, 1}, 4294967297.0},
        {VKA_IO_I64, {255, 255, 255, 255, 255, 255, 255, 255}, -1},
        {VKA_IO_F8_E4M3, {0xfe}, -448},
        {VKA_IO_F8_E4M3, {0x05}, 5.0 / 512},
        {VKA_IO_F8_E5M2, {0x7b}, 57344},
        {VKA_IO_F8_E8M0, {120}, 1.0 / 128},
    };
    assert_int_equal(COUNTOF(ROWS), VKA_IO_DTYPE_COUNT + 1); /* one type twice */
    for (size_t i = 0; i < COUNTOF(ROWS); i++) {
        unsigned char odd[9];
        memcpy(odd + 1, ROWS[i].bytes, 8);
        struct vka_io_array array = {.dtype = ROWS[i].dtype, .data = odd + 1};
        array.size = vka_io_dtype_size(array.dtype);
        assert_int_equal(case_count(&array), 1);
        double *x = case_doubles(&array);
        assert_true(x && x[0] == ROWS[i].want);
        free(x);
    }
    const double x[] = {-2.5, 3e9};
    float f[2];
    uint16_t h[2], b[2];
    int32_t n[2];
    uint8_t t[2];
    case_narrow(x, 2, VKA_F32, f);
    case_narrow(x, 2, VKA_F16, h);
    case_narrow(x, 2, VKA_BF16, b);
    case_narrow(x, 2, VKA_I32, n);
    case_narrow(x, 2, VKA_BOOL, t);
    assert_true(f[0] == -2.5f && f[1] == 3e9f && h[0] == 0xc100 && h[1] == 0x7c00);
    assert_true(b[0] == 0xc020 && n[0] == -2 && n[1] == INT32_MAX && t[0] == 1);
    assert_int_equal(case_dtype(VKA_IO_I64), VKA_I32);
    assert_int_equal(case_dtype(VKA_IO_F64), VKA_F32);
    assert_int_equal(case_dtype(VKA_IO_BF16), VKA_BF16);
    assert_int_equal(case_dtype(VKA_IO_F8_E4M3), VKA_F32);
}

TEST_PROGRAM(case)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_seeds),
        cmocka_unit_test(golden_onnx),
        cmocka_unit_test(legal),
        cmocka_unit_test(fields),
        cmocka_unit_test(interleaved_heads),
        cmocka_unit_test(layer_file),
        cmocka_unit_test(layer_file_refused),
        cmocka_unit_test(layer_file_names),
        cmocka_unit_test(compare),
        cmocka_unit_test(numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
