/* Reads the files of vkattn run. SPDX-License-Identifier: MIT */
#include "inputs.h"

#include "case/case.h"
#include "case/numbers.h"
#include "case/shape.h"
#include "core/format.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* "F32 [2][5][64]" */
static const char *describe(const struct vka_io_array *array, char text[256])
{
    size_t used = (size_t)snprintf(text, 256, "%.40s ", array->type);
    for (uint32_t i = 0; i < array->rank; i++)
        used += (size_t)snprintf(text + used, 256 - used, "[%" PRIu64 "]", array->shape[i]);
    if (!array->rank)
        snprintf(text + used, 256 - used, "scalar");
    return text;
}

/* Prints "FILE: expected ..., got F32 [2][5][64]". */
FORMAT_PRINTF(3, 4)
static enum tool_exit refuse(const char *path, const struct vka_io_array *array, const char *format,
                             ...)
{
    char got[256], expected[512];
    va_list args;
    va_start(args, format);
    vsnprintf(expected, sizeof expected, format, args);
    va_end(args);
    tool_error("%s: expected %s, got %s", path, expected, describe(array, got));
    return TOOL_USAGE;
}

static bool is_float(enum vka_io_dtype dtype)
{
    return dtype == VKA_IO_F32 || dtype == VKA_IO_F16 || dtype == VKA_IO_BF16 ||
           dtype == VKA_IO_F64;
}

static bool is_integer(enum vka_io_dtype dtype)
{
    return dtype == VKA_IO_U8 || dtype == VKA_IO_I8 || dtype == VKA_IO_U16 || dtype == VKA_IO_I16 ||
           dtype == VKA_IO_U32 || dtype == VKA_IO_I32 || dtype == VKA_IO_U64 || dtype == VKA_IO_I64;
}

/* Opens the layer file; options override what it says. */
static enum tool_exit open_layer(const struct run_options *o, struct case_file **problem)
{
    char error[VKA_IO_ERROR_SIZE] = "";
    enum vka_status status = case_open_layer(o->layer, error, problem);
    if (status != VKA_OK)
        goto fail;
    struct case_config *config = &(*problem)->config;
    if (o->heads)
        config->num_heads = o->heads;
    if (o->kv_heads)
        config->num_kv_heads = o->kv_heads;
    if (o->causal)
        config->causal = true;
    if (o->window[0] != RUN_NO_WINDOW) {
        config->window = true;
        config->window_left = (int32_t)o->window[0];
        config->window_right = (int32_t)o->window[1];
    }
    if (o->layout >= 0)
        config->layout = o->layout ? CASE_SBD : CASE_BSD;
    if (config->layout == CASE_LAYOUT_NONE)
        config->layout = CASE_BSD;
    config->scores = o->scores || o->html ? VKA_SCORES_SOFTMAX : VKA_SCORES_NONE;
    (*problem)->kind = CASE_LAYER;
    status = case_layer_sizes(*problem, o->layer, error);
    if (status == VKA_OK)
        return TOOL_OK;
fail:
    tool_error("%s", *error ? error : vka_status_name(status));
    return tool_exit_of(status);
}

static enum tool_exit open_arrays(const struct run_options *o, struct run_inputs *inputs)
{
    char error[VKA_IO_ERROR_SIZE] = "";
    const struct vka_io_array *arrays[RUN_INPUT_COUNT] = {NULL};
    for (int i = 0; i < RUN_INPUT_COUNT; i++) {
        if (!o->input[i])
            continue;
        enum vka_status status = vka_npy_open(o->input[i], error, &inputs->npy[i]);
        if (status != VKA_OK) {
            tool_error("%s", *error ? error : vka_status_name(status));
            return tool_exit_of(status);
        }
        arrays[i] = vka_npy_array(inputs->npy[i]);
    }
    inputs->problem->query = arrays[RUN_QUERY];
    inputs->problem->key = arrays[RUN_KEY];
    inputs->problem->value = arrays[RUN_VALUE];
    inputs->problem->mask = arrays[RUN_MASK];
    inputs->problem->kv_length = arrays[RUN_LENGTHS];
    return TOOL_OK;
}

/* Checks one of query, key and value: floats with three axes, the last of the width that the
 * weights take. *batch and *n are what the axes must be, or 0 for any; they are set to what the
 * axes are. */
static enum tool_exit check_input(const char *path, const struct vka_io_array *array,
                                  enum case_layout layout, uint32_t width, uint32_t *batch,
                                  uint32_t *n)
{
    bool sequence_first = layout == CASE_SBD;
    const char *order = sequence_first ? "[n][batch]" : "[batch][n]";
    if (!is_float(array->dtype) || array->rank != 3 || array->shape[2] != width)
        return refuse(path, array, "floats %s[%" PRIu32 "], as the weights take", order, width);
    uint64_t got_batch = array->shape[sequence_first], got_n = array->shape[!sequence_first];
    if (got_batch < 1 || got_batch > INT32_MAX || got_n < 1 || got_n > INT32_MAX)
        return refuse(path, array, "%s of at least 1 each", order);
    if (*batch && *batch != got_batch)
        return refuse(path, array, "%s with the batch %" PRIu32 " of the query", order, *batch);
    if (*n && *n != got_n)
        return refuse(path, array, "%s with the %" PRIu32 " keys of the key input", order, *n);
    *batch = (uint32_t)got_batch;
    *n = (uint32_t)got_n;
    return TOOL_OK;
}

