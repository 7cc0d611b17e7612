/* A classifier of patches with a layer of rotated, grouped attention is trained by one recorded plan:
 * each step against the oracle in double, twice and cut by a budget with the same bytes. Queries, keys
 * and values are views of one linear's output, and their gradients views of its gradient.
 * SPDX-License-Identifier: MIT */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <reference/attention_backward.h>
#include <reference/train.h>
#include <vkattn/vkattn_train.h>

#include "patience.h"
#include "test_program.h"
#include "problems/rng.h"

#define ASSERT_OK(call) assert_int_equal(call, VKA_OK)

enum {
    BATCH = 12,
    PATCHES = 16,
    IN = 20,
    HEADS = 4,
    KEY_HEADS = 2,
    DIM = 8,
    QKV = (HEADS + 2 * KEY_HEADS) * DIM, /* columns: query heads, key heads, value heads */
    CONTEXT = HEADS * DIM,
    CLASSES = 5,
    STEPS = 12,
    ROWS = BATCH * PATCHES
};
enum { WIN, WOUT, SINK, PARAMETERS };
static const uint32_t sizes[PARAMETERS][2] = {{QKV, IN}, {CLASSES, PATCHES *CONTEXT}, {HEADS, 1}};
static const uint32_t ranks[PARAMETERS] = {2, 2, 1};
#define RATE 0.01
#define ROPE .rope = {.dim = DIM, .base = 50}

enum { X, H, DH, Y, DY, LOGITS, LABELS, LOSS, SUMS, STEP, TENSORS };

struct model {
    struct vka_device *device;
    struct vka_tensor *t[TENSORS], *views[2 * 4 + 2]; /* of H, DH, Y and DY */
    size_t n_view;
    struct vka_parameter p[PARAMETERS];
    struct vka_plan *plan;
};

struct data {
    float x[STEPS][ROWS * IN];
    int32_t labels[STEPS][BATCH];
    float start[PARAMETERS][CLASSES * PATCHES * CONTEXT];
};

static size_t count_of(int i)
{
    return (size_t)sizes[i][0] * sizes[i][1];
}

static void make_data(struct data *d)
{
    struct rng rng = {7};
    for (int i = 0; i < PARAMETERS; i++)
        for (size_t j = 0; j < count_of(i); j++)
            d->start[i][j] = (float)rng_uniform(&rng, -0.3, 0.3);
    for (int s = 0; s < STEPS; s++)
        for (int b = 0; b < BATCH; b++) {
            d->labels[s][b] = (int32_t)rng_range(&rng, 0, CLASSES - 1);
            for (int i = 0; i < PATCHES * IN; i++)
                d->x[s][b * PATCHES * IN + i] = (float)rng_uniform(&rng, -1, 1) +
                                                (i / IN % CLASSES == d->labels[s][b] ? 1.0f : 0);
        }
}

/* Heads first .. first + n - 1 of a tensor [BATCH * PATCHES][columns], as [BATCH][n][PATCHES][DIM]. */
static struct vka_tensor *heads(struct model *m, struct vka_tensor *t, uint32_t columns,
                                uint32_t first, uint32_t n)
{
    const uint32_t shape[4] = {BATCH, n, PATCHES, DIM};
    const uint64_t strides[4] = {(uint64_t)PATCHES * columns, DIM, columns, 1};
    struct vka_tensor **view = &m->views[m->n_view++];
    ASSERT_OK(vka_tensor_strided(t, (uint64_t)first * DIM, 4, shape, strides, view));
    return *view;
}

static struct vka_tensor *samples(struct model *m, struct vka_tensor *t)
{
    const uint32_t shape[2] = {BATCH, PATCHES * CONTEXT};
    struct vka_tensor **view = &m->views[m->n_view++];
    ASSERT_OK(vka_tensor_reshape(t, 2, shape, view));
    return *view;
}

