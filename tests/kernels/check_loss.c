/* Cross-entropy: types x shapes x smoothing, with labels that do not count and labels that are none;
 * its loss, and its gradient beside the logits and in place of them. Optimisers: kinds x types x
 * shapes, several steps from the same start, whole and cut. */
#include "check_model.h"

#include "patience.h"

#include <reference/train.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Cross-entropy --------------------------------------------------------------------------- */

struct entropy_case {
    struct vka_cross_entropy_op op;
    struct operand x, y, loss;
    struct vka_tensor *labels;
    int32_t *label; /* [rows] */
    size_t rows, n;
    double *want;
};

static enum vka_status add_entropy(struct vka_plan *plan, const void *job)
{
    return vka_plan_add_cross_entropy(plan, job);
}

enum label_kind { LABELS_ALL, LABELS_SOME, LABELS_WRONG, LABELS_NONE, LABEL_KINDS };

static enum vka_status make_labels(struct check *c, const uint32_t *size, uint32_t rank,
                                   enum label_kind kind, struct entropy_case *t)
{
    const uint32_t one = 1;
    t->label = calloc(t->rows, sizeof *t->label);
    if (!t->label)
        return VKA_OUT_OF_HOST_MEMORY;
    for (size_t r = 0; r < t->rows; r++) {
        t->label[r] = (int32_t)rng_range(&c->rng, 0, (uint32_t)t->n - 1);
        if (kind == LABELS_NONE || (kind == LABELS_SOME && rng_chance(&c->rng, 30)))
            t->label[r] = -100;
        if (kind == LABELS_WRONG && r % 3 == 1)
            t->label[r] = r % 2 ? -1 : (int32_t)t->n;
    }
    enum vka_status status = vka_tensor_create(c->device, VKA_I32, rank > 1 ? rank - 1 : 1,
                                               rank > 1 ? size : &one, &t->labels);
    return status == VKA_OK ? vka_tensor_write(t->labels, t->label, t->rows * sizeof *t->label)
                            : status;
}

static enum vka_status create_entropy(struct check *c, uint32_t rank, const uint32_t *size,
                                      const enum vka_dtype mix[2], enum label_kind kind,
                                      struct entropy_case *t)
{
    const uint32_t one = 1;
    const struct layout dense = layout_dense();
    enum vka_status status = model_operand(c, mix[0], rank, size, &t->x);
    if (status == VKA_OK)
        status = model_operand(c, mix[1], rank, size, &t->y);
    if (status == VKA_OK)
        status = operand_create(c->device, VKA_F32, 1, &one, &dense, &t->loss);
    if (status == VKA_OK)
        status = model_fill(c, &t->x, -4, 4);
    if (status != VKA_OK)
        return status;
    t->n = size[rank - 1];
    t->rows = t->x.count / t->n;
    t->want = calloc(t->x.count, sizeof *t->want);
    t->op.logits = t->x.view;
    t->op.loss = t->loss.view;
    status = make_labels(c, size, rank, kind, t);
    t->op.labels = t->labels;
    return status == VKA_OK && !t->want ? VKA_OUT_OF_HOST_MEMORY : status;
}

/* The gradient in place of the logits. */
static void check_entropy_in_place(struct check *c, struct entropy_case *t, const char *text)
{
    struct vka_plan *plan = NULL;
    char why[WHY];
    t->op.gradient = t->x.view;
    enum vka_status status = vka_plan_create(c->device, NULL, &plan);
    if (status == VKA_OK)
        status = add_entropy(plan, &t->op);
    if (status == VKA_OK)
        status = vka_plan_finish(plan);
    if (status == VKA_OK)
        status = vka_plan_run(plan, PATIENCE);
    if (status == VKA_OK)
        status = operand_read(&t->x);
    if (status != VKA_OK)
        check_fail(c, text, vka_device_error(c->device));
    else if (!compare_values(&t->x, t->want, compare_limit(t->x.dtype), "in place", text, &c->worst,
                             why))
        check_fail(c, text, why);
    vka_plan_destroy(&plan);
}

