/* The examples of src/operations.def. Answers were computed in double from the formulas in the
 * headers; those of gradients are differences of the forward. */
#include "example.h"
#include "fields.h"

/* ---- Attention ------------------------------------------------------------------------------- */

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
    struct vka_tensor *parts[2], *log_sum_exps[2];
};
static const struct field merge_fields[] = {
    STRUCT_SIZE(merge, op.struct_size, vka_merge_op),
    NUMBER(merge, COUNT, op.n_part, 2, 2),
    POINTER(merge, op.parts, parts),
    POINTER(merge, op.log_sum_exps, log_sum_exps),
    TENSOR(merge, OPERAND, parts[0], SHAPE(2, 3, 2), .seed = 1),
    TENSOR(merge, OPERAND, parts[1], SHAPE(2, 3, 2), .seed = 2),
    TENSOR(merge, FLOATS, log_sum_exps[0], SHAPE(2, 3), .seed = 3),
    TENSOR(merge, FLOATS, log_sum_exps[1], SHAPE(2, 3), .seed = 4),
    TENSOR(merge, OUTPUT, op.output, SHAPE(2, 3, 2),
           BECOMES(-0.3286667, -0.2639999, 0.18622967, -0.56377033, 0.44340957, -0.30659043,
                   -0.13649641, 0.31122967, -0.43877033, -0.433689, -0.15878724, -0.90878724)),
    TENSOR(merge, FLOATS, op.log_sum_exp, SHAPE(2, 3),
           BECOMES(1.2731233, 0.47407698, 0.95141328, 0.97407698, 0.22407698, 0.70141328)),
};

/* ---- Products -------------------------------------------------------------------------------- */

ALONE(linear, vka_linear_op);
static const struct field linear_fields[] = {
    STRUCT_SIZE(linear, op.struct_size, vka_linear_op),
    TENSOR(linear, OPERAND, op.input, SHAPE(5, 3), .seed = 1),
    TENSOR(linear, OPERAND, op.weight, SHAPE(4, 3), .seed = 2),
    TENSOR(linear, OPTIONAL, op.bias, SHAPE(4), .seed = 3),
    TENSOR(linear, OUTPUT, op.output, SHAPE(5, 4),
           BECOMES(-0.171875, -0.03125, 1.0625, 0.15625, 0.046875, -0.21875, 0.9375, 0.09375,
                   0.265625, -0.828125, 0.09375, -0.875, 0.3125, -0.6875, 0.375, -0.5, 0.625,
                   -0.59375, 0.375, -0.625)),
    NUMBER(linear, ANY, op.relu_input, true, 0),
    NUMBER(linear, ANY, op.accumulate, false, 0),
    NUMBER(linear, ENUM, op.activations, VKA_F32, VKA_DTYPE_COUNT),
};

ALONE(conv1d, vka_conv1d_op);
static const struct field conv1d_fields[] = {
    STRUCT_SIZE(conv1d, op.struct_size, vka_conv1d_op),
    TENSOR(conv1d, FREE, op.input, SHAPE(2, 5, 2), .limit = 1, .seed = 1),
    TENSOR(conv1d, FREE, op.weight, SHAPE(2, 3, 2), .limit = 1, .seed = 2),
    TENSOR(conv1d, OPTIONAL, op.bias, SHAPE(2), .seed = 3),
    TENSOR(conv1d, OUTPUT, op.output, SHAPE(2, 3, 2),
           BECOMES(-0.1853332, -0.50982997, 0.97008583, -0.33082112, -0.20037672, -0.89933873,
                   0.68779021, 0.7039056, 0.38528397, -0.91063826, -0.30270973, -0.41157006)),
    NUMBER(conv1d, ANY, op.stride, 2, 0),
    NUMBER(conv1d, ANY, op.padding_before, 1, 0),
    NUMBER(conv1d, ANY, op.padding_after, 1, 0),
    NUMBER(conv1d, ENUM, op.activation, VKA_TANH, VKA_ACTIVATION_COUNT),
};

