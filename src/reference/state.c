#include <reference/state.h>

#include <reference/model.h>
#include <reference/train.h>

#include <math.h>

/* Row `row` of the past and the input together, of which the past has `keep` rows. */
static double row_of(const struct ref_causal_conv *c, const double *x, const double *past,
                     size_t row, size_t channel)
{
    const size_t keep = (c->width - 1) * c->dilation;
    if (row >= keep)
        return x[(row - keep) * c->channels + channel];
    return past ? past[channel * keep + row] : 0;
}

void ref_causal_conv(const struct ref_causal_conv *c, const double *x, const double *w,
                     const double *bias, const double *past, double *y, double *present)
{
    const size_t keep = (c->width - 1) * c->dilation;
    for (size_t i = 0; i < c->n * c->channels; i++) {
        const size_t t = i / c->channels, channel = i % c->channels;
        double sum = bias ? bias[channel] : 0;
        for (size_t j = 0; j < c->width; j++)
            sum += w[channel * c->width + j] * row_of(c, x, past, t + j * c->dilation, channel);
        y[i] = ref_activation(c->activation, 1, sum);
    }
    for (size_t i = 0; present && i < c->channels * keep; i++)
        present[i] = row_of(c, x, past, c->n + i % keep, i / keep);
}

/* Adds to the gradient of row `row` of the past and the input together. */
static void add_to_row(const struct ref_causal_conv *c, const struct ref_conv_gradients *made,
                       size_t row, size_t channel, double gradient)
{
    const size_t keep = (c->width - 1) * c->dilation;
    if (row >= keep)
        made->dx[(row - keep) * c->channels + channel] += gradient;
    else
        made->dpast[channel * keep + row] += gradient;
}

void ref_causal_conv_backward(const struct ref_causal_conv *c, const double *x, const double *w,
                              const double *bias, const double *past, const double *dy,
                              const double *dpresent, const struct ref_conv_gradients *made)
{
    const size_t keep = (c->width - 1) * c->dilation;
    for (size_t i = 0; i < c->n * c->channels; i++)
        made->dx[i] = 0;
    for (size_t i = 0; i < c->channels * keep; i++)
        made->dpast[i] = 0;
    for (size_t i = 0; dpresent && i < c->channels * keep; i++)
        add_to_row(c, made, c->n + i % keep, i / keep, dpresent[i]);
    for (size_t i = 0; i < c->n * c->channels; i++) {
        const size_t t = i / c->channels, channel = i % c->channels;
        const double *own = w + channel * c->width;
        double sum = bias ? bias[channel] : 0;
        for (size_t j = 0; j < c->width; j++)
            sum += own[j] * row_of(c, x, past, t + j * c->dilation, channel);
        const double slope = dy[i] * ref_activation_slope(c->activation, 1, sum);
        made->db[channel] += slope;
        for (size_t j = 0; j < c->width; j++) {
            const size_t row = t + j * c->dilation;
            made->dw[channel * c->width + j] += slope * row_of(c, x, past, row, channel);
            add_to_row(c, made, row, channel, slope * own[j]);
        }
    }
}

/* softplus(x + bias) of a key feature, within the bounds of steps. */
static double step_of(const struct ref_linear *l, size_t head, size_t feature, double x)
{
    if (l->bias)
        x += l->bias[l->key_bias ? head * l->head_dim + feature : head];
    const double step = fmax(x, 0) + log1p(exp(-fabs(x)));
    return l->steps ? fmin(fmax(step, l->step_min), l->step_max) : step;
}

/* The logarithm of what a row leaves of a key feature. */
static double decay_of(const struct ref_linear *l, size_t head, size_t row, size_t feature,
                       const double *decay)
{
    const double x = decay[l->key_decay ? row * l->head_dim + feature : row];
    return l->log ? -exp(l->log[head]) * step_of(l, head, feature, x) : x;
}

static double beta_of(const struct ref_linear *l, double x)
{
    return l->sigmoid ? 1 / (1 + exp(-x)) : x;
}

/* What a row of a query or key is multiplied by. */
static double inverse_length(const struct ref_linear *l, const double *row)
{
    double sum = 0;
    for (size_t i = 0; i < l->head_dim; i++)
        sum += row[i] * row[i];
    return l->norm_epsilon > 0 ? 1 / sqrt(sum + l->norm_epsilon) : 1;
}

/* Token t changes the state of a head. */
static void change_state(const struct ref_linear *l, size_t head, size_t t, const double *k,
                         const double *v, const double *decay, const double *beta, double *state)
{
    const size_t row = head * l->n + t;
    const double inverse = inverse_length(l, k),
                 step = l->steps ? step_of(l, head, 0, decay[row]) : 1;
    for (size_t i = 0; i < l->head_dim * l->value_dim && decay; i++)
        state[i] *= exp(decay_of(l, head, row, i / l->value_dim, decay));
    for (size_t j = 0; j < l->value_dim; j++) {
        double told = 0, u = v[row * l->value_dim + j] * step;
        for (size_t i = 0; i < l->head_dim; i++)
            told += inverse * k[i] * state[i * l->value_dim + j];
        if (beta)
            u = beta_of(l, beta[l->shared_beta ? t : row]) * (u - told);
        for (size_t i = 0; i < l->head_dim; i++)
            state[i * l->value_dim + j] += inverse * k[i] * u;
    }
}

/* Query `query` of token t reads a state. */
static void read_state(const struct ref_linear *l, size_t head, size_t t, const double *query,
                       const double *v, const double *state, double *y)
{
    const double inverse = inverse_length(l, query);
    for (size_t j = 0; j < l->value_dim; j++) {
        double sum = 0;
        for (size_t i = 0; i < l->head_dim; i++)
            sum += inverse * query[i] * state[i * l->value_dim + j];
        y[j] = l->scale * sum;
        if (l->skip)
            y[j] += l->skip[head] * v[(head * l->n + t) * l->value_dim + j];
    }
}

void ref_linear_attention(const struct ref_linear *l, const double *q, const double *k,
                          const double *v, const double *decay, const double *beta, double *state,
                          double *y)
{
    const size_t n_out = l->n_head > l->n_state ? l->n_head : l->n_state;
    const size_t size = l->head_dim * l->value_dim;
    for (size_t head = 0; head < l->n_state; head++)
        for (size_t t = 0; t < l->n; t++) {
            double *own = state + head * size;
            const size_t key_head = head / (l->n_state / l->n_kv_head);
            change_state(l, head, t, k + (key_head * l->n + t) * l->head_dim, v, decay, beta, own);
            for (size_t out = head * n_out / l->n_state; out < (head + 1) * n_out / l->n_state;
                 out++) {
                const double *query = q + (out / (n_out / l->n_head) * l->n + t) * l->head_dim;
                read_state(l, head, t, query, v, own, y + (out * l->n + t) * l->value_dim);
            }
        }
}
