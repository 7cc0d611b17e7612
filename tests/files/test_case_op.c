/* Cases of kind op: what a file must have, and the sentence for each way to lack it.
 * SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "case/case.h"
#include "test_program.h"

/* A well-formed case: 2 rows of 64 by 3 rows of q4_0. */
static const struct tensor {
    const char *name, *dtype, *shape;
    unsigned bytes;
} tensors[] = {
    {"input.0", "F32", "[2,64]", 512},
    {"weight.blocks", "U8", "[3,36]", 108},
    {"bias", "F32", "[3]", 12},
    {"expect.weight", "F32", "[3,64]", 768},
    {"expect.output.0", "F32", "[2,3]", 24},
};
#define TENSORS (sizeof tensors / sizeof *tensors)
static const char good[] = "{\\\"op\\\":\\\"Linear\\\",\\\"weight_type\\\":\\\"q4_0\\\"}";

/* Parses a case of these tensors, of which those without bytes are left out. */
static enum vka_status parse_with(const char *config, const struct tensor *list, size_t count,
                                  char *error, struct case_file **c, char **memory)
{
    char header[2048];
    unsigned at = 0;
    int n = sprintf(header,
                    "{\"__metadata__\":{\"format\":\"attention-case-1\",\"kind\":\"op\",\"name\":"
                    "\"made\",\"source\":\"made\",\"rtol\":\"1e-05\",\"atol\":\"1e-05\","
                    "\"config\":\"%s\"}",
                    config);
    for (size_t i = 0; i < count; i++) {
        const struct tensor *t = &list[i];
        if (!t->bytes)
            continue;
        n += sprintf(header + n, ",\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%u,%u]}",
                     t->name, t->dtype, t->shape, at, at + t->bytes);
        at += t->bytes;
    }
    n += sprintf(header + n, "}");
    while (n % 8)
        header[n++] = ' ';
    char *file = calloc(1, 8 + (size_t)n + at);
    assert_non_null(file);
    uint64_t length = (uint64_t)n;
    memcpy(file, &length, 8);
    memcpy(file + 8, header, (size_t)n);
    *memory = file;
    return case_parse("made", file, 8 + (size_t)n + at, error, c);
}

/* Parses the case of Linear with one tensor replaced. */
static enum vka_status parse(const char *config, size_t which, const struct tensor *other,
                             char *error, struct case_file **c, char **memory)
{
    struct tensor list[TENSORS];
    memcpy(list, tensors, sizeof list);
    if (which < TENSORS)
        list[which] = *other;
    return parse_with(config, list, TENSORS, error, c, memory);
}

static void well_formed(void **state)
{
    (void)state;
    char error[VKA_IO_ERROR_SIZE] = "", *memory;
    struct case_file *c = NULL;
    if (parse(good, TENSORS, NULL, error, &c, &memory) != VKA_OK)
        fail_msg("%s", error);
    assert_int_equal(c->kind, CASE_OP);
    assert_int_equal(c->op.weight_type, VKA_Q4_0);
    assert_non_null(c->op.bias);
    case_close(&c);
    free(memory);
    const struct tensor none = {"bias", "", "", 0};
    assert_int_equal(parse(good, 2, &none, error, &c, &memory), VKA_OK);
    assert_null(c->op.bias);
    case_close(&c);
    free(memory);
}

