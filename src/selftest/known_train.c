/* Known problems of the operations of training. */
#include <vkattn/vkattn_train.h>

#include "selftest/solution.h"

#include <math.h>

#define ROWS 37u
#define WIDTH 203u
#define MANY_ROWS 2100u /* two splits of a sum */
#define COLUMNS 11u

/* The gradient of a bias. */
enum vka_status known_sum_axes(struct solution *s)
{
    const uint32_t shape[2] = {MANY_ROWS, COLUMNS}, width = COLUMNS;
    struct vka_tensor *dy, *db;
    ENSURE(known_tensor(s, VKA_F32, 2, shape, 1, &dy));
    ENSURE(known_tensor(s, VKA_F32, 1, &width, 0, &db));
    ENSURE(vka_plan_add_linear_backward(
        s->plan,
        VKA_INFO(vka_linear_backward_op, .output_gradient = dy, .bias_gradient.tensor = db)));
    ENSURE(known_want(s, db));
    for (uint32_t i = 0; i < MANY_ROWS * COLUMNS; i++)
        s->want[i % COLUMNS] += (double)known_value(1, i);
    return known_run(s, db, 1);
}

/* SwiGLU. */
enum vka_status known_map_backward(struct solution *s)
{
    const uint32_t shape[2] = {ROWS, WIDTH};
    struct vka_tensor *x, *b, *dy, *dx;
    ENSURE(known_tensor(s, VKA_F32, 2, shape, 1, &x));
    ENSURE(known_tensor(s, VKA_F32, 2, shape, 2, &b));
    ENSURE(known_tensor(s, VKA_F32, 2, shape, 3, &dy));
    ENSURE(known_tensor(s, VKA_F32, 2, shape, 0, &dx));
    ENSURE(vka_plan_add_activation_backward(
        s->plan, VKA_INFO(vka_activation_backward_op, .kind = VKA_SILU, .input = x, .multiplier = b,
                          .output_gradient = dy, .input_gradient.tensor = dx)));
    ENSURE(known_want(s, dx));
    for (uint32_t i = 0; i < ROWS * WIDTH; i++) {
        double v = (double)known_value(1, i), y = 1 / (1 + exp(-v));
        s->want[i] = (double)known_value(2, i) * (double)known_value(3, i) * y * (1 + v * (1 - y));
    }
    return known_run(s, dx, 1);
}

enum { CONV_WIDTH = 3, CONV_DILATION = 2, CONV_KEEP = (CONV_WIDTH - 1) * CONV_DILATION };

/* Adds the gradient of a convolution's input, or of its weight, and wants zeros of it. */
static enum vka_status add_conv_backward(struct solution *s, uint32_t n, uint32_t channels,
                                         bool of_weight, struct vka_tensor **gradient)
{
    const uint32_t rows[3] = {1, n, channels}, taps[2] = {channels, CONV_WIDTH};
    struct vka_causal_conv_op forward = {.struct_size = sizeof forward, .dilation = CONV_DILATION};
    struct vka_causal_conv_backward_op op = {.struct_size = sizeof op, .forward = &forward};
    ENSURE(known_tensor(s, VKA_F32, 3, rows, 1, &forward.input));
    ENSURE(known_tensor(s, VKA_F32, 2, taps, 2, &forward.weight));
    ENSURE(known_tensor(s, VKA_F32, 3, rows, 0, &forward.output));
    ENSURE(known_tensor(s, VKA_F32, 3, rows, 3, &op.output_gradient));
    ENSURE(known_tensor(s, VKA_F32, of_weight ? 2 : 3, of_weight ? taps : rows, 0, gradient));
    *(of_weight ? &op.weight_gradient : &op.input_gradient) =
        (struct vka_gradient){.tensor = *gradient};
    ENSURE(vka_plan_add_causal_conv_backward(s->plan, &op));
    return known_want(s, *gradient);
}

/* The gradient of a convolution's input: of what later rows read of a row. */
enum vka_status known_conv_backward(struct solution *s)
{
    struct vka_tensor *dx;
    ENSURE(add_conv_backward(s, ROWS, WIDTH, false, &dx));
    for (uint32_t i = 0; i < ROWS * WIDTH; i++)
        for (uint32_t j = 0; j < CONV_WIDTH; j++) {
            const uint32_t row = i / WIDTH + CONV_KEEP - j * CONV_DILATION;
            if (row < ROWS)
                s->want[i] += (double)known_value(2, i % WIDTH * CONV_WIDTH + j) *
                              (double)known_value(3, row * WIDTH + i % WIDTH);
        }
    return known_run(s, dx, 1);
}

