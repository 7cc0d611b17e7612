/* The layer and its gradients: linear maps around attention. SPDX-License-Identifier: MIT */
#include <reference/layer.h>
#include <reference/train.h>

#include <stdlib.h>

enum { QUERY = 0, KEY, VALUE, OUTPUT };

/* Rows [batch * n][out] of the projections and the same as heads [batch][n_head][n][dim]. */
struct work {
    double *rows[3], *heads[3], *context, *joined;
    double *d_rows[3], *d_heads[3], *d_context, *d_joined;
};

static size_t n_head_of(const struct ref_layer *l, int which)
{
    return which == QUERY || which == OUTPUT ? l->a.n_head : l->a.n_kv_head;
}

static size_t dim_of(const struct ref_layer *l, int which)
{
    return which == QUERY || which == KEY ? l->a.head_dim : l->a.value_dim;
}

static size_t n_of(const struct ref_layer *l, int which)
{
    return which == QUERY || which == OUTPUT ? l->a.n_q : l->a.n_kv;
}

static size_t width_of(const struct ref_layer *l, int which)
{
    return n_head_of(l, which) * dim_of(l, which);
}

/* Moves rows to heads, or back. */
static void move(const struct ref_layer *l, int which, double *rows, double *heads, bool back)
{
    const size_t n_head = n_head_of(l, which), dim = dim_of(l, which), n = n_of(l, which);
    const bool interleaved = l->interleaved && which != OUTPUT;
    for (size_t b = 0; b < l->a.batch; b++)
        for (size_t h = 0; h < n_head; h++)
            for (size_t i = 0; i < n; i++)
                for (size_t e = 0; e < dim; e++) {
                    const size_t column = interleaved ? e * n_head + h : h * dim + e;
                    double *row = &rows[(b * n + i) * n_head * dim + column];
                    double *head = &heads[((b * n_head + h) * n + i) * dim + e];
                    *(back ? row : head) = back ? *head : *row;
                }
}

static double *allocate(const struct ref_layer *l, int which)
{
    const size_t count = l->a.batch * n_of(l, which) * width_of(l, which);
    return calloc(count ? count : 1, sizeof(double));
}

static bool work_create(const struct ref_layer *l, struct work *w)
{
    bool ok = true;
    *w = (struct work){.context = allocate(l, OUTPUT),
                       .joined = allocate(l, OUTPUT),
                       .d_context = allocate(l, OUTPUT),
                       .d_joined = allocate(l, OUTPUT)};
    for (int i = QUERY; i <= VALUE; i++) {
        double **all[] = {&w->rows[i], &w->heads[i], &w->d_rows[i], &w->d_heads[i]};
        for (int j = 0; j < 4; j++) {
            *all[j] = allocate(l, i);
            ok &= *all[j] != NULL;
        }
    }
    return ok && w->context && w->joined && w->d_context && w->d_joined;
}

static void work_destroy(struct work *w)
{
    for (int i = QUERY; i <= VALUE; i++) {
        free(w->rows[i]);
        free(w->heads[i]);
        free(w->d_rows[i]);
        free(w->d_heads[i]);
    }
    free(w->context);
    free(w->joined);
    free(w->d_context);
    free(w->d_joined);
}

/* Up to the joined heads of the context; *a: the attention that was solved. */
static enum vka_status forward(const struct ref_layer *l, struct work *w, struct ref_attention *a)
{
    *a = l->a;
    for (int i = QUERY; i <= VALUE; i++) {
        ref_linear(l->x[i], l->w[i], l->b[i], l->a.batch * n_of(l, i), l->in[i], width_of(l, i),
                   false, w->rows[i]);
        move(l, i, w->rows[i], w->heads[i], false);
    }
    a->q = w->heads[QUERY];
    a->k = w->heads[KEY];
    a->v = w->heads[VALUE];
    a->context = w->context;
    const enum vka_status status = ref_attention(a);
    move(l, OUTPUT, w->joined, w->context, true);
    return status;
}

enum vka_status ref_layer(const struct ref_layer *l, double *y)
{
    struct work w;
    struct ref_attention a;
    const size_t rows = l->a.batch * l->a.n_q, width = width_of(l, OUTPUT);
    enum vka_status status = work_create(l, &w) ? forward(l, &w, &a) : VKA_OUT_OF_HOST_MEMORY;
    if (status == VKA_OK && l->w[OUTPUT])
        ref_linear(w.joined, l->w[OUTPUT], l->b[OUTPUT], rows, width, l->out, false, y);
    for (size_t i = 0; status == VKA_OK && !l->w[OUTPUT] && i < rows * width; i++)
        y[i] = w.joined[i];
    work_destroy(&w);
    return status;
}

static enum vka_status backward(const struct ref_layer *l, struct work *w, const double *dy,
                                const struct ref_layer_gradients *g)
{
    struct ref_attention a;
    struct ref_attention_gradients options = g->options;
    const size_t rows = l->a.batch * l->a.n_q, width = width_of(l, OUTPUT);
    enum vka_status status = forward(l, w, &a);
    if (status != VKA_OK)
        return status;
    if (l->w[OUTPUT])
        ref_linear_backward(w->joined, l->w[OUTPUT], dy, rows, width, l->out, false, w->d_joined,
                            g->w[OUTPUT], g->b[OUTPUT]);
    for (size_t i = 0; !l->w[OUTPUT] && i < rows * width; i++)
        w->d_joined[i] = dy[i];
    move(l, OUTPUT, w->d_joined, w->d_context, false);
    options.q = w->d_heads[QUERY];
    options.k = w->d_heads[KEY];
    options.v = w->d_heads[VALUE];
    status = ref_attention_backward(&a, w->d_context, &options);
    for (int i = QUERY; i <= VALUE && status == VKA_OK; i++) {
        move(l, i, w->d_rows[i], w->d_heads[i], true);
        ref_linear_backward(l->x[i], l->w[i], w->d_rows[i], l->a.batch * n_of(l, i), l->in[i],
                            width_of(l, i), false, g->x[i], g->w[i], g->b[i]);
    }
    return status;
}

enum vka_status ref_layer_backward(const struct ref_layer *l, const double *dy,
                                   const struct ref_layer_gradients *g)
{
    struct work w;
    const enum vka_status status =
        work_create(l, &w) ? backward(l, &w, dy, g) : VKA_OUT_OF_HOST_MEMORY;
    work_destroy(&w);
    return status;
}