static void add_step(struct model *m)
{
    struct vka_tensor **t = m->t;
    struct vka_tensor *y = samples(m, t[Y]), *dy = samples(m, t[DY]);
    const struct vka_attention_op forward = {
        .struct_size = sizeof forward,
        .q = heads(m, t[H], QKV, 0, HEADS),
        .k = heads(m, t[H], QKV, HEADS, KEY_HEADS),
        .v = heads(m, t[H], QKV, HEADS + KEY_HEADS, KEY_HEADS),
        .output = heads(m, t[Y], CONTEXT, 0, HEADS),
        .options = {.causal = true, .sink = m->p[SINK].parameter, .log_sum_exp = t[SUMS], ROPE},
    };
    ASSERT_OK(vka_plan_add_linear(m->plan, VKA_INFO(vka_linear_op, .input = t[X], .output = t[H],
                                                    .weight = m->p[WIN].parameter)));
    ASSERT_OK(vka_plan_add_attention(m->plan, &forward));
    ASSERT_OK(vka_plan_add_linear(m->plan, VKA_INFO(vka_linear_op, .input = y, .output = t[LOGITS],
                                                    .weight = m->p[WOUT].parameter)));
    ASSERT_OK(vka_plan_add_cross_entropy(
        m->plan, VKA_INFO(vka_cross_entropy_op, .logits = t[LOGITS], .labels = t[LABELS],
                          .loss = t[LOSS], .gradient = t[LOGITS])));
    ASSERT_OK(vka_plan_add_linear_backward(
        m->plan, VKA_INFO(vka_linear_backward_op, .input = y, .weight = m->p[WOUT].parameter,
                          .output_gradient = t[LOGITS], .input_gradient = {dy, false},
                          .weight_gradient = {m->p[WOUT].gradient, false})));
    if (vka_plan_add_attention_backward(
            m->plan,
            VKA_INFO(vka_attention_backward_op, .forward = &forward,
                     .output_gradient = heads(m, t[DY], CONTEXT, 0, HEADS),
                     .q_gradient = {heads(m, t[DH], QKV, 0, HEADS), false},
                     .k_gradient = {heads(m, t[DH], QKV, HEADS, KEY_HEADS), false},
                     .v_gradient = {heads(m, t[DH], QKV, HEADS + KEY_HEADS, KEY_HEADS), false},
                     .sink_gradient = {m->p[SINK].gradient, false})) != VKA_OK)
        fail_msg("%s", vka_device_error(m->device));
    ASSERT_OK(vka_plan_add_linear_backward(
        m->plan, VKA_INFO(vka_linear_backward_op, .input = t[X], .output_gradient = t[DH],
                          .weight_gradient = {m->p[WIN].gradient, false})));
    ASSERT_OK(vka_plan_add_optimiser(
        m->plan, VKA_INFO(vka_optimiser_op, .kind = VKA_ADAM, .parameters = m->p,
                          .n_parameter = PARAMETERS, .learning_rate = RATE, .step = t[STEP])));
}

static void make_model(struct vka_device *device, const struct data *d, uint64_t budget,
                       struct model *m)
{
    static const struct {
        enum vka_dtype dtype;
        uint32_t rank, size[3];
    } made[TENSORS] = {
        [X] = {VKA_F32, 2, {ROWS, IN}},
        [H] = {VKA_F32, 2, {ROWS, QKV}},
        [DH] = {VKA_F32, 2, {ROWS, QKV}},
        [Y] = {VKA_F32, 2, {ROWS, CONTEXT}},
        [DY] = {VKA_F32, 2, {ROWS, CONTEXT}},
        [LOGITS] = {VKA_F32, 2, {BATCH, CLASSES}},
        [LABELS] = {VKA_I32, 1, {BATCH}},
        [LOSS] = {VKA_F32, 1, {1}},
        [SUMS] = {VKA_F32, 3, {BATCH, HEADS, PATCHES}},
        [STEP] = {VKA_I32, 1, {1}},
    };
    static const float zeros[CLASSES * PATCHES * CONTEXT];
    *m = (struct model){.device = device};
    for (int i = 0; i < TENSORS; i++)
        ASSERT_OK(vka_tensor_create(device, made[i].dtype, made[i].rank, made[i].size, &m->t[i]));
    ASSERT_OK(vka_tensor_write(m->t[STEP], zeros, sizeof(int32_t)));
    for (int i = 0; i < PARAMETERS; i++) {
        struct vka_tensor **all[] = {&m->p[i].parameter, &m->p[i].gradient, &m->p[i].first_moment,
                                     &m->p[i].second_moment};
        for (int j = 0; j < 4; j++) {
            ASSERT_OK(vka_tensor_create(device, VKA_F32, ranks[i], sizes[i], all[j]));
            ASSERT_OK(
                vka_tensor_write(*all[j], j ? zeros : d->start[i], count_of(i) * sizeof(float)));
        }
    }
    ASSERT_OK(vka_plan_create(device, VKA_INFO(vka_plan_info, .submit_budget = budget), &m->plan));
    add_step(m);
    ASSERT_OK(vka_plan_finish(m->plan));
}