/* The gradient of a convolution's weight. */
enum vka_status known_conv_sums(struct solution *s)
{
    struct vka_tensor *dw;
    ENSURE(add_conv_backward(s, MANY_ROWS, COLUMNS, true, &dw));
    for (uint32_t i = 0; i < MANY_ROWS * COLUMNS; i++)
        for (uint32_t j = 0; j < CONV_WIDTH; j++) {
            const uint32_t row = i / COLUMNS - (CONV_WIDTH - 1 - j) * CONV_DILATION;
            if (row < MANY_ROWS)
                s->want[i % COLUMNS * CONV_WIDTH + j] +=
                    (double)known_value(3, i) * (double)known_value(1, row * COLUMNS + i % COLUMNS);
        }
    return known_run(s, dw, 1);
}

/* The gradient, in place of the logits. */
enum vka_status known_cross_entropy(struct solution *s)
{
    const uint32_t shape[2] = {ROWS, WIDTH}, rows = ROWS, one = 1;
    int32_t labels[ROWS];
    struct vka_tensor *x, *label, *loss;
    for (uint32_t i = 0; i < ROWS; i++)
        labels[i] = i % 6 == 5 ? -100 : (int32_t)(7 * i % WIDTH);
    ENSURE(known_tensor(s, VKA_F32, 2, shape, 1, &x));
    ENSURE(known_tensor(s, VKA_I32, 1, &rows, 0, &label));
    ENSURE(vka_tensor_write(label, labels, sizeof labels));
    ENSURE(known_tensor(s, VKA_F32, 1, &one, 0, &loss));
    ENSURE(vka_plan_add_cross_entropy(
        s->plan, VKA_INFO(vka_cross_entropy_op, .logits = x, .labels = label, .loss = loss,
                          .gradient = x, .gradient_scale = ROWS - ROWS / 6)));
    ENSURE(known_want(s, x));
    for (uint32_t row = 0; row < ROWS; row++) {
        double sum = 0;
        for (uint32_t i = 0; i < WIDTH; i++)
            sum += exp((double)known_value(1, row * WIDTH + i));
        for (uint32_t i = 0; i < WIDTH && labels[row] >= 0; i++)
            s->want[row * WIDTH + i] =
                exp((double)known_value(1, row * WIDTH + i)) / sum - ((int32_t)i == labels[row]);
    }
    return known_run(s, x, 1);
}

/* A step of AdamW, whose second moment is the square of the gradient and stays it. */
enum vka_status known_optimiser(struct solution *s)
{
    const uint32_t shape[2] = {ROWS, WIDTH}, one = 1;
    const int32_t none = 0;
    struct vka_tensor *w, *g, *m, *v, *step;
    ENSURE(known_tensor(s, VKA_F32, 2, shape, 1, &w));
    ENSURE(known_tensor(s, VKA_F32, 2, shape, 2, &g));
    ENSURE(known_tensor(s, VKA_F32, 2, shape, 3, &m));
    ENSURE(known_tensor(s, VKA_F32, 2, shape, 2, &v));
    ENSURE(known_tensor(s, VKA_I32, 1, &one, 0, &step));
    ENSURE(vka_tensor_write(step, &none, sizeof none));
    ENSURE(vka_plan_add_binary(
        s->plan, VKA_INFO(vka_binary_op, .kind = VKA_MULTIPLY, .a = v, .b = g, .output = v)));
    ENSURE(vka_plan_add_optimiser(
        s->plan, VKA_INFO(vka_optimiser_op, .kind = VKA_ADAMW, .n_parameter = 1,
                          .parameters = &(const struct vka_parameter){w, g, m, v},
                          .learning_rate = 0.5, .weight_decay = 0.25, .epsilon = 2, .step = step)));
    ENSURE(known_want(s, w));
    for (uint32_t i = 0; i < ROWS * WIDTH; i++) {
        double x = (double)known_value(1, i), d = (double)known_value(2, i);
        double a = 0.9 * (double)known_value(3, i) + 0.1 * d, b = d * d;
        x -= 0.125 * x;
        s->want[i] = x - 0.5 * (a / 0.1) / (sqrt(b / 0.001) + 2);
    }
    return known_run(s, w, 1);
}

