/* Cases of kind op whose operation is one of ONNX: attributes, inputs by index, and their shapes.
 * SPDX-License-Identifier: MIT */
#include "onnx.h"

#include "numbers.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNTOF(a) (sizeof(a) / sizeof *(a))

/* Inputs: f a float tensor, i I64, in capitals if it may be left out. */
static const struct operation {
    const char *name, *inputs, *attributes[6];
} operations[CASE_OPERATION_COUNT] = {
    [CASE_RMS_NORMALIZATION] = {"RMSNormalization", "ff", {"axis", "epsilon", "stash_type"}},
    [CASE_LAYER_NORMALIZATION] = {"LayerNormalization", "ffF", {"axis", "epsilon", "stash_type"}},
    [CASE_ROTARY_EMBEDDING] = {"RotaryEmbedding",
                               "fffI",
                               {"interleaved", "num_heads", "rotary_embedding_dim"}},
    [CASE_GELU] = {"Gelu", "f", {"approximate"}},
    [CASE_SWISH] = {"Swish", "f", {"alpha"}},
    [CASE_SWIGLU] = {"SwiGLU", "ff", {"alpha"}},
    [CASE_TENSOR_SCATTER] = {"TensorScatter", "ffI", {"axis", "mode"}},
    [CASE_CAUSAL_CONV] = {"CausalConvWithState", "ffFF", {"activation"}},
    [CASE_LINEAR_ATTENTION] = {"LinearAttention",
                               "fffFFF",
                               {"q_num_heads", "kv_num_heads", "k_num_heads", "update_rule",
                                "scale", "chunk_size"}},
};

struct reading {
    const struct case_where *at;
    const struct operation *of;
    const json_t *attributes;
    enum vka_status status;
};

static void refuse(struct reading *r, const char *attribute, const char *expected)
{
    if (r->status == VKA_OK)
        r->status = case_refuse(r->at, "attribute \"%s\" of %s: expected %s", attribute,
                                r->of->name, expected);
}

/* A whole number from `low` on. */
static int64_t integer(struct reading *r, const char *name, int64_t low, int64_t usual)
{
    const json_t *value = json_object_get(r->attributes, name);
    if (!value)
        return usual;
    int64_t n = json_integer_value(value);
    if (!json_is_integer(value) || n < low || n > INT32_MAX)
        refuse(r, name, low < 0 ? "a whole number" : "a whole number from 0 on");
    return n;
}

static double real(struct reading *r, const char *name, double usual)
{
    const json_t *value = json_object_get(r->attributes, name);
    if (value && !json_is_number(value))
        refuse(r, name, "a number");
    return value ? json_number_value(value) : usual;
}

/* Whether it is the second of two words; usually the first. */
static bool choice(struct reading *r, const char *name, const char *first, const char *second)
{
    const json_t *value = json_object_get(r->attributes, name);
    const char *word = value ? json_string_value(value) : first;
    if (word && strcmp(word, second) == 0)
        return true;
    if (!word || strcmp(word, first) != 0)
        refuse(r, name, "one of its two words");
    return false;
}

/* The index of a word among n; `usual` where none is given. */
static unsigned word_of(struct reading *r, const char *name, const char *const *words, unsigned n,
                        unsigned usual)
{
    const json_t *value = json_object_get(r->attributes, name);
    const char *word = value ? json_string_value(value) : words[usual];
    for (unsigned i = 0; word && i < n; i++)
        if (strcmp(word, words[i]) == 0)
            return i;
    refuse(r, name, "one of its words");
    return usual;
}

static void check_names(struct reading *r)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)r->attributes, name, value)
    {
        bool known = false;
        for (size_t i = 0; i < COUNTOF(r->of->attributes); i++)
            known |= r->of->attributes[i] && strcmp(r->of->attributes[i], name) == 0;
        if (!known && r->status == VKA_OK)
            r->status = case_refuse(r->at, "attribute \"%.64s\" is unknown, expected one of %s",
                                    name, r->of->name);
    }
}

