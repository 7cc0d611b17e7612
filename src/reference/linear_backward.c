/* The oracle of the gradients of linear attention: all states are kept, and gone through backwards. */
#include <reference/state.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A token of a head, as it went into the state. */
struct token {
    double *k, *e; /* the key; what the state is corrected by, before beta */
    double *decay; /* logarithms, of each key feature */
    double beta, step;
};

/* All tokens of a head; states[n + 1][head_dim][value_dim], of which the first is the past. */
struct head {
    const struct ref_linear *l;
    size_t head, key_head;
    double *states;
    struct token *tokens;
    double *numbers; /* of the tokens */
};

static double softplus(double x)
{
    return fmax(x, 0) + log1p(exp(-fabs(x)));
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* What softplus is taken of. */
static double biased(const struct ref_linear *l, size_t head, size_t feature, double x)
{
    return l->bias ? x + l->bias[l->key_bias ? head * l->head_dim + feature : head] : x;
}

static double step_of(const struct ref_linear *l, double x)
{
    const double step = softplus(x);
    return l->steps ? fmin(fmax(step, l->step_min), l->step_max) : step;
}

static double step_slope(const struct ref_linear *l, double x)
{
    const double step = softplus(x);
    return l->steps && (step < l->step_min || step > l->step_max) ? 0 : sigmoid(x);
}

static double inverse_length(const struct ref_linear *l, const double *row)
{
    double sum = l->norm_epsilon;
    for (size_t i = 0; i < l->head_dim; i++)
        sum += row[i] * row[i];
    return l->norm_epsilon > 0 ? 1 / sqrt(sum) : 1;
}

/* Adds the gradient of a row before it is divided by its length, from that of the one behind, to d. */
static void through_length(const struct ref_linear *l, const double *row, const double *slope,
                           double *d)
{
    const double inverse = inverse_length(l, row);
    double sum = 0;
    for (size_t i = 0; i < l->head_dim; i++)
        sum += row[i] * slope[i];
    for (size_t i = 0; i < l->head_dim; i++)
        d[i] += inverse * slope[i] -
                (l->norm_epsilon > 0 ? inverse * inverse * inverse * row[i] * sum : 0);
}

/* What the state becomes in front of a token. */
static double decayed(const struct ref_linear *l, const struct token *t, const double *state,
                      size_t i, size_t j)
{
    return exp(t->decay[i]) * state[i * l->value_dim + j];
}

static void take_token(const struct head *h, size_t t, const double *k, const double *v,
                       const double *decay, const double *beta)
{
    const struct ref_linear *l = h->l;
    const size_t row = h->head * l->n + t, size = l->head_dim * l->value_dim;
    struct token *own = &h->tokens[t];
    const double *from = h->states + t * size;
    double *to = h->states + (t + 1) * size;
    own->step = 1;
    own->beta = 1;
    for (size_t i = 0; i < l->head_dim; i++) {
        const double x = decay ? decay[l->key_decay ? row * l->head_dim + i : row] : 0;
        const double step = step_of(l, biased(l, h->head, i, x));
        own->decay[i] = decay && l->log ? -exp(l->log[h->head]) * step : x;
        if (l->steps)
            own->step = step;
        own->k[i] = k[i] * inverse_length(l, k);
    }
    if (beta) {
        const double x = beta[l->shared_beta ? t : row];
        own->beta = l->sigmoid ? sigmoid(x) : x;
    }
    for (size_t j = 0; j < l->value_dim; j++) {
        own->e[j] = v[row * l->value_dim + j] * own->step;
        for (size_t i = 0; i < l->head_dim && beta; i++)
            own->e[j] -= own->k[i] * decayed(l, own, from, i, j);
        for (size_t i = 0; i < l->head_dim; i++)
            to[i * l->value_dim + j] =
                decayed(l, own, from, i, j) + own->k[i] * own->beta * own->e[j];
    }
}

/* What an output row adds to the gradient of its query and of the state. */
static void read_back(const struct head *h, const double *q, const double *dy, const double *state,
                      double *slope, double *dq, double *row)
{
    const struct ref_linear *l = h->l;
    const double inverse = inverse_length(l, q);
    for (size_t i = 0; i < l->head_dim; i++) {
        row[i] = 0;
        for (size_t j = 0; j < l->value_dim; j++) {
            row[i] += l->scale * state[i * l->value_dim + j] * dy[j];
            slope[i * l->value_dim + j] += l->scale * inverse * q[i] * dy[j];
        }
    }
    through_length(l, q, row, dq);
}

/* Gradients of the gates, from that of the logarithm of the decay of a feature. */
static void decay_back(const struct head *h, size_t row, size_t i, double slope, double x,
                       double logarithm, const struct ref_linear_gradients *d)
{
    const struct ref_linear *l = h->l;
    double *to = &d->decay[l->key_decay ? row * l->head_dim + i : row];
    if (!l->log) {
        *to += slope;
        return;
    }
    const double of_x = slope * -exp(l->log[h->head]) * step_slope(l, biased(l, h->head, i, x));
    *to += of_x;
    d->log[h->head] += slope * logarithm;
    if (l->bias)
        d->bias[l->key_bias ? h->head * l->head_dim + i : h->head] += of_x;
}

/* Takes the gradient of the state behind a token to that of the state in front of it. dk has head_dim
 * elements. */
static void token_back(const struct head *h, size_t t, const double *v, const double *decay,
                       const double *beta, double *slope, double *dk,
                       const struct ref_linear_gradients *d)
{
    const struct ref_linear *l = h->l;
    const struct token *own = &h->tokens[t];
    const size_t row = h->head * l->n + t;
    const double *from = h->states + t * l->head_dim * l->value_dim;
    double of_beta = 0, of_step = 0;
    memset(dk, 0, l->head_dim * sizeof *dk);
    for (size_t j = 0; j < l->value_dim; j++) {
        double du = 0;
        for (size_t i = 0; i < l->head_dim; i++) {
            du += own->k[i] * slope[i * l->value_dim + j];
            dk[i] += slope[i * l->value_dim + j] * own->beta * own->e[j];
        }
        of_beta += du * own->e[j];
        of_step += own->beta * du * v[row * l->value_dim + j];
        d->v[row * l->value_dim + j] += own->beta * du * own->step;
        for (size_t i = 0; i < l->head_dim && beta; i++) {
            dk[i] -= own->beta * du * decayed(l, own, from, i, j);
            slope[i * l->value_dim + j] -= own->beta * du * own->k[i];
        }
    }
    for (size_t i = 0; i < l->head_dim; i++) {
        double sum = 0;
        for (size_t j = 0; j < l->value_dim; j++) {
            sum += slope[i * l->value_dim + j] * decayed(l, own, from, i, j);
            slope[i * l->value_dim + j] *= exp(own->decay[i]);
        }
        if (decay)
            decay_back(h, row, i, sum, decay[l->key_decay ? row * l->head_dim + i : row],
                       own->decay[i], d);
    }
    if (l->steps) {
        const double of_x = of_step * step_slope(l, biased(l, h->head, 0, decay[row]));
        d->decay[row] += of_x;
        if (l->bias)
            d->bias[h->head] += of_x;
    }
    if (beta)
        d->beta[l->shared_beta ? t : row] +=
            of_beta * (l->sigmoid ? own->beta * (1 - own->beta) : 1);
}

static void skip_back(const struct head *h, size_t row, const double *v, const double *dy,
                      const struct ref_linear_gradients *d)
{
    const struct ref_linear *l = h->l;
    for (size_t j = 0; j < l->value_dim && l->skip; j++) {
        d->v[row * l->value_dim + j] += l->skip[h->head] * dy[j];
        d->skip[h->head] += v[row * l->value_dim + j] * dy[j];
    }
}

static bool head_create(const struct ref_linear *l, struct head *h)
{
    const size_t each = 2 * l->head_dim + l->value_dim;
    h->l = l;
    h->states = calloc((l->n + 1) * l->head_dim * l->value_dim, sizeof *h->states);
    h->tokens = calloc(l->n + 1, sizeof *h->tokens);
    h->numbers = calloc((l->n + 1) * each, sizeof *h->numbers);
    if (!h->states || !h->tokens || !h->numbers)
        return false;
    for (size_t t = 0; t < l->n; t++) {
        double *own = h->numbers + t * each;
        h->tokens[t] =
            (struct token){.k = own, .decay = own + l->head_dim, .e = own + 2 * l->head_dim};
    }
    return true;
}

/* slope: the gradient of the state after, which becomes that of the state before; rows: 2 * head_dim. */
static void head_back(const struct head *h, const struct ref_linear_inputs *x, const double *dy,
                      double *slope, double *rows, const struct ref_linear_gradients *d)
{
    const struct ref_linear *l = h->l;
    const size_t n_out = l->n_head > l->n_state ? l->n_head : l->n_state;
    const size_t size = l->head_dim * l->value_dim, dim = l->head_dim;
    for (size_t t = l->n; t-- > 0;) {
        const size_t key = (h->key_head * l->n + t) * dim;
        for (size_t out = h->head * n_out / l->n_state; out < (h->head + 1) * n_out / l->n_state;
             out++) {
            const size_t query = (out / (n_out / l->n_head) * l->n + t) * dim;
            const double *of_y = dy + (out * l->n + t) * l->value_dim;
            read_back(h, x->q + query, of_y, h->states + (t + 1) * size, slope, d->q + query, rows);
            skip_back(h, h->head * l->n + t, x->v, of_y, d);
        }
        token_back(h, t, x->v, x->decay, x->beta, slope, rows, d);
        through_length(l, x->k + key, rows, d->k + key);
    }
}

enum vka_status ref_linear_attention_backward(const struct ref_linear *l,
                                              const struct ref_linear_inputs *x, const double *dy,
                                              const struct ref_linear_gradients *d)
{
    const size_t size = l->head_dim * l->value_dim;
    struct head h = {0};
    double *rows = calloc(2 * l->head_dim, sizeof *rows);
    enum vka_status status = VKA_OUT_OF_HOST_MEMORY;
    if (!rows || !head_create(l, &h))
        goto done;
    for (h.head = 0; h.head < l->n_state; h.head++) {
        h.key_head = h.head / (l->n_state / l->n_kv_head);
        if (x->state)
            memcpy(h.states, x->state + h.head * size, size * sizeof(double));
        for (size_t t = 0; t < l->n; t++)
            take_token(&h, t, x->k + (h.key_head * l->n + t) * l->head_dim, x->v, x->decay,
                       x->beta);
        head_back(&h, x, dy, d->state + h.head * size, rows, d);
    }
    status = VKA_OK;
done:
    free(rows);
    free(h.states);
    free(h.tokens);
    free(h.numbers);
    return status;
}