static void free_model(struct model *m)
{
    vka_plan_destroy(&m->plan);
    for (size_t i = 0; i < m->n_view; i++)
        vka_tensor_destroy(&m->views[i]);
    for (int i = 0; i < TENSORS; i++)
        vka_tensor_destroy(&m->t[i]);
    for (int i = 0; i < PARAMETERS; i++) {
        vka_tensor_destroy(&m->p[i].parameter);
        vka_tensor_destroy(&m->p[i].gradient);
        vka_tensor_destroy(&m->p[i].first_moment);
        vka_tensor_destroy(&m->p[i].second_moment);
    }
}

struct trained {
    float loss[STEPS], end[PARAMETERS][CLASSES * PATCHES * CONTEXT];
};

/* Returns the number of passes. */
static size_t train(struct vka_device *device, const struct data *d, uint64_t budget,
                    struct trained *r)
{
    struct model m;
    make_model(device, d, budget, &m);
    for (int s = 0; s < STEPS; s++) {
        ASSERT_OK(vka_tensor_write(m.t[X], d->x[s], sizeof d->x[s]));
        ASSERT_OK(vka_tensor_write(m.t[LABELS], d->labels[s], sizeof d->labels[s]));
        ASSERT_OK(vka_plan_run(m.plan, PATIENCE));
        ASSERT_OK(vka_tensor_read(m.t[LOSS], &r->loss[s], sizeof r->loss[s]));
    }
    for (int i = 0; i < PARAMETERS; i++)
        ASSERT_OK(vka_tensor_read(m.p[i].parameter, r->end[i], count_of(i) * sizeof(float)));
    const size_t passes = vka_plan_pass_count(m.plan);
    free_model(&m);
    return passes;
}

/* ---- The oracle ------------------------------------------------------------------------------ */

struct oracle {
    double w[PARAMETERS][CLASSES * PATCHES * CONTEXT], g[PARAMETERS][CLASSES * PATCHES * CONTEXT];
    double m[PARAMETERS][CLASSES * PATCHES * CONTEXT], v[PARAMETERS][CLASSES * PATCHES * CONTEXT];
    double x[ROWS * IN], h[ROWS * QKV], dh[ROWS * QKV], logits[BATCH * CLASSES];
    double y[ROWS * CONTEXT], dy[ROWS * CONTEXT]; /* [BATCH][PATCHES][HEADS][DIM] */
    double q[ROWS * CONTEXT], k[ROWS * CONTEXT], value[ROWS * CONTEXT], context[ROWS * CONTEXT];
    double dq[ROWS * CONTEXT], dk[ROWS * CONTEXT], dv[ROWS * CONTEXT], dcontext[ROWS * CONTEXT];
};

/* Moves heads [BATCH][n][PATCHES][DIM] to or from columns of rows [BATCH * PATCHES][columns]. */
static void move(double *head, double *rows, size_t columns, size_t first, size_t n, bool back)
{
    for (size_t b = 0; b < BATCH; b++)
        for (size_t h = 0; h < n; h++)
            for (size_t i = 0; i < PATCHES; i++)
                for (size_t e = 0; e < DIM; e++) {
                    double *a = &head[((b * n + h) * PATCHES + i) * DIM + e];
                    double *c = &rows[(b * PATCHES + i) * columns + (first + h) * DIM + e];
                    *(back ? c : a) = back ? *a : *c;
                }
}