ALONE(linear_backward, vka_linear_backward_op);
static const struct field linear_backward_fields[] = {
    STRUCT_SIZE(linear_backward, op.struct_size, vka_linear_backward_op),
    TENSOR(linear_backward, OPERAND, op.input, SHAPE(5, 3), .seed = 1),
    TENSOR(linear_backward, OPERAND, op.weight, SHAPE(4, 3), .seed = 2),
    TENSOR(linear_backward, OPERAND, op.output_gradient, SHAPE(5, 4), .seed = 3),
    NUMBER(linear_backward, ANY, op.relu_input, false, 0),
    TENSOR(linear_backward, GRADIENT, op.input_gradient.tensor, SHAPE(5, 3),
           BECOMES(-0.421875, -0.328125, -0.046875, 1.09375, 0.65625, 0.28125, -0.1875, -0.3125, 0,
                   -0.625, 1.078125, -0.671875, 0, -0.328125, 0.015625)),
    TENSOR(linear_backward, GRADIENT, op.weight_gradient.tensor, SHAPE(4, 3),
           BECOMES(0.234375, 0.109375, 1.015625, -0.53125, 0.09375, -0.59375, 0.265625, 0.15625,
                   0.375, 1.140625, -0.46875, -0.59375)),
    TENSOR(linear_backward, GRADIENT, op.bias_gradient.tensor, SHAPE(4),
           BECOMES(-0.875, -0.75, 1.375, -0.5)),
};

/* ---- Rows ------------------------------------------------------------------------------------ */

ALONE(norm, vka_norm_op);
static const struct field norm_fields[] = {
    STRUCT_SIZE(norm, op.struct_size, vka_norm_op),
    NUMBER(norm, ENUM, op.kind, VKA_LAYER_NORM, VKA_NORM_COUNT),
    NUMBER(norm, ANY, op.axes, 1, 0),
    NUMBER(norm, POSITIVE, op.epsilon, 0.125, 0),
    NUMBER(norm, GIVEN, op.given, 0, VKA_GIVEN_EPSILON),
    TENSOR(norm, OPERAND, op.input, SHAPE(2, 4), .seed = 1),
    TENSOR(norm, OPTIONAL, op.residual, SHAPE(2, 4), .seed = 2),
    TENSOR(norm, GRADIENT, op.sum, SHAPE(2, 4),
           BECOMES(-0.75, -0.25, 0.25, -1.25, 1.125, -0.375, 0.125, 0.5)),
    TENSOR(norm, OPTIONAL, op.weight, SHAPE(4), .seed = 3),
    TENSOR(norm, OPTIONAL, op.bias, SHAPE(4), .seed = 4),
    TENSOR(
        norm, OUTPUT, op.output, SHAPE(2, 4),
        BECOMES(0.60826332, -0.18898224, 0.10042006, 0.5, 1.1994968, 0.5513828, -1.0017182, 0.5)),
};

ALONE(norm_backward, vka_norm_backward_op);
static const struct field norm_backward_fields[] = {
    STRUCT_SIZE(norm_backward, op.struct_size, vka_norm_backward_op),
    NUMBER(norm_backward, ENUM, op.kind, VKA_LAYER_NORM, VKA_NORM_COUNT),
    NUMBER(norm_backward, ANY, op.axes, 1, 0),
    NUMBER(norm_backward, POSITIVE, op.epsilon, 0.125, 0),
    NUMBER(norm_backward, GIVEN, op.given, 0, VKA_GIVEN_EPSILON),
    TENSOR(norm_backward, OPERAND, op.input, SHAPE(3, 4), .seed = 1),
    TENSOR(norm_backward, OPTIONAL, op.weight, SHAPE(4), .seed = 2),
    TENSOR(norm_backward, OPERAND, op.output_gradient, SHAPE(3, 4), .seed = 3),
    TENSOR(norm_backward, GRADIENT, op.input_gradient.tensor, SHAPE(3, 4),
           BECOMES(-0.18529513, 0.088045203, 0.12366349, -0.026413561, 0.16197667, -0.62624791,
                   -0.24304236, 0.7073136, -0.18049267, 0.11165733, 0.052426917, 0.016408424)),
    TENSOR(norm_backward, GRADIENT, op.weight_gradient.tensor, SHAPE(4),
           BECOMES(-0.54948931, -1.8098541, -0.026503677, 0.49183928)),
    TENSOR(norm_backward, GRADIENT, op.bias_gradient.tensor, SHAPE(4),
           BECOMES(-0.125, -0.5, 1.125, -1.125)),
};

