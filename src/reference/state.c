#include <reference/state.h>

#include <reference/model.h>

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

/* Token t changes the state of a head. */
static void change_state(const struct ref_linear *l, size_t head, size_t t, const double *k,
                         const double *v, const double *decay, const double *beta, double *state)
{
    const size_t row = head * l->n + t;
    for (size_t i = 0; i < l->head_dim * l->value_dim && decay; i++)
        state[i] *= exp(l->key_decay ? decay[row * l->head_dim + i / l->value_dim] : decay[row]);
    for (size_t j = 0; j < l->value_dim; j++) {
        double told = 0, u = v[row * l->value_dim + j];
        for (size_t i = 0; i < l->head_dim; i++)
            told += k[i] * state[i * l->value_dim + j];
        if (beta)
            u = beta[l->shared_beta ? t : row] * (u - told);
        for (size_t i = 0; i < l->head_dim; i++)
            state[i * l->value_dim + j] += k[i] * u;
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
                for (size_t j = 0; j < l->value_dim; j++) {
                    double sum = 0;
                    for (size_t i = 0; i < l->head_dim; i++)
                        sum += query[i] * own[i * l->value_dim + j];
                    y[(out * l->n + t) * l->value_dim + j] = l->scale * sum;
                }
            }
        }
}
