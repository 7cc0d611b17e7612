/* What test_api_random.c makes wrong: the fields of each call's struct, and how each can be. */
#ifndef TESTS_API_RANDOM_FIELDS_H
#define TESTS_API_RANDOM_FIELDS_H

#include <vkattn/vkattn_train.h>

#include "api_errors.h"

enum fault {
    SIZE,      /* size_t: of the struct */
    OPERAND,   /* a tensor of a float type */
    OUTPUT,    /* likewise, written: no element twice */
    FLOATS,    /* likewise, F32 alone */
    INTEGERS,  /* I32; one for all, or one each */
    MASK,      /* anything that broadcasts */
    ENUM,      /* below `limit` */
    FINITE,    /* float; where `limit` is 8 it is double, here and below */
    POSITIVE,  /* float, finite, or 0 */
    RATE,      /* float in [0, 1) */
    GIVEN,     /* uint32_t: bits of `limit`; the right ones are drawn with other faults too */
    WINDOW,    /* int32_t from -1 */
    EVEN,      /* uint32_t: even, at most `limit` */
    SHORT,     /* uint32_t: at most 65535 */
    NECESSARY, /* a pointer that is not NULL */
    KEPT,      /* a tensor that nothing is done to */
};

struct field {
    enum fault fault;
    size_t offset;
    uint32_t limit;
    uint32_t rank, shape[VKA_MAX_RANK]; /* of the valid tensor */
};

#define TENSOR(fault, type, member, ...)                            \
    {                                                               \
        fault, offsetof(struct type, member), 0, RANK(__VA_ARGS__), \
        {                                                           \
            __VA_ARGS__                                             \
        }                                                           \
    }
#define VALUE(fault, type, member, limit)               \
    {                                                   \
        fault, offsetof(struct type, member), limit, 0, \
        {                                               \
            0                                           \
        }                                               \
    }

/* Batch 2, 4 heads on 2 key heads, 3 queries, 7 past and 5 new keys, widths 8 and 6. */
#define ATTENTION_OPTIONS(type, o)                                                               \
    TENSOR(MASK, type, o.mask, 2, 4, 3, 12), TENSOR(INTEGERS, type, o.kv_length, 2),             \
        TENSOR(INTEGERS, type, o.query_offset, 2), TENSOR(OUTPUT, type, o.scores, 2, 4, 3, 12),  \
        TENSOR(FLOATS, type, o.log_sum_exp, 2, 4, 3), TENSOR(FLOATS, type, o.q_norm, 8),         \
        TENSOR(FLOATS, type, o.k_norm, 8), TENSOR(FLOATS, type, o.sink, 4),                      \
        TENSOR(FLOATS, type, o.alibi, 4), VALUE(ENUM, type, o.masked_row, VKA_MASKED_ROW_COUNT), \
        VALUE(ENUM, type, o.scores_kind, VKA_SCORES_COUNT), VALUE(FINITE, type, o.scale, 0),     \
        VALUE(GIVEN, type, o.given, VKA_GIVEN_SCALE | VKA_GIVEN_EPSILON),                        \
        VALUE(POSITIVE, type, o.softcap, 0), VALUE(POSITIVE, type, o.norm_epsilon, 0),           \
        VALUE(POSITIVE, type, o.rope.base, 0), VALUE(RATE, type, o.dropout, 0),                  \
        VALUE(WINDOW, type, o.window_left, 0), VALUE(WINDOW, type, o.window_right, 0),           \
        VALUE(EVEN, type, o.rope.dim, 8), VALUE(SHORT, type, o.dropout_batch, 0),                \
        VALUE(SHORT, type, o.dropout_head, 0)

static const struct field attention_fields[] = {
    VALUE(SIZE, vka_attention_op, struct_size, 0),
    TENSOR(OPERAND, vka_attention_op, q, 2, 4, 3, 8),
    TENSOR(OPERAND, vka_attention_op, k, 2, 2, 5, 8),
    TENSOR(OPERAND, vka_attention_op, v, 2, 2, 5, 6),
    TENSOR(OUTPUT, vka_attention_op, output, 2, 4, 3, 6),
    TENSOR(OPERAND, vka_attention_op, past_key, 2, 2, 7, 8),
    TENSOR(OPERAND, vka_attention_op, past_value, 2, 2, 7, 6),
    TENSOR(OUTPUT, vka_attention_op, present_key, 2, 2, 12, 8),
    TENSOR(OUTPUT, vka_attention_op, present_value, 2, 2, 12, 6),
    ATTENTION_OPTIONS(vka_attention_op, options),
};

static const struct field layer_fields[] = {
    VALUE(SIZE, vka_layer_op, struct_size, 0),
    VALUE(NECESSARY, vka_layer_op, layer, 0),
    VALUE(ENUM, vka_layer_op, layout, VKA_LAYOUT_COUNT),
    TENSOR(OPERAND, vka_layer_op, query, 2, 3, 24),
    TENSOR(OPERAND, vka_layer_op, key, 2, 12, 20),
    TENSOR(OPERAND, vka_layer_op, value, 2, 12, 28),
    TENSOR(OUTPUT, vka_layer_op, output, 2, 3, 16),
    ATTENTION_OPTIONS(vka_layer_op, attention),
};

