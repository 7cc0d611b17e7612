/* The fields of the examples of attention, of layers and of their gradients; examples.c includes them. */
#ifndef TESTS_OPERATIONS_ATTENTION_FIELDS_H
#define TESTS_OPERATIONS_ATTENTION_FIELDS_H

#include "fields.h"

/* Batch 2, 2 heads on 1 key head, 3 queries, 3 past and 2 new keys, widths 4 and 3. */
#define OPTIONS(noun, o)                                                                           \
    TENSOR(noun, MASK, o.mask, SHAPE(2, 2, 3, 5), .seed = 31),                                     \
        TENSOR(noun, INTEGERS, o.kv_length, SHAPE(2), HOLDS(5, 4)),                                \
        TENSOR(noun, INTEGERS, o.query_offset, SHAPE(2), HOLDS(3, 2)),                             \
        NUMBER(noun, ANY, o.causal, true, 0), NUMBER(noun, ANY, o.window, true, 0),                \
        NUMBER(noun, WINDOW, o.window_left, 3, 0), NUMBER(noun, WINDOW, o.window_right, 2, 0),     \
        NUMBER(noun, GIVEN, o.given, 0, VKA_GIVEN_SCALE | VKA_GIVEN_EPSILON),                      \
        NUMBER(noun, FINITE, o.scale, 0.75, 0), NUMBER(noun, POSITIVE, o.softcap, 3, 0),           \
        NUMBER(noun, ENUM, o.masked_row, 0, VKA_MASKED_ROW_COUNT),                                 \
        NUMBER(noun, ENUM, o.scores_kind, VKA_SCORES_SOFTMAX, VKA_SCORES_COUNT),                   \
        TENSOR(noun, OUTPUT, o.scores, SHAPE(2, 2, 3, 5)),                                         \
        TENSOR(noun, FLOATS, o.log_sum_exp, SHAPE(2, 2, 3)), NUMBER(noun, EVEN, o.rope.dim, 2, 4), \
        NUMBER(noun, POSITIVE, o.rope.base, 100, 0),                                               \
        NUMBER(noun, ANY, o.rope.interleaved, false, 0),                                           \
        NUMBER(noun, POSITIVE, o.rope.attention_factor, 0, 0),                                     \
        TENSOR(noun, FLOATS, o.q_norm, SHAPE(4), .seed = 32),                                      \
        TENSOR(noun, FLOATS, o.k_norm, SHAPE(4), .seed = 33),                                      \
        NUMBER(noun, POSITIVE, o.norm_epsilon, 0, 0),                                              \
        TENSOR(noun, FLOATS, o.sink, SHAPE(2), .seed = 34),                                        \
        TENSOR(noun, FLOATS, o.alibi, SHAPE(2), HOLDS(0.5, 0.25)),                                 \
        NUMBER(noun, RATE, o.dropout, 0, 0), NUMBER(noun, ANY, o.dropout_seed, 7, 0),              \
        NUMBER(noun, SHORT, o.dropout_batch, 0, 0), NUMBER(noun, SHORT, o.dropout_head, 0, 0),     \
        NUMBER(noun, ANY, o.dropout_query, 0, 0), NUMBER(noun, ANY, o.exact_softmax, false, 0)

ALONE(attention, vka_attention_op);
static const struct field attention_fields[] = {
    STRUCT_SIZE(attention, op.struct_size, vka_attention_op),
    TENSOR(attention, OPERAND, op.q, SHAPE(2, 2, 3, 4), .seed = 1),
    TENSOR(attention, OPERAND, op.k, SHAPE(2, 1, 2, 4), .seed = 2),
    TENSOR(attention, OPERAND, op.v, SHAPE(2, 1, 2, 3), .seed = 3),
    TENSOR(attention, OPTIONAL, op.past_key, SHAPE(2, 1, 3, 4), .seed = 4),
    TENSOR(attention, OPTIONAL, op.past_value, SHAPE(2, 1, 3, 3), .seed = 5),
    TENSOR(attention, GRADIENT, op.present_key, SHAPE(2, 1, 5, 4)),
    TENSOR(attention, GRADIENT, op.present_value, SHAPE(2, 1, 5, 3)),
    TENSOR(attention, OUTPUT, op.output, SHAPE(2, 2, 3, 3),
           BECOMES(-0.062435717, -0.070607518, -0.10894155, -0.025305684, -0.2659816, 0.09724342,
                   0.10476509, -0.24309716, 0.054228361, 0.11072112, -0.025212609, -0.28020087,
                   0.058745575, -0.43808307, 0.1632623, 0.24264245, -0.28164695, 0.13168549,
                   -0.088874303, -0.64939882, 0.27664967, 0.026615333, -0.34948818, 0.26434604,
                   -0.09187625, -0.44400767, 0.13012759, 0.14306452, -0.47613811, 0.48508129,
                   -0.10934881, -0.74528484, 0.27446377, -0.13183357, -0.69778386, 0.21705836)),
    OPTIONS(attention, op.options),
};

