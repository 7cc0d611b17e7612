/* Draws: types x lengths x bounds, each index against the interval of u in which the oracle has it;
 * over runs, each with a step of its own, and with logits that cannot be drawn. */
#include "check_model.h"

#include "patience.h"

#include <reference/model.h>
#include <reference/reference.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define RUNS 6
#define SLACK 2e-5 /* of a cumulative probability, from float32 sums */

static const uint32_t shapes[][2] = {{1, 1}, {3, 5}, {17, 200}, {2, 5003}};
#define MOST_ROWS 17

struct sample_case {
    struct vka_sample_op op;
    struct operand x, step, seeds, y; /* seeds: view NULL where all rows have op.seed */
    double *w;
};

static void destroy(struct vka_plan *plan, struct sample_case *t)
{
    vka_plan_destroy(&plan);
    operand_destroy(&t->x);
    operand_destroy(&t->step);
    operand_destroy(&t->seeds);
    operand_destroy(&t->y);
    free(t->w);
}

/* each: every row has a step and a seed of its own; rows 0 and 2 the same. */
static enum vka_status create(struct check *c, const uint32_t size[2], enum vka_dtype dtype,
                              bool each, struct sample_case *t)
{
    const struct layout dense = layout_dense(); /* steps have to be contiguous */
    const uint32_t n_step = each ? size[0] : 1, two[] = {size[0], 2};
    enum vka_status status = model_operand(c, dtype, 2, size, &t->x);
    if (status == VKA_OK)
        status = operand_create(c->device, VKA_I32, 1, &n_step, &dense, &t->step);
    if (status == VKA_OK && each)
        status = model_operand(c, VKA_I32, 2, two, &t->seeds);
    if (status == VKA_OK)
        status = model_operand(c, VKA_I32, 1, size, &t->y);
    for (size_t i = 0; i < t->x.count && status == VKA_OK; i++)
        t->x.values[i] = rng_chance(&c->rng, 5) ? -INFINITY
                         : rng_chance(&c->rng, 2)
                             ? NAN
                             : operand_round(dtype, rng_uniform(&c->rng, -6, 6));
    for (size_t i = 0; size[0] > 2 && i < size[1] && status == VKA_OK; i++)
        t->x.values[i] = i % 2 ? -INFINITY : NAN; /* row 0 */
    if (status == VKA_OK)
        status = operand_write(&t->x);
    for (uint32_t i = 0; i < n_step && status == VKA_OK; i++)
        t->step.values[i] = i == 2 ? t->step.values[0] : (double)rng_range(&c->rng, 0, 1u << 30);
    for (size_t i = 0; i < t->seeds.count && status == VKA_OK; i++)
        t->seeds.values[i] =
            i / 2 == 2 ? t->seeds.values[i % 2] : (double)(int32_t)(uint32_t)rng_next(&c->rng);
    if (status == VKA_OK)
        status = operand_write(&t->step);
    if (status == VKA_OK && each)
        status = operand_write(&t->seeds);
    t->w = calloc(size[1], sizeof *t->w);
    t->op.logits = t->x.view;
    t->op.step = t->step.view;
    t->op.seeds = t->seeds.view;
    t->op.output = t->y.view;
    return status == VKA_OK && !t->w ? VKA_OUT_OF_HOST_MEMORY : status;
}

/* The draws of all rows after `run` runs. */
static bool check_rows(struct sample_case *t, const double *steps, uint32_t run, char why[WHY])
{
    const bool each = t->step.count > 1;
    const size_t n = t->x.size[1];
    for (uint32_t row = 0; row < t->x.size[0]; row++) {
        const uint32_t step = (uint32_t)steps[each ? row : 0] + run;
        const uint32_t counter[4] = {step, each ? 0 : row, 0, 0};
        uint32_t key[2] = {(uint32_t)t->op.seed, (uint32_t)(t->op.seed >> 32)};
        for (int i = 0; i < 2 && t->seeds.view; i++)
            key[i] = (uint32_t)(int32_t)t->seeds.values[2 * row + i];
        uint32_t words[4];
        double below = 0, got = t->y.values[row], all = 0;
        ref_philox(counter, key, words);
        double u = ldexp(words[0] >> 8, -24);
        if (ref_sample(t->x.values + row * n, n, &t->op, t->w) != VKA_OK)
            return false;
        for (size_t i = 0; i < n; i++) {
            all += t->w[i];
            below += (double)i < got ? t->w[i] : 0;
        }
        if (all == 0 ? got == -1
                     : got >= 0 && got < (double)n && t->w[(size_t)got] > 0 && u >= below - SLACK &&
                           u < below + t->w[(size_t)got] + SLACK)
            continue;
        snprintf(why, WHY, "row %u at step %u gives %.0f, whose weights begin at %.7g; u is %.7g",
                 row, step, got, below, u);
        return false;
    }
    return true;
}

