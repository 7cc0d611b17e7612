/* The oracle of the gradients of causal convolutions against finite differences.
 * SPDX-License-Identifier: MIT */
#include "test_program.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <reference/state.h>

#include "problems/rng.h"

/* The numbers are those of torch.autograd.gradcheck. */
#define EPSILON 1e-6
#define ABSOLUTE 1e-5
#define RELATIVE 1e-3

enum { N = 9, CHANNELS = 3, WIDTH = 16, KEEP = 60 };

struct problem {
    struct ref_causal_conv c;
    double x[N * CHANNELS], w[CHANNELS * WIDTH], bias[CHANNELS], past[CHANNELS * KEEP];
    double dy[N * CHANNELS], dpresent[CHANNELS * KEEP];
    bool with_bias, with_past, with_present;
};

/* What the gradients are of: y and the present rows, weighted. */
static double value(const struct problem *p)
{
    double y[N * CHANNELS], present[CHANNELS * KEEP], sum = 0;
    const size_t kept = p->c.channels * (p->c.width - 1) * p->c.dilation;
    ref_causal_conv(&p->c, p->x, p->w, p->with_bias ? p->bias : NULL, p->with_past ? p->past : NULL,
                    y, present);
    for (size_t i = 0; i < p->c.n * p->c.channels; i++)
        sum += y[i] * p->dy[i];
    for (size_t i = 0; i < kept && p->with_present; i++)
        sum += present[i] * p->dpresent[i];
    return sum;
}

static void check(struct problem *p, double *x, const double *gradient, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        const double own = x[i];
        x[i] = own + EPSILON;
        const double above = value(p);
        x[i] = own - EPSILON;
        const double want = (above - value(p)) / (2 * EPSILON);
        x[i] = own;
        if (!(fabs(gradient[i] - want) <= ABSOLUTE + RELATIVE * fabs(want)))
            fail_msg("%s %zu is %g, not %g", name, i, gradient[i], want);
    }
}

static void fill(struct rng *rng, double *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = rng_uniform(rng, -1, 1);
}

static void gradients(void **state)
{
    static const enum vka_activation smooth[] = {VKA_IDENTITY, VKA_SILU, VKA_GELU, VKA_TANH};
    struct rng rng = {7};
    (void)state;
    for (int round = 0; round < 60; round++) {
        struct problem p = {.with_bias = rng_chance(&rng, 50),
                            .with_past = rng_chance(&rng, 50),
                            .with_present = rng_chance(&rng, 50)};
        double dx[N * CHANNELS], dw[CHANNELS * WIDTH] = {0}, db[CHANNELS] = {0},
                                               dpast[CHANNELS * KEEP];
        const uint32_t width = rng_range(&rng, 1, round % 4 ? 5 : WIDTH);
        p.c = (struct ref_causal_conv){rng_range(&rng, 1, N), rng_range(&rng, 1, CHANNELS), width,
                                       rng_range(&rng, 1, 4), smooth[round % 4]};
        fill(&rng, p.x, N * CHANNELS);
        fill(&rng, p.w, CHANNELS * WIDTH);
        fill(&rng, p.bias, CHANNELS);
        fill(&rng, p.past, CHANNELS * KEEP);
        fill(&rng, p.dy, N * CHANNELS);
        fill(&rng, p.dpresent, CHANNELS * KEEP);
        ref_causal_conv_backward(
            &p.c, p.x, p.w, p.with_bias ? p.bias : NULL, p.with_past ? p.past : NULL, p.dy,
            p.with_present ? p.dpresent : NULL, &(struct ref_conv_gradients){dx, dw, db, dpast});
        check(&p, p.x, dx, p.c.n * p.c.channels, "dx");
        check(&p, p.w, dw, p.c.channels * width, "dw");
        if (p.with_bias)
            check(&p, p.bias, db, p.c.channels, "db");
        if (p.with_past)
            check(&p, p.past, dpast, p.c.channels * (width - 1) * p.c.dilation, "dpast");
    }
}

TEST_PROGRAM(reference_conv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gradients)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
