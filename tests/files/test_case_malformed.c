/* Malformed case files, each a good one with a single thing changed.
 * SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "case_recipe.h"
#include "mutated.h"
#include "test_program.h"

/* A config that says layout and heads alone. */
#define FOLD(layout, heads, kv) \
    "{\"layout\":" layout ",\"num_heads\":" heads ",\"num_kv_heads\":" kv "}"

static const struct change BAD[] = {
    META(BHSD, "format", NULL, "\"format\" is missing"),
    META(BHSD, "format", "attention-case-2", "expected attention-case-1"),
    META(BHSD, "format", "", "expected attention-case-1"),
    META(BHSD, "kind", NULL, "\"kind\" is missing"),
    META(BHSD, "kind", "conv", "expected sdpa, layer or op"),
    META(BHSD, "kind", "SDPA", "expected sdpa, layer or op"),
    META(BHSD, "name", NULL, "\"name\" is missing"),
    META(BHSD, "name", "", "\"name\": expected one line"),
    META(BHSD, "name", "two\nlines", "\"name\": expected one line"),
    META(BHSD, "source", NULL, "\"source\" is missing"),
    META(BHSD, "rtol", NULL, "\"rtol\" is missing"),
    META(BHSD, "rtol", "", "expected a number from 0 up"),
    META(BHSD, "rtol", "1e-4x", "expected a number from 0 up"),
    META(BHSD, "rtol", "-1", "expected a number from 0 up"),
    META(BHSD, "rtol", "nan", "expected a number from 0 up"),
    META(BHSD, "rtol", "0x1p-3", "expected a number from 0 up"),
    META(BHSD, "atol", NULL, "\"atol\" is missing"),
    META(BHSD, "atol", "inf", "expected a number from 0 up"),
    META(BHSD, "atol", " 1", "expected a number from 0 up"),
    META(BHSD, "atol", "1e999", "expected a number from 0 up"),
    META(BHSD, "config", NULL, "\"config\" is missing"),
    CONFIG(BHSD, "", "expected a JSON object"),
    CONFIG(BHSD, "{\"layout\":", "expected a JSON object"),
    CONFIG(BHSD, "[1, 2]", "expected a JSON object"),
    CONFIG(BHSD, "7", "expected a JSON object"),
    CONFIG(BHSD, "{} {}", "expected a JSON object"),
    CONFIG(BHSD, "{}", "\"layout\""),
    CONFIG(BHSD, "{\"layout\":\"bhsd\",\"scores\":\"raw\"}", "\"num_heads\" is missing"),
    CONFIG(BHSD, MORE("\"layout\":\"bhsd\""), "expected a JSON object"),
    CONFIG(BHSD, MORE("\"Causal\":true"), "\"Causal\" is unknown"),
    CONFIG(BHSD, MORE("\"attend\":\"channels\""), "\"attend\" is unknown"),
    CONFIG(BHSD, MORE("\"two\\nlines\":1"), "is unknown"),
    CONFIG(BHSD, MORE("\"causal\":1"), "\"causal\": expected true"),
    CONFIG(BHSD, MORE("\"causal\":false"), "\"causal\": expected true"),
    CONFIG(BHSD, MORE("\"scale\":0"), "\"scale\": expected a number"),
    CONFIG(BHSD, MORE("\"scale\":\"1\""), "\"scale\": expected a number"),
    CONFIG(BHSD, MORE("\"scale\":1e39"), "\"scale\": expected a number"),
    CONFIG(BHSD, MORE("\"scale\":1e-60"), "\"scale\": expected a number"),
    CONFIG(BHSD, MORE("\"scale\":NaN"), "expected a JSON object"),
    CONFIG(BHSD, MORE("\"scale\":null"), "\"scale\": expected a number"),
    CONFIG(BHSD, MORE("\"softcap\":-1"), "\"softcap\": expected 0 or"),
    CONFIG(BHSD, MORE("\"softcap\":true"), "\"softcap\": expected 0 or"),
    CONFIG(BHSD, MORE("\"window\":1"), "\"window\": expected [left, right]"),
    CONFIG(BHSD, MORE("\"window\":[1]"), "\"window\": expected [left, right]"),
    CONFIG(BHSD, MORE("\"window\":[1,2,3]"), "\"window\": expected [left, right]"),
    CONFIG(BHSD, MORE("\"window\":[-2,0]"), "\"window\": expected [left, right]"),
    CONFIG(BHSD, MORE("\"window\":[0,0.5]"), "\"window\": expected [left, right]"),
    CONFIG(BHSD, MORE("\"window\":[0,2147483648]"), "\"window\": expected [left, right]"),
    CONFIG(BHSD, MORE("\"masked_row\":\"ZERO\""), "\"masked_row\": expected"),
    CONFIG(BHSD, MORE("\"masked_row\":0"), "\"masked_row\": expected"),
    CONFIG(BHSD, MORE("\"qkv_heads\":\"interleaved\""), "\"qkv_heads\": expected \"blocked\""),
    CONFIG(BHSD, MORE("\"qkv_heads\":\"both\""), "\"qkv_heads\": expected"),
    CONFIG(BHSD, MORE("\"softmax_precision\":2"), "\"softmax_precision\": expected 1, 10"),
    CONFIG(BHSD, MORE("\"softmax_precision\":\"1\""), "\"softmax_precision\": expected 1, 10"),
    CONFIG(BHSD, MORE("\"rope\":4"), "\"rope\": expected"),
    CONFIG(BHSD, MORE("\"rope\":[]"), "\"rope\": expected"),
    CONFIG(BHSD, MORE("\"rope\":{}"), "\"rope\": expected"),
    CONFIG(BHSD, MORE("\"rope\":{\"dim\":3}"), "\"rope\": expected"),
    CONFIG(BHSD, MORE("\"rope\":{\"dim\":0}"), "\"rope\": expected"),
    CONFIG(BHSD, MORE("\"rope\":{\"dim\":8}"), "expected at most the head's 6"),
    CONFIG(BHSD, MORE("\"rope\":{\"dim\":4,\"base\":-1}"), "\"rope\": expected"),
    CONFIG(BHSD, MORE("\"rope\":{\"dim\":4,\"base\":0}"), "\"rope\": expected"),
    CONFIG(BHSD, MORE("\"rope\":{\"dim\":4,\"base\":0.5}"), "\"rope\": expected"),
    CONFIG(BHSD, MORE("\"rope\":{\"dim\":4,\"base\":0.99999999}"), "\"rope\": expected"),
    CONFIG(BHSD, MORE("\"rope\":{\"dim\":4,\"base\":1e39}"), "\"rope\": expected"),
    CONFIG(BHSD, MORE("\"rope\":{\"dim\":4,\"interleaved\":1}"), "\"rope\": expected"),
    CONFIG(BHSD, MORE("\"rope\":{\"dim\":4,\"scale\":1}"), "\"rope\": expected"),
    CONFIG(BHSD, FOLD("\"bhsd\"", "4", "2"), "\"expect.scores\" is there"),
    CONFIG(BSD, FOLD("\"sbd\"", "4", "2"), "\"layout\": expected \"bhsd\" or \"bsd\""),
    CONFIG(BSD, FOLD("\"dsb\"", "4", "2"), "\"layout\": expected"),
    CONFIG(BSD, FOLD("3", "4", "2"), "\"layout\": expected"),
    CONFIG(BSD, FOLD("\"bsd\"", "0", "2"), "\"num_heads\": expected an integer"),
    CONFIG(BSD, FOLD("\"bsd\"", "4.0", "2"), "\"num_heads\": expected an integer"),
    CONFIG(BSD, FOLD("\"bsd\"", "-4", "2"), "\"num_heads\": expected an integer"),
    CONFIG(BSD, FOLD("\"bsd\"", "4294967300", "2"), "\"num_heads\": expected an integer"),
    CONFIG(BSD, FOLD("\"bsd\"", "99999999999999999999", "2"), "expected a JSON object"),
    CONFIG(BSD, FOLD("\"bsd\"", "4", "0"), "\"num_kv_heads\": expected an integer"),
    CONFIG(BSD, FOLD("\"bsd\"", "4", "3"), "expected a divisor of the 4 heads"),
    CONFIG(BSD, FOLD("\"bsd\"", "4", "8"), "expected a divisor of the 4 heads"),
    CONFIG(BSD, FOLD("\"bsd\"", "5", "5"), "expected a multiple of its 5 heads"),
    CONFIG(BSD, FOLD("\"bsd\"", "4", "4"), "tensor \"key\" has shape [2, 5, 12], expected [2, any"),
    CONFIG(BSD, FOLD("\"bhsd\"", "4", "2"), "tensor \"query\" has shape [2, 3, 24], expected [any"),
    CONFIG(BSD, "{\"layout\":\"bsd\",\"num_heads\":4,\"num_kv_heads\":2,\"scores\":\"raw\"}",
           "expected \"expect.scores\" too"),
    CONFIG(BSD, "{\"layout\":\"bsd\",\"num_heads\":4,\"num_kv_heads\":2,\"scores\":\"mean\"}",
           "\"scores\": expected"),
    CONFIG(LAYER, FOLD("\"bhsd\"", "4", "2"), "\"layout\": expected \"bsd\" or \"sbd\""),
    CONFIG(LAYER, FOLD("\"bsd\"", "4", "2"), "tensor \"key\" has shape"),
    CONFIG(LAYER, FOLD("\"sbd\"", "5", "5"), "\"q_proj.weight\" has axis 0 of length 24"),
    WITHOUT(BHSD, "query", "\"query\" is missing"),
    WITHOUT(BHSD, "key", "\"key\" is missing"),
    WITHOUT(BHSD, "value", "\"value\" is missing"),
    WITHOUT(BHSD, "past_key", "\"past_value\" is there without \"past_key\""),
    WITHOUT(BHSD, "past_value", "\"past_key\" is there without \"past_value\""),
    WITHOUT(BHSD, "expect.output", "\"expect.output\" is missing"),
    WITHOUT(BHSD, "expect.scores", "expected \"expect.scores\" too"),
    TENSOR(BHSD, "Query", "F32", "[1]", "\"Query\" is unknown"),
    TENSOR(BHSD, "two\nlines", "F32", "[1]", "is unknown"),
    TENSOR(BHSD, "q_proj.weight", "F32", "[24, 8]", "expected none in an sdpa case"),
    TENSOR(BHSD, "query", "I32", "[2, 4, 3, 6]", "\"query\" is I32, expected F32, F16 or BF16"),
    TENSOR(BHSD, "query", "F64", "[2, 4, 3, 6]", "\"query\" is F64, expected F32, F16 or BF16"),
    TENSOR(BHSD, "query", "F32", "[2, 4, 18]", "expected [any, 4, any, any] (batch, n_head"),
    TENSOR(BHSD, "query", "F32", "[2, 2, 3, 6]", "expected [any, 4, any, any]"),
    TENSOR(BHSD, "query", "F32", "[2, 4, 0, 6]", "axis 2 of length 0"),
    TENSOR(BHSD, "query", "F32", "[]", "\"query\" has shape []"),
    TENSOR(BHSD, "query", "F32", "[1, 4, 3, 6]", "\"key\" has shape [2, 2, 5, 6], expected [1, 2"),
    TENSOR(BHSD, "key", "F32", "[2, 2, 5, 7]", "expected [2, 2, any, 6]"),
    TENSOR(BHSD, "value", "F32", "[2, 2, 6, 7]", "expected [2, 2, 5, any]"),
    TENSOR(BHSD, "past_key", "F32", "[2, 2, 1, 7]", "expected [2, 2, any, 6]"),
    TENSOR(BHSD, "past_key", "F32", "[2, 4, 1, 6]", "expected [2, 2, any, 6]"),
    TENSOR(BHSD, "past_key", "F32", "[2, 2, 0, 6]", "\"past_value\" has keys"),
    TENSOR(BHSD, "past_key", "F32", "[2, 2147483648, 0, 6]", "axis 1 of length 2147483648"),
    TENSOR(BHSD, "past_value", "F32", "[2, 2, 2, 7]", "expected [2, 2, 1, 7]"),
    TENSOR(BHSD, "mask", "I64", "[3, 6]", "expected BOOL, F32, F16 or BF16"),
    TENSOR(BHSD, "mask", "BOOL", "[3, 7]", "\"mask\" has shape [3, 7], expected one that"),
    TENSOR(BHSD, "mask", "BOOL", "[2, 6]", "\"mask\" has shape [2, 6], expected one that"),
    TENSOR(BHSD, "mask", "BOOL", "[2, 3, 6]", "\"mask\" has shape [2, 3, 6], expected one that"),
    TENSOR(BHSD, "mask", "BOOL", "[1, 1, 1, 1, 6]", "expected one that broadcasts"),
    TENSOR(BHSD, "mask", "BOOL", "[]", "\"mask\" has shape [], expected one that"),
    TENSOR(BHSD, "mask", "BOOL", "[3, 0]", "axis 1 of length 0"),
    TENSOR(BHSD, "kv_length", "I32", "[2]", "\"kv_length\" is I32, expected I64"),
    TENSOR(BHSD, "kv_length", "I64", "[3]", "expected [2] (batch) or [1]"),
    TENSOR(BHSD, "kv_length", "I64", "[2, 1]", "expected [2] (batch) or [1]"),
    FILLED(BHSD, "kv_length", "[2]", INT64_C(1) << 31, "holds 2147483648, expected a 32-bit"),
    FILLED(BHSD, "query_offset", "[1]", INT64_MIN, "expected a 32-bit integer"),
    TENSOR(BHSD, "query_offset", "F32", "[1]", "\"query_offset\" is F32, expected I64"),
    TENSOR(BHSD, "query_offset", "I64", "[]", "expected [2] (batch) or [1]"),
    TENSOR(BHSD, "expect.output", "F32", "[2, 4, 3, 6]", "expected [2, 4, 3, 7]"),
    TENSOR(BHSD, "expect.output", "BOOL", "[2, 4, 3, 7]", "expected F32, F16, BF16 or F64"),
    TENSOR(BHSD, "expect.scores", "F32", "[2, 4, 3, 5]", "expected [2, 4, 3, 6]"),
    TENSOR(BHSD, "expect.present_key", "F32", "[2, 2, 5, 6]", "expected [2, 2, 6, 6]"),
    TENSOR(BHSD, "expect.present_value", "F32", "[2, 2, 6, 6]", "expected [2, 2, 6, 7]"),
    TENSOR(BSD, "query", "F16", "[2, 4, 3, 6]", "\"query\" has shape [2, 4, 3, 6], expected [any"),
    TENSOR(BSD, "value", "F16", "[2, 5, 13]", "expected a multiple of its 2 heads"),
    TENSOR(BSD, "expect.output", "F16", "[2, 3, 14]", "expected [2, 3, 28]"),
    WITHOUT(LAYER, "q_proj.weight", "\"q_proj.weight\" is missing"),
    WITHOUT(LAYER, "k_proj.weight", "\"k_proj.weight\" is missing"),
    WITHOUT(LAYER, "v_proj.weight", "\"v_proj.weight\" is missing"),
    WITHOUT(LAYER, "o_proj.weight", "expected \"o_proj.weight\" too"),
    WITHOUT(LAYER, "key", "\"value\" is there without \"key\""),
    WITHOUT(LAYER, "value", "\"key\" is there without \"value\""),
    TENSOR(LAYER, "q_proj.weight", "F32", "[24]", "expected [any, any] (out, in)"),
    TENSOR(LAYER, "q_proj.weight", "F32", "[24, 7]", "\"query\" has shape [3, 2, 8], expected ["),
    TENSOR(LAYER, "q_proj.bias", "F32", "[8]", "\"q_proj.bias\" has shape [8], expected [24]"),
    TENSOR(LAYER, "k_proj.bias", "F16", "[12]", "\"k_proj.bias\" is F16, expected F32"),
    TENSOR(LAYER, "k_proj.weight", "F32", "[9, 12]", "expected [12, any]"),
    TENSOR(LAYER, "v_proj.weight", "F32", "[15, 10]",
           "\"v_proj.bias\" has shape [14], expected [15]"),
    TENSOR(LAYER, "o_proj.weight", "F32", "[11, 14]", "expected [any, 28]"),
    TENSOR(LAYER, "o_proj.bias", "F32", "[28]", "expected [11]"),
    TENSOR(LAYER, "query", "F32", "[3, 3, 8]", "\"key\" has shape"),
    TENSOR(LAYER, "value", "F32", "[4, 2, 10]", "expected [5, 2, 10] (n, batch, width)"),
    TENSOR(LAYER, "expect.output", "F32", "[2, 3, 11]", "expected [3, 2, 11]"),
    TENSOR(LAYER, "expect.present_key", "F32", "[2, 2, 5, 7]", "expected [2, 2, 5, 6]"),
};