static void run_case(struct check *c, const uint32_t size[2], enum vka_dtype dtype, bool each,
                     uint32_t top_k, float top_p, float min_p)
{
    struct sample_case t = {.op = {.struct_size = sizeof t.op}};
    struct vka_plan *plan = NULL;
    char text[CASE_TEXT], why[WHY] = "out of memory";
    t.op.temperature = rng_chance(&c->rng, 50) ? 1 : 0.7f;
    t.op.top_k = top_k;
    t.op.top_p = top_p;
    t.op.min_p = min_p;
    t.op.seed = rng_next(&c->rng);
    snprintf(text, sizeof text, "%ux%u %s, temperature %g, top_k %u, top_p %g, min_p %g%s", size[0],
             size[1], vka_dtype_name(dtype), (double)t.op.temperature, top_k, (double)top_p,
             (double)min_p, each ? ", steps and seeds of each row" : "");
    enum vka_status status = create(c, size, dtype, each, &t);
    double steps[MOST_ROWS] = {0};
    for (size_t i = 0; i < t.step.count && status == VKA_OK; i++)
        steps[i] = t.step.values[i];
    if (status == VKA_OK) /* a row a pass, every second time */
        status = vka_plan_create(
            c->device, VKA_INFO(vka_plan_info, .submit_budget = rng_chance(&c->rng, 50) ? 1 : 0),
            &plan);
    if (status == VKA_OK)
        status = vka_plan_add_sample(plan, &t.op);
    if (status == VKA_OK)
        status = vka_plan_finish(plan);
    for (uint32_t run = 0; run < RUNS && status == VKA_OK; run++) {
        status = operand_write_noise(&t.y, &c->rng);
        if (status == VKA_OK)
            status = vka_plan_run(plan, PATIENCE);
        if (status == VKA_OK)
            status = operand_read(&t.y);
        if (status == VKA_OK && operand_damage(&t.y) != SIZE_MAX)
            check_fail(c, text, "what surrounds the output was overwritten");
        if (status == VKA_OK && !check_rows(&t, steps, run, why)) {
            check_fail(c, text, why);
            break;
        }
    }
    if (status == VKA_OK)
        status = operand_read(&t.step);
    if (status != VKA_OK)
        check_fail(c, text, vka_device_error(c->device));
    destroy(plan, &t);
}

/* The first of the largest logits that are numbers above -inf; -1 if there is none. */
static double largest(const double *x, size_t n)
{
    size_t best = n;
    for (size_t i = 0; i < n; i++)
        if (x[i] > -INFINITY && (best == n || x[i] > x[best])) /* a NaN compares as false */
            best = i;
    return best < n ? (double)best : -1;
}

/* Without a temperature the largest, without a step the same each time; and the step counts runs. Row 0
 * has no number, others have NaN, -inf and +inf among their logits. */
static void check_greedy(struct check *c, bool each)
{
    struct sample_case t = {.op = {.struct_size = sizeof t.op}};
    const uint32_t size[2] = {6, 70};
    struct vka_plan *plan = NULL;
    bool right = true;
    enum vka_status status = create(c, size, VKA_F32, each, &t);
    if (status == VKA_OK) {
        t.x.values[70 + 35] = t.x.values[70 + 36] = 11;
        t.x.values[70] = NAN;
        t.x.values[2 * 70 + 69] = 11;
        t.x.values[3 * 70 + 12] = INFINITY;
        t.x.values[3 * 70 + 13] = NAN;
        for (size_t i = 4 * 70; i < 5 * 70; i++)
            t.x.values[i] = i % 3 ? NAN : -3e38;
        status = operand_write(&t.x);
    }
    const double step = status == VKA_OK ? t.step.values[0] : 0;
    const double last = status == VKA_OK ? t.step.values[t.step.count - 1] : 0;
    if (status == VKA_OK)
        status = vka_plan_create(c->device, NULL, &plan);
    if (status == VKA_OK)
        status = vka_plan_add_sample(plan, &t.op);
    if (status == VKA_OK)
        status = vka_plan_finish(plan);
    for (int run = 0; run < 3 && status == VKA_OK; run++)
        status = vka_plan_run(plan, PATIENCE);
    if (status == VKA_OK)
        status = operand_read(&t.y);
    if (status == VKA_OK)
        status = operand_read(&t.step);
    if (status != VKA_OK)
        check_fail(c, "greedy", vka_device_error(c->device));
    for (size_t row = 0; row < size[0] && status == VKA_OK; row++)
        right &= t.y.values[row] == largest(t.x.values + row * size[1], size[1]);
    if (!right)
        check_fail(c, "greedy", "the index is not that of the largest logit");
    if (status == VKA_OK &&
        (t.step.values[0] != step + 3 || t.step.values[t.step.count - 1] != last + 3))
        check_fail(c, "greedy", "the step does not count the runs");
    destroy(plan, &t);
}