/* The place of a tensor, or NULL. */
static const struct vka_io_array **find_slot(struct case_op *op, const char *inputs,
                                             const char *name)
{
    char input[16];
    for (unsigned i = 0; i < strlen(inputs); i++) {
        snprintf(input, sizeof input, "input.%u", i);
        if (strcmp(input, name) == 0)
            return &op->inputs[i];
    }
    if (strcmp(name, "expect.output.1") == 0 && op->operation >= CASE_CAUSAL_CONV)
        return &op->expect_state;
    return strcmp(name, "expect.output.0") == 0 ? &op->expect : NULL;
}

static bool is_float(const struct vka_io_array *array)
{
    return array->dtype == VKA_IO_F32 || array->dtype == VKA_IO_F16 || array->dtype == VKA_IO_BF16;
}

static enum vka_status check_array(const struct case_where *at, const struct vka_io_array *array,
                                   bool integers)
{
    bool right = integers ? array->dtype == VKA_IO_I64 : is_float(array);
    if (!right)
        return case_refuse(at, "tensor \"%s\" is %.40s, expected %s", array->name, array->type,
                           integers ? "I64" : "F32, F16 or BF16");
    if (array->rank < 1 || array->rank > 4 || !case_count(array))
        return case_refuse(at, "tensor \"%s\": expected 1 to 4 axes, none of length 0",
                           array->name);
    for (uint32_t i = 0; i < array->rank; i++)
        if (array->shape[i] > INT32_MAX)
            return case_refuse(at, "tensor \"%s\": expected axes of at most %d", array->name,
                               INT32_MAX);
    double *values = integers ? case_doubles(array) : NULL;
    if (integers && !values)
        return case_no_memory(at);
    for (size_t i = 0; integers && i < case_count(array); i++)
        right &= values[i] >= INT32_MIN && values[i] <= INT32_MAX;
    free(values);
    return right ? VKA_OK
                 : case_refuse(at, "tensor \"%s\": expected numbers of 32 bits", array->name);
}

/* Further outputs, which the library does not give, are let by. */
static enum vka_status place(const struct reading *r, struct case_file *c)
{
    for (size_t i = 0; i < vka_safetensors_count(c->file); i++) {
        const struct vka_io_array *array = vka_safetensors_at(c->file, i);
        const struct vka_io_array **slot = find_slot(&c->op, r->of->inputs, array->name);
        if (!slot && strncmp(array->name, "expect.output.", 14) == 0)
            continue;
        if (!slot)
            return case_refuse(r->at, "tensor \"%.64s\" is unknown, expected one of %s",
                               array->name, r->of->name);
        if (slot == &c->op.expect_state && !case_count(array))
            continue; /* of a convolution that keeps no rows */
        bool integers = slot != &c->op.expect && slot != &c->op.expect_state &&
                        (r->of->inputs[slot - c->op.inputs] | 32) == 'i';
        enum vka_status status = check_array(r->at, array, integers);
        if (status != VKA_OK)
            return status;
        *slot = array;
    }
    for (size_t i = 0; i < strlen(r->of->inputs); i++)
        if (!c->op.inputs[i] && r->of->inputs[i] >= 'a')
            return case_refuse(r->at, "tensor \"input.%zu\" is missing, expected in a case of %s",
                               i, r->of->name);
    if (!c->op.expect)
        return case_refuse(r->at, "tensor \"expect.output.0\" is missing, expected in a case of %s",
                           r->of->name);
    return VKA_OK;
}

/* Whether the sizes are those of `like` from its axis `first` on. */
static bool is_like(const struct vka_io_array *array, const struct vka_io_array *like,
                    uint32_t first)
{
    if (!array)
        return true;
    bool same = array->rank == like->rank - first;
    for (uint32_t i = 0; same && i < array->rank; i++)
        same = array->shape[i] == like->shape[first + i];
    return same;
}

/* An axis that may count from the end. */
static bool read_axis(struct reading *r, int64_t usual, struct case_op *op)
{
    const uint32_t rank = op->inputs[0]->rank;
    int64_t axis = integer(r, "axis", INT32_MIN, usual);
    axis += axis < 0 ? rank : 0;
    op->axis = (uint32_t)axis;
    return axis >= 0 && axis < rank;
}

