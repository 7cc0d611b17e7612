/* Rows at positions: types x shapes and axes x modes, exact to the rounding, NaN as the one without a
 * payload; what is not written stays as it was. */
#include "check_model.h"

#include "patience.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct shape_case {
    uint32_t rank, size[4], axis, length; /* of the update; length: of the output along the axis */
} shapes[] = {
    {2, {1, 1}, 1, 1},          {3, {3, 2, 5}, 1, 4},  {4, {2, 3, 2, 9}, 2, 7},
    {4, {2, 1, 33, 66}, 2, 40}, {3, {4, 3, 6}, 2, 11}, {4, {2, 5, 3, 4}, 1, 9},
};

struct scatter_case {
    struct vka_scatter_op op;
    struct operand x, positions, y;
    double *before, *want;
};

/* Makes NaN of some rows' values, and gives it a sign and a payload in every type. */
static enum vka_status write_nans(struct check *c, struct operand *x)
{
    static const uint32_t bits[] = {
        [VKA_F32] = 0xff800001, [VKA_F16] = 0xfc01, [VKA_BF16] = 0xff81};
    const size_t size = vka_dtype_size(x->dtype);
    for (size_t i = 0; i < x->count; i++)
        x->values[i] = rng_chance(&c->rng, 5) ? NAN : x->values[i];
    enum vka_status status = operand_write(x);
    for (size_t i = 0; i < x->bytes && status == VKA_OK; i += size)
        if (isnan(operand_decode(x->dtype, x->image + i)))
            memcpy(x->image + i, &bits[x->dtype], size);
    return status == VKA_OK ? vka_tensor_write(x->base, x->image, x->bytes) : status;
}

static enum vka_status create(struct check *c, const struct shape_case *s, enum vka_dtype from,
                              enum vka_dtype to, bool positions, struct scatter_case *t)
{
    uint32_t size[4];
    memcpy(size, s->size, sizeof size);
    size[s->axis] = s->length;
    enum vka_status status = model_operand(c, from, s->rank, s->size, &t->x);
    if (status == VKA_OK && positions)
        status = model_operand(c, VKA_I32, 1, s->size, &t->positions);
    if (status == VKA_OK)
        status = model_operand(c, to, s->rank, size, &t->y);
    if (status == VKA_OK)
        status = model_fill(c, &t->x, -2, 2);
    if (status == VKA_OK)
        status = write_nans(c, &t->x);
    for (size_t i = 0; i < t->positions.count; i++) /* inside, across both ends, far outside */
        t->positions.values[i] = rng_chance(&c->rng, 20)
                                     ? (double)(int32_t)rng_next(&c->rng)
                                     : (double)rng_range(&c->rng, 0, 2 * s->length) - s->length / 2;
    if (status == VKA_OK && positions)
        status = operand_write(&t->positions);
    t->before = calloc(t->y.count, sizeof *t->before);
    t->want = calloc(t->y.count, sizeof *t->want);
    if (status == VKA_OK && (!t->before || !t->want))
        status = VKA_OUT_OF_HOST_MEMORY;
    for (size_t i = 0; status == VKA_OK && i < t->y.count; i++)
        t->before[i] = t->want[i] = operand_round(to, rng_uniform(&c->rng, 5, 9));
    t->op.update = t->x.view;
    t->op.positions = t->positions.view;
    t->op.axis = s->axis;
    t->op.output = t->y.view;
    return status;
}

static void oracle(struct scatter_case *t)
{
    const uint32_t axis = t->op.axis;
    for (size_t i = 0; i < t->x.count; i++) {
        size_t at[4] = {0}, rest = i, to = 0;
        for (uint32_t a = t->x.rank; a-- > 0; rest /= t->x.size[a])
            at[a] = rest % t->x.size[a];
        int64_t length = t->y.size[axis];
        int64_t place =
            (int64_t)at[axis] + (t->positions.view ? (int64_t)t->positions.values[at[0]] : 0);
        if (t->op.circular)
            place = (place % length + length) % length;
        if (place < 0 || place >= length)
            continue;
        at[axis] = (size_t)place;
        for (uint32_t a = 0; a < t->y.rank; a++)
            to = to * t->y.size[a] + at[a];
        t->want[to] = operand_round(t->y.dtype, t->x.values[i]);
    }
}

