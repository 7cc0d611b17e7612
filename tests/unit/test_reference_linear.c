/* The oracle of the gradients of linear attention, against finite differences of the forward one.
 * SPDX-License-Identifier: MIT */
#include "test_program.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <reference/state.h>

#include "problems/rng.h"

/* The numbers are those of torch.autograd.gradcheck. */
#define EPSILON 1e-6
#define ABSOLUTE 1e-5
#define RELATIVE 1e-3
#define PROBLEMS 200
#define MOST 2048 /* elements of an operand */

enum { Q, K, V, DECAY, BETA, PAST, LOG, BIAS, SKIP, OPERANDS };
static const char *const names[OPERANDS] = {"q",    "k",   "v",    "decay", "beta",
                                            "past", "log", "bias", "skip"};

struct problem {
    struct ref_linear l;
    size_t count[OPERANDS]; /* 0: there is none */
    double x[OPERANDS][MOST], d[OPERANDS][MOST];
    size_t n_y;
    double y[MOST], dy[MOST], state[MOST], d_state[MOST];
};

static const double *operand(const struct problem *p, int i)
{
    return p->count[i] ? p->x[i] : NULL;
}

/* The sum of all that comes out, each times its weight. */
static double weigh(struct problem *p)
{
    double sum = 0;
    memset(p->state, 0, sizeof p->state);
    if (p->count[PAST])
        memcpy(p->state, p->x[PAST], p->count[PAST] * sizeof(double));
    ref_linear_attention(&p->l, p->x[Q], p->x[K], p->x[V], operand(p, DECAY), operand(p, BETA),
                         p->state, p->y);
    for (size_t i = 0; i < p->n_y; i++)
        sum += p->dy[i] * p->y[i];
    for (size_t i = 0; i < p->l.n_state * p->l.head_dim * p->l.value_dim; i++)
        sum += p->d_state[i] * p->state[i];
    return sum;
}

static void draw(struct rng *rng, struct problem *p)
{
    struct ref_linear *l = &p->l;
    const bool gated = rng_chance(rng, 60), delta = rng_chance(rng, 60);
    const bool front = gated && rng_chance(rng, 60), wide = rng_chance(rng, 40);
    *l = (struct ref_linear){
        .n = rng_range(rng, 1, 5),
        .n_kv_head = rng_range(rng, 1, 2),
        .head_dim = rng_range(rng, 1, 4),
        .value_dim = rng_range(rng, 1, 4),
        .key_decay = gated && rng_chance(rng, 50),
        .shared_beta = rng_chance(rng, 30),
        .scale = 0.75,
        .norm_epsilon = rng_chance(rng, 40) ? 0.25 : 0,
        .step_max = INFINITY,
        .sigmoid = rng_chance(rng, 50),
        .key_bias = rng_chance(rng, 50),
    };
    l->n_state = l->n_kv_head * rng_range(rng, 1, 2);
    l->n_head = wide ? l->n_state * rng_range(rng, 1, 3) : l->n_kv_head;
    l->key_bias &= l->key_decay;
    l->steps = front && !l->key_decay && rng_chance(rng, 60);
    if (l->steps && rng_chance(rng, 50)) {
        l->step_min = 0.5;
        l->step_max = 1;
    }
    const size_t rows = l->n_state * l->n, width = l->key_decay ? l->head_dim : 1;
    const size_t n_out = l->n_head > l->n_state ? l->n_head : l->n_state;
    const size_t count[OPERANDS] = {
        [Q] = l->n_head * l->n * l->head_dim,
        [K] = l->n_kv_head * l->n * l->head_dim,
        [V] = rows * l->value_dim,
        [DECAY] = gated ? rows * width : 0,
        [BETA] = !delta           ? 0
                 : l->shared_beta ? l->n
                                  : rows,
        [PAST] = rng_chance(rng, 50) ? l->n_state * l->head_dim * l->value_dim : 0,
        [LOG] = front ? l->n_state : 0,
        [BIAS] = front && rng_chance(rng, 60) ? l->n_state * (l->key_bias ? l->head_dim : 1) : 0,
        [SKIP] = rng_chance(rng, 30) ? l->n_state : 0,
    };
    memcpy(p->count, count, sizeof count);
    for (int i = 0; i < OPERANDS; i++)
        for (size_t j = 0; j < count[i]; j++)
            p->x[i][j] = rng_uniform(rng, -1, 1);
    l->log = operand(p, LOG);
    l->bias = operand(p, BIAS);
    l->skip = operand(p, SKIP);
    p->n_y = n_out * l->n * l->value_dim;
    for (size_t j = 0; j < p->n_y; j++)
        p->dy[j] = rng_uniform(rng, -1, 1);
    for (size_t j = 0; j < l->n_state * l->head_dim * l->value_dim; j++)
        p->d_state[j] = rng_uniform(rng, -1, 1);
}

static void check(struct problem *p, unsigned round)
{
    for (int i = 0; i < OPERANDS; i++)
        for (size_t j = 0; j < p->count[i]; j++) {
            const double own = p->x[i][j];
            p->x[i][j] = own + EPSILON;
            const double above = weigh(p);
            p->x[i][j] = own - EPSILON;
            const double want = (above - weigh(p)) / (2 * EPSILON);
            p->x[i][j] = own;
            if (!(fabs(p->d[i][j] - want) <= ABSOLUTE + RELATIVE * fabs(want)))
                fail_msg("problem %u: gradient %zu of %s is %g, not %g", round, j, names[i],
                         p->d[i][j], want);
        }
}

static void gradients(void **state)
{
    struct rng rng = {44};
    struct problem *p = calloc(1, sizeof *p);
    size_t seen[OPERANDS] = {0};
    (void)state;
    assert_non_null(p);
    for (unsigned round = 0; round < PROBLEMS; round++) {
        draw(&rng, p);
        memset(p->d, 0, sizeof p->d);
        memcpy(p->d[PAST], p->d_state, sizeof p->d_state);
        const struct ref_linear_inputs inputs = {
            p->x[Q], p->x[K], p->x[V], operand(p, DECAY), operand(p, BETA), operand(p, PAST)};
        const struct ref_linear_gradients d = {p->d[Q],     p->d[K],    p->d[V],
                                               p->d[DECAY], p->d[BETA], p->d[PAST],
                                               p->d[LOG],   p->d[BIAS], p->d[SKIP]};
        assert_int_equal(ref_linear_attention_backward(&p->l, &inputs, p->dy, &d), VKA_OK);
        check(p, round);
        for (int i = 0; i < OPERANDS; i++)
            seen[i] += p->count[i];
    }
    for (int i = 0; i < OPERANDS; i++)
        assert_true(seen[i] > 20);
    free(p);
}

TEST_PROGRAM(reference_linear)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gradients)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
