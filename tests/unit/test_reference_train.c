/* The oracle of training: its gradients against finite differences, its optimisers against numbers
 * from 50 digits. SPDX-License-Identifier: MIT */
#include "test_program.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <reference/attention_backward.h>
#include <reference/model.h>
#include <reference/reference.h>
#include <reference/train.h>

/* The numbers are those of torch.autograd.gradcheck. */
#define EPSILON 1e-6
#define ABSOLUTE 1e-5
#define RELATIVE 1e-3

static uint32_t seed = 1;

static double draw(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) / 8388608.0 - 1;
}

static void fill(double *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = draw();
}

typedef double function(const void *job);

/* Compares gradient[n] with the differences of f, a function of x[n]. */
static void check(function *f, const void *job, double *x, const double *gradient, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const double own = x[i];
        x[i] = own + EPSILON;
        const double above = f(job);
        x[i] = own - EPSILON;
        const double below = f(job);
        x[i] = own;
        const double want = (above - below) / (2 * EPSILON);
        if (!(fabs(gradient[i] - want) <= ABSOLUTE + RELATIVE * fabs(want)))
            fail_msg("gradient %zu is %g, not %g", i, gradient[i], want);
    }
}

/* The sum of y[n] weighted by dy[n]. */
static double weigh(const double *y, const double *dy, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += y[i] * dy[i];
    return sum;
}

enum { ROWS = 5, IN = 7, OUT = 4 };

struct linear {
    double x[ROWS * IN], w[OUT * IN], b[OUT], dy[ROWS * OUT];
    bool relu;
};

static double linear_value(const void *job)
{
    const struct linear *l = job;
    double y[ROWS * OUT];
    ref_linear(l->x, l->w, l->b, ROWS, IN, OUT, l->relu, y);
    return weigh(y, l->dy, ROWS * OUT);
}

static void linear(void **state)
{
    (void)state;
    for (int relu = 0; relu < 2; relu++) {
        struct linear l = {.relu = relu};
        double dx[ROWS * IN], dw[OUT * IN], db[OUT];
        fill(l.x, ROWS * IN);
        fill(l.w, OUT * IN);
        fill(l.b, OUT);
        fill(l.dy, ROWS * OUT);
        ref_linear_backward(l.x, l.w, l.dy, ROWS, IN, OUT, relu, dx, dw, db);
        check(linear_value, &l, l.x, dx, ROWS * IN);
        check(linear_value, &l, l.w, dw, OUT * IN);
        check(linear_value, &l, l.b, db, OUT);
    }
}

struct slope {
    enum vka_activation kind;
    double alpha, x;
};

static double activation_value(const void *job)
{
    const struct slope *s = job;
    return ref_activation(s->kind, s->alpha, s->x);
}

static void activations(void **state)
{
    (void)state;
    for (int kind = 0; kind < VKA_ACTIVATION_COUNT; kind++)
        for (int i = 0; i < 200; i++) {
            struct slope s = {(enum vka_activation)kind, i & 1 ? 1 : 1.702, 6 * draw()};
            const double slope = ref_activation_slope(s.kind, s.alpha, s.x);
            check(activation_value, &s, &s.x, &slope, 1);
        }
}

struct entropy {
    double x[ROWS * IN], smoothing;
    int32_t labels[ROWS];
};

static double entropy_value(const void *job)
{
    const struct entropy *e = job;
    return 3 * ref_cross_entropy(e->x, e->labels, ROWS, IN, e->smoothing, 1, NULL);
}

static void losses(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct entropy e = {.smoothing = i * 0.1, .labels = {3, 0, -100, 6, 6}};
        double dx[ROWS * IN];
        fill(e.x, ROWS * IN);
        ref_cross_entropy(e.x, e.labels, ROWS, IN, e.smoothing, 3, dx);
        check(entropy_value, &e, e.x, dx, ROWS * IN);
    }
    /* The loss of one row with equal logits is the log of their number. */
    const double zeros[IN] = {0};
    assert_true(fabs(ref_cross_entropy(zeros, (const int32_t[]){2}, 1, IN, 0, 1, NULL) - log(IN)) <
                1e-15);
    double x[2] = {1, 2}, target[2] = {0, 4}, dx[2];
    assert_true(ref_square_error(x, target, 2, 3, dx) == 2.5);
    assert_true(dx[0] == 3 && dx[1] == -6);
}

struct norm {
    double x[ROWS * IN], w[IN], b[IN], dy[ROWS * IN];
    enum vka_norm kind;
};

static double norm_value(const void *job)
{
    const struct norm *n = job;
    double y[ROWS * IN];
    ref_norm(n->x, ROWS, IN, n->kind, n->w, n->b, 1e-5, y);
    return weigh(y, n->dy, ROWS * IN);
}