/* Layer norm without a weight. */
enum vka_status known_norm_backward(struct solution *s)
{
    const uint32_t shape[2] = {ROWS, WIDTH};
    struct vka_tensor *x, *dy, *dx;
    ENSURE(known_tensor(s, VKA_F32, 2, shape, 1, &x));
    ENSURE(known_tensor(s, VKA_F32, 2, shape, 2, &dy));
    ENSURE(known_tensor(s, VKA_F32, 2, shape, 0, &dx));
    ENSURE(vka_plan_add_norm_backward(
        s->plan, VKA_INFO(vka_norm_backward_op, .kind = VKA_LAYER_NORM, .input = x,
                          .output_gradient = dy, .input_gradient.tensor = dx)));
    ENSURE(known_want(s, dx));
    for (uint32_t row = 0; row < ROWS; row++) {
        double mean = 0, square = 0, slope = 0, product = 0;
        for (uint32_t i = row * WIDTH; i < (row + 1) * WIDTH; i++) {
            mean += (double)known_value(1, i) / WIDTH;
            slope += (double)known_value(2, i) / WIDTH;
        }
        for (uint32_t i = row * WIDTH; i < (row + 1) * WIDTH; i++) {
            double v = (double)known_value(1, i) - mean;
            square += v * v / WIDTH;
            product += v * (double)known_value(2, i) / WIDTH;
        }
        square += 1e-5;
        for (uint32_t i = row * WIDTH; i < (row + 1) * WIDTH; i++)
            s->want[i] = ((double)known_value(2, i) - slope -
                          ((double)known_value(1, i) - mean) * product / square) /
                         sqrt(square);
    }
    return known_run(s, dx, 1);
}

enum vka_status known_gather_backward(struct solution *s)
{
    enum { TABLE = 9 };
    const uint32_t shape[2] = {ROWS, WIDTH}, table[2] = {TABLE, WIDTH}, rows = ROWS;
    int32_t ids[ROWS];
    struct vka_tensor *dy, *id, *y;
    for (uint32_t i = 0; i < ROWS; i++)
        ids[i] = (int32_t)(7 * i % (TABLE + 1)) - 1;
    ENSURE(known_tensor(s, VKA_F32, 2, shape, 1, &dy));
    ENSURE(known_tensor(s, VKA_I32, 1, &rows, 0, &id));
    ENSURE(vka_tensor_write(id, ids, sizeof ids));
    ENSURE(known_tensor(s, VKA_F32, 2, table, 0, &y));
    ENSURE(vka_plan_add_gather_backward(s->plan, VKA_INFO(vka_gather_backward_op, .ids = id,
                                                          .output_gradient = dy, .scale = 3,
                                                          .table_gradient.tensor = y)));
    ENSURE(known_want(s, y));
    for (uint32_t i = 0; i < ROWS * WIDTH; i++)
        if (ids[i / WIDTH] >= 0)
            s->want[(uint32_t)ids[i / WIDTH] * WIDTH + i % WIDTH] +=
                3.0 * (double)known_value(1, i);
    return known_run(s, y, 1);
}

enum { HEADS = 3, DIM = 5 };

/* Adds to `want` the gradient of x, which is queries, keys and values of a head whose first row is
 * `first`, by the query `row`; with q alone that of the query. */
static void add_row(double *want, uint32_t first, uint32_t row, bool q_alone)
{
    double t[ROWS], g[ROWS], sum = 0, delta = 0;
    for (uint32_t key = first; key <= row; key++) {
        double score = 0;
        g[key - first] = 0;
        for (uint32_t d = 0; d < DIM; d++) {
            const double k = (double)known_value(1, key * DIM + d);
            score += (double)known_value(1, row * DIM + d) * k;
            g[key - first] += (double)known_value(3, row * DIM + d) * k;
        }
        t[key - first] = tanh(score / 2);
        sum += exp(2 * t[key - first]);
        delta += exp(2 * t[key - first]) * g[key - first];
    }
    for (uint32_t key = first; key <= row; key++) {
        const double of_key = t[key - first], weight = exp(2 * of_key) / sum;
        const double slope = weight * (g[key - first] - delta / sum) * (1 - of_key * of_key);
        for (uint32_t d = 0; d < DIM; d++) {
            want[row * DIM + d] += slope * (double)known_value(1, key * DIM + d);
            if (!q_alone)
                want[key * DIM + d] += slope * (double)known_value(1, row * DIM + d) +
                                       weight * (double)known_value(3, row * DIM + d);
        }
    }
}

/* Softcap and a causal mask. The weights are made again, so that log_sum_exp may be off. One operation
 * a gradient, as one may not write a tensor twice. */