ALONE(activation, vka_activation_op);
static const struct field activation_fields[] = {
    STRUCT_SIZE(activation, op.struct_size, vka_activation_op),
    NUMBER(activation, ENUM, op.kind, VKA_SILU, VKA_ACTIVATION_COUNT),
    NUMBER(activation, FINITE, op.alpha, 2, 0),
    TENSOR(activation, BROADCAST, op.input, SHAPE(3, 4), .seed = 1),
    TENSOR(activation, MASK, op.multiplier, SHAPE(3, 4), .seed = 2),
    TENSOR(activation, OUTPUT, op.output, SHAPE(3, 4),
           BECOMES(0.017398448, -0.42508586, -0.020522977, 0.048577987, 0.19101901, 0, -0.55909403,
                   0, 0.034204786, -0.36552929, -0.023596292, 0.059601461)),
};

ALONE(activation_backward, vka_activation_backward_op);
static const struct field activation_backward_fields[] = {
    STRUCT_SIZE(activation_backward, op.struct_size, vka_activation_backward_op),
    NUMBER(activation_backward, ENUM, op.kind, VKA_SILU, VKA_ACTIVATION_COUNT),
    NUMBER(activation_backward, FINITE, op.alpha, 2, 0),
    TENSOR(activation_backward, BROADCAST, op.input, SHAPE(3, 4), .seed = 1),
    TENSOR(activation_backward, BROADCAST, op.multiplier, SHAPE(3, 4), .seed = 2),
    TENSOR(activation_backward, OPERAND, op.output_gradient, SHAPE(3, 4), .seed = 3),
    TENSOR(activation_backward, GRADIENT, op.input_gradient.tensor, SHAPE(3, 4),
           BECOMES(-0.0002962104, 0.43473537, 0.10583156, 0, -0.47396247, 0, 0.2011273, -0.25,
                   0.0025808846, 0.46383526, 0.040631064, -0.0056740155)),
    TENSOR(activation_backward, GRADIENT, op.multiplier_gradient.tensor, SHAPE(3, 4),
           BECOMES(-0.052195345, -0.24290621, -0.041045953, 0, -0.19101901, -0.060153994,
                   -0.18636468, 0, -0.034204786, -0.18276464, -0.058990729, 0.014900365)),
};

ALONE(binary, vka_binary_op);
static const struct field binary_fields[] = {
    STRUCT_SIZE(binary, op.struct_size, vka_binary_op),
    NUMBER(binary, ENUM, op.kind, VKA_MULTIPLY, VKA_BINARY_COUNT),
    TENSOR(binary, BROADCAST, op.a, SHAPE(3, 4), .seed = 1),
    TENSOR(binary, BROADCAST, op.b, SHAPE(4), .seed = 2),
    TENSOR(binary, OUTPUT, op.output, SHAPE(3, 4),
           BECOMES(0.078125, -0.546875, -0.046875, 0.328125, -0.046875, 0.328125, 0.328125, 0,
                   0.09375, -0.4375, -0.09375, 0.375)),
};

ALONE(binary_backward, vka_binary_backward_op);
static const struct field binary_backward_fields[] = {
    STRUCT_SIZE(binary_backward, op.struct_size, vka_binary_backward_op),
    NUMBER(binary_backward, ENUM, op.kind, VKA_MULTIPLY, VKA_BINARY_COUNT),
    TENSOR(binary_backward, BROADCAST, op.a, SHAPE(3, 4), .seed = 1),
    TENSOR(binary_backward, BROADCAST, op.b, SHAPE(4), .seed = 2),
    TENSOR(binary_backward, OPERAND, op.output_gradient, SHAPE(3, 4), .seed = 3),
    TENSOR(binary_backward, GRADIENT, op.a_gradient.tensor, SHAPE(3, 4),
           BECOMES(-0.046875, 0.4375, 0.28125, 0, 0.09375, -0.4375, -0.09375, 0.375, -0.03125,
                   0.4375, 0.234375, 0.046875)),
    TENSOR(binary_backward, GRADIENT, op.b_gradient.tensor, SHAPE(4),
           BECOMES(-0.703125, -0.75, -0.46875, 0.125)),
};