static void run_entropy(struct check *c, uint32_t rank, const uint32_t *size,
                        const enum vka_dtype mix[2], enum label_kind kind)
{
    struct entropy_case t = {.op = {.struct_size = sizeof t.op}};
    char text[CASE_TEXT] = "operands";
    double loss = 0;
    t.op.smoothing = rng_chance(&c->rng, 40) ? 0.1f : 0;
    enum vka_status status = create_entropy(c, rank, size, mix, kind, &t);
    if (status == VKA_OK) {
        /* This scale brings gradients near 1, so that float16 holds them. */
        t.op.gradient_scale = (float)t.rows;
        loss = ref_cross_entropy(t.x.values, t.label, t.rows, t.n, (double)t.op.smoothing,
                                 (double)t.op.gradient_scale, t.want);
        snprintf(text, sizeof text, "%zu rows of %zu, rank %u, labels %d, smoothing %g, %s->%s",
                 t.rows, t.n, rank, (int)kind, (double)t.op.smoothing, vka_dtype_name(mix[0]),
                 vka_dtype_name(mix[1]));
    }
    model_check(c, status, add_entropy, &t.op, &t.loss, &loss, text);
    t.op.gradient = t.y.view;
    model_check(c, status, add_entropy, &t.op, &t.y, t.want, text);
    if (status == VKA_OK)
        check_entropy_in_place(c, &t, text);
    operand_destroy(&t.x);
    operand_destroy(&t.y);
    operand_destroy(&t.loss);
    vka_tensor_destroy(&t.labels);
    free(t.label);
    free(t.want);
}

void check_entropy(struct check *c)
{
    static const struct {
        uint32_t rank, size[4];
    } shapes[] = {{1, {7}},          {2, {64, 10}},  {2, {1, 1030}},  {3, {3, 5, 33}},
                  {4, {2, 3, 4, 9}}, {2, {4100, 3}}, {2, {3, 20001}}, {2, {5, 1}}};
    static const enum vka_dtype mixes[][2] = {
        {VKA_F32, VKA_F32}, {VKA_F16, VKA_F16}, {VKA_BF16, VKA_BF16}, {VKA_F16, VKA_F32}};
    for (size_t s = 0; s < COUNTOF(shapes); s++)
        for (size_t mix = 0; mix < COUNTOF(mixes); mix++)
            for (int kind = 0; kind < LABEL_KINDS; kind++)
                if (check_case(c))
                    run_entropy(c, shapes[s].rank, shapes[s].size, mixes[mix],
                                (enum label_kind)kind);
}

void bench_entropy(struct check *c)
{
    const uint32_t size[2] = {512, 32000};
    const struct layout dense = layout_dense();
    struct entropy_case t = {.op = {.struct_size = sizeof t.op}, .rows = size[0], .n = size[1]};
    const uint32_t one = 1;
    enum vka_status status = operand_create(c->device, VKA_F16, 2, size, &dense, &t.x);
    if (status == VKA_OK)
        status = operand_create(c->device, VKA_F32, 1, &one, &dense, &t.loss);
    if (status == VKA_OK)
        status = make_labels(c, size, 2, LABELS_ALL, &t);
    t.op.logits = t.op.gradient = t.x.view;
    t.op.loss = t.loss.view;
    t.op.labels = t.labels;
    model_time(c, status, add_entropy, &t.op, 8.0 * (double)t.x.count, "cross-entropy 512x32000");
    operand_destroy(&t.x);
    operand_destroy(&t.loss);
    vka_tensor_destroy(&t.labels);
    free(t.label);
}

/* ---- Optimisers ------------------------------------------------------------------------------ */

#define STEPS 6

struct optimiser_case {
    struct vka_optimiser_op op;
    struct operand w, g, m, v;
    double *start;   /* of w */
    double *want[3]; /* of w, m, v */
    struct vka_tensor *step, *rate;
    uint8_t *got; /* bytes of w after the steps */
};

