/* The oracle of a layer's gradients against finite differences. SPDX-License-Identifier: MIT */
#include "test_program.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <reference/layer.h>

/* The numbers are those of torch.autograd.gradcheck. */
#define EPSILON 1e-6
#define ABSOLUTE 1e-5
#define RELATIVE 1e-3

enum {
    BATCH = 2,
    HEADS = 4,
    KEY_HEADS = 2,
    QUERIES = 3,
    KEYS = 4,
    DIM = 4,
    WIDTH = 3,
    IN = 7, /* the widest input */
    OUT = 5,
    MOST = 256 /* elements of an operand */
};

static const size_t in[4] = {5, 6, IN, HEADS *WIDTH};
static const size_t out[4] = {HEADS * DIM, KEY_HEADS *DIM, KEY_HEADS *WIDTH, OUT};
static const size_t n_row[3] = {BATCH * QUERIES, BATCH *KEYS, BATCH *KEYS};

struct layer {
    struct ref_layer l;
    double x[3][MOST], w[4][MOST], b[4][MOST], dy[MOST], mask[MOST], sink[HEADS], norm[DIM];
    size_t n_out;
};

static uint32_t seed = 1;

static void fill(double *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (seed >> 8) / 8388608.0 - 1;
    }
}

static double value_of(const struct layer *t)
{
    double y[MOST], sum = 0;
    assert_int_equal(ref_layer(&t->l, y), VKA_OK);
    for (size_t i = 0; i < t->n_out; i++)
        sum += y[i] * t->dy[i];
    return sum;
}

/* Compares gradient[n] with differences in x[n]. */
static void check(const struct layer *t, double *x, const double *gradient, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const double own = x[i];
        x[i] = own + EPSILON;
        const double above = value_of(t);
        x[i] = own - EPSILON;
        const double below = value_of(t);
        x[i] = own;
        const double want = (above - below) / (2 * EPSILON);
        if (!(fabs(gradient[i] - want) <= ABSOLUTE + RELATIVE * fabs(want)))
            fail_msg("gradient %zu is %g, not %g", i, gradient[i], want);
    }
}

/* Bits: interleaved heads, no output projection, biases left out, options of attention. */
static void make(struct layer *t, unsigned bits)
{
    struct ref_layer *l = &t->l;
    *l = (struct ref_layer){.a = {.batch = BATCH,
                                  .n_head = HEADS,
                                  .n_kv_head = KEY_HEADS,
                                  .n_q = QUERIES,
                                  .n_kv = KEYS,
                                  .head_dim = DIM,
                                  .value_dim = WIDTH,
                                  .causal = bits & 8,
                                  .masked_row = bits & 1 ? VKA_MASKED_UNIFORM : VKA_MASKED_ZERO},
                            .interleaved = bits & 1,
                            .out = bits & 2 ? HEADS * WIDTH : OUT};
    t->n_out = BATCH * QUERIES * l->out;
    fill(t->dy, t->n_out);
    fill(t->mask, QUERIES * KEYS);
    fill(t->sink, HEADS);
    fill(t->norm, DIM);
    for (int i = 0; i < 4; i++) {
        if (i < 3) {
            l->in[i] = in[i];
            fill(t->x[i], n_row[i] * in[i]);
            l->x[i] = t->x[i];
        }
        fill(t->w[i], out[i] * in[i]);
        fill(t->b[i], out[i]);
        l->w[i] = i == 3 && bits & 2 ? NULL : t->w[i];
        l->b[i] = l->w[i] && !(bits & 4 && i % 2) ? t->b[i] : NULL;
    }
    if (bits & 16) {
        l->a.float_mask = t->mask;
        l->a.mask_rank = 2;
        l->a.mask_shape[0] = QUERIES, l->a.mask_shape[1] = KEYS;
        l->a.sink = t->sink;
        l->a.k_norm = t->norm;
        l->a.dropout = 0.25;
        l->a.dropout_seed = 99;
    }
}

static void layers(void **state)
{
    static struct layer t;
    static double x[3][MOST], w[4][MOST], b[4][MOST], mask[MOST], sink[HEADS], norm[DIM];
    (void)state;
    for (unsigned bits = 0; bits < 32; bits++) {
        make(&t, bits);
        const struct ref_layer *l = &t.l;
        struct ref_layer_gradients g = {.options = {.sink = l->a.sink ? sink : NULL,
                                                    .mask = l->a.float_mask ? mask : NULL,
                                                    .k_norm = l->a.k_norm ? norm : NULL}};
        for (int i = 0; i < 4; i++) {
            if (i < 3)
                g.x[i] = x[i];
            g.w[i] = l->w[i] ? w[i] : NULL;
            g.b[i] = l->b[i] ? b[i] : NULL;
        }
        assert_int_equal(ref_layer_backward(l, t.dy, &g), VKA_OK);
        for (int i = 0; i < 4; i++) {
            if (i < 3)
                check(&t, t.x[i], x[i], n_row[i] * in[i]);
            if (g.w[i])
                check(&t, t.w[i], w[i], out[i] * in[i]);
            if (g.b[i])
                check(&t, t.b[i], b[i], out[i]);
        }
        if (!(bits & 16))
            continue;
        check(&t, t.sink, sink, HEADS);
        check(&t, t.mask, mask, QUERIES * KEYS);
        check(&t, t.norm, norm, DIM);
    }
}

TEST_PROGRAM(reference_layer)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(layers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
