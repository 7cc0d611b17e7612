/* Norms: types x shapes and axes x kinds x what is there of residual, sum, weight, bias and gate, with
 * groups drawn. */
#include "check_model.h"

#include <reference/model.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct shape_case {
    uint32_t rank, size[4], axes;
} shapes[] = {
    {1, {1}, 0},          {2, {5, 64}, 0},      {3, {2, 3, 7}, 1},    {4, {2, 3, 4, 5}, 1},
    {4, {3, 2, 5, 9}, 2}, {4, {2, 3, 4, 6}, 3}, {4, {2, 3, 4, 5}, 4}, {3, {2, 2, 1030}, 1},
    {2, {3, 4098}, 1},    {1, {20001}, 1},      {3, {7, 1, 33}, 2},   {4, {65, 3, 1, 8}, 1},
};

enum option {
    HAS_RESIDUAL = 1,
    HAS_SUM = 2,
    HAS_WEIGHT = 4,
    HAS_BIAS = 8,
    HAS_GATE = 16,
    GATE_FIRST = 32 /* the gate before the norm */
};

/* What models have, and each alone. */
static const unsigned option_sets[] = {0, 1, 2, 3, 4, 7, 12, 15, 16, 20, 28, 52};
#define DRAWS 3 /* of those, for each shape, kind and mix */

/* Types of input and sum, residual, weight and bias, output. */
static const enum vka_dtype mixes[][4] = {
    {VKA_F32, VKA_F32, VKA_F32, VKA_F32},
    {VKA_F16, VKA_F16, VKA_F16, VKA_F16},
    {VKA_BF16, VKA_BF16, VKA_F32, VKA_BF16},
    {VKA_F16, VKA_F32, VKA_BF16, VKA_F32},
};

struct norm_case {
    struct vka_norm_op op;
    struct operand x, residual, weight, bias, sum, gate, y;
    double *values, *want;
    size_t n; /* elements of a row */
};

static enum vka_status add(struct vka_plan *plan, const void *op)
{
    return vka_plan_add_norm(plan, op);
}

static enum vka_status create(struct check *c, const struct shape_case *s,
                              const enum vka_dtype mix[4], unsigned options, struct norm_case *t)
{
    const uint32_t axes = s->axes ? s->axes : 1, *row = s->size + s->rank - axes;
    enum vka_status status = model_operand(c, mix[0], s->rank, s->size, &t->x);
    if (status == VKA_OK && options & HAS_RESIDUAL)
        status = model_operand(c, mix[1], s->rank, s->size, &t->residual);
    if (status == VKA_OK && options & HAS_SUM)
        status = model_operand(c, mix[0], s->rank, s->size, &t->sum);
    if (status == VKA_OK && options & HAS_GATE)
        status = model_operand(c, mix[1], s->rank, s->size, &t->gate);
    if (status == VKA_OK && options & HAS_WEIGHT)
        status = model_operand(c, mix[2], axes, row, &t->weight);
    if (status == VKA_OK && options & HAS_BIAS)
        status = model_operand(c, mix[2], axes, row, &t->bias);
    if (status == VKA_OK)
        status = model_operand(c, mix[3], s->rank, s->size, &t->y);
    if (status != VKA_OK)
        return status;
    t->n = 1;
    for (uint32_t i = 0; i < axes; i++)
        t->n *= row[i];
    t->values = calloc(t->x.count, sizeof *t->values);
    t->want = calloc(t->x.count, sizeof *t->want);
    t->op.input = t->x.view;
    t->op.residual = t->residual.view;
    t->op.sum = t->sum.view;
    t->op.weight = t->weight.view;
    t->op.bias = t->bias.view;
    t->op.output = t->y.view;
    t->op.axes = s->axes;
    t->op.gate = t->gate.view;
    t->op.gate_first = (options & GATE_FIRST) != 0;
    if (options & HAS_GATE) {
        static const enum vka_activation gates[] = {VKA_SILU, VKA_SIGMOID, VKA_IDENTITY};
        t->op.gate_activation = gates[rng_range(&c->rng, 0, COUNTOF(gates) - 1)];
    }
    if (axes == 1 && s->rank < 4 && rng_chance(&c->rng, 50)) {
        t->op.groups = (uint32_t)rng_range(&c->rng, 1, 4);
        while (row[0] % t->op.groups)
            t->op.groups--;
    }
    return t->values && t->want ? VKA_OK : VKA_OUT_OF_HOST_MEMORY;
}

