/* Gradients element by element, and sums over axes: functions x types x shapes that broadcast x what
 * is wanted and accumulated; and biases of many rows. */
#include "check_model.h"

#include <reference/model.h>
#include <reference/train.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    {1, {6000}, 1, {1}, 1, {6000}},
    {2, {1, 3}, 2, {4100, 3}, 2, {4100, 3}},
    {4, {1, 3, 1, 17}, 4, {2, 1, 9, 1}, 4, {2, 3, 9, 17}},
};

/* Types of x, b, dy and the gradients. */
static const enum vka_dtype mixes[][4] = {
    {VKA_F32, VKA_F32, VKA_F32, VKA_F32},     {VKA_F16, VKA_F16, VKA_F16, VKA_F16},
    {VKA_BF16, VKA_BF16, VKA_BF16, VKA_BF16}, {VKA_F16, VKA_F32, VKA_BF16, VKA_F32},
    {VKA_F32, VKA_BF16, VKA_F32, VKA_F16},
};

struct slope_case {
    struct vka_activation_backward_op op;
    struct operand x, b, dy, dx, db;
    double *want[2]; /* of dx and db */
    bool of_b;       /* the gradient that is compared */
};

static enum vka_status add(struct vka_plan *plan, const void *job)
{
    return vka_plan_add_activation_backward(plan, job);
}

static void oracle(struct slope_case *t)
{
    double alpha = t->op.alpha != 0 ? (double)t->op.alpha : 1;
    for (size_t i = 0; i < t->dy.count; i++) {
        size_t at = operand_broadcast(&t->x, &t->dy, i),
               b_at = t->b.view ? operand_broadcast(&t->b, &t->dy, i) : 0;
        double x = t->x.values[at], b = t->b.view ? t->b.values[b_at] : 1, dy = t->dy.values[i];
        t->want[0][at] += dy * b * ref_activation_slope(t->op.kind, alpha, x);
        if (t->b.view)
            t->want[1][b_at] += dy * ref_activation(t->op.kind, alpha, x);
    }
}

static enum vka_status create(struct check *c, const struct shape_case *s,
                              const enum vka_dtype mix[4], bool gated, struct slope_case *t)
{
    enum vka_status status =
        model_operand(c, mix[0], gated ? s->rank_x : s->rank_y, gated ? s->x : s->y, &t->x);
    if (status == VKA_OK && gated)
        status = model_operand(c, mix[1], s->rank_b, s->b, &t->b);
    if (status == VKA_OK)
        status = model_operand(c, mix[2], s->rank_y, s->y, &t->dy);
    if (status == VKA_OK)
        status = model_operand(c, mix[3], t->x.rank, t->x.size, &t->dx);
    if (status == VKA_OK && gated)
        status = model_operand(c, mix[3], t->b.rank, t->b.size, &t->db);
    if (status == VKA_OK)
        status = model_fill(c, &t->x, -3, 5);
    if (status == VKA_OK)
        status = model_fill(c, &t->b, -2, 2);
    if (status == VKA_OK)
        status = model_fill(c, &t->dy, -1, 2);
    t->want[0] = calloc(t->dx.count, sizeof(double));
    t->want[1] = calloc(t->db.count + 1, sizeof(double));
    t->op.input = t->x.view;
    t->op.multiplier = t->b.view;
    t->op.output_gradient = t->dy.view;
    return status == VKA_OK && !(t->want[0] && t->want[1]) ? VKA_OUT_OF_HOST_MEMORY : status;
}

/* Each gradient alone. */
static void run_case(struct check *c, const struct shape_case *s, const enum vka_dtype mix[4],
                     bool gated, enum vka_activation function)
{
    struct slope_case t = {{0}, {0}, {0}, {0}, {0}, {0}, {NULL, NULL}, false};
    char text[CASE_TEXT];
    t.op = *VKA_INFO(vka_activation_backward_op, .kind = function,
                     .alpha = rng_chance(&c->rng, 50) ? 0 : 1.702f);
    enum vka_status status = create(c, s, mix, gated, &t);
    if (status == VKA_OK)
        oracle(&t);
    snprintf(text, sizeof text, "function %d%s, alpha %g, %ux%ux%ux%u, rank %u, %s,%s,%s->%s",
             (int)function, gated ? " gated" : "", (double)t.op.alpha, s->y[0], s->y[1], s->y[2],
             s->y[3], s->rank_y, vka_dtype_name(mix[0]), vka_dtype_name(mix[1]),
             vka_dtype_name(mix[2]), vka_dtype_name(mix[3]));
    /* A sum over axes is of other kernels where nothing repeats. */
    const bool sums = c->kernel == KERNEL_sum_axes;
    if (!sums || t.x.count < t.dy.count) {
        t.op.input_gradient.tensor = t.dx.view;
        model_check(c, status, add, &t.op, &t.dx, t.want[0], text);
    }
    if (gated && (!sums || t.b.count < t.dy.count)) {
        t.op.input_gradient.tensor = NULL;
        t.op.multiplier_gradient.tensor = t.db.view;
        model_check(c, status, add, &t.op, &t.db, t.want[1], text);
    }
    struct operand *all[] = {&t.x, &t.b, &t.dy, &t.dx, &t.db};
    for (size_t i = 0; i < COUNTOF(all); i++)
        operand_destroy(all[i]);
    free(t.want[0]);
    free(t.want[1]);
}

