/* The examples of vkattn_operations.h. Answers were computed in double from the formulas in the
 * headers; those of gradients are differences of the forward. */
#include "example.h"
#include "attention_fields.h"
#include "fields.h"

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

struct causal_conv_backward_example {
    struct vka_causal_conv_backward_op op;
    struct vka_causal_conv_op forward;
};
static const struct field causal_conv_backward_fields[] = {
    STRUCT_SIZE(causal_conv_backward, op.struct_size, vka_causal_conv_backward_op),
    STRUCT_SIZE(causal_conv_backward, forward.struct_size, vka_causal_conv_op),
    POINTER(causal_conv_backward, op.forward, forward),
    TENSOR(causal_conv_backward, OPERAND, forward.input, SHAPE(2, 3, 2), .seed = 1),
    TENSOR(causal_conv_backward, OPERAND, forward.weight, SHAPE(2, 3), .seed = 2),
    TENSOR(causal_conv_backward, OPERAND, forward.bias, SHAPE(2), .seed = 3),
    NUMBER(causal_conv_backward, ENUM, forward.activation, VKA_SILU, VKA_ACTIVATION_COUNT),
    TENSOR(causal_conv_backward, OPERAND, forward.past, SHAPE(2, 2, 2), .seed = 4),
    TENSOR(causal_conv_backward, INTEGERS, forward.lengths, SHAPE(2), HOLDS(3, 1)),
    TENSOR(causal_conv_backward, OPERAND, forward.output, SHAPE(2, 3, 2)),
    TENSOR(causal_conv_backward, OPERAND, op.output_gradient, SHAPE(2, 3, 2), .seed = 5),
    TENSOR(causal_conv_backward, OPTIONAL, op.present_gradient, SHAPE(2, 2, 2), .seed = 6),
    TENSOR(causal_conv_backward, GRADIENT, op.input_gradient.tensor, SHAPE(2, 3, 2),
           BECOMES(0.034037582, -0.29891845, -0.42339284, 0.13560029, -0.9613465, -0.625,
                   0.12270116, 0.375, 0, 0, 0, 0)),
    TENSOR(causal_conv_backward, GRADIENT, op.weight_gradient.tensor, SHAPE(2, 3),
           BECOMES(-0.52398537, -0.53475202, 0.88971396, -0.40527861, -0.1083755, 0.51781963)),
    TENSOR(causal_conv_backward, GRADIENT, op.bias_gradient.tensor, SHAPE(2),
           BECOMES(0.14917049, -0.095207389)),
    TENSOR(causal_conv_backward, GRADIENT, op.past_gradient.tensor, SHAPE(2, 2, 2),
           BECOMES(0.049071461, 0.37123401, -0.10833905, 0.36348725, -0.082567053, 0.04703063,
                   0.0025328128, -0.88006563)),
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

#define VKA_OPERATION(noun, type)                                                     \
    static enum vka_status add_##noun(struct vka_plan *plan, const void *op)          \
    {                                                                                 \
        return vka_plan_add_##noun(plan, op);                                         \
    }                                                                                 \
    _Static_assert(sizeof(noun##_fields) / sizeof *noun##_fields <= EXAMPLE_FIELDS && \
                       sizeof(struct noun##_example) <= EXAMPLE_BYTES,                \
                   "an instance holds it");
#include <vkattn/vkattn_operations.h>

const struct example examples[N_EXAMPLE] = {
#define VKA_OPERATION(noun, type)                                         \
    {"vka_plan_add_" #noun, add_##noun,    sizeof(struct noun##_example), \
     sizeof(struct type),   noun##_fields, sizeof(noun##_fields) / sizeof *noun##_fields},
#include <vkattn/vkattn_operations.h>
};
