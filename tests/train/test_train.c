/* Training: gradients of the linear operation, losses, clipping and whole steps against the oracle. SPDX-License-Identifier: MIT */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <reference/train.h>
#include <vkattn/vkattn_train.h>

#include "patience.h"
#include "problems/compare.h"
#include "problems/types.h"
#include "test_program.h"

#define ASSERT_OK(call) assert_int_equal(call, VKA_OK)
#define REPETITIONS 4
#define BUDGET 2000000 /* nanoseconds: cuts the larger products */

static int open_device(void **state)
{
    struct vka_device *device = NULL;
    if (vka_device_create(NULL, &device) != VKA_OK)
        exit(77);
    *state = device;
    return 0;
}

static int close_device(void **state)
{
    struct vka_device *device = *state;
    vka_device_destroy(&device);
    return 0;
}

static void fill(struct operand *o, struct rng *rng, double low, double high)
{
    for (size_t i = 0; i < o->count; i++)
        o->values[i] = operand_round(o->dtype, rng_uniform(rng, low, high));
    ASSERT_OK(operand_write(o));
}

static void make(struct vka_device *device, struct rng *rng, enum vka_dtype dtype, uint32_t rank,
                 const uint32_t *size, struct operand *o)
{
    const struct layout layout = layout_random(rng, rank);
    ASSERT_OK(operand_create(device, dtype, rank, size, &layout, o));
}

/* ---- Linear ---------------------------------------------------------------------------------- */

struct linear_case {
    uint32_t rank, size[4], out; /* of the input */
};

struct linear_problem {
    struct operand x, w, dy, gradients[3]; /* of input, weight and bias */
    double *want[3];
    bool relu, accumulate[3];
};

static struct vka_gradient wanted(const struct linear_problem *p, int i)
{
    return (struct vka_gradient){p->gradients[i].view, p->accumulate[i]};
}

static struct vka_plan *plan_of(struct vka_device *device, const struct linear_problem *p,
                                uint64_t budget)
{
    struct vka_plan *plan = NULL;
    ASSERT_OK(vka_plan_create(device, VKA_INFO(vka_plan_info, .submit_budget = budget), &plan));
    enum vka_status status = vka_plan_add_linear_backward(
        plan, VKA_INFO(vka_linear_backward_op, .input = p->x.view, .weight = p->w.view,
                       .output_gradient = p->dy.view, .relu_input = p->relu,
                       .input_gradient = wanted(p, 0), .weight_gradient = wanted(p, 1),
                       .bias_gradient = wanted(p, 2)));
    if (status != VKA_OK)
        fail_msg("%s: %u axes, %ux%u, relu %d, add %d%d%d", vka_device_error(device), p->x.rank,
                 p->x.size[0], p->x.size[1], p->relu, p->accumulate[0], p->accumulate[1],
                 p->accumulate[2]);
    ASSERT_OK(vka_plan_finish(plan));
    return plan;
}

/* Runs from the same contents of the gradients, and keeps the bytes that come out. */
static void run_from(struct vka_plan *plan, struct linear_problem *p, uint8_t *const before[3],
                     uint8_t *after[3])
{
    for (int i = 0; i < 3; i++) {
        struct operand *g = &p->gradients[i];
        if (!g->view)
            continue;
        ASSERT_OK(vka_tensor_write(g->base, before[i], g->bytes));
    }
    ASSERT_OK(vka_plan_run(plan, PATIENCE));
    for (int i = 0; i < 3; i++) {
        struct operand *g = &p->gradients[i];
        if (!g->view)
            continue;
        ASSERT_OK(operand_read(g));
        assert_true(operand_damage(g) == SIZE_MAX);
        if (after[i])
            assert_memory_equal(after[i], g->got, g->bytes);
        after[i] = realloc(after[i], g->bytes);
        memcpy(after[i], g->got, g->bytes);
    }
}

