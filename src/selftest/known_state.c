#include <vkattn/vkattn_model.h>

#include "selftest/solution.h"

#include <math.h>

#define ROWS 37u
#define CHANNELS 71u

/* Rows that follow others, of which the last ones are kept in their place. */
enum vka_status known_conv(struct solution *s)
{
    enum { WIDTH = 3, DILATION = 2, KEEP = (WIDTH - 1) * DILATION };
    const uint32_t rows[3] = {1, ROWS, CHANNELS}, kept[3] = {1, CHANNELS, KEEP};
    struct vka_tensor *x, *w, *past, *y;
    ENSURE(known_tensor(s, VKA_F32, 3, rows, 1, &x));
    ENSURE(known_tensor(s, VKA_F32, 2, (const uint32_t[]){CHANNELS, WIDTH}, 2, &w));
    ENSURE(known_tensor(s, VKA_F32, 3, kept, 3, &past));
    ENSURE(known_tensor(s, VKA_F32, 3, rows, 0, &y));
    ENSURE(vka_plan_add_causal_conv(s->plan, VKA_INFO(vka_causal_conv_op, .input = x, .weight = w,
                                                      .dilation = DILATION, .past = past,
                                                      .present = past, .output = y)));
    /* The second of two runs follows the first. */
    ENSURE(known_want(s, y));
    for (uint32_t i = 0; i < ROWS * CHANNELS; i++)
        for (uint32_t j = 0; j < WIDTH; j++) {
            const uint32_t row = (i / CHANNELS + j * DILATION + ROWS - KEEP) % ROWS;
            s->want[i] += (double)known_value(2, i % CHANNELS * WIDTH + j) *
                          (double)known_value(1, row * CHANNELS + i % CHANNELS);
        }
    return known_run(s, y, 2);
}

enum { STATES = 2, TOKENS = 3, FEATURES = 21, VALUES = 70 };

/* A token of a head: the state decays, is corrected, and is read. */
static void take_token(uint32_t head, uint32_t t, double state[FEATURES][VALUES], double y[VALUES])
{
    const uint32_t at = head * TOKENS + t;
    const double f = exp((double)known_value(4, at)), beta = (double)known_value(5, at);
    for (uint32_t j = 0; j < VALUES; j++) {
        double told = 0;
        for (uint32_t i = 0; i < FEATURES; i++)
            told += (double)known_value(2, at * FEATURES + i) * (state[i][j] *= f);
        y[j] = 0;
        for (uint32_t i = 0; i < FEATURES; i++) {
            state[i][j] += (double)known_value(2, at * FEATURES + i) * beta *
                           ((double)known_value(3, at * VALUES + j) - told);
            y[j] += (double)known_value(1, at * FEATURES + i) * state[i][j];
        }
    }
}

/* The gated delta rule, from a state and on, which is kept in its place. */
enum vka_status known_recurrent(struct solution *s)
{
    const uint32_t keys[4] = {1, STATES, TOKENS, FEATURES}, rows[4] = {1, STATES, TOKENS, VALUES};
    const uint32_t states[4] = {1, STATES, FEATURES, VALUES};
    struct vka_linear_attention_op op = {
        .struct_size = sizeof op, .rule = VKA_RULE_GATED_DELTA, .scale = 1};
    ENSURE(known_tensor(s, VKA_F32, 4, keys, 1, &op.q));
    ENSURE(known_tensor(s, VKA_F32, 4, keys, 2, &op.k));
    ENSURE(known_tensor(s, VKA_F32, 4, rows, 3, &op.v));
    ENSURE(known_tensor(s, VKA_F32, 3, keys, 4, &op.decay));
    ENSURE(known_tensor(s, VKA_F32, 3, keys, 5, &op.beta));
    ENSURE(known_tensor(s, VKA_F32, 4, states, 6, &op.past_state));
    ENSURE(known_tensor(s, VKA_F32, 4, rows, 0, &op.output));
    op.present_state = op.past_state;
    ENSURE(vka_plan_add_linear_attention(s->plan, &op));
    ENSURE(known_want(s, op.output));
    for (uint32_t head = 0; head < STATES; head++) {
        double state[FEATURES][VALUES];
        for (uint32_t i = 0; i < FEATURES * VALUES; i++)
            state[i / VALUES][i % VALUES] = (double)known_value(6, head * FEATURES * VALUES + i);
        for (uint32_t t = 0; t < 2 * TOKENS; t++) /* in two runs */
            take_token(head, t % TOKENS, state, s->want + (head * TOKENS + t % TOKENS) * VALUES);
    }
    return known_run(s, op.output, 2);
}