ALONE(gather, vka_gather_op);
static const struct field gather_fields[] = {
    STRUCT_SIZE(gather, op.struct_size, vka_gather_op),
    NUMBER(gather, FINITE, op.scale, 3, 0),
    NUMBER(gather, GIVEN, op.given, 0, VKA_GIVEN_SCALE),
    TENSOR(gather, FREE, op.table, SHAPE(5, 3), .limit = 0, .seed = 1),
    TENSOR(gather, INDICES, op.ids, SHAPE(4), HOLDS(4, -1, 0, 5)),
    TENSOR(gather, OUTPUT, op.output, SHAPE(4, 3),
           BECOMES(0.75, -1.5, 2.25, 0, 0, 0, -1.875, 1.875, -0.375, 0, 0, 0)),
};

ALONE(gather_backward, vka_gather_backward_op);
static const struct field gather_backward_fields[] = {
    STRUCT_SIZE(gather_backward, op.struct_size, vka_gather_backward_op),
    NUMBER(gather_backward, FINITE, op.scale, 3, 0),
    NUMBER(gather_backward, GIVEN, op.given, 0, VKA_GIVEN_SCALE),
    TENSOR(gather_backward, INDICES, op.ids, SHAPE(5), HOLDS(2, -1, 0, 4, 2)),
    TENSOR(gather_backward, OPERAND, op.output_gradient, SHAPE(5, 3), .seed = 1),
    TENSOR(gather_backward, FREE, op.table_gradient.tensor, SHAPE(4, 3), .limit = 0,
           BECOMES(2.625, 0, -2.25, 0, 0, 0, -1.125, 0.375, 1.875, 0, 0, 0)),
};

ALONE(scatter, vka_scatter_op);
static const struct field scatter_fields[] = {
    STRUCT_SIZE(scatter, op.struct_size, vka_scatter_op),
    TENSOR(scatter, FREE, op.update, SHAPE(2, 3, 2), .limit = 1, .seed = 1),
    TENSOR(scatter, INTEGERS, op.positions, SHAPE(2), HOLDS(1, 3)),
    NUMBER(scatter, ANY, op.axis, 1, 0),
    NUMBER(scatter, ANY, op.circular, true, 0),
    TENSOR(scatter, FREE, op.output, SHAPE(2, 4, 2), .limit = 1, .seed = 2,
           BECOMES(-0.125, -0.875, -0.625, 0.625, -0.125, -0.875, 0.375, -0.375, -0.75, 0.5, -0.25,
                   -1, 0.75, -0.125, 0.875, 0)),
};

#define ROTARY(noun, ...)                                                              \
    STRUCT_SIZE(noun, op.struct_size, vka_rotary_op),                                  \
        TENSOR(noun, OPERAND, op.input, SHAPE(1, 2, 3, 4), .seed = 1),                 \
        TENSOR(noun, INTEGERS, op.positions, SHAPE(1, 3), HOLDS(5, -2, 1000)),         \
        NUMBER(noun, EVEN, op.dim, 4, 4), NUMBER(noun, ANY, op.interleaved, false, 0), \
        NUMBER(noun, POSITIVE, op.base, 100, 0),                                       \
        NUMBER(noun, POSITIVE, op.attention_factor, 0.5, 0),                           \
        TENSOR(noun, OUTPUT, op.output, SHAPE(1, 2, 3, 4), BECOMES(__VA_ARGS__))

ALONE(rotary, vka_rotary_op);
static const struct field rotary_fields[] = {
    ROTARY(rotary, -0.1485772, 0.48399322, 0.28193495, -0.23412189, 0.31979009, -0.18376248,
           -0.35255751, 0.0372505, -0.10753221, -0.037603102, -0.38037721, -0.55775085, 0.39505438,
           -0.21939564, -0.013492215, -0.11985638, 0.011570973, 0.27068032, 0.47584516, 0.39152863,
           -0.22325116, -0.3011225, 0.22742343, 0.10434433)};

ALONE(rotary_backward, vka_rotary_op);
static const struct field rotary_backward_fields[] = {
    ROTARY(rotary_backward, -0.028711666, 0.064495877, -0.31739272, -0.53376285, -0.47584516,
           -0.18376248, -0.011570973, -0.0372505, -0.3142521, 0.46876254, 0.23978244, -0.30456803,
           -0.32413883, -0.21939564, 0.22623885, 0.11985638, 0.35255751, 0.096844651, -0.31979009,
           0.46602963, 0.29354855, -0.2378268, 0.12406349, -0.21213419)};