static double oracle_step(struct oracle *o, const float *x, const int32_t *labels, int step)
{
    const struct vka_optimiser_op op = {.kind = VKA_ADAM, .learning_rate = RATE};
    const struct ref_attention a = {.batch = BATCH,
                                    .n_head = HEADS,
                                    .n_kv_head = KEY_HEADS,
                                    .n_q = PATCHES,
                                    .n_kv = PATCHES,
                                    .head_dim = DIM,
                                    .value_dim = DIM,
                                    .q = o->q,
                                    .k = o->k,
                                    .v = o->value,
                                    .causal = true,
                                    .sink = o->w[SINK],
                                    .context = o->context,
                                    ROPE};
    for (size_t i = 0; i < ROWS * IN; i++)
        o->x[i] = (double)x[i];
    ref_linear(o->x, o->w[WIN], NULL, ROWS, IN, QKV, false, o->h);
    move(o->q, o->h, QKV, 0, HEADS, false);
    move(o->k, o->h, QKV, HEADS, KEY_HEADS, false);
    move(o->value, o->h, QKV, HEADS + KEY_HEADS, KEY_HEADS, false);
    ASSERT_OK(ref_attention(&a));
    move(o->context, o->y, CONTEXT, 0, HEADS, true);
    ref_linear(o->y, o->w[WOUT], NULL, BATCH, PATCHES * CONTEXT, CLASSES, false, o->logits);
    const double loss = ref_cross_entropy(o->logits, labels, BATCH, CLASSES, 0, 1, o->logits);
    ref_linear_backward(o->y, o->w[WOUT], o->logits, BATCH, PATCHES * CONTEXT, CLASSES, false,
                        o->dy, o->g[WOUT], NULL);
    move(o->dcontext, o->dy, CONTEXT, 0, HEADS, false);
    ASSERT_OK(ref_attention_backward(
        &a, o->dcontext,
        &(struct ref_attention_gradients){.q = o->dq, .k = o->dk, .v = o->dv, .sink = o->g[SINK]}));
    move(o->dq, o->dh, QKV, 0, HEADS, true);
    move(o->dk, o->dh, QKV, HEADS, KEY_HEADS, true);
    move(o->dv, o->dh, QKV, HEADS + KEY_HEADS, KEY_HEADS, true);
    ref_linear_backward(o->x, NULL, o->dh, ROWS, IN, QKV, false, NULL, o->g[WIN], NULL);
    for (int i = 0; i < PARAMETERS; i++)
        ref_optimiser(&op, count_of(i), step, o->w[i], o->g[i], o->m[i], o->v[i]);
    return loss;
}

static void steps(void **state)
{
    static struct data d;
    static struct oracle o;
    static struct trained runs[3];
    static const uint64_t budgets[3] = {VKA_NO_BUDGET, VKA_NO_BUDGET, 1}; /* 1: all is cut */
    struct vka_device *device = NULL;
    (void)state;
    if (vka_device_create(NULL, &device) != VKA_OK)
        exit(77);
    make_data(&d);
    size_t passes[3];
    for (int i = 0; i < 3; i++)
        passes[i] = train(device, &d, budgets[i], &runs[i]);
    assert_true(passes[2] > passes[0]);
    for (int i = 0; i < PARAMETERS; i++)
        for (size_t j = 0; j < count_of(i); j++)
            o.w[i][j] = (double)d.start[i][j];
    double worst = 0, first = 0, last = 0;
    for (int s = 0; s < STEPS; s++) {
        const double want = oracle_step(&o, d.x[s], d.labels[s], s + 1);
        const double error = fabs((double)runs[0].loss[s] - want);
        worst = error > worst ? error : worst;
        first = s ? first : want;
        last = want;
    }
    print_message("loss %.4f to %.4f, largest error %.2e\n", first, last, worst);
    assert_true(worst < 1e-5);
    assert_true(last < first / 2);
    for (int i = 1; i < 3; i++)
        assert_memory_equal(&runs[i], &runs[0], sizeof runs[0]);
    vka_device_destroy(&device);
}

TEST_PROGRAM(train_attention)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