static const struct field linear_fields[] = {
    VALUE(SIZE, vka_linear_op, struct_size, 0),
    TENSOR(OPERAND, vka_linear_op, input, 5, 3),
    TENSOR(OPERAND, vka_linear_op, weight, 4, 3),
    TENSOR(OUTPUT, vka_linear_op, output, 5, 4),
};

static const struct field norm_fields[] = {
    VALUE(SIZE, vka_norm_op, struct_size, 0),  VALUE(ENUM, vka_norm_op, kind, VKA_NORM_COUNT),
    VALUE(POSITIVE, vka_norm_op, epsilon, 0),  VALUE(GIVEN, vka_norm_op, given, VKA_GIVEN_EPSILON),
    TENSOR(OPERAND, vka_norm_op, input, 5, 8), TENSOR(OUTPUT, vka_norm_op, output, 5, 8),
};

static const struct field norm_backward_fields[] = {
    VALUE(SIZE, vka_norm_backward_op, struct_size, 0),
    VALUE(ENUM, vka_norm_backward_op, kind, VKA_NORM_COUNT),
    VALUE(POSITIVE, vka_norm_backward_op, epsilon, 0),
    VALUE(GIVEN, vka_norm_backward_op, given, VKA_GIVEN_EPSILON),
    TENSOR(OPERAND, vka_norm_backward_op, input, 5, 8),
    TENSOR(OPERAND, vka_norm_backward_op, output_gradient, 5, 8),
    TENSOR(KEPT, vka_norm_backward_op, input_gradient.tensor, 5, 8),
};

static const struct field gather_fields[] = {
    VALUE(SIZE, vka_gather_op, struct_size, 0),
    VALUE(FINITE, vka_gather_op, scale, 0),
    VALUE(GIVEN, vka_gather_op, given, VKA_GIVEN_SCALE),
    TENSOR(KEPT, vka_gather_op, table, 7, 8),
    TENSOR(INTEGERS, vka_gather_op, ids, 6),
    TENSOR(OUTPUT, vka_gather_op, output, 6, 8),
};

static const struct field gather_backward_fields[] = {
    VALUE(SIZE, vka_gather_backward_op, struct_size, 0),
    VALUE(FINITE, vka_gather_backward_op, scale, 0),
    VALUE(GIVEN, vka_gather_backward_op, given, VKA_GIVEN_SCALE),
    TENSOR(INTEGERS, vka_gather_backward_op, ids, 6),
    TENSOR(OPERAND, vka_gather_backward_op, output_gradient, 6, 8),
    TENSOR(KEPT, vka_gather_backward_op, table_gradient.tensor, 7, 8),
};

static const struct field entropy_fields[] = {
    VALUE(SIZE, vka_cross_entropy_op, struct_size, 0),
    VALUE(FINITE, vka_cross_entropy_op, gradient_scale, 0),
    VALUE(POSITIVE, vka_cross_entropy_op, smoothing, 0),
    VALUE(GIVEN, vka_cross_entropy_op, given, VKA_GIVEN_GRADIENT_SCALE),
    TENSOR(OPERAND, vka_cross_entropy_op, logits, 5, 8),
    TENSOR(INTEGERS, vka_cross_entropy_op, labels, 5),
    TENSOR(FLOATS, vka_cross_entropy_op, loss, 1),
    TENSOR(KEPT, vka_cross_entropy_op, gradient, 5, 8),
};

static const struct field square_fields[] = {
    VALUE(SIZE, vka_square_error_op, struct_size, 0),
    VALUE(FINITE, vka_square_error_op, gradient_scale, 0),
    VALUE(GIVEN, vka_square_error_op, given, VKA_GIVEN_GRADIENT_SCALE),
    TENSOR(OPERAND, vka_square_error_op, input, 5, 8),
    TENSOR(OPERAND, vka_square_error_op, target, 5, 8),
    TENSOR(FLOATS, vka_square_error_op, loss, 1),
    TENSOR(KEPT, vka_square_error_op, gradient, 5, 8),
};

/* Adam takes these; the parameter is given beside them. */
static const struct field optimiser_fields[] = {
    VALUE(SIZE, vka_optimiser_op, struct_size, 0),
    VALUE(POSITIVE, vka_optimiser_op, learning_rate, 8),
    VALUE(POSITIVE, vka_optimiser_op, epsilon, 8),
    VALUE(POSITIVE, vka_optimiser_op, weight_decay, 8),
    VALUE(RATE, vka_optimiser_op, beta1, 8),
    VALUE(RATE, vka_optimiser_op, beta2, 8),
    VALUE(GIVEN, vka_optimiser_op, given, VKA_GIVEN_EPSILON | VKA_GIVEN_BETA1 | VKA_GIVEN_BETA2),
    TENSOR(INTEGERS, vka_optimiser_op, step, 1),
    TENSOR(FLOATS, vka_optimiser_op, rate, 1),
};

#endif