/* out: columns of dy. */
static void judge(const struct vka_plan *plan, struct linear_problem *p, uint32_t out,
                  const char *text)
{
    static const char *const names[3] = {"dx", "dw", "db"};
    const uint32_t rows = (uint32_t)(p->dy.count / out), terms[2] = {out, rows};
    char why[WHY];
    for (int i = 0; i < 3; i++) {
        const struct operand *g = &p->gradients[i];
        const double limit =
            i == 2 ? compare_limit(g->dtype) : compare_product_limit(plan, g->dtype, terms[i]);
        if (g->view && !compare_values(g, p->want[i], limit, names[i], text, NULL, why))
            fail_msg("%s: %s", text, why);
    }
}

static void make_problem(struct vka_device *device, struct rng *rng, const struct linear_case *s,
                         enum vka_dtype dtype, struct linear_problem *p)
{
    const uint32_t in = s->size[s->rank - 1], w_size[2] = {s->out, in};
    uint32_t dy_size[4] = {0};
    memcpy(dy_size, s->size, sizeof dy_size);
    dy_size[s->rank - 1] = s->out;
    make(device, rng, dtype, s->rank, s->size, &p->x);
    make(device, rng, dtype, 2, w_size, &p->w);
    make(device, rng, dtype, s->rank, dy_size, &p->dy);
    fill(&p->x, rng, -1, 1.5);
    fill(&p->w, rng, -1, 1.5);
    fill(&p->dy, rng, 0.1, 2);
    p->relu = rng_chance(rng, 40);
    unsigned options = rng_range(rng, 1, 7);
    for (int i = 0; i < 3; i++) {
        p->accumulate[i] = rng_chance(rng, 40);
        if (options >> i & 1)
            make(device, rng, rng_chance(rng, 50) ? VKA_F32 : dtype, i ? 3 - (uint32_t)i : s->rank,
                 i ? w_size : s->size, &p->gradients[i]);
        p->want[i] = calloc(p->x.count + p->w.count, sizeof(double));
        assert_non_null(p->want[i]);
    }
}

static void linear_case(struct vka_device *device, struct rng *rng, const struct linear_case *s,
                        enum vka_dtype dtype)
{
    struct linear_problem p = {.relu = false};
    uint8_t *before[3] = {NULL}, *after[3] = {NULL};
    const uint32_t in = s->size[s->rank - 1];
    char text[160];
    make_problem(device, rng, s, dtype, &p);
    ref_linear_backward(p.x.values, p.w.values, p.dy.values, p.x.count / in, in, s->out, p.relu,
                        p.want[0], p.want[1], p.want[2]);
    for (int i = 0; i < 3; i++) {
        struct operand *g = &p.gradients[i];
        if (!g->view)
            continue;
        fill(g, rng, -1, 1);
        for (size_t j = 0; j < g->count && p.accumulate[i]; j++)
            p.want[i][j] += g->values[j];
        before[i] = malloc(g->bytes);
        assert_non_null(before[i]);
        memcpy(before[i], g->image, g->bytes);
    }
    snprintf(text, sizeof text, "%ux%ux%ux%u rank %u to %u, %s, relu %d, add %d%d%d", s->size[0],
             s->size[1], s->size[2], s->size[3], s->rank, s->out, vka_dtype_name(dtype), p.relu,
             p.accumulate[0], p.accumulate[1], p.accumulate[2]);
    struct vka_plan *whole = plan_of(device, &p, VKA_NO_BUDGET), *cut = plan_of(device, &p, BUDGET);
    for (int i = 0; i < REPETITIONS; i++)
        run_from(i % 2 ? cut : whole, &p, before, after);
    judge(whole, &p, s->out, text);
    vka_plan_destroy(&whole);
    vka_plan_destroy(&cut);
    struct operand *all[] = {&p.x, &p.w, &p.dy, p.gradients, p.gradients + 1, p.gradients + 2};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        operand_destroy(all[i]);
    for (int i = 0; i < 3; i++) {
        free(p.want[i]);
        free(before[i]);
        free(after[i]);
    }
}

