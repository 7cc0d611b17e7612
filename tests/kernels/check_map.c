/* Element by element: functions x types x shapes that broadcast, over small and large arguments; and
 * sums and products, which are exact to the rounding. */
#include "check_model.h"

#include "patience.h"

#include <reference/model.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const struct shape_case {
    uint32_t rank_x, x[4], rank_b, b[4], rank_y, y[4];
} shapes[] = {
    {1, {1}, 1, {1}, 1, {1}},
    {2, {5, 66}, 2, {5, 66}, 2, {5, 66}},
    {4, {2, 3, 4, 5}, 1, {5}, 4, {2, 3, 4, 5}},
    {4, {2, 3, 4, 5}, 3, {3, 1, 1}, 4, {2, 3, 4, 5}},
    {3, {3, 1, 7}, 4, {2, 1, 6, 1}, 4, {2, 3, 6, 7}},
    {2, {1, 1}, 2, {9, 130}, 2, {9, 130}},
    {3, {2, 5, 1030}, 2, {5, 1}, 3, {2, 5, 1030}},
    {1, {6000}, 1, {6000}, 1, {6000}},
};

/* Types of x, b and y. */
static const enum vka_dtype mixes[][3] = {
    {VKA_F32, VKA_F32, VKA_F32},  {VKA_F16, VKA_F16, VKA_F16},  {VKA_BF16, VKA_BF16, VKA_BF16},
    {VKA_F16, VKA_F32, VKA_BF16}, {VKA_F32, VKA_BF16, VKA_F16},
};

enum kind { KIND_UNARY, KIND_GATED, KIND_ADD, KIND_MULTIPLY, KINDS };

struct map_case {
    enum kind kind;
    struct vka_activation_op activation;
    struct vka_binary_op binary;
    struct operand x, b, y;
    double *want;
};

static enum vka_status add(struct vka_plan *plan, const void *job)
{
    const struct map_case *t = job;
    return t->kind < KIND_ADD ? vka_plan_add_activation(plan, &t->activation)
                              : vka_plan_add_binary(plan, &t->binary);
}

static double evaluate(const struct map_case *t, size_t i)
{
    double x = t->x.values[operand_broadcast(&t->x, &t->y, i)];
    double b = t->b.view ? t->b.values[operand_broadcast(&t->b, &t->y, i)] : 1;
    double alpha = t->activation.alpha != 0 ? (double)t->activation.alpha : 1;
    if (t->kind < KIND_ADD)
        return ref_activation(t->activation.kind, alpha, x) * b;
    return t->kind == KIND_ADD ? x + b : x * b;
}

static enum vka_status create(struct check *c, const struct shape_case *s,
                              const enum vka_dtype mix[3], struct map_case *t)
{
    bool alone = t->kind == KIND_UNARY;
    enum vka_status status =
        model_operand(c, mix[0], alone ? s->rank_y : s->rank_x, alone ? s->y : s->x, &t->x);
    if (status == VKA_OK && !alone)
        status = model_operand(c, mix[1], s->rank_b, s->b, &t->b);
    if (status == VKA_OK)
        status = model_operand(c, mix[2], s->rank_y, s->y, &t->y);
    if (status == VKA_OK)
        status = model_fill(c, &t->x, -3, 9);
    if (status == VKA_OK)
        status = model_fill(c, &t->b, -2, 2);
    t->want = calloc(t->y.count, sizeof *t->want);
    t->activation.input = t->binary.a = t->x.view;
    t->activation.multiplier = t->binary.b = t->b.view;
    t->activation.output = t->binary.output = t->y.view;
    return status == VKA_OK && !t->want ? VKA_OUT_OF_HOST_MEMORY : status;
}

/* The output in place of an input of its type and shape. */
static void check_in_place(struct check *c, struct map_case *t, const char *text)
{
    struct vka_plan *plan = NULL;
    struct operand *result = t->x.dtype == t->y.dtype && t->x.count == t->y.count   ? &t->x
                             : t->b.dtype == t->y.dtype && t->b.count == t->y.count ? &t->b
                                                                                    : NULL;
    if (!result || !result->view || result->rank != t->y.rank)
        return;
    t->activation.output = t->binary.output = result->view;
    enum vka_status status = vka_plan_create(c->device, NULL, &plan);
    if (status == VKA_OK)
        status = add(plan, t);
    model_run_in_place(c, plan, status, result, t->want, text);
}

