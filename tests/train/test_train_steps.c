/* A classifier of two layers is trained by one recorded plan: each step against the oracle in double,
 * twice and cut by a budget with the same bytes. SPDX-License-Identifier: MIT */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <reference/reference.h>
#include <reference/train.h>
#include <vkattn/vkattn_train.h>

#include "patience.h"
#include "test_program.h"
#include "problems/rng.h"

#define ASSERT_OK(call) assert_int_equal(call, VKA_OK)

enum { IN = 784, HIDDEN = 784, CLASSES = 10, BATCH = 64, STEPS = 20 };
enum { W1, B1, W2, B2, PARAMETERS };
static const uint32_t sizes[PARAMETERS][2] = {
    {HIDDEN, IN}, {HIDDEN, 1}, {CLASSES, HIDDEN}, {CLASSES, 1}};
static const uint32_t ranks[PARAMETERS] = {2, 1, 2, 1};

struct model {
    struct vka_tensor *x, *h, *y, *dh, *labels, *loss, *norm, *step;
    struct vka_parameter p[PARAMETERS];
    struct vka_plan *plan;
};

/* What the host knows: batches, and the parameters at the start. */
struct data {
    float x[STEPS][BATCH * IN];
    int32_t labels[STEPS][BATCH];
    float *start[PARAMETERS];
};

static size_t count_of(int i)
{
    return (size_t)sizes[i][0] * sizes[i][1];
}

static struct vka_tensor *make(struct vka_device *device, enum vka_dtype dtype, uint32_t rank,
                               uint32_t a, uint32_t b)
{
    struct vka_tensor *tensor = NULL;
    ASSERT_OK(vka_tensor_create(device, dtype, rank, (const uint32_t[]){a, b}, &tensor));
    return tensor;
}

/* Parameters as PyTorch's Linear has them, and digits of noise around ten means. */
static struct data *make_data(void)
{
    struct data *d = calloc(1, sizeof *d);
    struct rng rng = {20};
    assert_non_null(d);
    for (int i = 0; i < PARAMETERS; i++) {
        d->start[i] = calloc(count_of(i), sizeof(float));
        assert_non_null(d->start[i]);
        for (size_t j = 0; j < count_of(i); j++)
            d->start[i][j] = (float)rng_uniform(&rng, -1, 1) / 28;
    }
    for (int s = 0; s < STEPS; s++)
        for (int r = 0; r < BATCH; r++) {
            d->labels[s][r] = (int32_t)rng_range(&rng, 0, CLASSES - 1);
            for (int i = 0; i < IN; i++)
                d->x[s][r * IN + i] =
                    (float)rng_uniform(&rng, 0, 0.7) + (i % CLASSES == d->labels[s][r] ? 0.3f : 0);
        }
    return d;
}

static enum vka_status add_step(struct model *m)
{
    struct vka_tensor *gradients[PARAMETERS];
    for (int i = 0; i < PARAMETERS; i++)
        gradients[i] = m->p[i].gradient;
    enum vka_status status = vka_plan_add_linear(
        m->plan, VKA_INFO(vka_linear_op, .input = m->x, .weight = m->p[W1].parameter,
                          .bias = m->p[B1].parameter, .output = m->h));
    if (status == VKA_OK)
        status = vka_plan_add_linear(
            m->plan, VKA_INFO(vka_linear_op, .input = m->h, .weight = m->p[W2].parameter,
                              .bias = m->p[B2].parameter, .relu_input = true, .output = m->y));
    if (status == VKA_OK)
        status = vka_plan_add_cross_entropy(m->plan, VKA_INFO(vka_cross_entropy_op, .logits = m->y,
                                                              .labels = m->labels, .loss = m->loss,
                                                              .gradient = m->y));
    if (status == VKA_OK)
        status = vka_plan_add_linear_backward(
            m->plan,
            VKA_INFO(vka_linear_backward_op, .input = m->h, .weight = m->p[W2].parameter,
                     .output_gradient = m->y, .relu_input = true, .input_gradient = {m->dh, false},
                     .weight_gradient = {m->p[W2].gradient, false},
                     .bias_gradient = {m->p[B2].gradient, false}));
    if (status == VKA_OK)
        status = vka_plan_add_linear_backward(
            m->plan, VKA_INFO(vka_linear_backward_op, .input = m->x, .output_gradient = m->dh,
                              .weight_gradient = {m->p[W1].gradient, false},
                              .bias_gradient = {m->p[B1].gradient, false}));
    if (status == VKA_OK)
        status = vka_plan_add_clip(m->plan, VKA_INFO(vka_clip_op, .gradients = gradients,
                                                     .n_gradient = PARAMETERS, .max_norm = 0.5,
                                                     .norm = m->norm));
    if (status == VKA_OK)
        status = vka_plan_add_optimiser(
            m->plan, VKA_INFO(vka_optimiser_op, .kind = VKA_ADAM, .parameters = m->p,
                              .n_parameter = PARAMETERS, .learning_rate = 0.003, .step = m->step));
    return status;
}