/* A row of equal values, whose mean is theirs: with a bias, which is then all that is left. */
static enum vka_status level_row(struct check *c, struct norm_case *t)
{
    const double x = operand_round(t->x.dtype, rng_uniform(&c->rng, 100, 60000));
    if (!t->bias.view || t->residual.view || t->op.gate_first)
        return VKA_OK;
    for (size_t i = t->x.count - t->n; i < t->x.count; i++)
        t->x.values[i] = x;
    return operand_write(&t->x);
}

static enum vka_status fill(struct check *c, struct norm_case *t)
{
    enum vka_status status = model_fill(c, &t->x, -2, 3);
    if (status == VKA_OK)
        status = model_stretch(c, &t->x, (const int[]){125, 64, -60, -100}, 4);
    if (status == VKA_OK)
        status = model_fill(c, &t->residual, -2, 2);
    if (status == VKA_OK)
        status = model_stretch(c, &t->residual, (const int[]){125, 64}, 2);
    if (status == VKA_OK)
        status = model_fill(c, &t->weight, -2, 2);
    if (status == VKA_OK)
        status = model_fill(c, &t->bias, -2, 2);
    if (status == VKA_OK)
        status = model_fill(c, &t->gate, -4, 4);
    if (status == VKA_OK)
        status = level_row(c, t);
    if (status == VKA_OK && t->sum.view)
        status = operand_write_noise(&t->sum, &c->rng);
    return status;
}

static double gate_of(const struct norm_case *t, size_t i, bool first)
{
    return t->gate.view && t->op.gate_first == first
               ? ref_activation(t->op.gate_activation, 1, t->gate.values[i])
               : 1;
}

static void oracle(struct norm_case *t)
{
    const double *w = t->weight.view ? t->weight.values : NULL;
    const double *b = t->bias.view ? t->bias.values : NULL;
    const size_t groups = t->op.groups > 1 ? t->op.groups : 1, n = t->n / groups;
    for (size_t i = 0; i < t->x.count; i++) {
        double v = t->x.values[i] + (t->residual.view ? t->residual.values[i] : 0);
        t->values[i] =
            t->sum.view ? operand_round(t->sum.dtype, (double)(float)v) : v * gate_of(t, i, true);
    }
    for (size_t row = 0; row < t->x.count / n; row++)
        ref_norm(t->values + row * n, 1, n, t->op.kind, w ? w + row % groups * n : NULL,
                 b ? b + row % groups * n : NULL,
                 t->op.epsilon != 0 || t->op.given ? (double)t->op.epsilon : 1e-5,
                 t->want + row * n);
    for (size_t i = 0; i < t->x.count; i++)
        t->want[i] *= gate_of(t, i, false);
}

/* After a run: each element of the sum is rounded once. */
static void check_sum(struct check *c, struct norm_case *t, const char *text)
{
    char why[WHY];
    enum vka_status status = operand_read(&t->sum);
    if (status != VKA_OK) {
        check_fail(c, text, vka_device_error(c->device));
        return;
    }
    for (size_t i = 0; i < t->sum.count; i++)
        if (t->sum.values[i] != t->values[i]) {
            snprintf(why, WHY, "sum: element %zu is %a, not %a", i, t->sum.values[i], t->values[i]);
            check_fail(c, text, why);
            return;
        }
    if (operand_damage(&t->sum) != SIZE_MAX)
        check_fail(c, text, "sum: what surrounds it was overwritten");
}