ALONE(layer, vka_layer_op);
static const struct field layer_fields[] = {
    STRUCT_SIZE(layer, op.struct_size, vka_layer_op),
    NUMBER(layer, LAYER, op.layer, 0, 0),
    NUMBER(layer, ENUM, op.layout, 0, VKA_LAYOUT_COUNT),
    TENSOR(layer, OPERAND, op.query, SHAPE(2, 3, 5), .seed = 1),
    TENSOR(layer, OPERAND, op.key, SHAPE(2, 5, 6), .seed = 2),
    TENSOR(layer, OPERAND, op.value, SHAPE(2, 5, 7), .seed = 3),
    TENSOR(layer, OUTPUT, op.output, SHAPE(2, 3, 4),
           BECOMES(-0.71732764, 1.6804254, -1.3563655, -1.3631143, -2.4546044, 1.7269407,
                   -0.57020071, -2.1713693, -1.0710721, 1.3714831, -0.86267871, -1.0873191,
                   -1.1146277, 1.5004587, -0.91450628, -1.0570208, -0.2313267, 1.8103369,
                   -1.8243283, -1.4957344, -0.33183145, 1.5033663, -1.4817366, -1.2363675)),
    OPTIONS(layer, op.attention),
};

struct attention_backward_example {
    struct vka_attention_backward_op op;
    struct vka_attention_op forward;
};
static const struct field attention_backward_fields[] = {
    STRUCT_SIZE(attention_backward, op.struct_size, vka_attention_backward_op),
    STRUCT_SIZE(attention_backward, forward.struct_size, vka_attention_op),
    POINTER(attention_backward, op.forward, forward),
    TENSOR(attention_backward, OPERAND, forward.q, SHAPE(1, 2, 3, 4), .seed = 1),
    TENSOR(attention_backward, OPERAND, forward.k, SHAPE(1, 1, 5, 4), .seed = 2),
    TENSOR(attention_backward, OPERAND, forward.v, SHAPE(1, 1, 5, 3), .seed = 3),
    TENSOR(attention_backward, OPERAND, forward.output, SHAPE(1, 2, 3, 3),
           HOLDS(0.375, -0.5, 0.75, 0.25337738, -0.58108175, 0.66891825, 0.032316074, -0.76397585,
                 0.48602415, 0.375, -0.5, 0.75, 0.13654919, -0.65896721, 0.59103279, 0.052184175,
                 -0.75, 0.5)),
    TENSOR(attention_backward, FLOATS, forward.options.log_sum_exp, SHAPE(1, 2, 3),
           HOLDS(-0.14052209, 0.84557412, 0.946475, 0.51060693, 0.49963418, 1.4746646)),
    NUMBER(attention_backward, ANY, forward.options.causal, true, 0),
    NUMBER(attention_backward, FINITE, forward.options.scale, 0.75, 0),
    NUMBER(attention_backward, POSITIVE, forward.options.softcap, 3, 0),
    TENSOR(attention_backward, OPERAND, op.output_gradient, SHAPE(1, 2, 3, 3), .seed = 4),
    TENSOR(attention_backward, GRADIENT, op.q_gradient.tensor, SHAPE(1, 2, 3, 4),
           BECOMES(-7.4014868e-12, 0, 0, 0, 0.017782921, 0.017565413, -0.022801611, 0.017710418,
                   0.0017798796, 0.0017248584, 0.0041674804, 0.0017615391, -8.3266727e-12, 0, 0, 0,
                   -0.016547047, -0.01613786, 0.021157865, -0.016410652, -0.0012705776,
                   -0.0013562195, -0.0091924922, -0.0012991249)),
    TENSOR(attention_backward, GRADIENT, op.k_gradient.tensor, SHAPE(1, 1, 5, 4),
           BECOMES(-0.046739509, 0.052496654, -0.056586673, -0.0024200445, 0.025632316,
                   -0.017838778, 0.027727297, -0.015938473, 0.021652584, -0.035005911, 0.029370757,
                   0.017793498, 0, 0, 0, 0, 0, 0, 0, 0)),
    TENSOR(attention_backward, GRADIENT, op.v_gradient.tensor, SHAPE(1, 1, 5, 3),
           BECOMES(0.65795029, -0.7480264, -0.87806533, -0.12858912, 0.43068896, -0.15896558,
                   -0.15436117, -0.057662557, 0.16203091, 0, 0, 0, 0, 0, 0)),
};

