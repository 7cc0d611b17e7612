/* Finds the sizes of a case and checks every shape against them. SPDX-License-Identifier: MIT */
#include "shape.h"

#include <stdio.h>
#include <string.h>

/* In an expected shape: any length. No other axis of it is 0. */
#define ANY 0

/* "[2, 3, any]"; eight axes of 20 digits fit 192 bytes. */
static const char *shape_text(char text[192], uint32_t rank, const uint64_t *shape, bool any)
{
    size_t used = 0;
    text[used++] = '[';
    for (uint32_t axis = 0; axis < rank; axis++) {
        const char *comma = axis > 0 ? ", " : "";
        if (any && shape[axis] == ANY)
            used += (size_t)sprintf(text + used, "%sany", comma);
        else
            used += (size_t)sprintf(text + used, "%s%llu", comma, (unsigned long long)shape[axis]);
    }
    memcpy(text + used, "]", 2);
    return text;
}

/* array may be NULL. axes names them for the sentence: "batch, n_q, n_head * head_dim". */
static enum vka_status check_shape(const struct case_where *at, const struct vka_io_array *array,
                                   uint32_t rank, const uint64_t *shape, const char *axes)
{
    if (!array)
        return VKA_OK;
    bool same = array->rank == rank;
    for (uint32_t axis = 0; same && axis < rank; axis++)
        same = shape[axis] == ANY || shape[axis] == array->shape[axis];
    if (same)
        return VKA_OK;
    char found[192], expected[192];
    return case_refuse(at, "tensor \"%s\" has shape %s, expected %s (%s)", array->name,
                       shape_text(found, array->rank, array->shape, false),
                       shape_text(expected, rank, shape, true), axes);
}

/* Finds the width of each of `heads` heads that are folded into an axis. */
static enum vka_status split_heads(const struct case_where *at, const struct vka_io_array *array,
                                   uint32_t axis, uint32_t heads, uint32_t *dim)
{
    uint64_t width = array->shape[axis];
    if (width % heads != 0)
        return case_refuse(at,
                           "tensor \"%s\" has axis %u of length %llu, expected a multiple of "
                           "its %u heads",
                           array->name, axis, (unsigned long long)width, heads);
    *dim = (uint32_t)(width / heads);
    return VKA_OK;
}

static enum vka_status read_heads(const struct case_where *at, struct case_file *c)
{
    c->n_head = c->config.num_heads;
    c->n_kv_head = c->config.num_kv_heads ? c->config.num_kv_heads : c->n_head;
    if (c->n_head % c->n_kv_head == 0)
        return VKA_OK;
    return case_refuse(at, "config key \"num_kv_heads\" is %u, expected a divisor of the %u heads",
                       c->n_kv_head, c->n_head);
}

static enum vka_status check_rope(const struct case_where *at, const struct case_file *c)
{
    if (c->config.rope.dim <= c->head_dim)
        return VKA_OK;
    return case_refuse(at, "config key \"rope\": dim is %u, expected at most the head's %u",
                       c->config.rope.dim, c->head_dim);
}

/* query is [batch][n_head][n_q][head_dim], key and value the same. */
static enum vka_status check_bhsd(const struct case_where *at, struct case_file *c)
{
    const uint64_t query[4] = {ANY, c->n_head, ANY, ANY};
    enum vka_status status = check_shape(at, c->query, 4, query, "batch, n_head, n_q, head_dim");
    if (status != VKA_OK)
        return status;
    c->batch = (uint32_t)c->query->shape[0];
    c->n_q = (uint32_t)c->query->shape[2];
    c->head_dim = (uint32_t)c->query->shape[3];
    const uint64_t key[4] = {c->batch, c->n_kv_head, ANY, c->head_dim};
    status = check_shape(at, c->key, 4, key, "batch, n_kv_head, n_kv, head_dim");
    if (status != VKA_OK)
        return status;
    c->n_new = (uint32_t)c->key->shape[2];
    const uint64_t value[4] = {c->batch, c->n_kv_head, c->n_new, ANY};
    status = check_shape(at, c->value, 4, value, "batch, n_kv_head, n_kv, value_dim");
    if (status != VKA_OK)
        return status;
    c->value_dim = (uint32_t)c->value->shape[3];
    const uint64_t output[4] = {c->batch, c->n_head, c->n_q, c->value_dim};
    return check_shape(at, c->expect_output, 4, output, "batch, n_head, n_q, value_dim");
}

