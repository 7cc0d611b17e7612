/* Reads the config object of a case file by a table with one row for each key.
 * SPDX-License-Identifier: MIT */
#include "config.h"

#include <float.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#define COUNTOF(a) (sizeof(a) / sizeof *(a))

struct key {
    const char *name;
    const char *expected; /* continues "expected ..." */
    bool (*read)(const json_t *value, struct case_config *config);
};

struct choice {
    const char *name;
    int value;
};

static bool read_choice(const json_t *value, const struct choice *choices, size_t count, int *out)
{
    const char *name = json_string_value(value);
    for (size_t i = 0; name && i < count; i++) {
        if (strcmp(name, choices[i].name) == 0) {
            *out = choices[i].value;
            return true;
        }
    }
    return false;
}

static bool read_integer(const json_t *value, int64_t low, int64_t high, int64_t *out)
{
    if (!json_is_integer(value))
        return false;
    *out = json_integer_value(value);
    return *out >= low && *out <= high;
}

/* A number that is finite and not 0 as a float32; 0 itself only if it is allowed. */
static bool read_number(const json_t *value, bool zero, double *out)
{
    if (!json_is_number(value))
        return false;
    *out = json_number_value(value);
    double size = fabs(*out);
    return (zero && size == 0) || (size >= (double)FLT_MIN && size <= (double)FLT_MAX);
}

static bool read_heads(const json_t *value, uint32_t *out)
{
    int64_t heads;
    if (!read_integer(value, 1, INT32_MAX, &heads))
        return false;
    *out = (uint32_t)heads;
    return true;
}

static bool read_layout(const json_t *value, struct case_config *config)
{
    static const struct choice LAYOUTS[] = {
        {"bhsd", CASE_BHSD}, {"bsd", CASE_BSD}, {"sbd", CASE_SBD}};
    int choice;
    if (!read_choice(value, LAYOUTS, COUNTOF(LAYOUTS), &choice))
        return false;
    config->layout = (enum case_layout)choice;
    return true;
}

static bool read_num_heads(const json_t *value, struct case_config *config)
{
    return read_heads(value, &config->num_heads);
}

static bool read_num_kv_heads(const json_t *value, struct case_config *config)
{
    return read_heads(value, &config->num_kv_heads);
}

static bool read_scale(const json_t *value, struct case_config *config)
{
    return read_number(value, false, &config->scale);
}

static bool read_softcap(const json_t *value, struct case_config *config)
{
    return read_number(value, true, &config->softcap) && config->softcap >= 0;
}

static bool read_causal(const json_t *value, struct case_config *config)
{
    config->causal = json_is_true(value);
    return config->causal;
}

static bool read_window(const json_t *value, struct case_config *config)
{
    int64_t left, right;
    if (!json_is_array(value) || json_array_size(value) != 2 ||
        !read_integer(json_array_get(value, 0), -1, INT32_MAX, &left) ||
        !read_integer(json_array_get(value, 1), -1, INT32_MAX, &right))
        return false;
    config->window = true;
    config->window_left = (int32_t)left;
    config->window_right = (int32_t)right;
    return true;
}

static bool read_masked_row(const json_t *value, struct case_config *config)
{
    static const struct choice ROWS[] = {
        {"zero", VKA_MASKED_ZERO}, {"uniform", VKA_MASKED_UNIFORM}, {"nan", VKA_MASKED_NAN}};
    int choice;
    if (!read_choice(value, ROWS, COUNTOF(ROWS), &choice))
        return false;
    config->masked_row = (enum vka_masked_row)choice;
    return true;
}

static bool read_scores(const json_t *value, struct case_config *config)
{
    static const struct choice SCORES[] = {{"raw", VKA_SCORES_RAW},
                                           {"softcap", VKA_SCORES_SOFTCAP},
                                           {"bias", VKA_SCORES_BIAS},
                                           {"softmax", VKA_SCORES_SOFTMAX}};
    int choice;
    if (!read_choice(value, SCORES, COUNTOF(SCORES), &choice))
        return false;
    config->scores = (enum vka_scores)choice;
    return true;
}