/* Checks query, key and value, and sets the sizes that follow from them. */
static enum tool_exit check_inputs(const struct run_options *o, struct case_file *c)
{
    enum case_layout layout = c->config.layout;
    enum tool_exit code =
        check_input(o->input[RUN_QUERY], c->query, layout, c->query_dim, &c->batch, &c->n_q);
    if (code != TOOL_OK)
        return code;
    if (!c->key && c->key_dim != c->query_dim) {
        tool_error("--key: expected, as k_proj.weight of %s takes inputs of width %" PRIu32
                   ", not the query's %" PRIu32,
                   o->layer, c->key_dim, c->query_dim);
        return TOOL_USAGE;
    }
    if (!c->value && c->value_input_dim != c->key_dim) {
        tool_error("--value: expected, as v_proj.weight of %s takes inputs of width %" PRIu32
                   ", not the key's %" PRIu32,
                   o->layer, c->value_input_dim, c->key_dim);
        return TOOL_USAGE;
    }
    c->n_new = c->key ? 0 : c->n_q;
    if (c->key)
        code = check_input(o->input[RUN_KEY], c->key, layout, c->key_dim, &c->batch, &c->n_new);
    if (code == TOOL_OK && c->value)
        code = check_input(o->input[RUN_VALUE], c->value, layout, c->value_input_dim, &c->batch,
                           &c->n_new);
    c->n_past = 0;
    c->n_kv = c->n_new;
    return code;
}

/* Checks the mask: bool or float, aligned right and broadcast; its last axis may be shorter than
 * n_kv, which hides the other keys. */
static enum tool_exit check_mask(const char *path, const struct case_file *c)
{
    const struct vka_io_array *mask = c->mask;
    const uint64_t full[4] = {c->batch, c->n_head, c->n_q, c->n_kv};
    bool fits =
        (is_float(mask->dtype) || mask->dtype == VKA_IO_BOOL) && mask->rank >= 1 && mask->rank <= 4;
    for (uint32_t i = 0; fits && i < mask->rank; i++) {
        uint64_t length = mask->shape[i], want = full[4 - mask->rank + i];
        bool last = i + 1 == mask->rank;
        fits = length == want || length == 1 || (last && length >= 1 && length < want);
    }
    if (fits)
        return TOOL_OK;
    return refuse(path, mask,
                  "bools or floats that broadcast to [%" PRIu32 "][%" PRIu32 "][%" PRIu32
                  "][%" PRIu32 "] (batch, heads, queries, keys)",
                  c->batch, c->n_head, c->n_q, c->n_kv);
}

static enum tool_exit check_lengths(const char *path, const struct case_file *c)
{
    const struct vka_io_array *lengths = c->kv_length;
    enum tool_exit code = TOOL_OK;
    if (!is_integer(lengths->dtype) || lengths->rank != 1 ||
        (lengths->shape[0] != c->batch && lengths->shape[0] != 1))
        return refuse(path, lengths, "whole numbers [%" PRIu32 "] or [1]", c->batch);
    double *values = case_doubles(lengths);
    if (!values) {
        tool_error("out of memory");
        return TOOL_MEMORY;
    }
    for (uint64_t i = 0; i < lengths->shape[0]; i++) {
        if (values[i] >= 0 && values[i] <= c->n_kv)
            continue;
        tool_error("%s: expected lengths from 0 to the %" PRIu32 " keys, got %.0f at %" PRIu64,
                   path, c->n_kv, values[i], i);
        code = TOOL_USAGE;
        break;
    }
    free(values);
    return code;
}

static enum tool_exit open_tokens(const char *path, struct run_inputs *inputs)
{
    char error[VKA_IO_ERROR_SIZE] = "";
    const struct case_file *c = inputs->problem;
    enum vka_status status = tokens_read(path, error, &inputs->tokens);
    if (status == VKA_OK)
        status =
            tokens_check(path, inputs->tokens, c->key != NULL, c->batch, c->n_q, c->n_kv, error);
    if (status != VKA_OK)
        tool_error("%s", error);
    return tool_exit_of(status);
}

enum tool_exit run_inputs_open(const struct run_options *options, struct run_inputs *inputs)
{
    *inputs = (struct run_inputs){0};
    enum tool_exit code = open_layer(options, &inputs->problem);
    if (code == TOOL_OK)
        code = open_arrays(options, inputs);
    if (code == TOOL_OK)
        code = check_inputs(options, inputs->problem);
    if (code == TOOL_OK && inputs->problem->mask)
        code = check_mask(options->input[RUN_MASK], inputs->problem);
    if (code == TOOL_OK && inputs->problem->kv_length)
        code = check_lengths(options->input[RUN_LENGTHS], inputs->problem);
    if (code == TOOL_OK && options->tokens)
        code = open_tokens(options->tokens, inputs);
    return code;
}

void run_inputs_free(struct run_inputs *inputs)
{
    for (int i = 0; i < RUN_INPUT_COUNT; i++)
        vka_npy_close(&inputs->npy[i]);
    case_close(&inputs->problem);
    json_decref(inputs->tokens);
}
