/* Opening case files: metadata, and the table of tensors. SPDX-License-Identifier: MIT */
#include "case.h"

#include "config.h"
#include "op.h"
#include "refuse.h"
#include "shape.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNTOF(a) (sizeof(a) / sizeof *(a))

/* Sets of element types and of kinds of file, one bit each. */
#define BIT(x) (1u << (x))
#define FLOATS (BIT(VKA_IO_F32) | BIT(VKA_IO_F16) | BIT(VKA_IO_BF16))
#define WEIGHTS BIT(CASE_KIND_COUNT) /* the third kind: a file of weights */
#define CASES (BIT(CASE_SDPA) | BIT(CASE_LAYER))

/* A tensor of the format: where it goes, its element types, which kinds may and must have it. */
struct slot {
    const char *name;
    size_t offset;
    unsigned types, kinds, required;
    bool may_be_empty; /* its third axis may be 0 */
};

#define SLOT(name, field, ...)                               \
    {                                                        \
        name, offsetof(struct case_file, field), __VA_ARGS__ \
    }

static const struct slot SLOTS[] = {
    SLOT("query", query, FLOATS, CASES, CASES, false),
    SLOT("key", key, FLOATS, CASES, BIT(CASE_SDPA), false),
    SLOT("value", value, FLOATS, CASES, BIT(CASE_SDPA), false),
    SLOT("past_key", past_key, FLOATS, CASES, 0, true),
    SLOT("past_value", past_value, FLOATS, CASES, 0, true),
    SLOT("mask", mask, FLOATS | BIT(VKA_IO_BOOL), CASES, 0, false),
    SLOT("kv_length", kv_length, BIT(VKA_IO_I64), CASES, 0, false),
    SLOT("query_offset", query_offset, BIT(VKA_IO_I64), CASES, 0, false),
    SLOT("q_proj.weight", q_proj.weight, FLOATS, BIT(CASE_LAYER) | WEIGHTS,
         BIT(CASE_LAYER) | WEIGHTS, false),
    SLOT("q_proj.bias", q_proj.bias, FLOATS, BIT(CASE_LAYER) | WEIGHTS, 0, false),
    SLOT("k_proj.weight", k_proj.weight, FLOATS, BIT(CASE_LAYER) | WEIGHTS,
         BIT(CASE_LAYER) | WEIGHTS, false),
    SLOT("k_proj.bias", k_proj.bias, FLOATS, BIT(CASE_LAYER) | WEIGHTS, 0, false),
    SLOT("v_proj.weight", v_proj.weight, FLOATS, BIT(CASE_LAYER) | WEIGHTS,
         BIT(CASE_LAYER) | WEIGHTS, false),
    SLOT("v_proj.bias", v_proj.bias, FLOATS, BIT(CASE_LAYER) | WEIGHTS, 0, false),
    SLOT("o_proj.weight", o_proj.weight, FLOATS, BIT(CASE_LAYER) | WEIGHTS, 0, false),
    SLOT("o_proj.bias", o_proj.bias, FLOATS, BIT(CASE_LAYER) | WEIGHTS, 0, false),
    /* Tensors of weight files, by another name. */
    SLOT("out_proj.weight", o_proj.weight, FLOATS, WEIGHTS, 0, false),
    SLOT("out_proj.bias", o_proj.bias, FLOATS, WEIGHTS, 0, false),
    SLOT("expect.output", expect_output, FLOATS | BIT(VKA_IO_F64), CASES, CASES, false),
    SLOT("expect.scores", expect_scores, FLOATS | BIT(VKA_IO_F64), CASES, 0, false),
    SLOT("expect.present_key", expect_present_key, FLOATS | BIT(VKA_IO_F64), CASES, 0, false),
    SLOT("expect.present_value", expect_present_value, FLOATS | BIT(VKA_IO_F64), CASES, 0, false),
};

static const struct vka_io_array **slot_in(struct case_file *c, const struct slot *slot)
{
    return (const struct vka_io_array **)((char *)c + slot->offset);
}