/* query is [batch][n_q][n_head * head_dim], key and value the same. */
static enum vka_status check_bsd(const struct case_where *at, struct case_file *c)
{
    const uint64_t query[3] = {ANY, ANY, ANY};
    enum vka_status status = check_shape(at, c->query, 3, query, "batch, n_q, n_head * head_dim");
    if (status == VKA_OK)
        status = split_heads(at, c->query, 2, c->n_head, &c->head_dim);
    if (status != VKA_OK)
        return status;
    c->batch = (uint32_t)c->query->shape[0];
    c->n_q = (uint32_t)c->query->shape[1];
    const uint64_t key[3] = {c->batch, ANY, (uint64_t)c->n_kv_head * c->head_dim};
    status = check_shape(at, c->key, 3, key, "batch, n_kv, n_kv_head * head_dim");
    if (status != VKA_OK)
        return status;
    c->n_new = (uint32_t)c->key->shape[1];
    const uint64_t value[3] = {c->batch, c->n_new, ANY};
    status = check_shape(at, c->value, 3, value, "batch, n_kv, n_kv_head * value_dim");
    if (status == VKA_OK)
        status = split_heads(at, c->value, 2, c->n_kv_head, &c->value_dim);
    if (status != VKA_OK)
        return status;
    const uint64_t output[3] = {c->batch, c->n_q, (uint64_t)c->n_head * c->value_dim};
    return check_shape(at, c->expect_output, 3, output, "batch, n_q, n_head * value_dim");
}

/* weight is [out][in], bias [out]; `out` is ANY if it follows from the heads. */
static enum vka_status check_linear(const struct case_where *at, const struct case_linear *linear,
                                    uint64_t out, uint64_t in)
{
    enum vka_status status =
        check_shape(at, linear->weight, 2, (const uint64_t[]){out, in}, "out, in");
    if (status != VKA_OK || !linear->bias)
        return status;
    return check_shape(at, linear->bias, 1, &linear->weight->shape[0], "out");
}

/* Finds n_head, n_kv_head, head_dim, value_dim and the four widths from the weights. */
static enum vka_status check_weights(const struct case_where *at, struct case_file *c)
{
    enum vka_status status = check_linear(at, &c->q_proj, ANY, ANY);
    if (status == VKA_OK)
        status = split_heads(at, c->q_proj.weight, 0, c->n_head, &c->head_dim);
    if (status == VKA_OK)
        status = check_linear(at, &c->k_proj, (uint64_t)c->n_kv_head * c->head_dim, ANY);
    if (status == VKA_OK)
        status = check_linear(at, &c->v_proj, ANY, ANY);
    if (status == VKA_OK)
        status = split_heads(at, c->v_proj.weight, 0, c->n_kv_head, &c->value_dim);
    if (status != VKA_OK)
        return status;
    uint64_t concatenated = (uint64_t)c->n_head * c->value_dim;
    if (concatenated > INT32_MAX)
        return case_refuse(at,
                           "tensor \"v_proj.weight\" makes %llu concatenated features, "
                           "expected at most %d",
                           (unsigned long long)concatenated, INT32_MAX);
    c->query_dim = (uint32_t)c->q_proj.weight->shape[1];
    c->key_dim = (uint32_t)c->k_proj.weight->shape[1];
    c->value_input_dim = (uint32_t)c->v_proj.weight->shape[1];
    c->output_dim = (uint32_t)(c->o_proj.weight ? c->o_proj.weight->shape[0] : concatenated);
    return check_linear(at, &c->o_proj, ANY, concatenated);
}

/* Checks an input or output of a layer, [batch][n][width] or [n][batch][width] by the layout. */
static enum vka_status check_sequence(const struct case_where *at, const struct case_file *c,
                                      const struct vka_io_array *array, uint64_t n, uint64_t width)
{
    bool batch_first = c->config.layout == CASE_BSD;
    const uint64_t shape[3] = {batch_first ? c->batch : n, batch_first ? n : c->batch, width};
    return check_shape(at, array, 3, shape, batch_first ? "batch, n, width" : "n, batch, width");
}

static enum vka_status check_layer(const struct case_where *at, struct case_file *c)
{
    uint32_t axis_n = c->config.layout == CASE_BSD ? 1 : 0;
    enum vka_status status = check_weights(at, c);
    if (status == VKA_OK)
        status = check_sequence(at, c, c->query, ANY, c->query_dim);
    if (status != VKA_OK)
        return status;
    c->batch = (uint32_t)c->query->shape[1 - axis_n];
    c->n_q = (uint32_t)c->query->shape[axis_n];
    if (!c->key) {
        c->n_new = c->n_q;
        if (c->key_dim != c->query_dim || c->value_input_dim != c->query_dim)
            return case_refuse(at,
                               "tensor \"%s\" takes another width than \"query\" has, expected "
                               "\"key\" and \"value\" or %u",
                               c->key_dim != c->query_dim ? "k_proj.weight" : "v_proj.weight",
                               c->query_dim);
        return check_sequence(at, c, c->expect_output, c->n_q, c->output_dim);
    }
    status = check_sequence(at, c, c->key, ANY, c->key_dim);
    if (status != VKA_OK)
        return status;
    c->n_new = (uint32_t)c->key->shape[axis_n];
    status = check_sequence(at, c, c->value, c->n_new, c->value_input_dim);
    if (status == VKA_OK)
        status = check_sequence(at, c, c->expect_output, c->n_q, c->output_dim);
    return status;
}

