/* Random gradients of causal convolutions beside the oracle: all in one plan, cut by a budget with the
 * same bits, added to what is there, and each sequence alone with the bits that it has in the batch.
 *
 *     test_gpu conv_backward [--seed S] [--count N] [--each N]
 *
 * --each: N seeds in turn have the types and options of the first, for which kernels are compiled. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <plan/plan.h>

#include "cache/histories.h"
#include "patience.h"
#include "problems/compare.h"
#include "problems/conv_backward.h"
#include "test_program.h"

struct run {
    struct vka_device *device;
    struct rng rng;
    uint64_t seed;
    struct conv_problem p;
    struct operand *made[CONV_GRADIENTS]; /* those that there are */
    size_t n_made;
    double worst; /* error over its limit */
};

static const char *const names[CONV_GRADIENTS] = {"dx", "dw", "db", "dpast"};

static void require(const struct run *r, bool ok, const char *what, const char *why)
{
    if (ok)
        return;
    fprintf(stderr, "FAIL seed %llu: %s: %s: %s\n", (unsigned long long)r->seed, r->p.text, what,
            why[0] ? why : vka_device_error(r->device));
    exit(1);
}

static struct vka_plan *plan_of(const struct run *r, const struct vka_causal_conv_backward_op *op,
                                uint64_t budget)
{
    struct vka_plan *plan = NULL;
    require(r,
            vka_plan_create(r->device,
                            VKA_INFO(vka_plan_info, .submit_budget = budget,
                                     .workspace_limit = budget == 1 ? 1 : 0),
                            &plan) == VKA_OK &&
                vka_plan_add_causal_conv_backward(plan, op) == VKA_OK &&
                vka_plan_finish(plan) == VKA_OK,
            "a plan", "");
    return plan;
}

/* Compares the gradients with want plus, if they were added to them, what was there. */
static void judge(struct run *r, double *const before[CONV_GRADIENTS], const char *what)
{
    for (int i = 0; i < CONV_GRADIENTS; i++) {
        struct operand *o = &r->p.made[i];
        size_t row = 0;
        char why[64];
        if (!o->view)
            continue;
        for (size_t j = 0; before && j < o->count; j++)
            before[i][j] += r->p.want[i][j];
        const double error = compare_terms(o, before ? before[i] : r->p.want[i], 0, &row);
        const double limit = compare_limit(o->dtype);
        snprintf(why, sizeof why, "%s: error %.3g at row %zu, above %.3g", names[i], error, row,
                 limit);
        require(r, error <= limit, what, why);
        require(r, operand_damage(o) == SIZE_MAX, names[i], "wrote elsewhere");
        r->worst = error / limit > r->worst ? error / limit : r->worst;
    }
}

/* Rows from a length on, and what reads nothing else, are exactly 0. */
static void judge_zeros(const struct run *r)
{
    for (int i = 0; i < CONV_GRADIENTS; i++)
        for (size_t j = 0; r->p.made[i].view && j < r->p.made[i].count; j++)
            require(r, r->p.want[i][j] != 0 || r->p.made[i].values[j] == 0, names[i],
                    "a row that nothing reads is not 0");
}

static void run_whole(struct run *r)
{
    char why[WHY] = "";
    struct vka_plan *plan = plan_of(r, &r->p.op, VKA_NO_BUDGET), *cut = plan_of(r, &r->p.op, 1);
    require(r, compare_runs(r->device, plan, r->made, r->n_made, &r->rng, why), "runs", why);
    judge(r, NULL, "whole");
    judge_zeros(r);
    require(r, compare_plans(r->device, plan, cut, r->made, r->n_made, &r->rng, why), "cut", why);
    vka_plan_destroy(&plan);
    vka_plan_destroy(&cut);
}

static void run_added(struct run *r)
{
    struct vka_causal_conv_backward_op op = r->p.op;
    double *before[CONV_GRADIENTS] = {NULL};
    op.input_gradient.accumulate = op.weight_gradient.accumulate = true;
    op.bias_gradient.accumulate = op.past_gradient.accumulate = true;
    for (int i = 0; i < CONV_GRADIENTS; i++) {
        struct operand *o = &r->p.made[i];
        if (!o->view)
            continue;
        before[i] = calloc(o->count, sizeof(double));
        require(r, before[i], "memory", "none");
        for (size_t j = 0; j < o->count; j++)
            before[i][j] = o->values[j] = operand_round(o->dtype, rng_uniform(&r->rng, -1, 1));
        require(r, operand_write(o) == VKA_OK, "write", "");
    }
    struct vka_plan *plan = plan_of(r, &op, VKA_NO_BUDGET);
    require(r, vka_plan_run(plan, PATIENCE) == VKA_OK, "run", "");
    for (size_t i = 0; i < r->n_made; i++)
        require(r, operand_read(r->made[i]) == VKA_OK, "read", "");
    judge(r, before, "added");
    vka_plan_destroy(&plan);
    for (int i = 0; i < CONV_GRADIENTS; i++)
        free(before[i]);
}