static const struct slot *slot_find(const char *name)
{
    for (size_t i = 0; i < COUNTOF(SLOTS); i++)
        if (strcmp(name, SLOTS[i].name) == 0)
            return &SLOTS[i];
    return NULL;
}

/* Axes must fit int32, and only that of a past may be empty. */
static enum vka_status check_array(const struct case_where *at, const struct slot *slot,
                                   const struct vka_io_array *array)
{
    if (!(slot->types & BIT(array->dtype)))
        return case_refuse(at, "tensor \"%s\" is %.40s, expected %s", slot->name, array->type,
                           slot->types & BIT(VKA_IO_I64)    ? "I64"
                           : slot->types & BIT(VKA_IO_BOOL) ? "BOOL, F32, F16 or BF16"
                           : slot->types & BIT(VKA_IO_F64)  ? "F32, F16, BF16 or F64"
                                                            : "F32, F16 or BF16");
    for (uint32_t axis = 0; axis < array->rank; axis++) {
        uint64_t length = array->shape[axis];
        bool empty = length == 0 && !(slot->may_be_empty && axis == 2);
        if (empty || length > INT32_MAX)
            return case_refuse(at, "tensor \"%s\" has axis %u of length %llu, expected 1 to %d",
                               slot->name, axis, (unsigned long long)length, INT32_MAX);
    }
    return VKA_OK;
}

/* What stands behind the layer in vkattn's own models. */
static bool is_behind_layer(const struct vka_safetensors *file, const char *name)
{
    const char *format = vka_safetensors_metadata(file, "format");
    return format && strncmp(format, "vkattn-", 7) == 0 && strncmp(name, "classifier.", 11) == 0;
}

/* Stores every tensor in its place. `kind` is a bit of the sets above. */
static enum vka_status place_arrays(const struct case_where *at, struct case_file *c, unsigned kind)
{
    for (size_t i = 0; i < vka_safetensors_count(c->file); i++) {
        const struct vka_io_array *array = vka_safetensors_at(c->file, i);
        const struct slot *slot = slot_find(array->name);
        if (kind == WEIGHTS && is_behind_layer(c->file, array->name))
            continue;
        if (kind == WEIGHTS && !slot)
            return case_refuse(at,
                               "tensor \"%.64s\" is unknown: it is not known what it would change",
                               array->name);
        if (kind == WEIGHTS && !(slot->kinds & WEIGHTS)) /* of a case file: an input, or expected */
            continue;
        if (!slot || (slot->kinds == WEIGHTS && kind != WEIGHTS))
            return case_refuse(at, "tensor \"%.64s\" is unknown, expected one of version 1",
                               array->name);
        if (!(slot->kinds & kind))
            return case_refuse(at, "tensor \"%s\" is of layer cases, expected none in an sdpa case",
                               slot->name);
        enum vka_status status = check_array(at, slot, array);
        if (status != VKA_OK)
            return status;
        if (*slot_in(c, slot))
            return case_refuse(at, "tensor \"%s\" is there twice, by two names", slot->name);
        *slot_in(c, slot) = array;
    }
    for (size_t i = 0; i < COUNTOF(SLOTS); i++)
        if ((SLOTS[i].required & kind) && !*slot_in(c, &SLOTS[i]))
            return case_refuse(at, "tensor \"%s\" is missing, expected in %s", SLOTS[i].name,
                               kind == BIT(CASE_SDPA)    ? "an sdpa case"
                               : kind == BIT(CASE_LAYER) ? "a layer case"
                                                         : "a layer file");
    return VKA_OK;
}

static enum vka_status pair(const struct case_where *at, const char *one, bool has_one,
                            const char *other, bool has_other)
{
    if (has_one == has_other)
        return VKA_OK;
    return case_refuse(at, "tensor \"%s\" is there without \"%s\", expected both or neither",
                       has_one ? one : other, has_one ? other : one);
}