/* Rows whose number drawn is 0, and which begin with logits without weight. */
static void check_zero(struct check *c)
{
    static const uint32_t seeds[2] = {12121362, 19781057}; /* at step 0 less than 2^-24 */
    struct sample_case t = {.op = {.struct_size = sizeof t.op, .temperature = 1}};
    const uint32_t size[2] = {2, 200};
    const double steps[2] = {0};
    struct vka_plan *plan = NULL;
    char why[WHY] = "out of memory";
    enum vka_status status = create(c, size, VKA_F32, true, &t);
    for (size_t row = 0; row < 2 && status == VKA_OK; row++) {
        t.step.values[row] = t.seeds.values[2 * row + 1] = 0;
        t.seeds.values[2 * row] = seeds[row];
        for (size_t i = 0; i < 70; i++)
            t.x.values[200 * row + i] = -INFINITY;
    }
    struct operand *given[] = {&t.x, &t.step, &t.seeds};
    for (size_t i = 0; i < COUNTOF(given) && status == VKA_OK; i++)
        status = operand_write(given[i]);
    if (status == VKA_OK)
        status = vka_plan_create(c->device, NULL, &plan);
    if (status == VKA_OK)
        status = vka_plan_add_sample(plan, &t.op);
    if (status == VKA_OK)
        status = vka_plan_finish(plan);
    if (status == VKA_OK)
        status = operand_write_noise(&t.y, &c->rng);
    if (status == VKA_OK)
        status = vka_plan_run(plan, PATIENCE);
    if (status == VKA_OK)
        status = operand_read(&t.y);
    if (status != VKA_OK)
        check_fail(c, "a draw of 0", vka_device_error(c->device));
    else if (!check_rows(&t, steps, 0, why))
        check_fail(c, "a draw of 0", why);
    destroy(plan, &t);
}

void check_draws(struct check *c)
{
    static const struct {
        uint32_t k;
        float p, min_p;
    } bounds[] = {{0, 0, 0},     {1, 0, 0},    {40, 0, 0},         {0, 0.9f, 0},
                  {0, 0, 0.05f}, {0, 0.3f, 0}, {40, 0.95f, 0.02f}, {5000, 1, 1}};
    for (size_t s = 0; s < COUNTOF(shapes); s++)
        for (EACH_TYPE(dtype, dtype_is_float))
            for (size_t b = 0; b < COUNTOF(bounds); b++)
                if (check_case(c))
                    run_case(c, shapes[s], dtype, (s + b) % 2, bounds[b].k, bounds[b].p,
                             bounds[b].min_p);
    if (check_case(c)) /* the largest vocabularies */
        run_case(c, (const uint32_t[]){1, 262144}, VKA_F32, false, 20, 0.95f, 0);
    for (int draws = 0; draws < 3; draws++)
        if (check_case(c)) {
            check_greedy(c, draws == 1);
            check_zero(c);
        }
}

void bench_draws(struct check *c)
{
    const uint32_t size[2] = {1, 49152}, one = 1;
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
            vka_plan_add_sample(plan, VKA_INFO(vka_sample_op, .logits = x.view, .temperature = 1,
                                               .top_k = 40, .top_p = 0.95f, .output = y.view));
    check_time(c, plan, status, 4.0 * (double)x.count, "GB/s", "top-k, top-p of 49152 f32");
    vka_plan_destroy(&plan);
    operand_destroy(&x);
    operand_destroy(&y);
}
