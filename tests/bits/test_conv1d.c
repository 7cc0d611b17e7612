/* Convolution beside the oracle: random sizes, types, strides, paddings and layouts. And one that
 * lower limits and a small budget cut keeps its bits. SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <reference/model.h>
#include <vkattn/vkattn_model.h>

#include "patience.h"
#include "problems/compare.h"
#include "problems/limits.h"
#include "problems/operand.h"
#include "plan/plan.h"
#include "test_program.h"
#include "problems/rng.h"

#define CASES 12
#define SMALL_BUDGET 1 /* nanoseconds: cuts whatever can be cut, on the fastest device too */

struct conv {
    struct ref_conv1d c;
    uint32_t after;
    struct operand x, w, bias, y;
    double *want;
};

static struct vka_device *device;

static void check(enum vka_status status)
{
    if (status != VKA_OK)
        fail_msg("%s: %s", vka_status_name(status), vka_device_error(device));
}

static void fill(struct operand *o, struct rng *rng)
{
    for (size_t i = 0; i < o->count; i++)
        o->values[i] = operand_round(o->dtype, rng_uniform(rng, -0.5, 1.5));
    check(operand_write(o));
}

/* Types 0 to 2 of input, weight and output. */
static void create(struct conv *t, const enum vka_dtype types[3], bool dense, bool bias,
                   struct rng *rng)
{
    const struct ref_conv1d *c = &t->c;
    const struct layout plain = layout_dense();
    struct layout x = dense ? plain : layout_random(rng, 3),
                  y = dense ? plain : layout_random(rng, 3);
    struct layout w = plain; /* its last two axes are contiguous */
    w.offset = dense ? 0 : 3;
    w.gap[1] = dense ? 0 : 1;
    check(operand_create(
        device, types[0], 3,
        (const uint32_t[]){(uint32_t)c->batch, (uint32_t)c->length, (uint32_t)c->in}, &x, &t->x));
    check(operand_create(device, types[1], 3,
                         (const uint32_t[]){(uint32_t)c->out, (uint32_t)c->width, (uint32_t)c->in},
                         &w, &t->w));
    if (bias)
        check(operand_create(device, VKA_F32, 1, (const uint32_t[]){(uint32_t)c->out}, &plain,
                             &t->bias));
    check(operand_create(
        device, types[2], 3,
        (const uint32_t[]){(uint32_t)c->batch, (uint32_t)c->rows, (uint32_t)c->out}, &y, &t->y));
    fill(&t->x, rng);
    fill(&t->w, rng);
    if (bias)
        fill(&t->bias, rng);
    t->want = calloc(t->y.count, sizeof *t->want);
    assert_non_null(t->want);
    ref_conv1d(c, t->x.values, t->w.values, t->bias.values, t->want);
}

static void destroy(struct conv *t)
{
    struct operand *all[] = {&t->x, &t->w, &t->bias, &t->y};
    for (size_t i = 0; i < 4; i++)
        operand_destroy(all[i]);
    free(t->want);
}

static struct vka_plan *record(const struct conv *t, uint64_t budget)
{
    struct vka_plan *plan = NULL;
    check(vka_plan_create(device, VKA_INFO(vka_plan_info, .submit_budget = budget), &plan));
    check(vka_plan_add_conv1d(plan, VKA_INFO(vka_conv1d_op, .input = t->x.view, .weight = t->w.view,
                                             .bias = t->bias.view, .stride = (uint32_t)t->c.stride,
                                             .padding_before = (uint32_t)t->c.before,
                                             .padding_after = t->after,
                                             .activation = t->c.activation, .output = t->y.view)));
    check(vka_plan_finish(plan));
    return plan;
}