/* Checks the past and finds n_kv. A past of no keys counts as none. */
static enum vka_status check_past(const struct case_where *at, struct case_file *c)
{
    c->n_kv = c->n_new;
    if (!c->past_key)
        return VKA_OK;
    const uint64_t key[4] = {c->batch, c->n_kv_head, ANY, c->head_dim};
    enum vka_status status =
        check_shape(at, c->past_key, 4, key, "batch, n_kv_head, n_past, head_dim");
    if (status != VKA_OK)
        return status;
    uint64_t n_past = c->past_key->shape[2];
    const uint64_t value[4] = {c->batch, c->n_kv_head, n_past, c->value_dim};
    status = check_shape(at, c->past_value, 4, value, "batch, n_kv_head, n_past, value_dim");
    if (status != VKA_OK)
        return status;
    if (n_past == 0 && c->past_value->shape[2] != 0)
        return case_refuse(at, "tensor \"past_value\" has keys, expected none as \"past_key\"");
    if (n_past + c->n_new > INT32_MAX)
        return case_refuse(at, "tensor \"past_key\" and the new keys are %llu, expected at most %d",
                           (unsigned long long)(n_past + c->n_new), INT32_MAX);
    c->n_past = (uint32_t)n_past;
    c->n_kv += c->n_past;
    if (n_past == 0)
        c->past_key = c->past_value = NULL;
    return VKA_OK;
}

/* Every axis fits or is 1; the last may also be shorter: the keys beyond it are hidden. */
static enum vka_status check_mask(const struct case_where *at, const struct case_file *c)
{
    if (!c->mask)
        return VKA_OK;
    const uint64_t full[4] = {c->batch, c->n_head, c->n_q, c->n_kv};
    bool fits = c->mask->rank >= 1 && c->mask->rank <= 4;
    for (uint32_t axis = 0; fits && axis < c->mask->rank; axis++) {
        uint64_t length = c->mask->shape[axis], room = full[4 - c->mask->rank + axis];
        bool last = axis == c->mask->rank - 1;
        fits = length == room || length == 1 || (last && length < room);
    }
    if (fits)
        return VKA_OK;
    char found[192], expected[192];
    return case_refuse(at,
                       "tensor \"mask\" has shape %s, expected one that broadcasts to %s "
                       "(batch, n_head, n_q, n_kv)",
                       shape_text(found, c->mask->rank, c->mask->shape, false),
                       shape_text(expected, 4, full, false));
}

/* Checks an array [batch] or [1] of values that fit int32. */
static enum vka_status check_positions(const struct case_where *at, const struct case_file *c,
                                       const struct vka_io_array *array)
{
    if (!array)
        return VKA_OK;
    if (array->rank != 1 || (array->shape[0] != c->batch && array->shape[0] != 1)) {
        char found[192];
        return case_refuse(at, "tensor \"%s\" has shape %s, expected [%u] (batch) or [1]",
                           array->name, shape_text(found, array->rank, array->shape, false),
                           c->batch);
    }
    for (uint64_t b = 0; b < array->shape[0]; b++) {
        int64_t value;
        memcpy(&value, (const char *)array->data + b * sizeof value, sizeof value);
        if (value < INT32_MIN || value > INT32_MAX)
            return case_refuse(at, "tensor \"%s\" holds %lld, expected a 32-bit integer",
                               array->name, (long long)value);
    }
    return VKA_OK;
}

static enum vka_status check_expected(const struct case_where *at, const struct case_file *c)
{
    const uint64_t scores[4] = {c->batch, c->n_head, c->n_q, c->n_kv};
    const uint64_t key[4] = {c->batch, c->n_kv_head, c->n_kv, c->head_dim};
    const uint64_t value[4] = {c->batch, c->n_kv_head, c->n_kv, c->value_dim};
    enum vka_status status =
        check_shape(at, c->expect_scores, 4, scores, "batch, n_head, n_q, n_kv");
    if (status == VKA_OK)
        status = check_shape(at, c->expect_present_key, 4, key, "batch, n_kv_head, n_kv, head_dim");
    if (status == VKA_OK)
        status =
            check_shape(at, c->expect_present_value, 4, value, "batch, n_kv_head, n_kv, value_dim");
    return status;
}

enum vka_status case_check_shapes(const struct case_where *at, struct case_file *c)
{
    enum vka_status status = read_heads(at, c);
    if (status == VKA_OK && c->kind == CASE_LAYER)
        status = check_layer(at, c);
    else if (status == VKA_OK)
        status = c->config.layout == CASE_BHSD ? check_bhsd(at, c) : check_bsd(at, c);
    if (status == VKA_OK)
        status = check_rope(at, c);
    if (status == VKA_OK)
        status = check_past(at, c);
    if (status == VKA_OK)
        status = check_mask(at, c);
    if (status == VKA_OK)
        status = check_positions(at, c, c->kv_length);
    if (status == VKA_OK)
        status = check_positions(at, c, c->query_offset);
    return status == VKA_OK ? check_expected(at, c) : status;
}

enum vka_status case_layer_sizes(struct case_file *c, const char *path, char *error)
{
    const struct case_where at = {path, error};
    if (c->config.num_heads == 0)
        return case_refuse(&at, "the number of heads is missing, expected config \"num_heads\" in "
                                "the metadata or --heads");
    enum vka_status status = read_heads(&at, c);
    if (status == VKA_OK)
        status = check_weights(&at, c);
    return status == VKA_OK ? check_rope(&at, c) : status;
}
