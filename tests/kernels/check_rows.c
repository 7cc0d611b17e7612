/* Gradients of norms: types x shapes and axes x kinds x what is wanted; and of the rows of a table:
 * types x shapes, with ids that repeat, ids that are none and more ids than a pass takes. */
#include "check_model.h"

#include <reference/train.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Types of the operands, the weight and the gradients. */
static const enum vka_dtype mixes[][3] = {
    {VKA_F32, VKA_F32, VKA_F32},
    {VKA_F16, VKA_F16, VKA_F16},
    {VKA_BF16, VKA_F32, VKA_BF16},
    {VKA_F16, VKA_BF16, VKA_F32},
};

/* ---- Norms ----------------------------------------------------------------------------------- */

struct norm_case {
    struct vka_norm_backward_op op;
    struct operand x, weight, dy, gradients[3]; /* of input, weight and bias */
    double *want[3];
    size_t n; /* elements of a row */
};

static enum vka_status add_norm(struct vka_plan *plan, const void *op)
{
    return vka_plan_add_norm_backward(plan, op);
}

struct norm_shape {
    uint32_t rank, size[4], axes;
};

static enum vka_status create_norm(struct check *c, const struct norm_shape *s,
                                   const enum vka_dtype mix[3], bool weight, struct norm_case *t)
{
    const uint32_t axes = s->axes ? s->axes : 1, *row = s->size + s->rank - axes;
    enum vka_status status = model_operand(c, mix[0], s->rank, s->size, &t->x);
    if (status == VKA_OK)
        status = model_operand(c, mix[0], s->rank, s->size, &t->dy);
    if (status == VKA_OK && weight)
        status = model_operand(c, mix[1], axes, row, &t->weight);
    for (int i = 0; i < 3 && status == VKA_OK; i++)
        status = model_operand(c, mix[2], i ? axes : s->rank, i ? row : s->size, &t->gradients[i]);
    if (status == VKA_OK)
        status = model_fill(c, &t->x, -2, 3);
    if (status == VKA_OK)
        status = model_stretch(c, &t->x, (const int[]){110, 64, -60, -100}, 4);
    if (status == VKA_OK)
        status = model_fill(c, &t->dy, -2, 3);
    if (status == VKA_OK)
        status = model_fill(c, &t->weight, -2, 2);
    t->n = 1;
    for (uint32_t i = 0; i < axes; i++)
        t->n *= row[i];
    for (int i = 0; i < 3; i++) {
        t->want[i] = calloc(t->x.count + 1, sizeof(double));
        if (!t->want[i])
            return VKA_OUT_OF_HOST_MEMORY;
    }
    t->op.input = t->x.view;
    t->op.weight = t->weight.view;
    t->op.output_gradient = t->dy.view;
    t->op.axes = s->axes;
    return status;
}

static void run_norm(struct check *c, const struct norm_shape *s, const enum vka_dtype mix[3],
                     enum vka_norm kind, bool weight)
{
    struct norm_case t = {.op = {.struct_size = sizeof t.op, .kind = kind}};
    char text[CASE_TEXT] = "operands";
    t.op.epsilon = rng_chance(&c->rng, 50) ? 0 : 0.1f;
    t.op.given = kind == VKA_RMS_NORM && rng_chance(&c->rng, 30) ? VKA_GIVEN_EPSILON : 0;
    const double epsilon = t.op.epsilon != 0 || t.op.given ? (double)t.op.epsilon : 1e-5;
    enum vka_status status = create_norm(c, s, mix, weight, &t);
    if (status == VKA_OK) {
        ref_norm_backward(t.x.values, t.dy.values, t.x.count / t.n, t.n, kind,
                          weight ? t.weight.values : NULL, epsilon, t.want[0], t.want[1],
                          t.want[2]);
        snprintf(text, sizeof text, "%s %s -> %s, %ux%ux%ux%u, rank %u, %u axes, weight %d",
                 kind == VKA_LAYER_NORM ? "layer" : "rms", vka_dtype_name(mix[0]),
                 vka_dtype_name(mix[2]), s->size[0], s->size[1], s->size[2], s->size[3], s->rank,
                 s->axes, weight);
    }
    struct vka_gradient *const wanted[3] = {&t.op.input_gradient, &t.op.weight_gradient,
                                            &t.op.bias_gradient};
    for (int i = 0; i < 3; i++) {
        if (t.n == 1 && (i == 0 || (i == 1 && kind == VKA_LAYER_NORM)))
            continue; /* nothing but what rounding leaves */
        *wanted[i] = (struct vka_gradient){t.gradients[i].view, false};
        if (i == 2) /* of other kernels, if alone */
            *wanted[0] = (struct vka_gradient){t.gradients[0].view, false};
        model_check(c, status, add_norm, &t.op, &t.gradients[i], t.want[i], text);
        *wanted[i] = (struct vka_gradient){NULL, false};
    }
    struct operand *all[] = {&t.x, &t.weight, &t.dy, t.gradients, t.gradients + 1, t.gradients + 2};
    for (size_t i = 0; i < COUNTOF(all); i++)
        operand_destroy(all[i]);
    for (int i = 0; i < 3; i++)
        free(t.want[i]);
}