static bool read_qkv_heads(const json_t *value, struct case_config *config)
{
    static const struct choice HEADS[] = {{"blocked", 0}, {"interleaved", 1}};
    int choice;
    if (!read_choice(value, HEADS, COUNTOF(HEADS), &choice))
        return false;
    config->interleaved = choice == 1;
    return true;
}

/* base and interleaved have the defaults of struct vka_rope; dim has none. */
static bool read_rope(const json_t *value, struct case_config *config)
{
    const json_t *base = json_object_get(value, "base");
    const json_t *dim = json_object_get(value, "dim");
    const json_t *interleaved = json_object_get(value, "interleaved");
    size_t known = (base != NULL) + (dim != NULL) + (interleaved != NULL);
    int64_t length;
    double number = 10000;
    if (!json_is_object(value) || json_object_size(value) != known)
        return false;
    if (!read_integer(dim, 2, INT32_MAX, &length) || length % 2 != 0)
        return false;
    if (base && (!read_number(base, false, &number) || number < 1))
        return false;
    if (interleaved && !json_is_boolean(interleaved))
        return false;
    config->rope = (struct vka_rope){
        .dim = (uint32_t)length, .base = (float)number, .interleaved = json_is_true(interleaved)};
    return true;
}

static bool read_softmax_precision(const json_t *value, struct case_config *config)
{
    int64_t type;
    if (!read_integer(value, 0, INT32_MAX, &type))
        return false;
    config->softmax_precision = (int)type;
    return type == 1 || type == 10 || type == 11 || type == 16;
}

static const struct key KEYS[] = {
    {"layout", "\"bhsd\", \"bsd\" or \"sbd\"", read_layout},
    {"num_heads", "an integer from 1 to 2147483647", read_num_heads},
    {"num_kv_heads", "an integer from 1 to 2147483647", read_num_kv_heads},
    {"scale", "a number other than 0 that a float32 holds", read_scale},
    {"softcap", "0 or a positive number that a float32 holds", read_softcap},
    {"causal", "true, or no such key", read_causal},
    {"window", "[left, right], two integers from -1 to 2147483647", read_window},
    {"masked_row", "\"zero\", \"uniform\" or \"nan\"", read_masked_row},
    {"scores", "\"raw\", \"softcap\", \"bias\" or \"softmax\"", read_scores},
    {"qkv_heads", "\"blocked\" or \"interleaved\"", read_qkv_heads},
    {"rope", "{\"base\": number from 1, \"dim\": even integer, \"interleaved\": boolean}",
     read_rope},
    {"softmax_precision", "1, 10, 11 or 16 (ONNX's float32, float16, float64, bfloat16)",
     read_softmax_precision},
};

static const struct key *key_find(const char *name)
{
    for (size_t i = 0; i < COUNTOF(KEYS); i++)
        if (strcmp(name, KEYS[i].name) == 0)
            return &KEYS[i];
    return NULL;
}

enum vka_status case_config_parse(const struct case_where *at, const char *text,
                                  struct case_config *config)
{
    *config = (struct case_config){.softmax_precision = 1};
    if (!text)
        return VKA_OK;
    json_error_t reason;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &reason);
    const char *name;
    json_t *value;
    enum vka_status status = VKA_OK;
    if (!json_is_object(root)) {
        status = case_refuse(at, "config in the metadata: expected a JSON object (%s)",
                             root ? "found an array" : reason.text);
        goto fail;
    }
    json_object_foreach(root, name, value)
    {
        const struct key *key = key_find(name);
        if (!key)
            status =
                case_refuse(at, "config key \"%.64s\" is unknown, expected one of version 1", name);
        else if (!key->read(value, config))
            status = case_refuse(at, "config key \"%s\": expected %s", name, key->expected);
        if (status != VKA_OK)
            goto fail;
    }
fail:
    json_decref(root);
    return status;
}