static bool check_norm(struct reading *r, struct case_op *op)
{
    if (!read_axis(r, -1, op))
        return false;
    op->epsilon = real(r, "epsilon", 1e-5);
    if (integer(r, "stash_type", 0, 1) != 1)
        refuse(r, "stash_type", "1, float32");
    return is_like(op->inputs[1], op->inputs[0], op->axis) &&
           is_like(op->inputs[2], op->inputs[0], op->axis) &&
           is_like(op->expect, op->inputs[0], 0) && op->epsilon >= 0;
}

static bool has_shape(const struct vka_io_array *array, uint32_t rank, uint64_t a, uint64_t b,
                      uint64_t c)
{
    const uint64_t want[] = {a, b, c};
    bool same = array->rank == rank;
    for (uint32_t i = 0; same && i < rank; i++)
        same = want[i] == 0 || array->shape[i] == want[i];
    return same;
}

static bool check_rotary(struct reading *r, struct case_op *op)
{
    const struct vka_io_array *x = op->inputs[0], *positions = op->inputs[3];
    op->num_heads = (uint32_t)integer(r, "num_heads", 0, 0);
    op->interleaved = integer(r, "interleaved", 0, 0) != 0;
    op->rotary_dim = (uint32_t)integer(r, "rotary_embedding_dim", 0, 0);
    if (x->rank == 4)
        op->num_heads = (uint32_t)x->shape[1];
    if (x->rank < 3 || !op->num_heads || (x->rank == 3 && x->shape[2] % op->num_heads))
        return false;
    uint64_t head_dim = x->rank == 4 ? x->shape[3] : x->shape[2] / op->num_heads;
    if (!op->rotary_dim)
        op->rotary_dim = (uint32_t)head_dim;
    uint64_t half = op->rotary_dim / 2, n = x->shape[x->rank - 2];
    if (op->rotary_dim % 2 || op->rotary_dim > head_dim || !is_like(op->expect, x, 0))
        return false;
    for (int i = 1; i <= 2; i++)
        if (positions ? !has_shape(op->inputs[i], 2, 0, half, 0)
                      : !has_shape(op->inputs[i], 3, x->shape[0], n, half))
            return false;
    return op->inputs[1]->shape[0] == op->inputs[2]->shape[0] &&
           (!positions || has_shape(positions, 2, x->shape[0], n, 0));
}

static bool check_scatter(struct reading *r, struct case_op *op)
{
    const struct vka_io_array *past = op->inputs[0], *update = op->inputs[1];
    op->circular = choice(r, "mode", "linear", "circular");
    if (!read_axis(r, -2, op) || op->axis == 0 || update->rank != past->rank)
        return false;
    for (uint32_t i = 0; i < past->rank; i++)
        if (i == op->axis ? update->shape[i] > past->shape[i] : update->shape[i] != past->shape[i])
            return false;
    return is_like(op->expect, past, 0) &&
           (!op->inputs[2] || has_shape(op->inputs[2], 1, past->shape[0], 0, 0));
}

static bool check_conv(struct reading *r, struct case_op *op)
{
    static const char *const words[] = {"none", "silu", "swish"};
    const struct vka_io_array *x = op->inputs[0], *w = op->inputs[1], *bias = op->inputs[2];
    op->silu = word_of(r, "activation", words, COUNTOF(words), 0) != 0;
    if (x->rank != 3 || !has_shape(w, 3, x->shape[1], 1, 0) || !is_like(op->expect, x, 0))
        return false;
    const uint64_t keep = w->shape[2] - 1;
    const struct vka_io_array *states[] = {op->inputs[3], op->expect_state};
    for (size_t i = 0; i < COUNTOF(states); i++)
        if (states[i] && (!keep || !has_shape(states[i], 3, x->shape[0], x->shape[1], keep)))
            return false;
    return !bias || has_shape(bias, 1, x->shape[1], 0, 0);
}

/* The features of a head of rows [batch][n][heads * features]; 0 where they are no such rows. */
static uint64_t features_of(const struct vka_io_array *rows, const struct vka_io_array *like,
                            uint64_t heads)
{
    if (!heads || !has_shape(rows, 3, like->shape[0], like->shape[1], 0))
        return 0;
    return rows->shape[2] % heads ? 0 : rows->shape[2] / heads;
}

