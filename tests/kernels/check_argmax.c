/* Argmax: types x shapes, with ties, zeros of both signs, infinities and NaN. */
#include "check_model.h"

#include "patience.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const struct shape_case {
    uint32_t rank, size[4];
} shapes[] = {
    {1, {1}}, {1, {300}}, {2, {9, 33}}, {3, {2, 3, 130}}, {4, {2, 3, 4, 5}}, {2, {2, 5001}},
};

/* Few values, so that there are ties. */
static double draw(struct rng *rng, int kind)
{
    static const double special[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, -1, 1};
    if (kind == 1)
        return special[rng_range(rng, 0, rng_chance(rng, 90) ? 1 : 6)];
    if (kind == 2)
        return -INFINITY;
    return (double)rng_range(rng, 0, 40) / 8 - 3;
}

static double oracle(const double *x, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n && !isnan(x[best]); i++)
        if (isnan(x[i]) || x[i] > x[best])
            best = i;
    return (double)best;
}

/* budget: of a submit. */
static void run_plan(struct check *c, const struct operand *x, struct operand *y, uint64_t budget,
                     const char *text)
{
    struct vka_plan *plan = NULL;
    char why[WHY];
    const uint32_t n = x->size[x->rank - 1];
    enum vka_status status =
        vka_plan_create(c->device, VKA_INFO(vka_plan_info, .submit_budget = budget), &plan);
    if (status == VKA_OK)
        status =
            vka_plan_add_argmax(plan, VKA_INFO(vka_argmax_op, .input = x->view, .output = y->view));
    if (status == VKA_OK)
        status = vka_plan_finish(plan);
    if (status != VKA_OK)
        check_fail(c, text, vka_device_error(c->device));
    else if (!compare_runs(c->device, plan, &y, 1, &c->rng, why))
        check_fail(c, text, why);
    for (size_t i = 0; i < y->count && status == VKA_OK; i++) {
        double want = oracle(x->values + i * n, n);
        if (y->values[i] == want)
            continue;
        snprintf(why, WHY, "row %zu gives %.0f, not %.0f", i, y->values[i], want);
        check_fail(c, text, why);
        break;
    }
    vka_plan_destroy(&plan);
}

static void run_case(struct check *c, const struct shape_case *s, enum vka_dtype dtype, int kind)
{
    struct operand x = {0}, y = {0};
    char text[CASE_TEXT];
    const uint32_t one = 1;
    enum vka_status status = model_operand(c, dtype, s->rank, s->size, &x);
    if (status == VKA_OK)
        status = model_operand(c, VKA_I32, s->rank > 1 ? s->rank - 1 : 1,
                               s->rank > 1 ? s->size : &one, &y);
    for (size_t i = 0; i < x.count && status == VKA_OK; i++)
        x.values[i] = draw(&c->rng, kind);
    if (status == VKA_OK)
        status = operand_write(&x);
    snprintf(text, sizeof text, "%ux%ux%ux%u, rank %u, %s, values %d", s->size[0], s->size[1],
             s->size[2], s->size[3], s->rank, vka_dtype_name(dtype), kind);
    if (status == VKA_OK) {
        run_plan(c, &x, &y, 0, text);
        run_plan(c, &x, &y, 1, text);
    } else {
        check_fail(c, text, vka_device_error(c->device));
    }
    operand_destroy(&x);
    operand_destroy(&y);
}

void check_argmax(struct check *c)
{
    for (size_t s = 0; s < COUNTOF(shapes); s++)
        for (EACH_TYPE(dtype, dtype_is_float))
            for (int kind = 0; kind < 3; kind++)
                for (int draws = 0; draws < 3; draws++)
                    if (check_case(c))
                        run_case(c, &shapes[s], dtype, kind);
}

void bench_argmax(struct check *c)
{
    const uint32_t size[2] = {1, 128000}, one = 1;
    const struct layout dense = layout_dense();
    struct operand x = {0}, y = {0};
    struct vka_plan *plan = NULL;
    enum vka_status status = operand_create(c->device, VKA_F32, 2, size, &dense, &x);
    if (status == VKA_OK)
        status = operand_create(c->device, VKA_I32, 1, &one, &dense, &y);
    if (status == VKA_OK)
        status = vka_plan_create(c->device, VKA_INFO(vka_plan_info, .timestamps = true), &plan);
    if (status == VKA_OK)
        status =
            vka_plan_add_argmax(plan, VKA_INFO(vka_argmax_op, .input = x.view, .output = y.view));
    check_time(c, plan, status, 4.0 * (double)x.count, "GB/s", "128000 f32");
    vka_plan_destroy(&plan);
    operand_destroy(&x);
    operand_destroy(&y);
}