/* One line that names the file and goes on to say what was expected. */
static void assert_sentence(const char *error, const char *words)
{
    static const char PATH[] = "made.safetensors: ";
    if (strncmp(error, PATH, sizeof PATH - 1) != 0 || !strstr(error, words) ||
        !strstr(error, "expected") || strchr(error, '\n'))
        fail_msg("\"%s\" does not say \"%s\"", error, words);
}

static void malformed(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNTOF(BAD); i++) {
        char error[VKA_IO_ERROR_SIZE] = "";
        struct recipe recipe = recipe_changed(&BAD[i]);
        struct case_file *c;
        unsigned char *bytes;
        if (recipe_parse(&recipe, error, &c, &bytes) != VKA_IO)
            fail_msg("row %zu (%s) was not refused", i, BAD[i].words);
        assert_null(c);
        assert_sentence(error, BAD[i].words);
        free(bytes);
        assert_int_equal(recipe_parse(&recipe, NULL, &c, &bytes), VKA_IO);
        free(bytes);
    }
}

/* Self-attention whose projections want different widths. */
static void malformed_self(void **state)
{
    (void)state;
    char error[VKA_IO_ERROR_SIZE];
    struct recipe recipe = RECIPE_LAYER;
    struct case_file *c;
    unsigned char *bytes;
    recipe_put_tensor(&recipe, (struct tensor){.name = "key"});
    recipe_put_tensor(&recipe, (struct tensor){.name = "value"});
    assert_int_equal(recipe_parse(&recipe, error, &c, &bytes), VKA_IO);
    assert_sentence(error, "\"k_proj.weight\" takes another width");
    free(bytes);
    recipe_put_tensor(&recipe, (struct tensor){"k_proj.weight", "F32", "[12, 8]", 0});
    assert_int_equal(recipe_parse(&recipe, error, &c, &bytes), VKA_IO);
    assert_sentence(error, "\"v_proj.weight\" takes another width");
    free(bytes);
    recipe_put_tensor(&recipe, (struct tensor){"v_proj.weight", "F32", "[14, 8]", 0});
    assert_int_equal(recipe_parse(&recipe, error, &c, &bytes), VKA_OK);
    assert_int_equal(c->n_kv, 3);
    case_close(&c);
    free(bytes);
}