/* Every combination of gradients, over shapes with several leading axes and many rows. */
static void linear(void **state)
{
    static const struct linear_case cases[] = {
        {1, {7}, 5},         {2, {1, 33}, 17},     {2, {64, 784}, 10},
        {3, {3, 5, 20}, 40}, {4, {2, 3, 4, 9}, 8}, {4, {2, 1, 17, 1}, 3},
        {2, {4100, 24}, 12}, {2, {17000, 5}, 7},   {3, {40, 65, 31}, 1},
    };
    struct rng rng = {2026};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (EACH_TYPE(dtype, dtype_is_float))
            for (int draw = 0; draw < 2; draw++)
                linear_case(*state, &rng, &cases[i], dtype);
}

/* ---- Losses and norms ------------------------------------------------------------------------ */

static struct vka_tensor *number(struct vka_device *device, enum vka_dtype dtype)
{
    struct vka_tensor *tensor = NULL;
    const uint32_t one = 1;
    const float zero = 0;
    ASSERT_OK(vka_tensor_create(device, dtype, 1, &one, &tensor));
    ASSERT_OK(vka_tensor_write(tensor, &zero, sizeof zero));
    return tensor;
}

static double read_number(struct vka_tensor *tensor)
{
    float x;
    ASSERT_OK(vka_tensor_read(tensor, &x, sizeof x));
    return (double)x;
}

static void run(struct vka_device *device, struct vka_plan *plan, enum vka_status added)
{
    if (added != VKA_OK)
        fail_msg("%s", vka_device_error(device));
    ASSERT_OK(vka_plan_finish(plan));
    ASSERT_OK(vka_plan_run(plan, PATIENCE));
}

static void check_close(const struct operand *o, const double *want, const char *name)
{
    char why[WHY];
    if (!compare_values(o, want, compare_limit(o->dtype), name, name, NULL, why))
        fail_msg("%s", why);
}

static void square_error(void **state)
{
    static const struct {
        uint32_t rank, size[4];
    } shapes[] = {{1, {1}}, {2, {7, 33}}, {4, {2, 3, 4, 5}}, {2, {90, 130}}, {1, {70000}}};
    struct vka_device *device = *state;
    struct rng rng = {7};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (EACH_TYPE(dtype, dtype_is_float)) {
            struct operand x, t, g;
            struct vka_tensor *loss = number(device, VKA_F32);
            struct vka_plan *plan = NULL;
            make(device, &rng, dtype, shapes[s].rank, shapes[s].size, &x);
            make(device, &rng, VKA_F32, shapes[s].rank, shapes[s].size, &t);
            make(device, &rng, dtype, shapes[s].rank, shapes[s].size, &g);
            fill(&x, &rng, -1, 2);
            fill(&t, &rng, -2, 1);
            ASSERT_OK(operand_write_noise(&g, &rng));
            double *want = calloc(x.count, sizeof *want), scale = (double)x.count;
            assert_non_null(want);
            double mean = ref_square_error(x.values, t.values, x.count, scale, want);
            ASSERT_OK(vka_plan_create(device, NULL, &plan));
            run(device, plan,
                vka_plan_add_square_error(plan, VKA_INFO(vka_square_error_op, .input = x.view,
                                                         .target = t.view, .loss = loss,
                                                         .gradient = g.view,
                                                         .gradient_scale = (float)scale)));
            ASSERT_OK(operand_read(&g));
            assert_true(fabs(read_number(loss) - mean) <= 1e-6 * mean);
            check_close(&g, want, "square error");
            assert_true(operand_damage(&g) == SIZE_MAX);
            vka_plan_destroy(&plan);
            operand_destroy(&x);
            operand_destroy(&t);
            operand_destroy(&g);
            vka_tensor_destroy(&loss);
            free(want);
        }
}