#define VIEWS 8

/* A view of a sequence; NULL of NULL. */
static struct vka_tensor *sequence_of(const struct run *r, struct vka_tensor *tensor,
                                      uint32_t sequence, struct vka_tensor **view)
{
    if (tensor)
        require(r, vka_tensor_slice(tensor, 0, sequence, 1, view) == VKA_OK, "a view", "");
    return *view;
}

/* Gradients of rows of a sequence alone, into their own places: the bits of the batch. */
static void run_alone(struct run *r)
{
    struct vka_causal_conv_op forward = r->p.forward;
    struct vka_causal_conv_backward_op op = r->p.op;
    struct operand *made[2] = {&r->p.made[CONV_DX], &r->p.made[CONV_DPAST]};
    double *batch[2] = {NULL};
    struct vka_tensor *views[VIEWS] = {NULL};
    const uint32_t own = rng_range(&r->rng, 0, r->p.x.size[0] - 1);
    forward.input = sequence_of(r, forward.input, own, &views[0]);
    forward.past = sequence_of(r, forward.past, own, &views[1]);
    forward.output = sequence_of(r, forward.output, own, &views[2]);
    if (r->p.lengths.count > 1)
        forward.lengths = sequence_of(r, forward.lengths, own, &views[3]);
    op.forward = &forward;
    op.output_gradient = sequence_of(r, op.output_gradient, own, &views[4]);
    op.present_gradient = sequence_of(r, op.present_gradient, own, &views[5]);
    op.input_gradient.tensor = sequence_of(r, made[0]->view, own, &views[6]);
    op.past_gradient.tensor = sequence_of(r, made[1]->view, own, &views[7]);
    op.weight_gradient.tensor = op.bias_gradient.tensor = NULL;
    for (int i = 0; i < 2; i++)
        if (made[i]->view) {
            batch[i] = malloc(made[i]->count * sizeof(double));
            require(r, batch[i], "memory", "none");
            memcpy(batch[i], made[i]->values, made[i]->count * sizeof(double));
            require(r, operand_write_noise(made[i], &r->rng) == VKA_OK, "noise", "");
        }
    struct vka_plan *plan = plan_of(r, &op, VKA_NO_BUDGET);
    require(r, vka_plan_run(plan, PATIENCE) == VKA_OK, "run", "");
    for (int i = 0; i < 2; i++)
        if (made[i]->view) {
            const size_t n = made[i]->count / made[i]->size[0], at = own * n;
            require(r, operand_read(made[i]) == VKA_OK, "read", "");
            require(r, memcmp(made[i]->values + at, batch[i] + at, n * sizeof(double)) == 0,
                    "alone", "other bits than in the batch");
            free(batch[i]);
        }
    vka_plan_destroy(&plan);
    for (int i = 0; i < VIEWS; i++)
        vka_tensor_destroy(&views[i]);
}

static double run_problem(struct vka_device *device, uint64_t seed, uint64_t each)
{
    static struct run r;
    struct rng first = {seed - seed % each};
    r = (struct run){.device = device, .rng = {seed}, .seed = seed};
    const struct conv_kind kind = conv_kind_draw(&first);
    const struct conv_sizes sizes = conv_sizes_draw(&r.rng);
    require(&r, conv_problem_create(device, &r.rng, &kind, &sizes, &r.p) == VKA_OK, "tensors", "");
    for (int i = 0; i < CONV_GRADIENTS; i++)
        if (r.p.made[i].view)
            r.made[r.n_made++] = &r.p.made[i];
    run_whole(&r);
    run_alone(&r);
    if (rng_chance(&r.rng, 40))
        run_added(&r);
    conv_problem_destroy(&r.p);
    return r.worst;
}

TEST_PROGRAM_ARGUMENTS(conv_backward)
{
    return histories_run(argc, argv, 20, run_problem);
}
