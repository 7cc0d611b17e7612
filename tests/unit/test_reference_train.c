/* The oracle of training: its gradients against finite differences, its optimisers against numbers
 * from 50 digits. SPDX-License-Identifier: MIT */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <reference/model.h>
#include <reference/reference.h>
#include <reference/train.h>

/* As torch.autograd.gradcheck has them. */
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
    /* Of one row with equal logits: log of their number. */
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
    ref_norm(n->x, ROWS, IN, n->kind, n->w, n->b, 0, y);
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
        ref_norm_backward(n.x, n.dy, ROWS, IN, n.kind, n.w, 0, dx, dw, db);
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(linear), cmocka_unit_test(activations),
                                       cmocka_unit_test(losses), cmocka_unit_test(norms),
                                       cmocka_unit_test(optimisers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