/* An accepted case has sizes, and its arrays lie in the file. */
static bool read_mutated(const unsigned char *bytes, size_t size)
{
    char error[VKA_IO_ERROR_SIZE] = "";
    struct case_file *c;
    const enum vka_status status = case_parse("bytes", bytes, size, error, &c);
    assert_true(status == VKA_OK || (status == VKA_IO && !c && *error));
    if (status != VKA_OK)
        return false;
    const struct vka_io_array *const arrays[] = {c->query, c->key, c->value, c->expect_output};
    assert_true(c->batch && c->n_head && c->n_kv_head && c->n_q && c->head_dim && c->value_dim);
    assert_true(c->n_head % c->n_kv_head == 0 && c->n_kv == c->n_past + c->n_new);
    for (size_t i = 0; i < COUNTOF(arrays); i++) {
        const size_t at = (size_t)((const unsigned char *)arrays[i]->data - bytes);
        assert_true(at <= size && arrays[i]->size <= size - at);
    }
    case_close(&c);
    return true;
}

/* Cut anywhere, and each byte of the header changed to what means something, or nothing, there. */
static void mutated(void **state)
{
    (void)state;
    static const char values[] = "\"}19a";
    size_t size;
    unsigned char *bytes = recipe_bytes(&RECIPE_BSD, &size);
    size_t end = size - 1;
    while (bytes[end] != '}')
        end--;
    check_cuts(bytes, size, read_mutated);
    check_mutants(bytes, size,
                  &(struct mutants){.first = 8,
                                    .end = end + 1,
                                    .values = values,
                                    .n = sizeof values,
                                    .least_accepted = 30,
                                    .least_refused = 2000},
                  read_mutated);
    free(bytes);
}

TEST_PROGRAM(case_malformed)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(malformed),
        cmocka_unit_test(malformed_self),
        cmocka_unit_test(mutated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