/* Whether element i of what was read has the bits of a number, or those of the NaN without a payload. */
static bool has_bits(const struct operand *o, size_t i, double want)
{
    const size_t size = vka_dtype_size(o->dtype);
    uint64_t at = o->offset;
    uint8_t bits[4];
    for (uint32_t axis = o->rank; axis-- > 0; i /= o->size[axis])
        at += i % o->size[axis] * o->stride[axis];
    operand_encode(o->dtype, want, bits);
    return memcmp(o->got + at * size, bits, size) == 0;
}

/* Runs it over what was there before; budget: of a submit. */
static void run_plan(struct check *c, struct scatter_case *t, uint64_t budget, const char *text)
{
    struct vka_plan *plan = NULL;
    char why[WHY];
    memcpy(t->y.values, t->before, t->y.count * sizeof *t->before);
    enum vka_status status =
        vka_plan_create(c->device, VKA_INFO(vka_plan_info, .submit_budget = budget), &plan);
    if (status == VKA_OK)
        status = operand_write(&t->y);
    if (status == VKA_OK)
        status = vka_plan_add_scatter(plan, &t->op);
    if (status == VKA_OK)
        status = vka_plan_finish(plan);
    for (int run = 0; run < 2 && status == VKA_OK; run++)
        status = vka_plan_run(plan, PATIENCE);
    if (status == VKA_OK)
        status = operand_read(&t->y);
    if (status != VKA_OK)
        check_fail(c, text, vka_device_error(c->device));
    for (size_t i = 0; i < t->y.count && status == VKA_OK; i++)
        if (!has_bits(&t->y, i, t->want[i])) {
            snprintf(why, WHY, "element %zu is %g, not %g, or a NaN of other bits", i,
                     t->y.values[i], t->want[i]);
            check_fail(c, text, why);
            break;
        }
    if (status == VKA_OK && operand_damage(&t->y) != SIZE_MAX)
        check_fail(c, text, "what surrounds the output was overwritten");
    vka_plan_destroy(&plan);
}

static void run_case(struct check *c, const struct shape_case *s, enum vka_dtype from,
                     enum vka_dtype to, bool circular, bool positions)
{
    struct scatter_case t = {.op = {.struct_size = sizeof t.op, .circular = circular}};
    char text[CASE_TEXT];
    enum vka_status status = create(c, s, from, to, positions, &t);
    snprintf(text, sizeof text, "%ux%ux%ux%u, rank %u, axis %u into %u%s%s, %s->%s", s->size[0],
             s->size[1], s->size[2], s->size[3], s->rank, s->axis, s->length,
             circular ? ", circular" : "", positions ? ", positions" : "", vka_dtype_name(from),
             vka_dtype_name(to));
    if (status != VKA_OK) {
        check_fail(c, text, vka_device_error(c->device));
    } else {
        oracle(&t);
        run_plan(c, &t, 0, text);
        run_plan(c, &t, 1, text);
    }
    operand_destroy(&t.x);
    operand_destroy(&t.positions);
    operand_destroy(&t.y);
    free(t.before);
    free(t.want);
}

void check_scatter(struct check *c)
{
    for (size_t s = 0; s < COUNTOF(shapes); s++)
        for (EACH_TYPE(from, dtype_is_float))
            for (EACH_TYPE(to, dtype_is_float))
                for (int mode = 0; mode < 4; mode++)
                    if ((!(mode & 1) || shapes[s].size[shapes[s].axis] <= shapes[s].length) &&
                        check_case(c))
                        run_case(c, &shapes[s], from, to, mode & 1, mode & 2);
}

void bench_scatter(struct check *c)
{
    const uint32_t size[4] = {4, 8, 512, 128}, to[4] = {4, 8, 4096, 128};
    const struct layout dense = layout_dense();
    struct operand x = {0}, y = {0};
    enum vka_status status = operand_create(c->device, VKA_F16, 4, size, &dense, &x);
    if (status == VKA_OK)
        status = operand_create(c->device, VKA_F16, 4, to, &dense, &y);
    struct vka_plan *plan = NULL;
    if (status == VKA_OK)
        status = vka_plan_create(c->device, VKA_INFO(vka_plan_info, .timestamps = true), &plan);
    if (status == VKA_OK)
        status = vka_plan_add_scatter(
            plan, VKA_INFO(vka_scatter_op, .update = x.view, .axis = 2, .output = y.view));
    check_time(c, plan, status, 4.0 * (double)x.count, "GB/s", "4x8x512x128 f16");
    vka_plan_destroy(&plan);
    operand_destroy(&x);
    operand_destroy(&y);
}