/* Checks tensors that need each other, and that all weights have one type. */
static enum vka_status check_company(const struct case_where *at, struct case_file *c)
{
    enum vka_status status = pair(at, "key", c->key, "value", c->value);
    if (status == VKA_OK)
        status = pair(at, "past_key", c->past_key, "past_value", c->past_value);
    if (status != VKA_OK)
        return status;
    if (c->o_proj.bias && !c->o_proj.weight)
        return case_refuse(at, "tensor \"o_proj.bias\" is there, expected \"o_proj.weight\" too");
    if (c->o_proj.bias &&
        strcspn(c->o_proj.bias->name, ".") != strcspn(c->o_proj.weight->name, "."))
        return case_refuse(at, "tensor \"%s\" does not belong to \"%s\"", c->o_proj.bias->name,
                           c->o_proj.weight->name);
    const struct vka_io_array *weights[] = {c->q_proj.weight, c->q_proj.bias,   c->k_proj.weight,
                                            c->k_proj.bias,   c->v_proj.weight, c->v_proj.bias,
                                            c->o_proj.weight, c->o_proj.bias};
    for (size_t i = 1; i < COUNTOF(weights); i++)
        if (weights[i] && weights[i]->dtype != weights[0]->dtype)
            return case_refuse(at, "tensor \"%s\" is %s, expected %s as \"q_proj.weight\"",
                               weights[i]->name, weights[i]->type, weights[0]->type);
    return VKA_OK;
}

/* A required key of the metadata; NULL if it was refused. */
static const char *metadata(const struct case_where *at, const struct case_file *c, const char *key)
{
    const char *value = vka_safetensors_metadata(c->file, key);
    if (!value)
        case_refuse(at, "metadata key \"%s\" is missing, expected in a case file", key);
    return value;
}

static enum vka_status read_tolerance(const struct case_where *at, const struct case_file *c,
                                      const char *key, double *out)
{
    const char *text = metadata(at, c, key);
    if (!text)
        return VKA_IO;
    char *end;
    *out = strtod(text, &end);
    /* strtod would also accept space, a sign, "inf" and hexadecimal numbers. */
    bool plain = isdigit((unsigned char)*text) && !strpbrk(text, "xX");
    if (!plain || *end || !isfinite(*out))
        return case_refuse(at, "metadata key \"%s\" is \"%.64s\", expected a number from 0 up", key,
                           text);
    return VKA_OK;
}

/* Reads format, kind, name, source, tolerances and config. */
static enum vka_status read_metadata(const struct case_where *at, struct case_file *c)
{
    const char *format = metadata(at, c, "format");
    const char *kind = format ? metadata(at, c, "kind") : NULL;
    c->name = kind ? metadata(at, c, "name") : NULL;
    c->source = c->name ? metadata(at, c, "source") : NULL;
    const char *config = c->source ? metadata(at, c, "config") : NULL;
    if (!config)
        return VKA_IO;
    if (strcmp(format, "attention-case-1") != 0)
        return case_refuse(at, "metadata key \"format\" is \"%.64s\", expected attention-case-1",
                           format);
    c->kind = strcmp(kind, "layer") == 0 ? CASE_LAYER
              : strcmp(kind, "op") == 0  ? CASE_OP
                                         : CASE_SDPA;
    if (c->kind == CASE_SDPA && strcmp(kind, "sdpa") != 0)
        return case_refuse(at, "metadata key \"kind\" is \"%.64s\", expected sdpa, layer or op",
                           kind);
    for (const char *letter = c->name; letter == c->name || *letter; letter++)
        if (!*letter || iscntrl((unsigned char)*letter))
            return case_refuse(at, "metadata key \"name\": expected one line that is not empty");
    enum vka_status status = read_tolerance(at, c, "rtol", &c->rtol);
    if (status == VKA_OK)
        status = read_tolerance(at, c, "atol", &c->atol);
    if (status != VKA_OK)
        return status;
    return c->kind == CASE_OP ? case_read_op(at, config, c)
                              : case_config_parse(at, config, &c->config);
}