static struct conv draw(struct rng *rng)
{
    static const uint32_t features[] = {1, 2, 5, 8, 24};
    struct conv t = {
        .c = {.batch = rng_range(rng, 1, 3),
              .length = rng_range(rng, 1, 20),
              .in = features[rng_range(rng, 0, 4)],
              .width = rng_range(rng, 1, 5),
              .out = features[rng_range(rng, 0, 4)],
              .stride = rng_range(rng, 1, 3),
              .before = rng_chance(rng, 40) ? 0 : rng_range(rng, 1, 7)},
        .after = rng_chance(rng, 40) ? 0 : (uint32_t)rng_range(rng, 1, 7),
    };
    t.c.activation = rng_chance(rng, 70) ? VKA_IDENTITY : VKA_RELU;
    if (t.c.length + t.c.before + t.after < t.c.width)
        t.c.length = t.c.width;
    t.c.rows = (t.c.length + t.c.before + t.after - t.c.width) / t.c.stride + 1;
    return t;
}

static void random_problems(void **state)
{
    static const enum vka_dtype types[][3] = {{VKA_F32, VKA_F32, VKA_F32},
                                              {VKA_F16, VKA_F16, VKA_F16},
                                              {VKA_BF16, VKA_BF16, VKA_BF16},
                                              {VKA_F16, VKA_F32, VKA_BF16}};
    struct rng rng = {7};
    char why[WHY], text[160];
    (void)state;
    for (int i = 0; i < CASES; i++) {
        struct conv t = draw(&rng);
        const enum vka_dtype *mix = types[i % 4];
        bool dense = rng_chance(&rng, 50);
        create(&t, mix, dense, rng_chance(&rng, 50), &rng);
        snprintf(text, sizeof text,
                 "case %d: %zu x %zu x %zu, padding %zu %u, width %zu, stride %zu, to %zu, %s", i,
                 t.c.batch, t.c.length, t.c.in, t.c.before, t.after, t.c.width, t.c.stride, t.c.out,
                 vka_dtype_name(mix[0]));
        struct vka_plan *plan = record(&t, 0);
        struct operand *outputs[] = {&t.y};
        if (!compare_runs(device, plan, outputs, 1, &rng, why) ||
            !compare_values(&t.y, t.want, compare_limit(mix[2]), "output", text, NULL, why))
            fail_msg("%s: %s", text, why);
        vka_plan_destroy(&plan);
        destroy(&t);
    }
}

/* Rows that take more than LEAST_ALLOCATION are padded slice by slice. */
static void cut_by_limits(void **state)
{
    struct conv t = {.c = {.batch = 2,
                           .length = 4200,
                           .in = 72,
                           .width = 3,
                           .out = 8,
                           .stride = 2,
                           .before = 1,
                           .rows = 2100},
                     .after = 1};
    const enum vka_dtype types[3] = {VKA_F32, VKA_F32, VKA_F32};
    struct rng rng = {9};
    char why[WHY];
    (void)state;
    create(&t, types, true, true, &rng);
    struct vka_plan *plan = record(&t, VKA_NO_BUDGET);
    struct operand *outputs[] = {&t.y};
    if (!compare_runs(device, plan, outputs, 1, &rng, why) ||
        !compare_values(&t.y, t.want, compare_limit(VKA_F32), "output", "whole", NULL, why))
        fail_msg("%s", why);
    struct vka_device_properties usual = limits_lower(device, LEAST_RANGE, LEAST_ALLOCATION);
    struct vka_plan *limited = record(&t, VKA_NO_BUDGET);
    limits_restore(device, &usual);
    struct vka_plan *budget = record(&t, SMALL_BUDGET);
    print_message("%zu passes, %zu by limits, %zu by the budget\n", plan->n_pass, limited->n_pass,
                  budget->n_pass);
    assert_true(limited->n_pass > 2 * plan->n_pass && budget->n_pass > plan->n_pass);
    if (!compare_plans(device, plan, limited, outputs, 1, &rng, why) ||
        !compare_plans(device, plan, budget, outputs, 1, &rng, why))
        fail_msg("%s", why);
    vka_plan_destroy(&plan);
    vka_plan_destroy(&limited);
    vka_plan_destroy(&budget);
    destroy(&t);
}

TEST_PROGRAM(conv1d)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_problems),
                                       cmocka_unit_test(cut_by_limits)};
    if (vka_device_create(NULL, &device) != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device, no convolution was compared\n");
        return 77;
    }
    int result = cmocka_run_group_tests(tests, NULL, NULL);
    vka_device_destroy(&device);
    return result;
}