/* The sum in place of an input, or the output in place of one: the same result. */
static void check_in_place(struct check *c, struct norm_case *t, const char *text)
{
    struct vka_plan *plan = NULL;
    struct vka_norm_op op = t->op;
    struct operand *result = &t->y;
    enum vka_status status = vka_plan_create(c->device, NULL, &plan);
    if (t->sum.view && t->residual.view && t->residual.dtype == t->sum.dtype) {
        op.sum = op.residual;
    } else if (t->sum.view && t->x.dtype == t->sum.dtype) {
        op.sum = op.input;
    } else if (!t->sum.view && t->x.dtype == t->y.dtype) {
        op.output = op.input;
        result = &t->x;
    } else {
        vka_plan_destroy(&plan);
        return;
    }
    if (status == VKA_OK)
        status = vka_plan_add_norm(plan, &op);
    model_run_in_place(c, plan, status, result, t->want, text);
}

static void run_case(struct check *c, const struct shape_case *s, const enum vka_dtype mix[4],
                     enum vka_norm kind, unsigned options)
{
    struct norm_case t = {.op = {.struct_size = sizeof t.op, .kind = kind}};
    char text[CASE_TEXT] = "operands";
    t.op.epsilon = rng_chance(&c->rng, 50) ? 0 : 0.1f;
    t.op.given = kind == VKA_RMS_NORM && rng_chance(&c->rng, 30) ? VKA_GIVEN_EPSILON : 0;
    enum vka_status status = create(c, s, mix, options, &t);
    if (status == VKA_OK)
        status = fill(c, &t);
    if (status == VKA_OK) {
        oracle(&t);
        snprintf(text, sizeof text,
                 "%s %s -> %s, %ux%ux%ux%u, rank %u, %u axes, options %x, %u groups",
                 kind == VKA_LAYER_NORM ? "layer" : "rms", vka_dtype_name(t.x.dtype),
                 vka_dtype_name(t.y.dtype), s->size[0], s->size[1], s->size[2], s->size[3], s->rank,
                 s->axes, options, t.op.groups);
    }
    const long failed = c->n_failed;
    model_check(c, status, add, &t.op, &t.y, t.want, text);
    if (c->n_failed == failed && t.sum.view)
        check_sum(c, &t, text);
    if (c->n_failed == failed)
        check_in_place(c, &t, text);
    struct operand *all[] = {&t.x, &t.residual, &t.weight, &t.bias, &t.sum, &t.gate, &t.y};
    for (size_t i = 0; i < COUNTOF(all); i++)
        operand_destroy(all[i]);
    free(t.values);
    free(t.want);
}

void check_norm(struct check *c)
{
    for (size_t s = 0; s < COUNTOF(shapes); s++)
        for (int kind = 0; kind < VKA_NORM_COUNT; kind++)
            for (size_t mix = 0; mix < COUNTOF(mixes); mix++)
                for (int draw = 0; draw < DRAWS; draw++)
                    if (check_case(c))
                        run_case(c, &shapes[s], mixes[mix], (enum vka_norm)kind,
                                 option_sets[rng_range(&c->rng, 0, COUNTOF(option_sets) - 1)]);
}

void bench_norm(struct check *c)
{
    static const uint32_t sizes[][2] = {{512, 4096}, {1, 4096}};
    for (size_t i = 0; i < COUNTOF(sizes); i++) {
        struct layout dense = layout_dense();
        struct operand x = {0}, w = {0}, y = {0};
        char text[CASE_TEXT];
        enum vka_status status = operand_create(c->device, VKA_F16, 2, sizes[i], &dense, &x);
        if (status == VKA_OK)
            status = operand_create(c->device, VKA_F32, 1, &sizes[i][1], &dense, &w);
        if (status == VKA_OK)
            status = operand_create(c->device, VKA_F16, 2, sizes[i], &dense, &y);
        snprintf(text, sizeof text, "rms %ux%u f16", sizes[i][0], sizes[i][1]);
        model_time(c, status, add,
                   VKA_INFO(vka_norm_op, .input = x.view, .weight = w.view, .output = y.view),
                   4.0 * (double)x.count, text);
        operand_destroy(&x);
        operand_destroy(&w);
        operand_destroy(&y);
    }
}