struct layer_backward_example {
    struct vka_layer_backward_op op;
    struct vka_layer_op forward;
};
static const struct field layer_backward_fields[] = {
    STRUCT_SIZE(layer_backward, op.struct_size, vka_layer_backward_op),
    STRUCT_SIZE(layer_backward, forward.struct_size, vka_layer_op),
    POINTER(layer_backward, op.forward, forward),
    NUMBER(layer_backward, LAYER, forward.layer, 0, 0),
    TENSOR(layer_backward, OPERAND, forward.query, SHAPE(1, 3, 5), .seed = 1),
    TENSOR(layer_backward, OPERAND, forward.key, SHAPE(1, 5, 6), .seed = 2),
    TENSOR(layer_backward, OPERAND, forward.value, SHAPE(1, 5, 7), .seed = 3),
    TENSOR(layer_backward, OPERAND, forward.output, SHAPE(1, 3, 4)),
    NUMBER(layer_backward, ANY, forward.attention.causal, true, 0),
    TENSOR(layer_backward, OPERAND, op.output_gradient, SHAPE(1, 3, 4), .seed = 4),
    TENSOR(layer_backward, GRADIENT, op.query_gradient.tensor, SHAPE(1, 3, 5),
           BECOMES(0, 0, 0, 0, 0, -0.03293018, -0.082825889, 0.30505761, -0.36258711, -0.0381761,
                   0.97521423, -0.4658392, -0.045780527, 0.90323665, -0.6978583)),
    TENSOR(layer_backward, GRADIENT, op.value_weights.weight.tensor, SHAPE(3, 7),
           BECOMES(0.14541021, -0.29956558, 1.2187297, -0.16811026, -0.98054708, 0.46767584,
                   -0.88271382, -0.96464313, 0.13751659, -1.0797275, 0.87986091, 0.13343987,
                   -1.0173775, 1.0517564, -0.084823024, 0.26125149, -1.4438315, 0.22786841,
                   1.1201173, -0.4891199, 1.1323079)),
    TENSOR(layer_backward, GRADIENT, op.output_weights.bias.tensor, SHAPE(4),
           BECOMES(1.125, -1.125, -1.375, 0.25)),
};

struct merge_example {
    struct vka_merge_op op;
    struct vka_tensor *slices[2], *log_sum_exps[2];
};
static const struct field merge_fields[] = {
    STRUCT_SIZE(merge, op.struct_size, vka_merge_op),
    NUMBER(merge, COUNT, op.n_slice, 2, 2),
    POINTER(merge, op.slices, slices),
    POINTER(merge, op.log_sum_exps, log_sum_exps),
    TENSOR(merge, OPERAND, slices[0], SHAPE(2, 3, 2), .seed = 1),
    TENSOR(merge, OPERAND, slices[1], SHAPE(2, 3, 2), .seed = 2),
    TENSOR(merge, FLOATS, log_sum_exps[0], SHAPE(2, 3), .seed = 3),
    TENSOR(merge, FLOATS, log_sum_exps[1], SHAPE(2, 3), .seed = 4),
    TENSOR(merge, OUTPUT, op.output, SHAPE(2, 3, 2),
           BECOMES(-0.3286667, -0.2639999, 0.18622967, -0.56377033, 0.44340957, -0.30659043,
                   -0.13649641, 0.31122967, -0.43877033, -0.433689, -0.15878724, -0.90878724)),
    TENSOR(merge, FLOATS, op.log_sum_exp, SHAPE(2, 3),
           BECOMES(1.2731233, 0.47407698, 0.95141328, 0.97407698, 0.22407698, 0.70141328)),
};

#endif