static void norms(void **state)
{
    (void)state;
    for (int kind = 0; kind < VKA_NORM_COUNT; kind++) {
        struct norm n = {.kind = (enum vka_norm)kind};
        double dx[ROWS * IN], dw[IN], db[IN];
        fill(n.x, ROWS * IN);
        fill(n.w, IN);
        fill(n.b, IN);
        fill(n.dy, ROWS * IN);
        ref_norm_backward(n.x, n.dy, ROWS, IN, n.kind, n.w, 1e-5, dx, dw, db);
        check(norm_value, &n, n.x, dx, ROWS * IN);
        check(norm_value, &n, n.w, dw, IN);
        check(norm_value, &n, n.b, db, IN);
    }
}

/* Three steps from 1 with the gradients 0.5, -0.25, 1 and a rate of 0.1, computed with 50 digits in
 * the order in which torch.optim's single-tensor steps are documented. */
static void optimisers(void **state)
{
    static const struct {
        struct vka_optimiser_op op;
        double want;
    } cases[] = {
        {{.learning_rate = 0.1}, 0.875},
        {{.momentum = 0.9, .learning_rate = 0.1}, 0.81200000000000006},
        {{.momentum = 0.9, .nesterov = true, .weight_decay = 0.5, .learning_rate = 0.1},
         0.35763774999999998},
        {{.kind = VKA_ADAM, .learning_rate = 0.1}, 0.80755513967708958},
        {{.kind = VKA_ADAM, .weight_decay = 0.5, .learning_rate = 0.1}, 0.7315606208124954},
        {{.kind = VKA_ADAMW, .weight_decay = 0.5, .learning_rate = 0.1}, 0.67601182464669729},
        {{.kind = VKA_ADAMW, .beta1 = 0.5, .beta2 = 0.25, .epsilon = 0.125, .learning_rate = 0.1},
         0.86350152270447911},
    };
    static const double g[3] = {0.5, -0.25, 1};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double w = 1, m = 0, v = 0;
        for (int64_t step = 1; step <= 3; step++)
            ref_optimiser(&cases[i].op, 1, step, &w, &g[step - 1], &m, &v);
        if (!(fabs(w - cases[i].want) < 1e-14))
            fail_msg("case %zu: %.17g, not %.17g", i, w, cases[i].want);
    }
}

/* ---- Attention ------------------------------------------------------------------------------- */

enum {
    BATCH = 2,
    KEY_HEADS = 2,
    HEADS = 4,
    QUERIES = 3,
    PAST = 2,
    KEYS = 6,
    DIM = 6,
    WIDTH = 3,
    Q_SIZE = BATCH * HEADS * QUERIES * DIM,
    K_SIZE = BATCH * KEY_HEADS * KEYS * DIM,
    V_SIZE = BATCH * KEY_HEADS * KEYS * WIDTH,
    Y_SIZE = BATCH * HEADS * QUERIES * WIDTH,
    MASK_SIZE = BATCH * HEADS * QUERIES * KEYS
};

struct attention {
    struct ref_attention a;
    double q[Q_SIZE], k[K_SIZE], v[V_SIZE], dy[Y_SIZE], mask[MASK_SIZE];
    double sink[HEADS], alibi[HEADS], q_norm[DIM], k_norm[DIM];
    uint8_t visible[MASK_SIZE];
    size_t n_mask;
};

static double attention_value(const void *job)
{
    const struct attention *t = job;
    struct ref_attention a = t->a;
    double y[Y_SIZE];
    a.context = y;
    assert_int_equal(ref_attention(&a), VKA_OK);
    return weigh(y, t->dy, Y_SIZE);
}

/* The gradient of a past key is that of the ready key, as the oracle reads it. */
static void check_attention(struct attention *t)
{
    struct ref_attention *a = &t->a;
    double dq[Q_SIZE], dk[K_SIZE], dv[V_SIZE], d_mask[MASK_SIZE], d_sink[HEADS];
    double d_q_norm[DIM], d_k_norm[DIM];
    a->batch = BATCH, a->n_head = HEADS, a->n_kv_head = KEY_HEADS, a->n_q = QUERIES;
    a->n_kv = KEYS, a->head_dim = DIM, a->value_dim = WIDTH;
    a->q = t->q, a->k = t->k, a->v = t->v;
    fill(t->q, Q_SIZE);
    fill(t->k, K_SIZE);
    fill(t->v, V_SIZE);
    fill(t->dy, Y_SIZE);
    fill(t->sink, HEADS);
    fill(t->alibi, HEADS);
    fill(t->q_norm, DIM);
    fill(t->k_norm, DIM);
    t->n_mask = a->mask_rank ? 1 : 0;
    for (size_t i = 0; i < a->mask_rank; i++)
        t->n_mask *= a->mask_shape[i];
    for (size_t i = 0; i < t->n_mask; i++) {
        t->visible[i] = draw() > -0.4;
        t->mask[i] = draw() > -0.6 ? draw() : -INFINITY;
    }
    const struct ref_attention_gradients g = {dq,
                                              dk,
                                              dv,
                                              a->sink ? d_sink : NULL,
                                              a->float_mask ? d_mask : NULL,
                                              a->q_norm ? d_q_norm : NULL,
                                              a->k_norm ? d_k_norm : NULL};
    assert_int_equal(ref_attention_backward(a, t->dy, &g), VKA_OK);
    check(attention_value, t, t->q, dq, Q_SIZE);
    check(attention_value, t, t->k, dk, K_SIZE);
    check(attention_value, t, t->v, dv, V_SIZE);
    if (a->sink)
        check(attention_value, t, t->sink, d_sink, HEADS);
    if (a->q_norm)
        check(attention_value, t, t->q_norm, d_q_norm, DIM);
    if (a->k_norm)
        check(attention_value, t, t->k_norm, d_k_norm, DIM);
    for (size_t i = 0; a->float_mask && i < t->n_mask; i++)
        if (t->mask[i] > -INFINITY)
            check(attention_value, t, &t->mask[i], &d_mask[i], 1);
        else
            assert_true(d_mask[i] == 0);
}