static struct model make_model(struct vka_device *device, const struct data *d, uint64_t budget)
{
    struct model m = {0};
    const int32_t none = 0;
    m.x = make(device, VKA_F32, 2, BATCH, IN);
    m.h = make(device, VKA_F32, 2, BATCH, HIDDEN);
    m.dh = make(device, VKA_F32, 2, BATCH, HIDDEN);
    m.y = make(device, VKA_F32, 2, BATCH, CLASSES);
    m.labels = make(device, VKA_I32, 1, BATCH, 1);
    m.loss = make(device, VKA_F32, 1, 1, 1);
    m.norm = make(device, VKA_F32, 1, 1, 1);
    m.step = make(device, VKA_I32, 1, 1, 1);
    ASSERT_OK(vka_tensor_write(m.step, &none, sizeof none));
    for (int i = 0; i < PARAMETERS; i++) {
        struct vka_tensor **all[] = {&m.p[i].parameter, &m.p[i].gradient, &m.p[i].first_moment,
                                     &m.p[i].second_moment};
        float *zeros = calloc(count_of(i), sizeof *zeros);
        assert_non_null(zeros);
        for (int j = 0; j < 4; j++) {
            *all[j] = make(device, VKA_F32, ranks[i], sizes[i][0], sizes[i][1]);
            ASSERT_OK(
                vka_tensor_write(*all[j], j ? zeros : d->start[i], count_of(i) * sizeof *zeros));
        }
        free(zeros);
    }
    ASSERT_OK(vka_plan_create(device, VKA_INFO(vka_plan_info, .submit_budget = budget), &m.plan));
    if (add_step(&m) != VKA_OK)
        fail_msg("%s", vka_device_error(device));
    ASSERT_OK(vka_plan_finish(m.plan));
    return m;
}

static void free_model(struct model *m)
{
    struct vka_tensor **all[] = {&m->x,      &m->h,    &m->y,    &m->dh,
                                 &m->labels, &m->loss, &m->norm, &m->step};
    vka_plan_destroy(&m->plan);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        vka_tensor_destroy(all[i]);
    for (int i = 0; i < PARAMETERS; i++) {
        vka_tensor_destroy(&m->p[i].parameter);
        vka_tensor_destroy(&m->p[i].gradient);
        vka_tensor_destroy(&m->p[i].first_moment);
        vka_tensor_destroy(&m->p[i].second_moment);
    }
}

/* All steps; loss[step], and the parameters at the end. */
static void train(struct vka_device *device, const struct data *d, uint64_t budget,
                  float loss[STEPS], float *end[PARAMETERS])
{
    struct model m = make_model(device, d, budget);
    for (int s = 0; s < STEPS; s++) {
        ASSERT_OK(vka_tensor_write(m.x, d->x[s], sizeof d->x[s]));
        ASSERT_OK(vka_tensor_write(m.labels, d->labels[s], sizeof d->labels[s]));
        ASSERT_OK(vka_plan_run(m.plan, PATIENCE));
        ASSERT_OK(vka_tensor_read(m.loss, &loss[s], sizeof loss[s]));
    }
    for (int i = 0; i < PARAMETERS; i++) {
        end[i] = calloc(count_of(i), sizeof(float));
        assert_non_null(end[i]);
        ASSERT_OK(vka_tensor_read(m.p[i].parameter, end[i], count_of(i) * sizeof(float)));
    }
    free_model(&m);
}

/* ---- The oracle ------------------------------------------------------------------------------ */