static enum vka_status create_optimiser(struct check *c, uint32_t rank, const uint32_t *size,
                                        const enum vka_dtype mix[2], struct optimiser_case *t)
{
    const uint32_t one = 1;
    const float rate = 0.5f;
    enum vka_status status = model_operand(c, mix[0], rank, size, &t->w);
    if (status == VKA_OK)
        status = model_operand(c, mix[1], rank, size, &t->g);
    if (status == VKA_OK)
        status = model_operand(c, VKA_F32, rank, size, &t->m);
    if (status == VKA_OK)
        status = model_operand(c, VKA_F32, rank, size, &t->v);
    if (status == VKA_OK)
        status = model_fill(c, &t->w, -1, 1.5);
    if (status == VKA_OK)
        status = model_fill(c, &t->g, -1, 1.5);
    if (status == VKA_OK)
        status = vka_tensor_create(c->device, VKA_I32, 1, &one, &t->step);
    if (status == VKA_OK)
        status = vka_tensor_create(c->device, VKA_F32, 1, &one, &t->rate);
    if (status == VKA_OK)
        status = vka_tensor_write(t->rate, &rate, sizeof rate);
    if (status != VKA_OK)
        return status;
    t->start = calloc(t->w.count, sizeof *t->start);
    t->got = calloc(t->w.bytes, 1);
    for (int i = 0; i < 3; i++)
        t->want[i] = calloc(t->w.count, sizeof(double));
    if (!t->start || !t->got || !t->want[0] || !t->want[1] || !t->want[2])
        return VKA_OUT_OF_HOST_MEMORY;
    memcpy(t->start, t->w.values, t->w.count * sizeof *t->start);
    memcpy(t->want[0], t->start, t->w.count * sizeof *t->start);
    return VKA_OK;
}

static void destroy_optimiser(struct optimiser_case *t)
{
    struct operand *all[] = {&t->w, &t->g, &t->m, &t->v};
    for (size_t i = 0; i < COUNTOF(all); i++)
        operand_destroy(all[i]);
    for (int i = 0; i < 3; i++)
        free(t->want[i]);
    vka_tensor_destroy(&t->step);
    vka_tensor_destroy(&t->rate);
    free(t->start);
    free(t->got);
}

static void oracle(struct optimiser_case *t)
{
    struct vka_optimiser_op op = t->op;
    op.learning_rate *= t->op.rate ? 0.5 : 1;
    for (int64_t step = 1; step <= STEPS; step++) {
        ref_optimiser(&op, t->w.count, step, t->want[0], t->g.values, t->want[1], t->want[2]);
        for (size_t i = 0; i < t->w.count; i++)
            t->want[0][i] = operand_round(t->w.dtype, t->want[0][i]);
    }
}

/* Several steps of one plan. */
static enum vka_status run_steps(struct check *c, struct optimiser_case *t, uint64_t budget)
{
    struct vka_plan *plan = NULL;
    const int32_t none = 0;
    memcpy(t->w.values, t->start, t->w.count * sizeof *t->start);
    memset(t->m.values, 0, t->m.count * sizeof(double));
    memset(t->v.values, 0, t->v.count * sizeof(double));
    enum vka_status status =
        vka_plan_create(c->device, VKA_INFO(vka_plan_info, .submit_budget = budget), &plan);
    if (status == VKA_OK)
        status = operand_write(&t->w);
    if (status == VKA_OK)
        status = operand_write(&t->m);
    if (status == VKA_OK)
        status = operand_write(&t->v);
    if (status == VKA_OK)
        status = vka_tensor_write(t->step, &none, sizeof none);
    if (status == VKA_OK)
        status = vka_plan_add_optimiser(plan, &t->op);
    if (status == VKA_OK)
        status = vka_plan_finish(plan);
    for (int i = 0; i < STEPS && status == VKA_OK; i++)
        status = vka_plan_run(plan, PATIENCE);
    if (status == VKA_OK)
        status = operand_read(&t->w);
    if (status == VKA_OK)
        status = operand_read(&t->m);
    if (status == VKA_OK)
        status = operand_read(&t->v);
    vka_plan_destroy(&plan);
    return status;
}

static void judge_steps(struct check *c, struct optimiser_case *t, const char *text)
{
    static const char *const names[] = {"parameter", "first moment", "second moment"};
    struct operand *const all[] = {&t->w, &t->m, &t->v};
    char why[WHY];
    for (int i = 0; i < 3; i++)
        if (operand_damage(all[i]) != SIZE_MAX)
            check_fail(c, text, "what surrounds a tensor was overwritten");
        else if (!compare_values(all[i], t->want[i], compare_limit(t->w.dtype), names[i], text,
                                 &c->worst, why)) /* a parameter's rounding enters its moments */
            check_fail(c, text, why);
}