/* Checks which keys of config this kind of case must and must not have. */
static enum vka_status check_config(const struct case_where *at, const struct case_file *c)
{
    const struct case_config *config = &c->config;
    enum case_layout other = c->kind == CASE_SDPA ? CASE_SBD : CASE_BHSD;
    if (config->layout == CASE_LAYOUT_NONE || config->layout == other)
        return case_refuse(at, "config key \"layout\": expected %s",
                           c->kind == CASE_SDPA ? "\"bhsd\" or \"bsd\" for an sdpa case"
                                                : "\"bsd\" or \"sbd\" for a layer");
    if (config->num_heads == 0)
        return case_refuse(at, "config key \"num_heads\" is missing, expected in a case file");
    if (c->kind == CASE_SDPA && config->interleaved)
        return case_refuse(at, "config key \"qkv_heads\": expected \"blocked\" in an sdpa case");
    if (config->scores != VKA_SCORES_NONE && !c->expect_scores)
        return case_refuse(at, "config key \"scores\" is there, expected \"expect.scores\" too");
    if (config->scores == VKA_SCORES_NONE && c->expect_scores)
        return case_refuse(at, "tensor \"expect.scores\" is there, expected config \"scores\" too");
    return VKA_OK;
}

static enum vka_status read_case(const struct case_where *at, struct case_file *c)
{
    enum vka_status status = read_metadata(at, c);
    if (status != VKA_OK || c->kind == CASE_OP)
        return status;
    if (status == VKA_OK)
        status = place_arrays(at, c, BIT(c->kind));
    if (status == VKA_OK)
        status = check_company(at, c);
    if (status == VKA_OK)
        status = check_config(at, c);
    return status == VKA_OK ? case_check_shapes(at, c) : status;
}

static enum vka_status read_layer(const struct case_where *at, struct case_file *c)
{
    c->kind = CASE_LAYER;
    enum vka_status status =
        case_config_parse(at, vka_safetensors_metadata(c->file, "config"), &c->config);
    if (status == VKA_OK && c->config.layout == CASE_BHSD)
        status = case_refuse(at, "config key \"layout\": expected \"bsd\" or \"sbd\" for a layer");
    if (status == VKA_OK)
        status = place_arrays(at, c, WEIGHTS);
    return status == VKA_OK ? check_company(at, c) : status;
}

/* Takes ownership of an open file and reads all of it. */
static enum vka_status take(const struct case_where *at, struct vka_safetensors *file,
                            enum vka_status (*read)(const struct case_where *, struct case_file *),
                            struct case_file **out)
{
    struct case_file *c = calloc(1, sizeof *c);
    if (!c) {
        vka_safetensors_close(&file);
        return case_no_memory(at);
    }
    c->file = file;
    enum vka_status status = read(at, c);
    if (status != VKA_OK)
        case_close(&c);
    *out = c;
    return status;
}

enum vka_status case_open(const char *path, char *error, struct case_file **c)
{
    struct vka_safetensors *file;
    *c = NULL;
    enum vka_status status = vka_safetensors_open(path, error, &file);
    return status == VKA_OK ? take(&(struct case_where){path, error}, file, read_case, c) : status;
}

enum vka_status case_parse(const char *path, const void *data, size_t size, char *error,
                           struct case_file **c)
{
    struct vka_safetensors *file;
    *c = NULL;
    enum vka_status status = vka_safetensors_parse(path, data, size, error, &file);
    return status == VKA_OK ? take(&(struct case_where){path, error}, file, read_case, c) : status;
}

enum vka_status case_open_layer(const char *path, char *error, struct case_file **c)
{
    struct vka_safetensors *file;
    *c = NULL;
    enum vka_status status = vka_safetensors_open(path, error, &file);
    return status == VKA_OK ? take(&(struct case_where){path, error}, file, read_layer, c) : status;
}

void case_close(struct case_file **c)
{
    if (!c || !*c)
        return;
    vka_safetensors_close(&(*c)->file);
    free(*c);
    *c = NULL;
}