struct oracle {
    double *w[PARAMETERS], *g[PARAMETERS], *m[PARAMETERS], *v[PARAMETERS];
    double x[BATCH * IN], h[BATCH * HIDDEN], dh[BATCH * HIDDEN], y[BATCH * CLASSES];
};

static double oracle_step(struct oracle *o, const float *x, const int32_t *labels, int step)
{
    const struct vka_optimiser_op op = {.kind = VKA_ADAM, .learning_rate = 0.003};
    double squares = 0;
    for (size_t i = 0; i < BATCH * IN; i++)
        o->x[i] = (double)x[i];
    ref_linear(o->x, o->w[W1], o->w[B1], BATCH, IN, HIDDEN, false, o->h);
    ref_linear(o->h, o->w[W2], o->w[B2], BATCH, HIDDEN, CLASSES, true, o->y);
    double loss = ref_cross_entropy(o->y, labels, BATCH, CLASSES, 0, 1, o->y);
    ref_linear_backward(o->h, o->w[W2], o->y, BATCH, HIDDEN, CLASSES, true, o->dh, o->g[W2],
                        o->g[B2]);
    ref_linear_backward(o->x, NULL, o->dh, BATCH, IN, HIDDEN, false, NULL, o->g[W1], o->g[B1]);
    for (int i = 0; i < PARAMETERS; i++)
        for (size_t j = 0; j < count_of(i); j++)
            squares += o->g[i][j] * o->g[i][j];
    double factor = 0.5 / (sqrt(squares) + 1e-6);
    for (int i = 0; i < PARAMETERS; i++) {
        for (size_t j = 0; j < count_of(i) && factor < 1; j++)
            o->g[i][j] *= factor;
        ref_optimiser(&op, count_of(i), step, o->w[i], o->g[i], o->m[i], o->v[i]);
    }
    return loss;
}

static struct oracle *make_oracle(const struct data *d)
{
    struct oracle *o = calloc(1, sizeof *o);
    assert_non_null(o);
    for (int i = 0; i < PARAMETERS; i++) {
        double **all[] = {&o->w[i], &o->g[i], &o->m[i], &o->v[i]};
        for (int j = 0; j < 4; j++) {
            *all[j] = calloc(count_of(i), sizeof(double));
            assert_non_null(*all[j]);
        }
        for (size_t j = 0; j < count_of(i); j++)
            o->w[i][j] = (double)d->start[i][j];
    }
    return o;
}

static void free_oracle(struct oracle *o)
{
    for (int i = 0; i < PARAMETERS; i++) {
        free(o->w[i]);
        free(o->g[i]);
        free(o->m[i]);
        free(o->v[i]);
    }
    free(o);
}

static void steps(void **state)
{
    struct vka_device *device = NULL;
    float loss[3][STEPS], *end[3][PARAMETERS];
    (void)state;
    if (vka_device_create(NULL, &device) != VKA_OK)
        exit(77);
    struct data *d = make_data();
    struct oracle *o = make_oracle(d);
    const uint64_t budgets[3] = {VKA_NO_BUDGET, VKA_NO_BUDGET, 20000000};
    for (int i = 0; i < 3; i++)
        train(device, d, budgets[i], loss[i], end[i]);
    double worst = 0, first = 0, last = 0;
    for (int s = 0; s < STEPS; s++) {
        double want = oracle_step(o, d->x[s], d->labels[s], s + 1);
        double error = fabs((double)loss[0][s] - want);
        worst = error > worst ? error : worst;
        first = s ? first : want;
        last = want;
    }
    print_message("loss %.4f to %.4f, largest error %.2e\n", first, last, worst);
    assert_true(worst < 1e-5);
    assert_true(last < first / 2);
    for (int i = 1; i < 3; i++) {
        assert_memory_equal(loss[i], loss[0], sizeof loss[0]);
        for (int j = 0; j < PARAMETERS; j++)
            assert_memory_equal(end[i][j], end[0][j], count_of(j) * sizeof(float));
    }
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < PARAMETERS; j++)
            free(end[i][j]);
    free_oracle(o);
    for (int i = 0; i < PARAMETERS; i++)
        free(d->start[i]);
    free(d);
    vka_device_destroy(&device);
}

TEST_PROGRAM(train_steps)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