void check_slopes(struct check *c)
{
    for (size_t s = 0; s < COUNTOF(shapes); s++)
        for (size_t mix = 0; mix < COUNTOF(mixes); mix++)
            for (int f = VKA_IDENTITY; f < VKA_ACTIVATION_COUNT; f++)
                for (int gated = 0; gated < 2; gated++)
                    if (check_case(c))
                        run_case(c, &shapes[s], mixes[mix], gated, (enum vka_activation)f);
}

/* ---- Biases ---------------------------------------------------------------------------------- */

static enum vka_status add_linear(struct vka_plan *plan, const void *job)
{
    return vka_plan_add_linear_backward(plan, job);
}

static void run_bias(struct check *c, uint32_t rank, const uint32_t *size, enum vka_dtype from,
                     enum vka_dtype to)
{
    struct operand dy = {0}, db = {0};
    struct vka_linear_backward_op op = {.struct_size = sizeof op};
    const uint32_t width = size[rank - 1];
    double *want = calloc(width, sizeof *want);
    char text[CASE_TEXT];
    enum vka_status status = want ? VKA_OK : VKA_OUT_OF_HOST_MEMORY;
    if (status == VKA_OK)
        status = model_operand(c, from, rank, size, &dy);
    if (status == VKA_OK)
        status = model_operand(c, to, 1, &width, &db);
    if (status == VKA_OK)
        status = model_fill(c, &dy, -2, 3);
    if (status == VKA_OK)
        ref_linear_backward(NULL, NULL, dy.values, dy.count / width, 1, width, false, NULL, NULL,
                            want);
    op.output_gradient = dy.view;
    op.bias_gradient.tensor = db.view;
    snprintf(text, sizeof text, "bias, %ux%ux%ux%u, rank %u, %s->%s", size[0], size[1], size[2],
             size[3], rank, vka_dtype_name(from), vka_dtype_name(to));
    model_check(c, status, add_linear, &op, &db, want, text);
    operand_destroy(&dy);
    operand_destroy(&db);
    free(want);
}

void check_sums(struct check *c)
{
    static const struct {
        uint32_t rank, size[4];
    } biases[] = {
        {1, {5}},          {2, {1, 70}},         {2, {7, 1}},
        {2, {9000, 3}},    {2, {60000, 1}},      {2, {4099, 33}},
        {3, {3, 700, 10}}, {4, {2, 3, 500, 20}}, {4, {5, 1, 7, 129}},
        {2, {2048, 66}},   {3, {130, 41, 5}},
    };
    for (size_t s = 0; s < COUNTOF(biases); s++)
        for (size_t mix = 0; mix < COUNTOF(mixes); mix++)
            if (check_case(c))
                run_bias(c, biases[s].rank, biases[s].size, mixes[mix][2], mixes[mix][3]);
    for (size_t s = 2; s < COUNTOF(shapes); s++)
        for (size_t mix = 0; mix < COUNTOF(mixes); mix++)
            if (shapes[s].rank_x != shapes[s].rank_b || shapes[s].x[0] != shapes[s].b[0])
                if (check_case(c))
                    run_case(c, &shapes[s], mixes[mix], true, VKA_SILU);
}

static void bench_op(struct check *c, enum vka_dtype dtype, uint32_t rows, uint32_t width, bool sum)
{
    const uint32_t size[2] = {rows, width};
    const struct layout dense = layout_dense();
    struct operand x = {0}, dy = {0}, dx = {0};
    char text[CASE_TEXT];
    enum vka_status status = operand_create(c->device, dtype, 2, size, &dense, &x);
    if (status == VKA_OK)
        status = operand_create(c->device, dtype, 2, size, &dense, &dy);
    if (status == VKA_OK)
        status = operand_create(c->device, dtype, sum ? 1 : 2, sum ? &width : size, &dense, &dx);
    const double bytes = (double)dy.count * (double)vka_dtype_size(dtype);
    snprintf(text, sizeof text, "%s %ux%u %s", sum ? "bias" : "gelu", rows, width,
             vka_dtype_name(dtype));
    if (sum)
        model_time(c, status, add_linear,
                   VKA_INFO(vka_linear_backward_op, .output_gradient = dy.view,
                            .bias_gradient.tensor = dx.view),
                   bytes, text);
    else
        model_time(c, status, add,
                   VKA_INFO(vka_activation_backward_op, .kind = VKA_GELU, .input = x.view,
                            .output_gradient = dy.view, .input_gradient.tensor = dx.view),
                   3 * bytes, text);
    operand_destroy(&x);
    operand_destroy(&dy);
    operand_destroy(&dx);
}

void bench_slopes(struct check *c)
{
    bench_op(c, VKA_F16, 512, 4096, false);
}

void bench_sums(struct check *c)
{
    bench_op(c, VKA_F32, 4096, 1024, true);
    bench_op(c, VKA_F32, 60000, 10, true);
}