static bool check_linear_attention(struct reading *r, struct case_op *op)
{
    static const char *const rules[VKA_RULE_COUNT] = {"linear", "gated", "delta", "gated_delta"};
    const struct vka_io_array *q = op->inputs[0], *decay = op->inputs[4], *beta = op->inputs[5];
    op->rule =
        (enum vka_rule)word_of(r, "update_rule", rules, VKA_RULE_COUNT, VKA_RULE_GATED_DELTA);
    op->q_heads = (uint32_t)integer(r, "q_num_heads", 0, 0);
    op->state_heads = (uint32_t)integer(r, "kv_num_heads", 0, 0);
    op->k_heads = (uint32_t)integer(r, "k_num_heads", 0, op->state_heads);
    op->scale = real(r, "scale", 0);
    integer(r, "chunk_size", 0, 64); /* of no effect on what is computed */
    if (q->rank != 3)
        return false;
    const uint64_t dk = features_of(q, q, op->q_heads),
                   dv = features_of(op->inputs[2], q, op->state_heads);
    const uint64_t out = op->q_heads > op->state_heads ? op->q_heads : op->state_heads;
    const struct vka_io_array *states[] = {op->inputs[3], op->expect_state};
    for (size_t i = 0; i < COUNTOF(states); i++)
        if (states[i] && (states[i]->rank != 4 || states[i]->shape[0] != q->shape[0] ||
                          states[i]->shape[1] != op->state_heads || states[i]->shape[2] != dk ||
                          states[i]->shape[3] != dv))
            return false;
    return dk && dv && features_of(op->inputs[1], q, op->k_heads) == dk &&
           features_of(op->expect, q, out) == dv &&
           (!decay || features_of(decay, q, op->state_heads) == 1 ||
            features_of(decay, q, op->state_heads) == dk) &&
           (!beta || has_shape(beta, 3, q->shape[0], q->shape[1], op->state_heads) ||
            has_shape(beta, 3, q->shape[0], q->shape[1], 1));
}

static bool check(struct reading *r, struct case_op *op)
{
    switch (op->operation) {
    case CASE_RMS_NORMALIZATION:
    case CASE_LAYER_NORMALIZATION:
        return check_norm(r, op);
    case CASE_ROTARY_EMBEDDING:
        return check_rotary(r, op);
    case CASE_GELU:
        op->tanh = choice(r, "approximate", "none", "tanh");
        return is_like(op->expect, op->inputs[0], 0);
    case CASE_SWISH:
    case CASE_SWIGLU:
        op->alpha = real(r, "alpha", 1);
        if (op->alpha == 0) /* the library's default */
            refuse(r, "alpha", "a number that is not 0");
        return is_like(op->inputs[1], op->inputs[0], 0) && is_like(op->expect, op->inputs[0], 0);
    case CASE_TENSOR_SCATTER:
        return check_scatter(r, op);
    case CASE_CAUSAL_CONV:
        return check_conv(r, op);
    case CASE_LINEAR_ATTENTION:
        return check_linear_attention(r, op);
    case CASE_LINEAR:
    case CASE_OPERATION_COUNT:
        break;
    }
    return false;
}

enum vka_status case_read_onnx(const struct case_where *at, const char *operation,
                               const json_t *config, struct case_file *c)
{
    struct reading r = {at, NULL, json_object_get(config, "attributes"), VKA_OK};
    for (int i = CASE_LINEAR + 1; i < CASE_OPERATION_COUNT; i++)
        if (strcmp(operation, operations[i].name) == 0) {
            r.of = &operations[i];
            c->op.operation = (enum case_operation)i;
        }
    if (!r.of)
        return case_refuse(at,
                           "config key \"op\" is \"%.64s\", expected \"Linear\" or an operation of "
                           "ONNX that vkattn has",
                           operation);
    if (!json_is_object(r.attributes) || json_object_size(config) != 2)
        return case_refuse(at, "config: expected the keys \"op\" and \"attributes\" alone");
    check_names(&r);
    if (r.status == VKA_OK)
        r.status = place(&r, c);
    if (r.status == VKA_OK && !check(&r, &c->op) && r.status == VKA_OK)
        r.status = case_refuse(at, "tensors and attributes: expected those of %s", r.of->name);
    return r.status;
}