enum vka_status known_attention_backward(struct solution *s)
{
    const bool q_alone = s->problem == KNOWN_ATTENTION_BACKWARD;
    const enum vka_dtype dtype = s->problem == KNOWN_ATTENTION_BACKWARD_F16    ? VKA_F16
                                 : s->problem == KNOWN_ATTENTION_BACKWARD_BF16 ? VKA_BF16
                                                                               : VKA_F32;
    const uint32_t shape[4] = {1, HEADS, ROWS, DIM};
    struct vka_tensor *x, *y, *dy, *log_sum, *dx;
    ENSURE(known_tensor(s, dtype, 4, shape, 1, &x));
    ENSURE(known_tensor(s, dtype, 4, shape, 0, &y));
    ENSURE(known_tensor(s, dtype, 4, shape, 3, &dy));
    ENSURE(known_tensor(s, VKA_F32, 3, shape, 4, &log_sum));
    ENSURE(known_tensor(s, dtype, 4, shape, 0, &dx));
    const struct vka_attention_op forward = {
        .struct_size = sizeof forward,
        .q = x,
        .k = x,
        .v = x,
        .output = y,
        .options = {.causal = true, .scale = 1, .softcap = 2, .log_sum_exp = log_sum},
    };
    for (int i = 0; i < (q_alone ? 1 : 3); i++) {
        const struct vka_gradient to = {.tensor = dx, .accumulate = i > 0};
        struct vka_attention_backward_op op = {
            .struct_size = sizeof op, .forward = &forward, .output_gradient = dy};
        *(i == 0 ? &op.q_gradient : i == 1 ? &op.k_gradient : &op.v_gradient) = to;
        ENSURE(vka_plan_add_attention_backward(s->plan, &op));
    }
    ENSURE(known_want(s, dx));
    for (uint32_t row = 0; row < HEADS * ROWS; row++)
        add_row(s->want, row / ROWS * ROWS, row, q_alone);
    return known_run(s, dx, 1);
}

enum { TOKENS = 70, FEATURES = 21 };

/* Adds what token `from` is in the output of token t, of the same state, to the gradient of x. */
static void add_token(double *want, uint32_t t, uint32_t from, double left)
{
    double product = 0, of_product = 0;
    for (uint32_t d = 0; d < FEATURES; d++) {
        product +=
            (double)known_value(1, t * FEATURES + d) * (double)known_value(1, from * FEATURES + d);
        of_product +=
            (double)known_value(3, t * FEATURES + d) * (double)known_value(1, from * FEATURES + d);
    }
    for (uint32_t d = 0; d < FEATURES; d++) {
        const double x = (double)known_value(1, t * FEATURES + d),
                     past = (double)known_value(1, from * FEATURES + d);
        want[t * FEATURES + d] += left * of_product * past;
        want[from * FEATURES + d] +=
            left * (of_product * x + product * (double)known_value(3, t * FEATURES + d));
    }
}

/* Linear attention with decays, of two heads whose q, k and v are the same x: more tokens than a chunk. */
enum vka_status known_linear_backward(struct solution *s)
{
    const uint32_t shape[4] = {1, HEADS, TOKENS, FEATURES}, heads = HEADS;
    struct vka_tensor *x, *y, *dy, *decay, *rate, *dx;
    ENSURE(known_tensor(s, VKA_F32, 4, shape, 1, &x));
    ENSURE(known_tensor(s, VKA_F32, 4, shape, 0, &y));
    ENSURE(known_tensor(s, VKA_F32, 4, shape, 3, &dy));
    ENSURE(known_tensor(s, VKA_F32, 3, shape, 4, &decay));
    ENSURE(known_tensor(s, VKA_F32, 1, &heads, 5, &rate));
    ENSURE(known_tensor(s, VKA_F32, 4, shape, 0, &dx));
    const struct vka_linear_attention_op forward = {
        .struct_size = sizeof forward,
        .rule = VKA_RULE_GATED,
        .q = x,
        .k = x,
        .v = x,
        .decay = decay,
        .decay_log = rate,
        .scale = 1,
        .output = y,
    };
    for (int i = 0; i < 3; i++) {
        const struct vka_gradient to = {.tensor = dx, .accumulate = i > 0};
        struct vka_linear_attention_backward_op op = {
            .struct_size = sizeof op, .forward = &forward, .output_gradient = dy};
        *(i == 0 ? &op.q_gradient : i == 1 ? &op.k_gradient : &op.v_gradient) = to;
        ENSURE(vka_plan_add_linear_attention_backward(s->plan, &op));
    }
    ENSURE(known_want(s, dx));
    for (uint32_t t = 0; t < HEADS * TOKENS; t++) {
        double logarithm = 0;
        for (uint32_t from = t + 1; from-- > t / TOKENS * TOKENS;) {
            add_token(s->want, t, from, exp(logarithm));
            logarithm -=
                exp((double)known_value(5, t / TOKENS)) * log1p(exp((double)known_value(4, from)));
        }
    }
    return known_run(s, dx, 1);
}