/* Losses that are NaN are counted. */
static void lost_losses(void **state)
{
    struct vka_device *device = *state;
    const uint32_t size[2] = {3, 4}, rows = 3;
    const float logits[12] = {0, 1, 2, 3, 0, 1, (float)NAN, 3, 0, 1, 2, 3};
    static const struct {
        int32_t labels[3];
        bool lost;
    } cases[] = {
        {{0, 1, 2}, true}, {{0, -100, 2}, false}, {{0, -100, 4}, true}, {{-100, -100, -100}, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct vka_tensor *x = NULL, *labels = NULL, *loss = number(device, VKA_F32);
        struct vka_plan *plan = NULL;
        struct vka_nonfinite_info info;
        ASSERT_OK(vka_tensor_create(device, VKA_F32, 2, size, &x));
        ASSERT_OK(vka_tensor_create(device, VKA_I32, 1, &rows, &labels));
        ASSERT_OK(vka_tensor_write(x, logits, sizeof logits));
        ASSERT_OK(vka_tensor_write(labels, cases[i].labels, sizeof cases[i].labels));
        ASSERT_OK(vka_plan_create(device, VKA_INFO(vka_plan_info, .count_nonfinite = true), &plan));
        run(device, plan,
            vka_plan_add_cross_entropy(
                plan, VKA_INFO(vka_cross_entropy_op, .logits = x, .labels = labels, .loss = loss)));
        assert_int_equal(vka_plan_nonfinite_count(plan), 1);
        ASSERT_OK(vka_plan_nonfinite(plan, 0, &info));
        assert_string_equal(info.name, "loss");
        assert_int_equal(info.nan, cases[i].lost);
        assert_int_equal(isnan(read_number(loss)) != 0, cases[i].lost);
        vka_plan_destroy(&plan);
        vka_tensor_destroy(&x);
        vka_tensor_destroy(&labels);
        vka_tensor_destroy(&loss);
    }
}

/* Three gradients of different shapes, above and below the bound, and with NaN. */
static void clip(void **state)
{
    static const uint32_t sizes[3][4] = {{4100, 3}, {5}, {2, 3, 4, 5}};
    static const uint32_t ranks[3] = {2, 1, 4};
    static const enum vka_dtype dtypes[3] = {VKA_F32, VKA_F32, VKA_F16};
    struct vka_device *device = *state;
    struct rng rng = {99};
    for (int kind = 0; kind < 3; kind++) {
        struct operand g[3];
        struct vka_tensor *norm = number(device, VKA_F32), *all[3];
        struct vka_plan *plan = NULL;
        double values[20000], factor, want;
        size_t n = 0;
        const double most = kind == 1 ? 1e6 : 2.5;
        for (int i = 0; i < 3; i++) {
            make(device, &rng, dtypes[i], ranks[i], sizes[i], &g[i]);
            fill(&g[i], &rng, -1, 1.5);
            memcpy(values + n, g[i].values, g[i].count * sizeof *values);
            n += g[i].count;
            all[i] = g[i].view;
        }
        if (kind == 2) {
            g[1].values[2] = values[g[0].count + 2] = (double)NAN;
            ASSERT_OK(operand_write(&g[1]));
        }
        want = ref_clip(values, n, most, &factor);
        ASSERT_OK(vka_plan_create(device, NULL, &plan));
        run(device, plan,
            vka_plan_add_clip(plan, VKA_INFO(vka_clip_op, .gradients = all, .n_gradient = 3,
                                             .max_norm = most, .norm = norm)));
        const double got = read_number(norm);
        assert_true(kind == 2 ? isnan(got) : fabs(got - want) <= 1e-6 * want);
        n = 0;
        for (int i = 0; i < 3; i++) {
            double *own = values + n;
            for (size_t j = 0; j < g[i].count; j++)
                own[j] *= kind == 2 ? (double)NAN : factor;
            ASSERT_OK(operand_read(&g[i]));
            check_close(&g[i], own, "clipped");
            assert_true(operand_damage(&g[i]) == SIZE_MAX);
            n += g[i].count;
            operand_destroy(&g[i]);
        }
        vka_plan_destroy(&plan);
        vka_tensor_destroy(&norm);
    }
}

TEST_PROGRAM(train)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(linear), cmocka_unit_test(square_error),
                                       cmocka_unit_test(lost_losses), cmocka_unit_test(clip)};
    return cmocka_run_group_tests(tests, open_device, close_device);
}