static void run_case(struct check *c, const struct shape_case *s, const enum vka_dtype mix[3],
                     enum kind kind, enum vka_activation function)
{
    struct map_case t = {.kind = kind};
    char text[CASE_TEXT];
    t.activation = *VKA_INFO(vka_activation_op, .kind = function,
                             .alpha = rng_chance(&c->rng, 50) ? 0 : 1.702f);
    t.binary = *VKA_INFO(vka_binary_op, .kind = kind == KIND_MULTIPLY ? VKA_MULTIPLY : VKA_ADD);
    enum vka_status status = create(c, s, mix, &t);
    for (size_t i = 0; i < t.y.count && status == VKA_OK; i++)
        t.want[i] = evaluate(&t, i);
    snprintf(text, sizeof text, "kind %d, function %d, alpha %g, %ux%ux%ux%u, rank %u, %s,%s->%s",
             (int)kind, (int)function, (double)t.activation.alpha, s->y[0], s->y[1], s->y[2],
             s->y[3], s->rank_y, vka_dtype_name(mix[0]), vka_dtype_name(mix[1]),
             vka_dtype_name(mix[2]));
    const long failed = c->n_failed;
    model_check(c, status, add, &t, &t.y, t.want, text);
    if (c->n_failed == failed)
        check_in_place(c, &t, text);
    operand_destroy(&t.x);
    operand_destroy(&t.b);
    operand_destroy(&t.y);
    free(t.want);
}

/* The bounds of vkattn_model.h, element by element, over all magnitudes. */
#define POINTS 65536u
static double bound(enum vka_activation function, double want)
{
    return fabs(want) < 1e-30 ? 1e-30 : (function == VKA_GELU_TANH ? 2e-5 : 1e-6) * fabs(want);
}

static void check_accuracy(struct check *c, enum vka_activation function)
{
    struct map_case t = {.kind = KIND_UNARY};
    const uint32_t n = POINTS;
    const struct layout dense = layout_dense();
    struct vka_plan *plan = NULL;
    char text[CASE_TEXT], why[WHY];
    t.activation = *VKA_INFO(vka_activation_op, .kind = function);
    enum vka_status status = operand_create(c->device, VKA_F32, 1, &n, &dense, &t.x);
    if (status == VKA_OK)
        status = operand_create(c->device, VKA_F32, 1, &n, &dense, &t.y);
    for (uint32_t i = 0; i < n && status == VKA_OK; i++) {
        double magnitude = ldexp(1, (int)(i % 40) - 36) * rng_uniform(&c->rng, 1, 2);
        double x = i % 3 ? rng_uniform(&c->rng, -12, 12) : i & 1 ? magnitude : -magnitude;
        t.x.values[i] = (double)(float)x;
    }
    if (status == VKA_OK)
        status = operand_write(&t.x);
    t.activation.input = t.x.view;
    t.activation.output = t.y.view;
    if (status == VKA_OK)
        status = vka_plan_create(c->device, NULL, &plan);
    if (status == VKA_OK)
        status = add(plan, &t);
    if (status == VKA_OK)
        status = vka_plan_finish(plan);
    if (status == VKA_OK)
        status = vka_plan_run(plan, PATIENCE);
    if (status == VKA_OK)
        status = operand_read(&t.y);
    snprintf(text, sizeof text, "accuracy of function %d", (int)function);
    if (status != VKA_OK)
        check_fail(c, text, vka_device_error(c->device));
    double worst = 0;
    for (uint32_t i = 0; i < n && status == VKA_OK; i++) {
        double x = t.x.values[i], want = ref_activation(function, 1, x);
        double error = fabs(t.y.values[i] - want);
        if (want != 0 && fabs(want) > 1e-30 && error / fabs(want) > worst)
            worst = error / fabs(want);
        if (error <= bound(function, want))
            continue;
        snprintf(why, WHY, "f(%a) is %.9g, not %.9g", x, t.y.values[i], want);
        check_fail(c, text, why);
        break;
    }
    printf("  function %d: largest relative error %.2e\n", (int)function, worst);
    vka_plan_destroy(&plan);
    operand_destroy(&t.x);
    operand_destroy(&t.y);
}

void check_map(struct check *c)
{
    for (int f = VKA_IDENTITY; f < VKA_ACTIVATION_COUNT; f++)
        if (check_case(c))
            check_accuracy(c, (enum vka_activation)f);
    for (size_t s = 0; s < COUNTOF(shapes); s++)
        for (size_t mix = 0; mix < COUNTOF(mixes); mix++)
            for (int kind = 0; kind < KINDS; kind++)
                for (int f = VKA_IDENTITY; f < (kind < KIND_ADD ? VKA_ACTIVATION_COUNT : 1); f++)
                    if (check_case(c))
                        run_case(c, &shapes[s], mixes[mix], (enum kind)kind,
                                 (enum vka_activation)f);
}

void bench_map(struct check *c)
{
    const uint32_t size[2] = {512, 11008};
    const struct layout dense = layout_dense();
    struct map_case t = {.kind = KIND_GATED};
    t.activation = *VKA_INFO(vka_activation_op, .kind = VKA_SILU);
    enum vka_status status = operand_create(c->device, VKA_F16, 2, size, &dense, &t.x);
    if (status == VKA_OK)
        status = operand_create(c->device, VKA_F16, 2, size, &dense, &t.b);
    if (status == VKA_OK)
        status = operand_create(c->device, VKA_F16, 2, size, &dense, &t.y);
    t.activation.input = t.x.view;
    t.activation.multiplier = t.b.view;
    t.activation.output = t.y.view;
    model_time(c, status, add, &t, 6.0 * (double)t.x.count, "SwiGLU 512x11008 f16");
    operand_destroy(&t.x);
    operand_destroy(&t.b);
    operand_destroy(&t.y);
}
