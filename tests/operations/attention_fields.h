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

struct linear_attention_backward_example {
    struct vka_linear_attention_backward_op op;
    struct vka_linear_attention_op forward;
};
static const struct field linear_attention_backward_fields[] = {
    STRUCT_SIZE(linear_attention_backward, op.struct_size, vka_linear_attention_backward_op),
    STRUCT_SIZE(linear_attention_backward, forward.struct_size, vka_linear_attention_op),
    POINTER(linear_attention_backward, op.forward, forward),
    NUMBER(linear_attention_backward, ENUM, forward.rule, VKA_RULE_GATED_DELTA, VKA_RULE_COUNT),
    TENSOR(linear_attention_backward, OPERAND, forward.q, SHAPE(2, 2, 3, 2), .seed = 1),
    TENSOR(linear_attention_backward, OPERAND, forward.k, SHAPE(2, 1, 3, 2), .seed = 2),
    TENSOR(linear_attention_backward, OPERAND, forward.v, SHAPE(2, 2, 3, 3), .seed = 3),
    TENSOR(linear_attention_backward, OPERAND, forward.decay, SHAPE(2, 2, 3), .seed = 4),
    TENSOR(linear_attention_backward, OPERAND, forward.beta, SHAPE(2, 2, 3), .seed = 5),
    NUMBER(linear_attention_backward, FINITE, forward.scale, 0.75, 0),
    NUMBER(linear_attention_backward, POSITIVE, forward.norm_epsilon, 2, 0),
    NUMBER(linear_attention_backward, ANY, forward.beta_sigmoid, true, 0),
    TENSOR(linear_attention_backward, OPERAND, forward.decay_log, SHAPE(2), .seed = 7),
    TENSOR(linear_attention_backward, OPERAND, forward.decay_bias, SHAPE(2), .seed = 8),
    NUMBER(linear_attention_backward, ANY, forward.decay_steps, true, 0),
    NUMBER(linear_attention_backward, POSITIVE, forward.step_min, 0.25, 0),
    NUMBER(linear_attention_backward, POSITIVE, forward.step_max, 1, 0),
    TENSOR(linear_attention_backward, OPERAND, forward.skip, SHAPE(2), .seed = 9),
    TENSOR(linear_attention_backward, FLOATS, forward.past_state, SHAPE(2, 2, 2, 3), .seed = 6),
    TENSOR(linear_attention_backward, OPERAND, forward.output, SHAPE(2, 2, 3, 3)),
    TENSOR(linear_attention_backward, OPERAND, op.output_gradient, SHAPE(2, 2, 3, 3), .seed = 10),
    TENSOR(linear_attention_backward, OPTIONAL, op.present_state_gradient, SHAPE(2, 2, 2, 3),
           .seed = 11),
    TENSOR(linear_attention_backward, GRADIENT, op.q_gradient.tensor, SHAPE(2, 2, 3, 2),
           BECOMES(-0.053029074, 0.11420641, -0.049248364, 0.063037495, -0.021543095, 0.04523582,
                   -0.054357456, 0.32348777, -0.15007441, -0.049193005, -0.093902205, -0.0080891146,
                   0.017581918, 0.069265686, 0.011660969, -0.0037982488, -0.0012319948, 0.02628466,
                   -0.096355021, -0.089301786, -0.044336218, -0.098354297, 0.05872378,
                   0.029205612)),
    TENSOR(linear_attention_backward, GRADIENT, op.k_gradient.tensor, SHAPE(2, 1, 3, 2),
           BECOMES(0.17497509, 0.041885137, 0.26947769, 0.35412521, 0.018090844, 0.1391803,
                   0.084538992, 0.09586206, -0.036389746, -0.047940581, -0.4189516, -0.29082789)),
    TENSOR(linear_attention_backward, GRADIENT, op.v_gradient.tensor, SHAPE(2, 2, 3, 3),
           BECOMES(0.44431976, -0.64633669, -0.016282171, 0.60926715, -0.38044268, 0.20423681,
                   0.85083632, -0.31003268, 0.5966551, 0.30683137, -0.10071859, -0.28576716,
                   0.1462851, -0.12639011, 0.31956619, 0.017556668, -0.20259639, 0.17929907,
                   0.22285779, 0.92206132, -0.244955, 0.40542051, -0.65768182, 0.069309191,
                   0.67613815, -0.42455908, 0.407599, 0.33433146, 0.076570528, -0.30566791,
                   0.24362394, -0.0095379402, -0.37929453, 0.17978723, -0.059994689, 0.28769894)),
    TENSOR(linear_attention_backward, GRADIENT, op.decay_gradient.tensor, SHAPE(2, 2, 3),
           BECOMES(0, 0, 0.10225384, -0.12536588, -0.047217979, -0.028771438, 0, 0.028082713, 0,
                   -0.01784415, -0.0086670247, -0.052448)),
    TENSOR(linear_attention_backward, GRADIENT, op.beta_gradient.tensor, SHAPE(2, 2, 3),
           BECOMES(-0.0096918032, -0.017583857, 0.056848138, -0.05213455, 0.0024584044,
                   -0.029846986, 0.0081686533, 0.022682421, 0.020516344, -0.0073505806, 0.020912089,
                   0.0018353703)),
    TENSOR(linear_attention_backward, GRADIENT, op.decay_log_gradient.tensor, SHAPE(2),
           BECOMES(-0.024204974, -0.3391354)),
    TENSOR(linear_attention_backward, GRADIENT, op.decay_bias_gradient.tensor, SHAPE(2),
           BECOMES(0.13033656, -0.28031448)),
    TENSOR(linear_attention_backward, GRADIENT, op.skip_gradient.tensor, SHAPE(2),
           BECOMES(-2.4375, -2.65625)),
    TENSOR(linear_attention_backward, GRADIENT, op.past_state_gradient.tensor, SHAPE(2, 2, 2, 3),
           BECOMES(0.042479091, -0.1042229, 0.018995387, -0.017939311, -0.0023667076, 0.025628072,
                   -0.14080534, 0.27924337, -0.41286603, -0.3066998, 0.20296992, -0.13207443,
                   0.018762139, 0.0024308103, -0.0150915, 0.033673042, 0.066999355, -0.057913969,
                   0.06552929, -0.24363011, 0.37718789, 0.13542962, -0.18776516, 0.13920838)),
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