enum { LONG = 70, WIDE = 37 /* features, for which GPUs take their matrix units */ };

/* 1 / length of token t of an operand. */
static double one_by_length(uint32_t seed, uint32_t t)
{
    double sum = 0;
    for (uint32_t i = 0; i < WIDE; i++)
        sum += (double)known_value(seed, t * WIDE + i) * (double)known_value(seed, t * WIDE + i);
    return 1 / sqrt(sum + 1);
}

/* A token of one head, with keys of length 1, softplus and sigmoid in front, so that nothing grows. */
static void take_short_token(uint32_t t, double state[WIDE][VALUES], double y[VALUES])
{
    const double beta = 1 / (1 + exp(-(double)known_value(5, t)));
    const double f = exp(-exp((double)known_value(7, 0)) * log1p(exp((double)known_value(4, t))));
    const double of_q = one_by_length(1, t), of_k = one_by_length(2, t);
    for (uint32_t j = 0; j < VALUES; j++) {
        double told = 0;
        for (uint32_t i = 0; i < WIDE; i++)
            told += of_k * (double)known_value(2, t * WIDE + i) * (state[i][j] *= f);
        y[j] = 0;
        for (uint32_t i = 0; i < WIDE; i++) {
            state[i][j] += of_k * (double)known_value(2, t * WIDE + i) * beta *
                           ((double)known_value(3, t * VALUES + j) - told);
            y[j] += of_q * (double)known_value(1, t * WIDE + i) * state[i][j];
        }
    }
}

/* Chunks, the last of which is not whole. */
enum vka_status known_chunked(struct solution *s)
{
    const uint32_t keys[4] = {1, 1, LONG, WIDE}, rows[4] = {1, 1, LONG, VALUES}, one = 1;
    struct vka_linear_attention_op op = {.struct_size = sizeof op,
                                         .rule = VKA_RULE_GATED_DELTA,
                                         .scale = 1,
                                         .norm_epsilon = 1,
                                         .beta_sigmoid = true};
    const enum vka_dtype dtype = s->problem == KNOWN_LINEAR_CHUNKED_F16 ? VKA_F16 : VKA_F32;
    double state[WIDE][VALUES] = {{0}};
    ENSURE(known_tensor(s, dtype, 4, keys, 1, &op.q));
    ENSURE(known_tensor(s, dtype, 4, keys, 2, &op.k));
    ENSURE(known_tensor(s, VKA_F32, 4, rows, 3, &op.v));
    ENSURE(known_tensor(s, VKA_F32, 3, keys, 4, &op.decay));
    ENSURE(known_tensor(s, VKA_F32, 3, keys, 5, &op.beta));
    ENSURE(known_tensor(s, VKA_F32, 1, &one, 7, &op.decay_log));
    ENSURE(known_tensor(s, VKA_F32, 4, rows, 0, &op.output));
    ENSURE(vka_plan_add_linear_attention(s->plan, &op));
    ENSURE(known_want(s, op.output));
    for (uint32_t t = 0; t < LONG; t++)
        take_short_token(t, state, s->want + t * VALUES);
    return known_run(s, op.output, 1);
}