ALONE(argmax, vka_argmax_op);
static const struct field argmax_fields[] = {
    STRUCT_SIZE(argmax, op.struct_size, vka_argmax_op),
    TENSOR(argmax, FREE, op.input, SHAPE(2, 3, 5), .limit = 2, .seed = 1),
    TENSOR(argmax, DRAWN, op.output, SHAPE(2, 3), BECOMES(1, 1, 4, 4, 2, 2)),
};

ALONE(sample, vka_sample_op);
static const struct field sample_fields[] = {
    STRUCT_SIZE(sample, op.struct_size, vka_sample_op),
    TENSOR(sample, FREE, op.logits, SHAPE(3, 7), .limit = 1, .seed = 1),
    NUMBER(sample, POSITIVE, op.temperature, 0.5, 0),
    NUMBER(sample, ANY, op.top_k, 5, 0),
    NUMBER(sample, RATE, op.top_p, 0, 1),
    NUMBER(sample, RATE, op.min_p, 0.0625, 1),
    NUMBER(sample, ANY, op.seed, 7, 0),
    TENSOR(sample, INTEGERS, op.step, SHAPE(3), HOLDS(2, 0, 5), BECOMES(3, 1, 6)),
    TENSOR(sample, DRAWN, op.output, SHAPE(3), BECOMES(1, 6, 1)),
};

ALONE(pool, vka_pool_op);
static const struct field pool_fields[] = {
    STRUCT_SIZE(pool, op.struct_size, vka_pool_op),
    TENSOR(pool, OPERAND, op.input, SHAPE(2, 4, 3), .seed = 1),
    TENSOR(pool, MASK, op.mask, SHAPE(2, 4), HOLDS(1, 0, 2, 4, 1, 1, 1, 1)),
    TENSOR(pool, INTEGERS, op.lengths, SHAPE(2), HOLDS(3, 0)),
    TENSOR(pool, OUTPUT, op.output, SHAPE(2, 3), BECOMES(0.375, 0.20833333, -0.54166667, 0, 0, 0)),
};

/* Two sequences of 3 rows and 2 channels, of which the second has one. */
ALONE(causal_conv, vka_causal_conv_op);
static const struct field causal_conv_fields[] = {
    STRUCT_SIZE(causal_conv, op.struct_size, vka_causal_conv_op),
    TENSOR(causal_conv, OPERAND, op.input, SHAPE(2, 3, 2), .seed = 1),
    TENSOR(causal_conv, OPERAND, op.weight, SHAPE(2, 3), .seed = 2),
    TENSOR(causal_conv, OPTIONAL, op.bias, SHAPE(2), .seed = 3),
    NUMBER(causal_conv, ENUM, op.activation, VKA_SILU, VKA_ACTIVATION_COUNT),
    TENSOR(causal_conv, OPTIONAL, op.past, SHAPE(2, 2, 2), .seed = 4),
    TENSOR(causal_conv, GRADIENT, op.present, SHAPE(2, 2, 2),
           BECOMES(-0.125, 0.375, -0.875, -0.375, -1, 0.875, -0.625, 0)),
    TENSOR(causal_conv, INTEGERS, op.lengths, SHAPE(2), HOLDS(3, 1)),
    TENSOR(causal_conv, OUTPUT, op.output, SHAPE(2, 3, 2),
           BECOMES(0.023986716, 0.084216128, 0.6175619, -0.097459586, 0.47030643, -0.27716268,
                   1.3411318, -0.27288399, 0, 0, 0, 0)),
};