static void refused(void **state)
{
    (void)state;
#define CONFIG(text) "{\\\"op\\\":\\\"Linear\\\"," text "}"
    static const struct {
        const char *config;
        size_t which;
        struct tensor other;
        const char *words;
    } rows[] = {
        {"[]", TENSORS, {0}, "expected a JSON object"},
        {"{\\\"op\\\":\\\"Conv\\\"}", TENSORS, {0}, "expected \"Linear\""},
        {"{\\\"op\\\":3}", TENSORS, {0}, "expected \"Linear\""},
        {CONFIG("\\\"weight_type\\\":\\\"f32\\\""), TENSORS, {0}, "expected a block type"},
        {CONFIG("\\\"weight_type\\\":\\\"q9\\\""), TENSORS, {0}, "expected a block type"},
        {CONFIG("\\\"weight_type\\\":\\\"q4_0\\\",\\\"x\\\":1"), TENSORS, {0}, "alone"},
        {CONFIG("\\\"weight_type\\\":\\\"q4_1\\\""), TENSORS, {0}, "rows of 36 bytes"},
        {CONFIG("\\\"weight_type\\\":\\\"q4_K\\\""), TENSORS, {0}, "blocks of 256"},
        {good, 0, {"input.0", "U8", "[2,64]", 128}, "expected F32"},
        {good, 0, {"input.0", "F32", "[2,32]", 256}, "expected those of 32 values"},
        {good, 0, {"input.0", "F32", "[128]", 512}, "expected two axes"},
        {good, 0, {"input.1", "F32", "[2,64]", 512}, "is unknown"},
        {good, 0, {"input.0", "", "", 0}, "\"input.0\" is missing"},
        {good, 1, {"weight.blocks", "F32", "[3,9]", 108}, "expected U8"},
        {good, 1, {"weight.blocks", "", "", 0}, "\"weight.blocks\" is missing"},
        {good, 2, {"bias", "F32", "[2]", 8}, "expected the shapes"},
        {good, 3, {"expect.weight", "F32", "[64,3]", 768}, "expected the shapes"},
        {good, 3, {"expect.weight", "", "", 0}, "\"expect.weight\" is missing"},
        {good, 4, {"expect.output.0", "F32", "[3,2]", 24}, "expected the shapes"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char error[VKA_IO_ERROR_SIZE] = "", *memory;
        struct case_file *c = NULL;
        assert_int_equal(parse(rows[i].config, rows[i].which, &rows[i].other, error, &c, &memory),
                         VKA_IO);
        assert_null(c);
        if (!strstr(error, rows[i].words) || strncmp(error, "made: ", 6) != 0)
            fail_msg("\"%s\" does not say \"%s\"", error, rows[i].words);
        free(memory);
    }
}

/* ---- Operations of ONNX ---------------------------------------------------------------------- */

#define ONNX(name, attributes) "{\\\"op\\\":\\\"" name "\\\",\\\"attributes\\\":{" attributes "}}"
#define KEY(name) "\\\"" name "\\\":"

static const struct onnx_case {
    const char *config;
    struct tensor tensors[5];
    const char *words; /* NULL: well formed */
} onnx_cases[] = {
    {ONNX("Gelu", KEY("approximate") "\\\"tanh\\\""),
     {{"input.0", "F32", "[2,3]", 24}, {"expect.output.0", "F32", "[2,3]", 24}},
     NULL},
    {ONNX("Gelu", KEY("approximate") "\\\"erf\\\""),
     {{"input.0", "F32", "[2,3]", 24}, {"expect.output.0", "F32", "[2,3]", 24}},
     "\"approximate\" of Gelu"},
    {ONNX("Gelu", KEY("alpha") "1.0"),
     {{"input.0", "F32", "[2,3]", 24}, {"expect.output.0", "F32", "[2,3]", 24}},
     "\"alpha\" is unknown"},
    {ONNX("Gelu", ""), {{"expect.output.0", "F32", "[2,3]", 24}}, "\"input.0\" is missing"},
    {ONNX("Gelu", ""), {{"input.0", "F32", "[2,3]", 24}}, "\"expect.output.0\" is missing"},
    {ONNX("Gelu", ""),
     {{"input.0", "F32", "[6]", 24}, {"expect.output.0", "F32", "[2,3]", 24}},
     "expected those of Gelu"},
    {ONNX("Gelu", ""),
     {{"input.0", "F32", "[1,1,1,2,3]", 24}, {"expect.output.0", "F32", "[1,1,1,2,3]", 24}},
     "1 to 4 axes"},
    {ONNX("Gelu", ""),
     {{"input.0", "I64", "[3]", 24}, {"expect.output.0", "F32", "[3]", 12}},
     "expected F32"},
    {ONNX("Gelu", ""),
     {{"input.0", "F32", "[3]", 12}, {"input.1", "F32", "[3]", 12}},
     "\"input.1\" is unknown"},
    {"{\\\"op\\\":\\\"Gelu\\\"}", {{"input.0", "F32", "[3]", 12}}, "\"attributes\" alone"},
    {ONNX("Swish", KEY("alpha") "0"),
     {{"input.0", "F32", "[3]", 12}, {"expect.output.0", "F32", "[3]", 12}},
     "\"alpha\" of Swish"},
    {ONNX("LayerNormalization", KEY("axis") "-2"),
     {{"input.0", "F32", "[2,3]", 24},
      {"input.1", "F32", "[2,3]", 24},
      {"expect.output.0", "F32", "[2,3]", 24},
      {"expect.output.1", "F32", "[1,1]", 4}},
     NULL},
    {ONNX("LayerNormalization", KEY("axis") "2"),
     {{"input.0", "F32", "[2,3]", 24},
      {"input.1", "F32", "[3]", 12},
      {"expect.output.0", "F32", "[2,3]", 24}},
     "expected those of LayerNormalization"},
    {ONNX("LayerNormalization", KEY("stash_type") "10"),
     {{"input.0", "F32", "[2,3]", 24},
      {"input.1", "F32", "[3]", 12},
      {"expect.output.0", "F32", "[2,3]", 24}},
     "\"stash_type\""},
    {ONNX("RMSNormalization", ""),
     {{"input.0", "F32", "[2,3]", 24},
      {"input.1", "F32", "[2]", 8},
      {"expect.output.0", "F32", "[2,3]", 24}},
     "expected those of RMSNormalization"},
    {ONNX("RotaryEmbedding", KEY("num_heads") "2"),
     {{"input.0", "F32", "[1,2,8]", 64},
      {"input.1", "F32", "[5,2]", 40},
      {"input.2", "F32", "[5,2]", 40},
      {"input.3", "I64", "[1,2]", 16},
      {"expect.output.0", "F32", "[1,2,8]", 64}},
     NULL},
    {ONNX("RotaryEmbedding", KEY("num_heads") "3"),
     {{"input.0", "F32", "[1,2,8]", 64},
      {"input.1", "F32", "[5,2]", 40},
      {"input.2", "F32", "[5,2]", 40},
      {"input.3", "I64", "[1,2]", 16},
      {"expect.output.0", "F32", "[1,2,8]", 64}},
     "expected those of RotaryEmbedding"},
    {ONNX("RotaryEmbedding", ""),
     {{"input.0", "F32", "[1,1,2,4]", 32},
      {"input.1", "F32", "[5,2]", 40},
      {"input.2", "F32", "[5,2]", 40},
      {"expect.output.0", "F32", "[1,1,2,4]", 32}},
     "expected those of RotaryEmbedding"},
    {ONNX("TensorScatter", KEY("mode") "\\\"circular\\\""),
     {{"input.0", "F32", "[2,3,1]", 24},
      {"input.1", "F32", "[2,1,1]", 8},
      {"input.2", "I64", "[2]", 16},
      {"expect.output.0", "F32", "[2,3,1]", 24}},
     NULL},
    {ONNX("TensorScatter", KEY("axis") "0"),
     {{"input.0", "F32", "[2,3,1]", 24},
      {"input.1", "F32", "[2,1,1]", 8},
      {"expect.output.0", "F32", "[2,3,1]", 24}},
     "expected those of TensorScatter"},
};

static void onnx(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof onnx_cases / sizeof *onnx_cases; i++) {
        const struct onnx_case *row = &onnx_cases[i];
        char error[VKA_IO_ERROR_SIZE] = "", *memory;
        struct case_file *c = NULL;
        enum vka_status status = parse_with(row->config, row->tensors, 5, error, &c, &memory);
        if (!row->words && status != VKA_OK)
            fail_msg("case %zu: %s", i, error);
        if (row->words && (status != VKA_IO || !strstr(error, row->words)))
            fail_msg("case %zu: \"%s\" does not say \"%s\"", i, error, row->words);
        case_close(&c);
        free(memory);
    }
}

TEST_PROGRAM(case_op)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(well_formed), cmocka_unit_test(refused),
                                       cmocka_unit_test(onnx)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
