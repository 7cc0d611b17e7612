/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "case_recipe.h"

#define METADATA(kind, config)                                                                \
    {                                                                                         \
        {"format", "attention-case-1"}, {"kind", kind}, {"name", "made"}, {"source", "here"}, \
            {"rtol", "1e-4"}, {"atol", "1e-5"},                                               \
        {                                                                                     \
            "config", config                                                                  \
        }                                                                                     \
    }

const struct recipe RECIPE_BHSD = {
    {{"query", "F32", "[2, 4, 3, 6]", 0},
     {"key", "F32", "[2, 2, 5, 6]", 0},
     {"value", "F32", "[2, 2, 5, 7]", 0},
     {"past_key", "F32", "[2, 2, 1, 6]", 0},
     {"past_value", "F32", "[2, 2, 1, 7]", 0},
     {"mask", "BOOL", "[2, 1, 3, 6]", 0},
     {"kv_length", "I64", "[2]", 3},
     {"query_offset", "I64", "[1]", -1},
     {"expect.output", "F32", "[2, 4, 3, 7]", 0},
     {"expect.scores", "F32", "[2, 4, 3, 6]", 0},
     {"expect.present_key", "F32", "[2, 2, 6, 6]", 0},
     {"expect.present_value", "F32", "[2, 2, 6, 7]", 0}},
    METADATA("sdpa", "{\"layout\": \"bhsd\", \"num_heads\": 4, \"num_kv_heads\": 2, "
                     "\"scores\": \"raw\"}")};

const struct recipe RECIPE_BSD = {
    {{"query", "F16", "[2, 3, 24]", 0},
     {"key", "F16", "[2, 5, 12]", 0},
     {"value", "F16", "[2, 5, 14]", 0},
     {"expect.output", "F16", "[2, 3, 28]", 0}},
    METADATA("sdpa", "{\"layout\": \"bsd\", \"num_heads\": 4, \"num_kv_heads\": 2}")};

const struct recipe RECIPE_LAYER = {
    {{"query", "F32", "[3, 2, 8]", 0},
     {"key", "F32", "[5, 2, 9]", 0},
     {"value", "F32", "[5, 2, 10]", 0},
     {"q_proj.weight", "F32", "[24, 8]", 0},
     {"q_proj.bias", "F32", "[24]", 0},
     {"k_proj.weight", "F32", "[12, 9]", 0},
     {"k_proj.bias", "F32", "[12]", 0},
     {"v_proj.weight", "F32", "[14, 10]", 0},
     {"v_proj.bias", "F32", "[14]", 0},
     {"o_proj.weight", "F32", "[11, 28]", 0},
     {"o_proj.bias", "F32", "[11]", 0},
     {"expect.output", "F64", "[3, 2, 11]", 0}},
    METADATA("layer", "{\"layout\": \"sbd\", \"num_heads\": 4, \"num_kv_heads\": 2}")};

void recipe_put_metadata(struct recipe *recipe, const char *key, const char *value)
{
    struct text *text = recipe->metadata;
    while (strcmp(text->key, key) != 0)
        text++;
    text->value = value;
}

void recipe_put_tensor(struct recipe *recipe, struct tensor tensor)
{
    struct tensor *t = recipe->tensors;
    while (t->name && strcmp(t->name, tensor.name) != 0)
        t++;
    assert_true(t < recipe->tensors + MAX_TENSORS - 1);
    *t = tensor;
}

struct recipe recipe_changed(const struct change *change)
{
    struct recipe recipe = *change->from;
    if (change->key)
        recipe_put_metadata(&recipe, change->key, change->value);
    if (change->tensor.name)
        recipe_put_tensor(&recipe, change->tensor);
    return recipe;
}

static size_t element_size(const char *dtype)
{
    for (int i = 0; i < VKA_IO_DTYPE_COUNT; i++)
        if (strcmp(dtype, vka_io_dtype_name((enum vka_io_dtype)i)) == 0)
            return vka_io_dtype_size((enum vka_io_dtype)i);
    fail_msg("no type %s", dtype);
    return 0;
}

static size_t shape_count(const char *shape)
{
    size_t count = 1;
    for (const char *p = shape + 1; *p && *p != ']'; p += strcspn(p, ",]"), p += *p == ',')
        count *= strtoull(p, NULL, 10);
    return count;
}

/* A string as JSON. */
static size_t quote(char *to, const char *text)
{
    char *start = to;
    *to++ = '"';
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            *to++ = '\\';
        if (*text == '\n')
            *to++ = '\\';
        *to++ = *text == '\n' ? 'n' : *text;
    }
    *to++ = '"';
    return (size_t)(to - start);
}

unsigned char *recipe_bytes(const struct recipe *recipe, size_t *size)
{
    enum { HEADER = 16384, DATA = 65536 };
    unsigned char *file = calloc(1, 8 + HEADER + DATA);
    assert_non_null(file);
    char *start = (char *)file + 8, *header = start;
    size_t begin = 0;
    header += sprintf(header, "{\"__metadata__\":{");
    for (const struct text *text = recipe->metadata; text->key; text++) {
        if (!text->value)
            continue;
        header += sprintf(header, "%s\"%s\":", header[-1] == '{' ? "" : ",", text->key);
        header += quote(header, text->value);
    }
    *header++ = '}';
    for (const struct tensor *t = recipe->tensors; t->name; t++) {
        if (!t->dtype)
            continue;
        size_t bytes = shape_count(t->shape) * element_size(t->dtype);
        *header++ = ',';
        header += quote(header, t->name);
        header += sprintf(header, ":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                          t->dtype, t->shape, begin, begin + bytes);
        for (size_t i = 0; strcmp(t->dtype, "I64") == 0 && i < bytes; i += sizeof t->fill)
            memcpy(file + 8 + HEADER + begin + i, &t->fill, sizeof t->fill);
        begin += bytes;
    }
    *header++ = '}';
    assert_true(header - start <= HEADER && begin <= DATA);
    memset(header, ' ', (size_t)(start + HEADER - header));
    file[0] = HEADER & 255, file[1] = HEADER >> 8;
    *size = 8 + HEADER + begin;
    return file;
}

enum vka_status recipe_parse(const struct recipe *recipe, char *error, struct case_file **c,
                             unsigned char **bytes)
{
    size_t size;
    *bytes = recipe_bytes(recipe, &size);
    return case_parse("made.safetensors", *bytes, size, error, c);
}