/* Two sequences of 3 tokens, of which the second has 2; 2 states, one key head. */
ALONE(linear_attention, vka_linear_attention_op);
static const struct field linear_attention_fields[] = {
    STRUCT_SIZE(linear_attention, op.struct_size, vka_linear_attention_op),
    NUMBER(linear_attention, ENUM, op.rule, VKA_RULE_GATED_DELTA, VKA_RULE_COUNT),
    TENSOR(linear_attention, OPERAND, op.q, SHAPE(2, 2, 3, 2), .seed = 1),
    TENSOR(linear_attention, OPERAND, op.k, SHAPE(2, 1, 3, 2), .seed = 2),
    TENSOR(linear_attention, OPERAND, op.v, SHAPE(2, 2, 3, 3), .seed = 3),
    TENSOR(linear_attention, OPERAND, op.decay, SHAPE(2, 2, 3), .seed = 4),
    TENSOR(linear_attention, OPERAND, op.beta, SHAPE(2, 2, 3), .seed = 5),
    NUMBER(linear_attention, GIVEN, op.given, 0, VKA_GIVEN_SCALE),
    NUMBER(linear_attention, FINITE, op.scale, 0.75, 0),
    NUMBER(linear_attention, POSITIVE, op.norm_epsilon, 2, 0),
    NUMBER(linear_attention, ANY, op.beta_sigmoid, true, 0),
    TENSOR(linear_attention, OPERAND, op.decay_log, SHAPE(2), .seed = 7),
    TENSOR(linear_attention, OPTIONAL, op.decay_bias, SHAPE(2), .seed = 8),
    NUMBER(linear_attention, ANY, op.decay_steps, true, 0),
    NUMBER(linear_attention, POSITIVE, op.step_min, 0.25, 0),
    NUMBER(linear_attention, POSITIVE, op.step_max, 1, 0),
    TENSOR(linear_attention, OPTIONAL, op.skip, SHAPE(2), .seed = 9),
    TENSOR(linear_attention, FLOATS, op.past_state, SHAPE(2, 2, 2, 3), .seed = 6),
    TENSOR(linear_attention, FLOATS, op.present_state, SHAPE(2, 2, 2, 3),
           BECOMES(-0.045649106, -0.22207792, 0.068751628, -0.037659408, 0.095800902, -0.062310223,
                   -0.30837628, 0.15351168, -0.18763934, 0.39902039, -0.023932597, -0.24107093,
                   -0.031109571, 0.021778786, -0.020367989, 0.035741535, 0.013018508, -0.13774975,
                   0.033192907, -0.50652825, 0.19260733, -0.16489597, 0.45026708, 0.091691438)),
    TENSOR(linear_attention, INTEGERS, op.lengths, SHAPE(2), HOLDS(3, 2)),
    TENSOR(linear_attention, OUTPUT, op.output, SHAPE(2, 2, 3, 3),
           BECOMES(-0.37274711, 0.60155347, -0.70855858, 0.03203074, 0.59080454, -0.39191084,
                   0.21726223, 0.81580736, -0.1943448, -0.3993654, 0.32094989, -0.1354091,
                   -0.077251324, 0.072016551, -0.13618275, 0.19015658, 0.040684147, -0.11095467,
                   -0.60327605, 0.26847392, 0.87764683, -0.22968162, 0.44515287, -0.66340713, 0, 0,
                   0, -0.20672039, 0.67386467, 0.05552818, -0.18254007, 0.067698762, -0.062942094,
                   0, 0, 0)),
};

/* ---- Training -------------------------------------------------------------------------------- */

ALONE(cross_entropy, vka_cross_entropy_op);
static const struct field cross_entropy_fields[] = {
    STRUCT_SIZE(cross_entropy, op.struct_size, vka_cross_entropy_op),
    TENSOR(cross_entropy, OPERAND, op.logits, SHAPE(3, 4), .seed = 1),
    TENSOR(cross_entropy, INDICES, op.labels, SHAPE(3), HOLDS(1, -100, 3)),
    NUMBER(cross_entropy, RATE, op.smoothing, 0.25, 1),
    TENSOR(cross_entropy, FLOATS, op.loss, SHAPE(1), BECOMES(1.4653572)),
    TENSOR(cross_entropy, GRADIENT, op.gradient, SHAPE(3, 4),
           BECOMES(0.082053269, -0.30795952, 0.17582805, 0.050078199, 0, 0, 0, 0, 0.082053269,
                   0.44204048, 0.17582805, -0.6999218)),
    NUMBER(cross_entropy, GIVEN, op.given, 0, VKA_GIVEN_GRADIENT_SCALE),
    NUMBER(cross_entropy, FINITE, op.gradient_scale, 2, 0),
};

ALONE(square_error, vka_square_error_op);
static const struct field square_error_fields[] = {
    STRUCT_SIZE(square_error, op.struct_size, vka_square_error_op),
    TENSOR(square_error, OPERAND, op.input, SHAPE(3, 2), .seed = 1),
    TENSOR(square_error, OPERAND, op.target, SHAPE(3, 2), .seed = 2),
    TENSOR(square_error, FLOATS, op.loss, SHAPE(1), BECOMES(0.546875)),
    TENSOR(square_error, GRADIENT, op.gradient, SHAPE(3, 2),
           BECOMES(-0.33333333, 1, -0.33333333, -0.33333333, -0.25, -0.25)),
    NUMBER(square_error, GIVEN, op.given, 0, VKA_GIVEN_GRADIENT_SCALE),
    NUMBER(square_error, FINITE, op.gradient_scale, 2, 0),
};

