/* Means of rows: types x shapes x masks and lengths; what does not count is NaN. */
#include "check_model.h"

#include "patience.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const uint32_t shapes[][3] = {{1, 1, 1},    {3, 7, 5},    {2, 130, 66},
                                     {4, 33, 384}, {1, 5000, 3}, {1, 100000, 2}};

static const enum vka_dtype mixes[][3] = {
    /* x, mask, y */
    {VKA_F32, VKA_F32, VKA_F32},
    {VKA_F16, VKA_BOOL, VKA_F16},
    {VKA_BF16, VKA_F16, VKA_F32},
    {VKA_F32, VKA_BOOL, VKA_BF16},
};

struct pool_case {
    struct vka_pool_op op;
    struct operand x, mask, lengths, y;
    double *want;
};

static enum vka_status add(struct vka_plan *plan, const void *op)
{
    return vka_plan_add_pool(plan, op);
}

static double weight_of(const struct pool_case *t, size_t batch, size_t row)
{
    if (t->lengths.view && (double)row >= t->lengths.values[batch])
        return 0;
    return t->mask.view ? t->mask.values[batch * t->x.size[1] + row] : 1;
}

static void oracle(struct pool_case *t)
{
    const uint32_t *size = t->x.size;
    for (size_t b = 0; b < size[0]; b++)
        for (size_t d = 0; d < size[2]; d++) {
            double sum = 0, weights = 0;
            for (size_t row = 0; row < size[1]; row++) {
                double w = weight_of(t, b, row);
                sum += w != 0 ? w * t->x.values[(b * size[1] + row) * size[2] + d] : 0;
                weights += w;
            }
            t->want[b * size[2] + d] = weights != 0 ? sum / weights : 0;
        }
}

static enum vka_status create(struct check *c, const uint32_t size[3], const enum vka_dtype mix[3],
                              bool mask, bool lengths, struct pool_case *t)
{
    const uint32_t out[2] = {size[0], size[2]};
    enum vka_status status = model_operand(c, mix[0], 3, size, &t->x);
    if (status == VKA_OK && mask)
        status = model_operand(c, mix[1], 2, size, &t->mask);
    if (status == VKA_OK && lengths)
        status = model_operand(c, VKA_I32, 1, size, &t->lengths);
    if (status == VKA_OK)
        status = model_operand(c, mix[2], 2, out, &t->y);
    for (size_t i = 0; i < t->mask.count && status == VKA_OK; i++)
        t->mask.values[i] = rng_chance(&c->rng, 40) ? 0
                            : mix[1] == VKA_BOOL    ? 1
                                                    : (double)rng_range(&c->rng, 1, 8) / 4;
    for (size_t i = 0; i < t->lengths.count && status == VKA_OK; i++)
        t->lengths.values[i] = (double)rng_range(&c->rng, 0, size[1] + 2) - 1;
    if (status == VKA_OK && mask)
        status = operand_write(&t->mask);
    if (status == VKA_OK && lengths)
        status = operand_write(&t->lengths);
    for (size_t i = 0; i < t->x.count && status == VKA_OK; i++) {
        size_t row = i / size[2];
        bool counts = weight_of(t, row / size[1], row % size[1]) != 0;
        t->x.values[i] = counts ? operand_round(mix[0], rng_uniform(&c->rng, -1, 3)) : NAN;
    }
    if (status == VKA_OK)
        status = operand_write(&t->x);
    t->want = calloc((size_t)size[0] * size[2], sizeof *t->want);
    t->op.input = t->x.view;
    t->op.mask = t->mask.view;
    t->op.lengths = t->lengths.view;
    t->op.output = t->y.view;
    return status == VKA_OK && !t->want ? VKA_OUT_OF_HOST_MEMORY : status;
}

static void run_case(struct check *c, const uint32_t size[3], const enum vka_dtype mix[3],
                     bool mask, bool lengths)
{
    struct pool_case t = {.op = {.struct_size = sizeof t.op}};
    char text[CASE_TEXT];
    enum vka_status status = create(c, size, mix, mask, lengths, &t);
    if (status == VKA_OK)
        oracle(&t);
    snprintf(text, sizeof text, "%ux%ux%u, %s -> %s%s%s", size[0], size[1], size[2],
             vka_dtype_name(mix[0]), vka_dtype_name(mix[2]), mask ? ", mask " : "",
             mask ? vka_dtype_name(mix[1]) : "");
    model_check(c, status, add, &t.op, &t.y, t.want, text);
    struct operand *all[] = {&t.x, &t.mask, &t.lengths, &t.y};
    for (size_t i = 0; i < COUNTOF(all); i++)
        operand_destroy(all[i]);
    free(t.want);
}

void check_pool(struct check *c)
{
    for (size_t s = 0; s < COUNTOF(shapes); s++)
        for (size_t mix = 0; mix < COUNTOF(mixes); mix++)
            for (int kind = 0; kind < 4; kind++)
                for (int draws = 0; draws < 2; draws++)
                    if (check_case(c))
                        run_case(c, shapes[s], mixes[mix], kind & 1, kind & 2);
}

void bench_pool(struct check *c)
{
    const uint32_t size[3] = {32, 256, 384}, out[2] = {32, 384};
    const struct layout dense = layout_dense();
    struct operand x = {0}, y = {0};
    enum vka_status status = operand_create(c->device, VKA_F32, 3, size, &dense, &x);
    if (status == VKA_OK)
        status = operand_create(c->device, VKA_F32, 2, out, &dense, &y);
    model_time(c, status, add, VKA_INFO(vka_pool_op, .input = x.view, .output = y.view),
               4.0 * (double)x.count, "32x256x384 f32");
    operand_destroy(&x);
    operand_destroy(&y);
}