void check_norm_slopes(struct check *c)
{
    static const struct norm_shape shapes[] = {
        {1, {1}, 0},          {2, {5, 64}, 0},      {3, {2, 3, 7}, 1},    {4, {2, 3, 4, 5}, 1},
        {4, {3, 2, 5, 9}, 2}, {4, {2, 3, 4, 6}, 3}, {4, {2, 3, 4, 5}, 4}, {3, {2, 2, 1030}, 1},
        {2, {4100, 9}, 1},    {1, {20001}, 1},      {3, {7, 1, 33}, 2},   {4, {65, 3, 1, 8}, 1},
        {3, {70, 50, 6}, 1},
    };
    for (size_t s = 0; s < COUNTOF(shapes); s++)
        for (int kind = 0; kind < VKA_NORM_COUNT; kind++)
            for (size_t mix = 0; mix < COUNTOF(mixes); mix++)
                for (int weight = 0; weight < 2; weight++)
                    if (check_case(c))
                        run_norm(c, &shapes[s], mixes[mix], (enum vka_norm)kind, weight);
}

void bench_norm_slopes(struct check *c)
{
    const uint32_t size[2] = {512, 4096};
    struct operand x = {0}, dy = {0}, dx = {0};
    enum vka_status status = model_halves(c, 2, size, 3, (struct operand *[]){&x, &dy, &dx});
    model_time(c, status, add_norm,
               VKA_INFO(vka_norm_backward_op, .input = x.view, .output_gradient = dy.view,
                        .input_gradient.tensor = dx.view),
               6.0 * (double)x.count, "rms 512x4096 f16");
    operand_destroy(&x);
    operand_destroy(&dy);
    operand_destroy(&dx);
}

/* ---- Rows of a table ------------------------------------------------------------------------- */

static enum vka_status add_gather(struct vka_plan *plan, const void *op)
{
    return vka_plan_add_gather_backward(plan, op);
}

struct rows_case {
    struct vka_gather_backward_op op;
    struct operand dy, y;
    struct vka_tensor *ids;
    int32_t *id;
    double *want;
};

/* Half of the ids are one of three, some are none. */
static enum vka_status create_rows(struct check *c, uint32_t rank, const uint32_t *size,
                                   uint32_t table, const enum vka_dtype mix[3], struct rows_case *t)
{
    const uint32_t width = size[rank - 1], y_size[2] = {table, width};
    enum vka_status status = model_operand(c, mix[0], rank, size, &t->dy);
    if (status == VKA_OK)
        status = model_operand(c, mix[2], 2, y_size, &t->y);
    if (status == VKA_OK)
        status = vka_tensor_create(c->device, VKA_I32, rank - 1, size, &t->ids);
    if (status == VKA_OK)
        status = model_fill(c, &t->dy, -1, 2);
    if (status != VKA_OK)
        return status;
    const size_t n = t->dy.count / width;
    t->id = calloc(n, sizeof *t->id);
    t->want = calloc(t->y.count, sizeof *t->want);
    if (!t->id || !t->want)
        return VKA_OUT_OF_HOST_MEMORY;
    for (size_t i = 0; i < n; i++) {
        t->id[i] = (int32_t)rng_range(&c->rng, 0, rng_chance(&c->rng, 50) ? table + 1 : 2) - 1;
        for (size_t j = 0; j < width && t->id[i] >= 0 && (uint32_t)t->id[i] < table; j++)
            t->want[(size_t)t->id[i] * width + j] +=
                (double)(t->op.scale != 0 || t->op.given ? t->op.scale : 1) *
                t->dy.values[i * width + j];
    }
    t->op.ids = t->ids;
    t->op.output_gradient = t->dy.view;
    t->op.table_gradient.tensor = t->y.view;
    return vka_tensor_write(t->ids, t->id, n * sizeof *t->id);
}

static void run_rows(struct check *c, uint32_t rank, const uint32_t *size, uint32_t table,
                     const enum vka_dtype mix[3])
{
    struct rows_case t = {.op = {.struct_size = sizeof t.op}};
    char text[CASE_TEXT];
    t.op.scale = rng_chance(&c->rng, 50) ? 0 : 2.5f;
    t.op.given = rng_chance(&c->rng, 20) ? VKA_GIVEN_SCALE : 0;
    enum vka_status status = create_rows(c, rank, size, table, mix, &t);
    snprintf(text, sizeof text, "%ux%ux%ux%u, rank %u, %u rows of the table, %s->%s", size[0],
             size[1], size[2], size[3], rank, table, vka_dtype_name(mix[0]),
             vka_dtype_name(mix[2]));
    model_check(c, status, add_gather, &t.op, &t.y, t.want, text);
    operand_destroy(&t.dy);
    operand_destroy(&t.y);
    vka_tensor_destroy(&t.ids);
    free(t.id);
    free(t.want);
}

void check_gather_sums(struct check *c)
{
    static const struct {
        uint32_t rank, size[4], table;
    } shapes[] = {{2, {1, 1}, 1},        {2, {20, 33}, 7},      {2, {300, 260}, 40},
                  {3, {3, 41, 65}, 100}, {4, {2, 3, 70, 9}, 5}, {2, {9000, 3}, 11},
                  {3, {2, 8200, 1}, 4}};
    for (size_t s = 0; s < COUNTOF(shapes); s++)
        for (size_t mix = 0; mix < COUNTOF(mixes); mix++)
            if (check_case(c))
                run_rows(c, shapes[s].rank, shapes[s].size, shapes[s].table, mixes[mix]);
}

void bench_gather_sums(struct check *c)
{
    const uint32_t size[2] = {512, 1024};
    struct rows_case t = {.op = {.struct_size = sizeof t.op}};
    enum vka_status status = create_rows(c, 2, size, 32000, mixes[0], &t);
    model_time(c, status, add_gather, &t.op, 4.0 * (double)(t.dy.count + t.y.count),
               "512 ids, 32000x1024 f32");
    operand_destroy(&t.dy);
    operand_destroy(&t.y);
    vka_tensor_destroy(&t.ids);
    free(t.id);
    free(t.want);
}