/* Bits of a number are options, so that each is met alone and beside each other one. */
static void set_attention(struct attention *t, unsigned bits, unsigned round)
{
    static const int64_t lengths[BATCH] = {4, 0}, offsets[BATCH] = {1, -1};
    static const size_t masks[4][4] = {{BATCH, HEADS, QUERIES, KEYS},
                                       {1, HEADS, 1, KEYS},
                                       {BATCH, 1, QUERIES, 1},
                                       {1, 1, QUERIES, KEYS - 2}};
    struct ref_attention *a = &t->a;
    *a = (struct ref_attention){.scale = bits & 1 ? 0.7 : 0, .masked_row = round % 2};
    a->causal = bits & 2;
    a->window = bits & 4, a->window_left = 1, a->window_right = bits & 1 ? -1 : 1;
    a->kv_length = bits & 8 ? lengths : NULL, a->kv_length_count = BATCH;
    a->query_offset = bits & 16 ? offsets : NULL, a->query_offset_count = BATCH;
    a->softcap = bits & 32 ? 0.8 : 0;
    a->sink = bits & 64 ? t->sink : NULL;
    a->alibi = bits & 128 ? t->alibi : NULL;
    a->dropout = bits & 256 ? 0.3 : 0, a->dropout_seed = 12345678901u + round;
    if (bits & 512) {
        a->rope = (struct vka_rope){.dim = 4, .base = 100, .interleaved = bits & 1};
        a->rope.attention_factor = bits & 2 ? 1.25f : 0;
    }
    a->q_norm = bits & 1024 ? t->q_norm : NULL;
    a->k_norm = bits & 2048 ? t->k_norm : NULL;
    a->n_past = bits & 4096 ? PAST : 0;
    a->float_mask = bits & 8192 ? t->mask : NULL;
    a->bool_mask = !a->float_mask && bits & 16384 ? t->visible : NULL;
    a->mask_rank = a->float_mask || a->bool_mask ? 4 : 0;
    memcpy(a->mask_shape, masks[round % 4], sizeof masks[0]);
}

enum { OPTIONS = 15, ROUNDS = 4 };

static void attention(void **state)
{
    (void)state;
    static struct attention t;
    for (unsigned round = 0; round < ROUNDS; round++) {
        set_attention(&t, 0, round);
        check_attention(&t);
        for (unsigned i = 0; i < OPTIONS; i++)
            for (unsigned j = i; j < OPTIONS; j++) {
                if (i != j && (i + j) % ROUNDS != round)
                    continue;
                set_attention(&t, 1u << i | 1u << j, round);
                check_attention(&t);
            }
        set_attention(&t, (1u << OPTIONS) - 1 - (round & 1 ? 8192 : 0), round);
        check_attention(&t);
    }
}

/* Not a number in a hidden key or value reaches no gradient but its own value's. */
static void hidden_keys(void **state)
{
    (void)state;
    static struct attention t;
    double dq[Q_SIZE], dk[K_SIZE], dv[V_SIZE];
    const int64_t length = KEYS - 1;
    set_attention(&t, 0, 0);
    check_attention(&t);
    t.a.kv_length = &length, t.a.kv_length_count = 1;
    for (size_t i = 0; i < K_SIZE; i++)
        t.k[i] = i / DIM % KEYS == KEYS - 1 ? NAN : t.k[i];
    for (size_t i = 0; i < V_SIZE; i++)
        t.v[i] = i / WIDTH % KEYS == KEYS - 1 ? NAN : t.v[i];
    const struct ref_attention_gradients g = {.q = dq, .k = dk, .v = dv};
    assert_int_equal(ref_attention_backward(&t.a, t.dy, &g), VKA_OK);
    for (size_t i = 0; i < Q_SIZE; i++)
        assert_true(isfinite(dq[i]));
    for (size_t i = 0; i < K_SIZE; i++)
        assert_true(i / DIM % KEYS == KEYS - 1 ? dk[i] == 0 : isfinite(dk[i]));
    for (size_t i = 0; i < V_SIZE; i++)
        assert_true(i / WIDTH % KEYS == KEYS - 1 ? dv[i] == 0 : isfinite(dv[i]));
}

TEST_PROGRAM(reference_train)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(linear),     cmocka_unit_test(activations),
                                       cmocka_unit_test(losses),     cmocka_unit_test(norms),
                                       cmocka_unit_test(optimisers), cmocka_unit_test(attention),
                                       cmocka_unit_test(hidden_keys)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
