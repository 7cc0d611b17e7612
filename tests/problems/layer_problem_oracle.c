/* A layer's problem put to the oracle. */
#include "layer_problem_data.h"

#include <reference/layer.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

int layer_problem_owner(enum layer_sharing sharing, int i)
{
    static const int owners[SHARE_COUNT][3] = {[SHARE_NONE] = {0, 1, 2},
                                               [SHARE_KEY] = {0, 1, 1},
                                               [SHARE_SELF] = {0, 0, 0},
                                               [SHARE_QUERY_KEY] = {0, 0, 2},
                                               [SHARE_ENDS] = {0, 1, 0}};
    return owners[sharing][i];
}

/* values[a][b][width] to [b][a][width], in new memory. */
static double *swapped(const double *values, size_t a, size_t b, size_t width)
{
    double *to = malloc(a * b * width * sizeof *to);
    for (size_t i = 0; to && i < a; i++)
        for (size_t j = 0; j < b; j++)
            memcpy(to + (j * a + i) * width, values + (i * b + j) * width, width * sizeof *to);
    return to;
}

/* In new memory, batch first. */
static double *batch_first(const struct trial *t, const struct operand *o)
{
    if (t->l->sequence_first)
        return swapped(o->values, o->size[0], o->size[1], o->size[2]);
    return swapped(o->values, 1, o->count / o->size[2], o->size[2]);
}

/* The root mean square of numbers that are finite. */
static double mean_size(const double *x, size_t count)
{
    double sum = 0, n = 1e-300;
    for (size_t i = 0; i < count; i++)
        if (isfinite(x[i])) {
            sum += x[i] * x[i];
            n += 1;
        }
    return sqrt(sum / n);
}

/* The size of elements of a product y = f(x). */
static double size_of_product(const struct trial *t, int i, const double *x)
{
    const size_t rows = (size_t)t->l->p.batch * (i == QUERY ? t->l->p.n_q : t->l->p.n_new);
    double *y = calloc(rows * t->l->out[i], sizeof *y);
    if (!y)
        return 0;
    ref_linear(x, t->w[i].values, t->b[i].view ? t->b[i].values : NULL, rows, t->l->in[i],
               t->l->out[i], false, y);
    const double size = mean_size(y, rows * t->l->out[i]);
    free(y);
    return size;
}

/* Sizes of terms: gradients of queries and keys are sums of gradients of scores, which are 0 where a
 * row's weight is all at one key; the gradient of the keys' bias is 0 where nothing is rotated. */
static void set_terms(struct trial *t, double *const x[3])
{
    const struct layer_problem *l = t->l;
    const struct problem *p = &l->p;
    const struct operand *q_norm = &t->d.operands[OPERAND_Q_NORM];
    const struct operand *k_norm = &t->d.operands[OPERAND_K_NORM];
    const double scale = p->scale != 0 ? fabs((double)p->scale) : 1 / sqrt((double)p->head_dim);
    double dy = mean_size(t->dy.values, t->dy.count), size[3], enters[3], terms[3];
    if (!l->no_output)
        dy *= mean_size(t->w[OUTPUT].values, t->w[OUTPUT].count) * sqrt((double)l->out[OUTPUT]);
    for (int i = 0; i < 3; i++)
        enters[i] = size[i] = size_of_product(t, i, x[i]);
    if (q_norm->view)
        enters[QUERY] = mean_size(q_norm->values, q_norm->count);
    if (k_norm->view)
        enters[KEY] = mean_size(k_norm->values, k_norm->count);
    const double scores = dy * size[VALUE] * sqrt((double)p->value_dim);
    terms[QUERY] = scores * scale * enters[KEY] * enters[QUERY] / size[QUERY];
    terms[KEY] = scores * scale * enters[QUERY] * enters[KEY] / size[KEY];
    terms[VALUE] = dy;
    for (int i = 0; i < 3; i++) {
        const double rows = (double)p->batch * (i == QUERY ? p->n_q : p->n_new);
        const double weights = mean_size(t->w[i].values, t->w[i].count);
        const int to = layer_problem_owner(l->sharing, i);
        t->terms[GRADIENT_W + i] =
            terms[i] * mean_size(t->x[to].values, t->x[to].count) * sqrt(rows);
        t->terms[GRADIENT_B + i] = terms[i] * sqrt(rows);
        t->terms[GRADIENT_X + to] += terms[i] * weights * sqrt((double)l->out[i]);
    }
    t->terms[GRADIENT_MASK] = scores;
    t->terms[GRADIENT_SINK] = scores;
    t->terms[GRADIENT_Q_NORM] = terms[QUERY] * size[QUERY];
    t->terms[GRADIENT_K_NORM] = terms[KEY] * size[KEY];
}