struct optimiser_example {
    struct vka_optimiser_op op;
    struct vka_parameter parameter;
};
static const struct field optimiser_fields[] = {
    STRUCT_SIZE(optimiser, op.struct_size, vka_optimiser_op),
    NUMBER(optimiser, ENUM, op.kind, VKA_ADAMW, VKA_OPTIMISER_COUNT),
    POINTER(optimiser, op.parameters, parameter),
    NUMBER(optimiser, COUNT, op.n_parameter, 1, 1),
    TENSOR(optimiser, OUTPUT, parameter.parameter, SHAPE(3, 2), .seed = 1,
           BECOMES(-0.65423503, 0.77068047, -0.25132148, -0.75046694, 0.49493028, -0.40885534)),
    TENSOR(optimiser, OPERAND, parameter.gradient, SHAPE(3, 2), .seed = 2),
    TENSOR(optimiser, FLOATS, parameter.first_moment, SHAPE(3, 2), .seed = 3),
    TENSOR(optimiser, FLOATS, parameter.second_moment, SHAPE(3, 2),
           HOLDS(0.5, 0.25, 1, 0, 0.125, 2)),
    NUMBER(optimiser, POSITIVE, op.learning_rate, 0.5, 0),
    NUMBER(optimiser, ANY, op.nesterov, false, 0),
    NUMBER(optimiser, GIVEN, op.given, 0, VKA_GIVEN_EPSILON | VKA_GIVEN_BETA1 | VKA_GIVEN_BETA2),
    NUMBER(optimiser, RATE, op.beta1, 0.75, 0),
    NUMBER(optimiser, RATE, op.beta2, 0.875, 0),
    NUMBER(optimiser, POSITIVE, op.epsilon, 0.25, 0),
    NUMBER(optimiser, POSITIVE, op.weight_decay, 0.25, 0),
    TENSOR(optimiser, INTEGERS, op.step, SHAPE(1), HOLDS(4), BECOMES(5)),
    TENSOR(optimiser, FLOATS, op.rate, SHAPE(1), HOLDS(0.5)),
};

struct clip_example {
    struct vka_clip_op op;
    struct vka_tensor *gradients[2];
};
static const struct field clip_fields[] = {
    STRUCT_SIZE(clip, op.struct_size, vka_clip_op),
    POINTER(clip, op.gradients, gradients),
    NUMBER(clip, COUNT, op.n_gradient, 2, 2),
    TENSOR(clip, KEPT, gradients[0], SHAPE(3, 2), .seed = 1,
           BECOMES(-0.18330879, 0.18330879, -0.036661757, -0.2566323, 0.10998527, -0.10998527)),
    TENSOR(clip, KEPT, gradients[1], SHAPE(4), .seed = 2,
           BECOMES(-0.036661757, -0.2566323, 0.10998527, -0.10998527)),
    NUMBER(clip, POSITIVE, op.max_norm, 0.5, 0),
    TENSOR(clip, FLOATS, op.norm, SHAPE(1), BECOMES(1.7047727)),
};

/* ---- The table ------------------------------------------------------------------------------- */

#define OPERATION(noun, type)                                                         \
    static enum vka_status add_##noun(struct vka_plan *plan, const void *op)          \
    {                                                                                 \
        return vka_plan_add_##noun(plan, op);                                         \
    }                                                                                 \
    _Static_assert(sizeof(noun##_fields) / sizeof *noun##_fields <= EXAMPLE_FIELDS && \
                       sizeof(struct noun##_example) <= EXAMPLE_BYTES,                \
                   "an instance holds it");
#include "operations.def"
#undef OPERATION

const struct example examples[N_EXAMPLE] = {
#define OPERATION(noun, type)                                             \
    {"vka_plan_add_" #noun, add_##noun,    sizeof(struct noun##_example), \
     sizeof(struct type),   noun##_fields, sizeof(noun##_fields) / sizeof *noun##_fields},
#include "operations.def"
#undef OPERATION
};
