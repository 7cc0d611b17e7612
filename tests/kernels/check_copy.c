/* Strided copies: every pair of types x every order of axes, exact to the bit of the rounding. */
#include "check.h"

#include <op/common/copy.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Where conversions go wrong: ties, the ends of each type's range, subnormals, what is not
 * finite. */
static const double corners[] = {
    0.0,       -0.0,     1.0,         1 + 0x1p-11, 1 + 3 * 0x1p-11, 1 + 0x1p-8, 1 + 3 * 0x1p-8,
    65504,     65519,    65520,       -65536,      0x1p-14,         0x1p-24,    0x1p-25,
    0x1.8p-25, 0x1p-26,  0x1.ffcp-15, 0x1p-126,    -0x1p-133,       0x1p-149,   3.38953139e38,
    3.4e38,    INFINITY, -INFINITY,   NAN,
};

static double draw_value(struct rng *rng)
{
    if (rng_chance(rng, 30))
        return corners[rng_range(rng, 0, sizeof corners / sizeof corners[0] - 1)];
    return ldexp(rng_uniform(rng, -1, 1), (int)rng_range(rng, 0, 40) - 25);
}

static enum vka_status add(struct vka_plan *plan, const struct operand *from,
                           const struct operand *to)
{
    struct plan_mark mark;
    enum vka_status status = plan_begin(plan, __func__, &mark);
    if (status != VKA_OK)
        return status;
    return plan_end(plan, &mark, plan_copy(plan, "copy", from->view, to->view));
}

/* The n-th of the 24 orders of four axes. */
static void set_order(uint32_t n, uint32_t order[4])
{
    uint32_t left[4] = {0, 1, 2, 3};
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t choices = 4 - i, at = n % choices;
        n /= choices;
        order[i] = left[at];
        left[at] = left[choices - 1];
    }
}

/* NMSE is no measure of one bit: each value has to be the type's nearest. */
static bool same(double got, double want)
{
    return isnan(want) ? isnan(got) : got == want && !signbit(got) == !signbit(want);
}

static void compare_exact(struct check *c, const struct operand *to, const double *want,
                          const char *text)
{
    char why[WHY];
    for (size_t i = 0; i < to->count; i++) {
        if (same(to->values[i], want[i]))
            continue;
        snprintf(why, WHY, "element %zu is %a, not %a", i, to->values[i], want[i]);
        check_fail(c, text, why);
        return;
    }
}

static void run_case(struct check *c, enum vka_dtype from_type, enum vka_dtype to_type, uint32_t n)
{
    static const uint32_t sizes[][4] = {{2, 3, 5, 7}, {1, 1, 1, 1}, {3, 1, 33, 65}, {1, 2, 64, 16}};
    const uint32_t *size = sizes[rng_range(&c->rng, 0, 3)];
    struct operand from = {0}, to = {0};
    struct layout from_layout = layout_random(&c->rng, 4), to_layout = layout_random(&c->rng, 4);
    struct vka_plan *plan = NULL;
    char text[CASE_TEXT];
    set_order(n, to_layout.order);
    snprintf(text, sizeof text, "%ux%ux%ux%u %s -> %s, axes %u%u%u%u", size[0], size[1], size[2],
             size[3], vka_dtype_name(from_type), vka_dtype_name(to_type), to_layout.order[0],
             to_layout.order[1], to_layout.order[2], to_layout.order[3]);
    enum vka_status status = operand_create(c->device, from_type, 4, size, &from_layout, &from);
    if (status == VKA_OK)
        status = operand_create(c->device, to_type, 4, size, &to_layout, &to);
    double *want = calloc((size_t)size[0] * size[1] * size[2] * size[3], sizeof *want);
    for (size_t i = 0; i < from.count && status == VKA_OK; i++)
        from.values[i] = draw_value(&c->rng);
    if (status == VKA_OK)
        status = want ? operand_write(&from) : VKA_OUT_OF_HOST_MEMORY;
    for (size_t i = 0; i < from.count && status == VKA_OK; i++)
        want[i] = operand_round(to_type, from.values[i]);
    if (status == VKA_OK)
        status = vka_plan_create(c->device, NULL, &plan);
    if (status == VKA_OK)
        status = add(plan, &from, &to);
    long failed = c->n_failed;
    check_plan(c, plan, status, &to, want, 0, text);
    if (c->n_failed == failed)
        compare_exact(c, &to, want, text);
    vka_plan_destroy(&plan);
    operand_destroy(&from);
    operand_destroy(&to);
    free(want);
}

void check_copy(struct check *c)
{
    for (EACH_TYPE(from, dtype_is_float))
        for (EACH_TYPE(to, dtype_is_float))
            for (uint32_t n = 0; n < 24; n++)
                if (check_case(c))
                    run_case(c, from, to, n);
}

void bench_copy(struct check *c)
{
    static const uint32_t size[4] = {1, 8, 1024, 64};
    for (int transposed = 0; transposed < 2; transposed++) {
        struct operand from = {0}, to = {0};
        struct vka_plan *plan = NULL;
        struct layout dense = layout_dense(), other = dense;
        if (transposed) {
            other.order[2] = 3;
            other.order[3] = 2;
        }
        enum vka_status status = operand_create(c->device, VKA_F32, 4, size, &dense, &from);
        if (status == VKA_OK)
            status = operand_create(c->device, VKA_F32, 4, size, &other, &to);
        if (status == VKA_OK)
            status = vka_plan_create(c->device, VKA_INFO(vka_plan_info, .timestamps = true), &plan);
        if (status == VKA_OK)
            status = add(plan, &from, &to);
        check_time(c, plan, status, 8.0 * from.count, "GB/s",
                   transposed ? "8x1024x64 f32 transposed" : "8x1024x64 f32");
        vka_plan_destroy(&plan);
        operand_destroy(&from);
        operand_destroy(&to);
    }
}
