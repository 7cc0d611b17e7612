/* Merging by log-sum-exps: numbers of slices x types x shapes; slices without keys hold NaN. */
#include "check_model.h"

#include <reference/model.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST_SLICES 7

static const uint32_t shapes[][4] = {
    {1, 1, 1, 1}, {2, 3, 5, 7}, {1, 4, 33, 64}, {3, 1, 2, 130}, {1, 1, 700, 6}};

static const uint32_t counts[] = {1, 2, 3, 4, 5, MOST_SLICES};

static const enum vka_dtype mixes[][3] = {
    /* slices of even and of odd index, output */
    {VKA_F32, VKA_F32, VKA_F32},
    {VKA_F16, VKA_F16, VKA_F16},
    {VKA_BF16, VKA_F32, VKA_F32},
    {VKA_F32, VKA_F16, VKA_BF16},
};

struct merge_case {
    struct vka_merge_op op;
    struct operand x[MOST_SLICES], l[MOST_SLICES], y, log_sum;
    struct vka_tensor *slices[MOST_SLICES], *log_sums[MOST_SLICES];
    double *want, *want_log_sum;
};

static enum vka_status add(struct vka_plan *plan, const void *op)
{
    return vka_plan_add_merge(plan, op);
}

/* Some rows have no key in this slice, some in none; some log-sum-exps are far above the others, NaN,
 * or that of an infinite sink. */
static double draw_log_sum(struct check *c, size_t row)
{
    uint32_t kind = rng_range(&c->rng, 0, 40);
    if (row % 11 == 3 || kind < 8)
        return -INFINITY;
    return kind == 8    ? NAN
           : kind == 9  ? INFINITY
           : kind == 10 ? rng_uniform(&c->rng, -300, 300)
                        : rng_uniform(&c->rng, -6, 6);
}

static enum vka_status create_slice(struct check *c, const uint32_t size[4], enum vka_dtype dtype,
                                    struct merge_case *t, uint32_t i)
{
    enum vka_status status = model_operand(c, dtype, 4, size, &t->x[i]);
    if (status == VKA_OK)
        status = model_operand(c, VKA_F32, 3, size, &t->l[i]);
    for (size_t row = 0; row < t->l[i].count && status == VKA_OK; row++)
        t->l[i].values[row] = operand_round(VKA_F32, draw_log_sum(c, row));
    for (size_t j = 0; j < t->x[i].count && status == VKA_OK; j++) {
        bool none = t->l[i].values[j / size[3]] == -INFINITY;
        t->x[i].values[j] = none ? NAN : operand_round(dtype, rng_uniform(&c->rng, -0.5, 1.5));
    }
    if (status == VKA_OK)
        status = operand_write(&t->x[i]);
    if (status == VKA_OK)
        status = operand_write(&t->l[i]);
    t->slices[i] = t->x[i].view;
    t->log_sums[i] = t->l[i].view;
    return status;
}

static enum vka_status create(struct check *c, const uint32_t size[4], const enum vka_dtype mix[3],
                              uint32_t n_slice, struct merge_case *t)
{
    const size_t rows = (size_t)size[0] * size[1] * size[2];
    const double *slices[MOST_SLICES], *log_sums[MOST_SLICES];
    enum vka_status status = model_operand(c, mix[2], 4, size, &t->y);
    if (status == VKA_OK)
        status = model_operand(c, VKA_F32, 3, size, &t->log_sum);
    for (uint32_t i = 0; i < n_slice && status == VKA_OK; i++) {
        status = create_slice(c, size, mix[i % 2], t, i);
        slices[i] = t->x[i].values;
        log_sums[i] = t->l[i].values;
    }
    t->want = calloc(rows * size[3], sizeof *t->want);
    t->want_log_sum = calloc(rows, sizeof *t->want_log_sum);
    t->op.n_slice = n_slice;
    t->op.slices = t->slices;
    t->op.log_sum_exps = t->log_sums;
    t->op.output = t->y.view;
    t->op.log_sum_exp = t->log_sum.view;
    if (status != VKA_OK || !t->want || !t->want_log_sum)
        return status == VKA_OK ? VKA_OUT_OF_HOST_MEMORY : status;
    ref_merge(slices, log_sums, n_slice, rows, size[3], t->want, t->want_log_sum);
    return VKA_OK;
}

static void run_case(struct check *c, const uint32_t size[4], const enum vka_dtype mix[3],
                     uint32_t n_slice)
{
    struct merge_case t = {.op = {.struct_size = sizeof t.op}};
    char text[CASE_TEXT], why[WHY];
    enum vka_status status = create(c, size, mix, n_slice, &t);
    snprintf(text, sizeof text, "%u slices of %ux%ux%ux%u, %s, %s -> %s", n_slice, size[0], size[1],
             size[2], size[3], vka_dtype_name(mix[0]), vka_dtype_name(mix[1]),
             vka_dtype_name(mix[2]));
    model_check(c, status, add, &t.op, &t.y, t.want, text);
    if (status == VKA_OK && (operand_read(&t.log_sum) != VKA_OK ||
                             !compare_log_sums(&t.log_sum, t.want_log_sum, VKA_F32, why)))
        check_fail(c, text, why);
    for (uint32_t i = 0; i < MOST_SLICES; i++) {
        operand_destroy(&t.x[i]);
        operand_destroy(&t.l[i]);
    }
    operand_destroy(&t.y);
    operand_destroy(&t.log_sum);
    free(t.want);
    free(t.want_log_sum);
}

void check_merge(struct check *c)
{
    for (size_t s = 0; s < COUNTOF(shapes); s++)
        for (size_t n = 0; n < COUNTOF(counts); n++)
            for (size_t mix = 0; mix < COUNTOF(mixes); mix++)
                if (check_case(c))
                    run_case(c, shapes[s], mixes[mix], counts[n]);
}

void bench_merge(struct check *c)
{
    const uint32_t size[4] = {1, 32, 512, 128};
    const struct layout dense = layout_dense();
    struct operand x = {0}, l = {0}, y = {0};
    enum vka_status status = operand_create(c->device, VKA_F16, 4, size, &dense, &x);
    if (status == VKA_OK)
        status = operand_create(c->device, VKA_F32, 3, size, &dense, &l);
    if (status == VKA_OK)
        status = operand_create(c->device, VKA_F16, 4, size, &dense, &y);
    struct vka_tensor *const slices[] = {x.view, x.view}, *const log_sums[] = {l.view, l.view};
    model_time(c, status, add,
               VKA_INFO(vka_merge_op, .n_slice = 2, .slices = slices, .log_sum_exps = log_sums,
                        .output = y.view),
               6.0 * (double)x.count, "2 slices of 32x512x128 f16");
    operand_destroy(&x);
    operand_destroy(&l);
    operand_destroy(&y);
}