/* Adds what projection i gives of its input's gradient, batch first, to that of the tensor. */
static bool add_input(struct trial *t, int i, const double *dx)
{
    const int to = layer_problem_owner(t->l->sharing, i);
    const size_t n = i == QUERY ? t->l->p.n_q : t->l->p.n_new, batch = t->l->p.batch;
    double *ordered = t->l->sequence_first ? swapped(dx, batch, n, t->l->in[i])
                                           : swapped(dx, 1, batch * n, t->l->in[i]);
    for (size_t j = 0; ordered && t->want[to] && j < batch * n * t->l->in[i]; j++)
        t->want[to][j] += ordered[j];
    free(ordered);
    return ordered != NULL;
}

static enum vka_status ask(struct trial *t, double *const x[3], double *const dx[3],
                           const double *dy)
{
    const struct layer_problem *l = t->l;
    struct ref_layer r = {.out = l->out[OUTPUT], .interleaved = l->interleaved};
    struct ref_layer_gradients g = {.options = {.sink = t->want[GRADIENT_SINK],
                                                .mask = t->want[GRADIENT_MASK],
                                                .q_norm = t->want[GRADIENT_Q_NORM],
                                                .k_norm = t->want[GRADIENT_K_NORM]}};
    for (int i = 0; i < PROJECTIONS; i++) {
        r.w[i] = t->w[i].view ? t->w[i].values : NULL;
        r.b[i] = t->b[i].view ? t->b[i].values : NULL;
        g.w[i] = t->want[GRADIENT_W + i];
        g.b[i] = t->want[GRADIENT_B + i];
        if (i == OUTPUT)
            continue;
        r.in[i] = l->in[i];
        r.x[i] = x[i];
        g.x[i] = dx[i];
    }
    enum vka_status status = problem_layer_oracle(&t->d, &r, dy, t->want_y, &g);
    for (int i = 0; i < 3 && status == VKA_OK; i++)
        status = add_input(t, i, dx[i]) ? VKA_OK : VKA_OUT_OF_HOST_MEMORY;
    return status;
}

enum vka_status layer_problem_oracle(struct trial *t)
{
    double *x[3] = {0}, *dx[3] = {0}, *dy = batch_first(t, &t->dy);
    bool ok = dy != NULL;
    t->want_y = calloc(t->y.count, sizeof(double));
    for (int i = 0; i < 3; i++) {
        const struct operand *o = &t->x[layer_problem_owner(t->l->sharing, i)];
        x[i] = batch_first(t, o);
        dx[i] = calloc(o->count, sizeof(double));
        ok = ok && x[i] && dx[i] && t->want_y;
    }
    enum vka_status status = ok ? ask(t, x, dx, dy) : VKA_OUT_OF_HOST_MEMORY;
    if (status == VKA_OK)
        set_terms(t, x);
    if (status == VKA_OK && t->l->sequence_first) {
        double *ordered = swapped(t->want_y, t->l->p.batch, t->l->p.n_q, t->l->out[OUTPUT]);
        free(t->want_y);
        t->want_y = ordered;
        status = ordered ? VKA_OK : VKA_OUT_OF_HOST_MEMORY;
    }
    for (int i = 0; i < 3; i++) {
        free(x[i]);
        free(dx[i]);
    }
    free(dy);
    return status;
}
