/* Attention and its backward: the draws of test_random, a thousand times larger. */
#include "trial.h"

#include "problems/problem_data.h"

#include <gpu/device.h>
#include <plan/plan.h>
#include <vkattn/vkattn_train.h>

#include <string.h>

enum { G_Q = 0, G_K, G_V, G_SINK, G_MASK, G_Q_NORM, G_K_NORM, GRADIENTS };

struct job {
    const struct problem *p;
    struct problem_data d;
    struct operand dy, gradients[GRADIENTS];
    bool accumulate;
};

static struct problem_bounds draw_bounds(struct trial *t)
{
    if (trial_giant(t))
        return (struct problem_bounds){.work = 1e15,
                                       .scores = 1e13,
                                       .rows = trial_size(t, 1000000, 30000000),
                                       .past = 1000000};
    return (struct problem_bounds){
        .work = (double)trial_size(t, 1000, 4000000) * 1e6,
        .scores = (double)trial_size(t, 100, 4000000) * 1e3,
        .rows = trial_size(t, 64, 40000),
        .past = trial_size(t, 16, 20000),
    };
}

static enum vka_status plan_attention(struct trial *t, const void *job, uint64_t budget,
                                      struct vka_plan **plan)
{
    const struct job *j = job;
    struct problem cut = *j->p;
    struct problem_data d = j->d; /* its operands are the job's */
    cut.submit_budget = budget;
    d.p = &cut;
    return problem_plan(t->device, &d, plan);
}

static struct trial_tensors read_by(const struct problem *p, const struct problem_data *d)
{
    const double scores =
        (double)p->batch * p->n_kv_head * p->group * p->n_q * ((double)p->n_past + p->n_new);
    return (struct trial_tensors){
        .inputs = {d->operands[OPERAND_Q].view, d->operands[OPERAND_K].view,
                   d->operands[OPERAND_V].view, d->operands[OPERAND_PAST_V].view},
        .exact = !p->causal && !p->window,
        .least = p->causal || p->window ? 0 : 2 * scores * (p->head_dim + p->value_dim),
    };
}

bool trial_attention(struct trial *t)
{
    const struct problem_bounds bounds = draw_bounds(t);
    struct problem p;
    struct job j = {.p = &p};
    problem_draw_within(&p, t->seed, (enum vka_path)rng_range(&t->rng, 0, VKA_PATH_COUNT - 1),
                        &bounds);
    problem_text(&p, t->text);
    enum vka_status status = problem_data_open(t->device, &p, true, &j.d);
    bool ok = trial_passed(t, status);
    if (status == VKA_OK) {
        struct trial_tensors tensors = read_by(&p, &j.d);
        for (int i = OPERAND_OUTPUT; i < OPERAND_COUNT; i++)
            tensors.outputs[i - OPERAND_OUTPUT] = j.d.operands[i].view;
        ok = trial_run(t, plan_attention, &j, &tensors);
    }
    problem_data_destroy(&j.d);
    return ok;
}

/* ---- Backward -------------------------------------------------------------------------------- */

static const enum operand_id of_operand[GRADIENTS] = {
    OPERAND_Q, OPERAND_K, OPERAND_V, OPERAND_SINK, OPERAND_MASK, OPERAND_Q_NORM, OPERAND_K_NORM};

static enum vka_status create_gradients(struct trial *t, struct job *j)
{
    static const enum vka_dtype types[] = {VKA_F32, VKA_F32, VKA_F16, VKA_BF16};
    const struct operand *y = &j->d.operands[OPERAND_OUTPUT];
    const struct layout dense = layout_dense();
    enum vka_status status =
        operand_create_empty(t->device, j->p->output, 4, y->size, &dense, &j->dy);
    for (int i = 0; i < GRADIENTS && status == VKA_OK; i++) {
        const struct operand *of = &j->d.operands[of_operand[i]];
        const bool none = i == G_MASK && (of->dtype == VKA_BOOL || j->p->path == VKA_PATH_FUSED);
        if (!of->view || none || rng_chance(&t->rng, 15))
            continue;
        const struct layout layout =
            j->p->scattered && of->rank > 1 ? layout_random(&t->rng, of->rank) : dense;
        const enum vka_dtype type =
            rng_chance(&t->rng, 60) || j->p->one_type ? of->dtype : types[rng_range(&t->rng, 0, 3)];
        status =
            operand_create_empty(t->device, type, of->rank, of->size, &layout, &j->gradients[i]);
    }
    return status;
}

static enum vka_status plan_backward(struct trial *t, const void *job, uint64_t budget,
                                     struct vka_plan **plan)
{
    const struct job *j = job;
    struct vka_attention_op forward;
    struct vka_gradient g[GRADIENTS];
    problem_op(&j->d, &forward);
    for (int i = 0; i < GRADIENTS; i++)
        g[i] = (struct vka_gradient){j->gradients[i].view, j->accumulate};
    enum vka_status status =
        vka_plan_create(t->device,
                        VKA_INFO(vka_plan_info, .path = j->p->path,
                                 .workspace_limit = j->p->workspace_limit, .submit_budget = budget),
                        plan);
    if (status == VKA_OK)
        status = vka_plan_add_attention(*plan, &forward);
    if (status == VKA_OK)
        status = vka_plan_add_attention_backward(
            *plan,
            VKA_INFO(vka_attention_backward_op, .forward = &forward, .output_gradient = j->dy.view,
                     .q_gradient = g[G_Q], .k_gradient = g[G_K], .v_gradient = g[G_V],
                     .sink_gradient = g[G_SINK], .mask_gradient = g[G_MASK],
                     .q_norm_gradient = g[G_Q_NORM], .k_norm_gradient = g[G_K_NORM]));
    return status == VKA_OK ? vka_plan_finish(*plan) : status;
}

bool trial_backward(struct trial *t)
{
    const struct problem_bounds bounds = draw_bounds(t);
    struct problem p;
    struct job j = {.p = &p, .accumulate = rng_chance(&t->rng, 25)};
    problem_draw_within(&p, t->seed, VKA_PATH_UNFUSED, &bounds);
    problem_backward_adapt(&p, t->seed);
    problem_text(&p, t->text);
    enum vka_status status = problem_data_open(t->device, &p, true, &j.d);
    if (status == VKA_OK)
        status = create_gradients(t, &j);
    bool ok = trial_passed(t, status), any = false;
    struct trial_tensors tensors = read_by(&p, &j.d);
    tensors.outputs[GRADIENTS] = j.d.operands[OPERAND_OUTPUT].view;
    for (int i = 0; i < GRADIENTS; i++) {
        tensors.outputs[i] = j.gradients[i].view;
        any |= tensors.outputs[i] != NULL;
    }
    if (status == VKA_OK && any)
        ok = trial_run(t, plan_backward, &j, &tensors);
    for (int i = 0; i < GRADIENTS; i++)
        operand_destroy(&j.gradients[i]);
    operand_destroy(&j.dy);
    problem_data_destroy(&j.d);
    return ok;
}
