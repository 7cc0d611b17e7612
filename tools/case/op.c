/* Cases of kind op: one operation, its inputs by index, and what it must give.
 * SPDX-License-Identifier: MIT */
#include "op.h"

#include "numbers.h"
#include "onnx.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static bool is_float(const struct vka_io_array *array)
{
    return array->dtype == VKA_IO_F32 || array->dtype == VKA_IO_F16 || array->dtype == VKA_IO_BF16;
}

/* A block type by its name; VKA_DTYPE_COUNT: none. */
static enum vka_dtype find_block_type(const char *name)
{
    for (int dtype = 0; dtype < VKA_DTYPE_COUNT; dtype++) {
        uint32_t values;
        vka_dtype_block((enum vka_dtype)dtype, &values, NULL);
        if (values > 1 && strcmp(name, vka_dtype_name((enum vka_dtype)dtype)) == 0)
            return (enum vka_dtype)dtype;
    }
    return VKA_DTYPE_COUNT;
}

static enum vka_status read_config(const struct case_where *at, const json_t *root,
                                   struct case_op *op)
{
    const char *type = json_string_value(json_object_get(root, "weight_type"));
    op->weight_type = type ? find_block_type(type) : VKA_DTYPE_COUNT;
    if (op->weight_type == VKA_DTYPE_COUNT)
        return case_refuse(at, "config key \"weight_type\" is \"%.64s\", expected a block type",
                           type ? type : "");
    if (json_object_size(root) != 2)
        return case_refuse(at, "config: expected the keys \"op\" and \"weight_type\" alone");
    return VKA_OK;
}

/* Stores every tensor in its place. */
static enum vka_status place(const struct case_where *at, struct case_file *c)
{
    struct {
        const char *name;
        const struct vka_io_array **to;
        bool optional;
    } const slots[] = {
        {"input.0", &c->op.input, false},
        {"weight.blocks", &c->op.blocks, false},
        {"bias", &c->op.bias, true},
        {"expect.weight", &c->op.expect_weight, false},
        {"expect.output.0", &c->op.expect, false},
    };
    const size_t n_slot = sizeof slots / sizeof *slots;
    for (size_t i = 0; i < vka_safetensors_count(c->file); i++) {
        const struct vka_io_array *array = vka_safetensors_at(c->file, i);
        size_t s = 0;
        while (s < n_slot && strcmp(slots[s].name, array->name) != 0)
            s++;
        if (s == n_slot)
            return case_refuse(at, "tensor \"%.64s\" is unknown, expected one of Linear",
                               array->name);
        bool blocks = slots[s].to == &c->op.blocks;
        if (blocks ? array->dtype != VKA_IO_U8 : !is_float(array))
            return case_refuse(at, "tensor \"%s\" is %.40s, expected %s", array->name, array->type,
                               blocks ? "U8" : "F32, F16 or BF16");
        *slots[s].to = array;
    }
    for (size_t s = 0; s < n_slot; s++)
        if (!slots[s].optional && !*slots[s].to)
            return case_refuse(at, "tensor \"%s\" is missing, expected in a case of Linear",
                               slots[s].name);
    return VKA_OK;
}

static bool has_shape(const struct vka_io_array *array, uint64_t rows, uint64_t columns)
{
    return array->rank == 2 && array->shape[0] == rows && array->shape[1] == columns;
}

static enum vka_status check_shapes(const struct case_where *at, struct case_op *op)
{
    uint32_t values, bytes;
    vka_dtype_block(op->weight_type, &values, &bytes);
    if (op->input->rank != 2 || op->blocks->rank != 2 || !case_count(op->input) ||
        !case_count(op->blocks))
        return case_refuse(at, "tensors \"input.0\" and \"weight.blocks\": expected two axes, none "
                               "of length 0");
    uint64_t rows = op->input->shape[0], in = op->input->shape[1], out = op->blocks->shape[0];
    if (rows > INT32_MAX || in > INT32_MAX || out > INT32_MAX)
        return case_refuse(at, "tensors: expected axes of at most %d", INT32_MAX);
    if (in % values != 0 || op->blocks->shape[1] != in / values * bytes)
        return case_refuse(at,
                           "tensor \"weight.blocks\" has rows of %llu bytes, expected those of "
                           "%llu values of %s, in whole blocks of %u",
                           (unsigned long long)op->blocks->shape[1], (unsigned long long)in,
                           vka_dtype_name(op->weight_type), values);
    if (!has_shape(op->expect_weight, out, in) || !has_shape(op->expect, rows, out) ||
        (op->bias && (op->bias->rank != 1 || op->bias->shape[0] != out)))
        return case_refuse(at,
                           "tensors \"expect.weight\", \"expect.output.0\" and \"bias\": expected "
                           "the shapes [%llu, %llu], [%llu, %llu] and [%llu]",
                           (unsigned long long)out, (unsigned long long)in,
                           (unsigned long long)rows, (unsigned long long)out,
                           (unsigned long long)out);
    return VKA_OK;
}

static enum vka_status read_linear(const struct case_where *at, const json_t *root,
                                   struct case_file *c)
{
    enum vka_status status = read_config(at, root, &c->op);
    if (status == VKA_OK)
        status = place(at, c);
    return status == VKA_OK ? check_shapes(at, &c->op) : status;
}

enum vka_status case_read_op(const struct case_where *at, const char *config, struct case_file *c)
{
    json_error_t reason;
    json_t *root = json_loads(config, JSON_REJECT_DUPLICATES, &reason);
    const char *name = json_string_value(json_object_get(root, "op"));
    enum vka_status status;
    if (!json_is_object(root))
        status = case_refuse(at, "config in the metadata: expected a JSON object");
    else if (name && strcmp(name, "Linear") == 0)
        status = read_linear(at, root, c);
    else
        status = case_read_onnx(at, name ? name : "", root, c);
    json_decref(root);
    return status;
}