static void run_optimiser(struct check *c, uint32_t rank, const uint32_t *size,
                          const enum vka_dtype mix[2], enum vka_optimiser kind)
{
    struct optimiser_case t = {.op = {.struct_size = sizeof t.op, .kind = kind}};
    char text[CASE_TEXT] = "operands";
    enum vka_status status = create_optimiser(c, rank, size, mix, &t);
    const bool adam = kind != VKA_SGD;
    t.op.learning_rate = 0.1;
    t.op.weight_decay = rng_chance(&c->rng, 50) ? 0.02 : 0;
    t.op.momentum = !adam && rng_chance(&c->rng, 70) ? 0.9 : 0;
    t.op.nesterov = t.op.momentum > 0 && rng_chance(&c->rng, 50);
    t.op.rate = rng_chance(&c->rng, 50) ? t.rate : NULL;
    t.op.step = adam ? t.step : NULL;
    if (adam && rng_chance(&c->rng, 30)) { /* what counts as 0, not as the default */
        t.op.given = rng_chance(&c->rng, 50) ? VKA_GIVEN_BETA1 : VKA_GIVEN_BETA2;
        t.op.given |= rng_chance(&c->rng, 30) ? VKA_GIVEN_BETA1 | VKA_GIVEN_BETA2 : 0;
    }
    t.op.n_parameter = 1;
    const struct vka_parameter parameter = {
        t.w.view, t.g.view, adam || t.op.momentum > 0 ? t.m.view : NULL, adam ? t.v.view : NULL};
    t.op.parameters = &parameter;
    snprintf(text, sizeof text, "kind %d, %ux%ux%ux%u, rank %u, %s,%s, decay %g, momentum %g%s",
             (int)kind, size[0], size[1], size[2], size[3], rank, vka_dtype_name(mix[0]),
             vka_dtype_name(mix[1]), t.op.weight_decay, t.op.momentum,
             t.op.nesterov ? " nesterov" : "");
    if (status == VKA_OK) {
        oracle(&t);
        status = run_steps(c, &t, VKA_NO_BUDGET);
    }
    if (status == VKA_OK) {
        judge_steps(c, &t, text);
        memcpy(t.got, t.w.got, t.w.bytes);
        status = run_steps(c, &t, 1000);
    }
    if (status != VKA_OK)
        check_fail(c, text, vka_device_error(c->device));
    else if (memcmp(t.got, t.w.got, t.w.bytes) != 0)
        check_fail(c, text, "the bits differ when the plan is cut");
    destroy_optimiser(&t);
}

void check_optimiser(struct check *c)
{
    static const struct {
        uint32_t rank, size[4];
    } shapes[] = {{1, {1}}, {1, {4099}}, {2, {33, 65}}, {4, {2, 3, 4, 5}}, {2, {1500, 3}}};
    static const enum vka_dtype mixes[][2] = {{VKA_F32, VKA_F32},
                                              {VKA_F16, VKA_F16},
                                              {VKA_BF16, VKA_BF16},
                                              {VKA_F32, VKA_BF16},
                                              {VKA_F32, VKA_F16}};
    for (size_t s = 0; s < COUNTOF(shapes); s++)
        for (size_t mix = 0; mix < COUNTOF(mixes); mix++)
            for (int kind = 0; kind < VKA_OPTIMISER_COUNT; kind++)
                for (int draw = 0; draw < 2; draw++)
                    if (check_case(c))
                        run_optimiser(c, shapes[s].rank, shapes[s].size, mixes[mix],
                                      (enum vka_optimiser)kind);
}

static enum vka_status add_step(struct vka_plan *plan, const void *job)
{
    return vka_plan_add_optimiser(plan, job);
}

void bench_optimiser(struct check *c)
{
    const uint32_t n = 1u << 22;
    struct optimiser_case t = {.op = {.struct_size = sizeof t.op, .kind = VKA_ADAMW}};
    const enum vka_dtype mix[2] = {VKA_F32, VKA_F32};
    enum vka_status status = create_optimiser(c, 1, &n, mix, &t);
    const struct vka_parameter parameter = {t.w.view, t.g.view, t.m.view, t.v.view};
    t.op.parameters = &parameter;
    t.op.n_parameter = 1;
    t.op.learning_rate = 0.001;
    t.op.step = t.step;
    model_time(c, status, add_step, &t.op, 28.0 * n, "adamw 4M f32");
    destroy_optimiser(&t);
}
