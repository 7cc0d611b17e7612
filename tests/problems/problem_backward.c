/* Gradients of an attention problem: a plan of the forward and its backward, against the oracle. */
#include <vkattn/vkattn_train.h>

#include "patience.h"
#include "problem_data.h"

#include <gpu/device.h>
#include <plan/plan.h>
#include <reference/attention_backward.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MANY 10 /* times compare_limit: float32 1e-10 */

enum {
    GRADIENT_Q = 0,
    GRADIENT_K,
    GRADIENT_V,
    GRADIENT_SINK,
    GRADIENT_MASK,
    GRADIENT_Q_NORM,
    GRADIENT_K_NORM,
    GRADIENTS
};

static const char *const names[GRADIENTS] = {"q", "k", "v", "sink", "mask", "q_norm", "k_norm"};
static const enum operand_id of_operand[GRADIENTS] = {
    OPERAND_Q, OPERAND_K, OPERAND_V, OPERAND_SINK, OPERAND_MASK, OPERAND_Q_NORM, OPERAND_K_NORM};

struct backward {
    struct problem_data d;
    struct operand dy, gradients[GRADIENTS];
    double *want[GRADIENTS];
};

/* A gradient of what the problem has, mostly: any subset may be asked for, or the one that it names. */
static enum vka_status create_gradient(struct vka_device *device, struct backward *t, int i)
{
    struct rng *rng = &t->d.rng;
    const struct operand *of = &t->d.operands[of_operand[i]];
    static const enum vka_dtype types[] = {VKA_F32, VKA_F32, VKA_F16, VKA_BF16};
    /* What a mask adds to all keys of a row changes no weight: its gradient is what rounding leaves.
     * The fused path has none. */
    const bool none = i == GRADIENT_MASK && of->view &&
                      (of->size[of->rank - 1] == 1 || t->d.p->path == VKA_PATH_FUSED);
    const uint32_t only = t->d.p->only_gradient;
    if (!of->view || of->dtype == VKA_BOOL || none ||
        (only ? only != (uint32_t)i + 1 : rng_chance(rng, 15)))
        return VKA_OK;
    const bool same = rng_chance(rng, 60) || t->d.p->one_type;
    const enum vka_dtype type = same ? of->dtype : types[rng_range(rng, 0, 3)];
    const struct layout layout = t->d.p->scattered ? layout_random(rng, of->rank) : layout_dense();
    t->want[i] = calloc(of->count, sizeof *t->want[i]);
    if (!t->want[i])
        return VKA_OUT_OF_HOST_MEMORY;
    return operand_create(device, type, of->rank, of->size, &layout, &t->gradients[i]);
}

static enum vka_status create(struct vka_device *device, const struct problem *p,
                              struct backward *t)
{
    enum vka_status status = problem_data_create(device, p, &t->d);
    const struct operand *y = &t->d.operands[OPERAND_OUTPUT];
    const struct layout layout = p->scattered ? layout_random(&t->d.rng, 4) : layout_dense();
    if (status == VKA_OK)
        status = operand_create(device, p->output, 4, y->size, &layout, &t->dy);
    for (size_t i = 0; status == VKA_OK && i < t->dy.count; i++)
        t->dy.values[i] = rng_uniform(&t->d.rng, -1, 2);
    if (status == VKA_OK)
        status = operand_write(&t->dy);
    for (size_t i = 0; status == VKA_OK && i < t->dy.count; i++)
        t->dy.values[i] = operand_round(t->dy.dtype, t->dy.values[i]);
    for (int i = 0; i < GRADIENTS && status == VKA_OK; i++)
        status = create_gradient(device, t, i);
    return status;
}

static void destroy(struct backward *t)
{
    for (int i = 0; i < GRADIENTS; i++) {
        operand_destroy(&t->gradients[i]);
        free(t->want[i]);
    }
    operand_destroy(&t->dy);
    problem_data_destroy(&t->d);
}

/* The kernel whose turn a kernel of matrices takes, half of the time where there is one: CPU drivers would
 * never take it. */
static struct kernel_set without(const struct vka_device *device, const struct problem *p)
{
    const enum kernel coop =
        p->q == VKA_F16 ? KERNEL_attention_backward_coop_f16 : KERNEL_attention_backward_coop_bf16;
    const bool taken = p->one_type && p->seed / 16 % 2 && !kernel_missing(coop, &device->caps);
    return taken ? KERNEL_SET(KERNEL_attention_backward) : NO_KERNELS;
}

/* A finished plan of the forward, and of its backward. The forward is not fused: CPU drivers compile for
 * seconds for each size of a head. */
static enum vka_status make_plan(struct vka_device *device, const struct backward *t,
                                 uint64_t workspace, uint64_t budget, bool accumulate,
                                 struct vka_plan **plan)
{
    struct vka_attention_op forward;
    struct vka_gradient g[GRADIENTS];
    problem_op(&t->d, &forward);
    for (int i = 0; i < GRADIENTS; i++)
        g[i] = (struct vka_gradient){t->gradients[i].view, accumulate};
    enum vka_status status =
        vka_plan_create(device,
                        VKA_INFO(vka_plan_info, .path = VKA_PATH_UNFUSED,
                                 .workspace_limit = workspace, .submit_budget = budget),
                        plan);
    if (status == VKA_OK && !accumulate)
        status = vka_plan_add_attention(*plan, &forward);
    if (status == VKA_OK)
        (*plan)->path = t->d.p->path;
    if (status == VKA_OK)
        set_join(&(*plan)->without, without(device, t->d.p));
    if (status == VKA_OK)
        status = vka_plan_add_attention_backward(
            *plan,
            VKA_INFO(vka_attention_backward_op, .forward = &forward, .output_gradient = t->dy.view,
                     .q_gradient = g[GRADIENT_Q], .k_gradient = g[GRADIENT_K],
                     .v_gradient = g[GRADIENT_V], .sink_gradient = g[GRADIENT_SINK],
                     .mask_gradient = g[GRADIENT_MASK], .q_norm_gradient = g[GRADIENT_Q_NORM],
                     .k_norm_gradient = g[GRADIENT_K_NORM]));
    return status == VKA_OK ? vka_plan_finish(*plan) : status;
}

/* The root mean square of the elements that are numbers. */
static double mean_size(const struct operand *o)
{
    double sum = 0, n = 1e-300;
    for (size_t i = 0; i < o->count; i++)
        if (isfinite(o->values[i])) {
            sum += o->values[i] * o->values[i];
            n += 1;
        }
    return sqrt(sum / n);
}

static size_t rows_of(const struct operand *o)
{
    return o->count / o->size[o->rank - 1];
}

/* The size of an element of a gradient before terms cancel: of scores, which sum dy times a value, then
 * times an element of a key or a query, then through its norm. The gradient of scores is 0 in a row
 * whose weight is all at one key, and that of a norm of one feature is 0 but for its epsilon: what is
 * left is rounding. 0: of terms that do not cancel so. */
static double size_of_terms(const struct backward *t, int i)
{
    const struct operand *o = t->d.operands;
    const double value_dim = o[OPERAND_V].size[3], head_dim = o[OPERAND_Q].size[3];
    const double scores = mean_size(&t->dy) * mean_size(&o[OPERAND_V]) * sqrt(value_dim);
    const double scale = t->d.p->scale != 0 ? fabs(t->d.p->scale) : 1 / sqrt(head_dim);
    const bool q_norm = o[OPERAND_Q_NORM].view, k_norm = o[OPERAND_K_NORM].view;
    const double q = mean_size(&o[q_norm ? OPERAND_Q_NORM : OPERAND_Q]);
    const double k = mean_size(&o[k_norm ? OPERAND_K_NORM : OPERAND_K]);
    switch (i) {
    case GRADIENT_Q:
        return scores * scale * k * (q_norm ? q / mean_size(&o[OPERAND_Q]) : 1);
    case GRADIENT_K:
        return scores * scale * q * (k_norm ? k / mean_size(&o[OPERAND_K]) : 1);
    case GRADIENT_Q_NORM: /* sums over rows of what a normalised query or key is given */
        return scores * scale * k * sqrt((double)rows_of(&o[OPERAND_Q]));
    case GRADIENT_K_NORM:
        return scores * scale * q * sqrt((double)rows_of(&o[OPERAND_K]));
    case GRADIENT_MASK: /* an element of a mask that repeats sums over many scores */
        return scores *
               sqrt((double)o[OPERAND_Q].size[0] * o[OPERAND_Q].size[1] * o[OPERAND_Q].size[2] *
                    o[OPERAND_K].size[2] / (double)o[OPERAND_MASK].count);
    default:
        return 0;
    }
}

/* GPUs hold rotated and normalised rows of 16 bits in 16 bits, as the forward does; the oracle does not. */
static double limit_of(const struct vka_device *device, const struct problem *p,
                       enum vka_dtype gradient)
{
    const bool turned = p->rope.dim || p->q_norm || p->k_norm;
    const bool one_type = p->q == p->k && p->k == p->v && p->v == p->output;
    const bool halves = device->caps.properties.type != VKA_DEVICE_CPU && one_type;
    return MANY * fmax(compare_limit(gradient), turned && halves ? compare_limit(p->k) : 0);
}

static bool compare(const struct vka_device *device, const struct backward *t, const char *how,
                    struct worst *worst, char why[WHY])
{
    for (int i = 0; i < GRADIENTS; i++) {
        const struct operand *o = &t->gradients[i];
        size_t row = 0;
        if (!o->view)
            continue;
        const double nmse = compare_terms(o, t->want[i], size_of_terms(t, i), &row);
        if (worst && nmse > worst->nmse[o->dtype]) {
            worst->nmse[o->dtype] = nmse;
            snprintf(worst->where[o->dtype], sizeof worst->where[0], "gradient of %s, seed %llu",
                     names[i], (unsigned long long)t->d.p->seed);
        }
        if (!(nmse <= limit_of(device, t->d.p, o->dtype))) {
            const size_t at = row * o->size[o->rank - 1];
            snprintf(why, WHY,
                     "gradient of %s%s: NMSE %.3g at row %zu, which begins %.9g, not %.9g",
                     names[i], how, nmse, row, o->values[at], t->want[i][at]);
            return false;
        }
    }
    return true;
}

/* Adds all gradients to what the run before left. */
static bool check_accumulate(struct vka_device *device, struct backward *t, char why[WHY])
{
    struct vka_plan *plan = NULL;
    enum vka_status status = make_plan(device, t, 0, 0, true, &plan);
    for (int i = 0; i < GRADIENTS; i++)
        for (size_t j = 0; t->gradients[i].view && j < t->gradients[i].count; j++)
            t->want[i][j] += t->gradients[i].values[j];
    if (status == VKA_OK)
        status = vka_plan_run(plan, PATIENCE);
    for (int i = 0; i < GRADIENTS && status == VKA_OK; i++)
        if (t->gradients[i].view)
            status = operand_read(&t->gradients[i]);
    if (status != VKA_OK)
        snprintf(why, WHY, "accumulated: %s: %s", vka_status_name(status),
                 vka_device_error(device));
    vka_plan_destroy(&plan);
    return status == VKA_OK && compare(device, t, ", accumulated", NULL, why);
}

/* Whether another workspace and budget, which cut all there is to cut, give the same bits. */
static bool check_cut(struct vka_device *device, struct backward *t, struct vka_plan *plan,
                      struct operand *const *outputs, size_t n, char why[WHY])
{
    const struct problem *p = t->d.p;
    struct vka_plan *cut = NULL;
    const double scores = (double)p->batch * p->n_kv_head * p->group * p->n_q * p->n_new;
    /* Nanoseconds of a submit; a plan has room for 16,384 passes. */
    const uint64_t budget = scores < 5e3 ? 1000 : scores < 1e5 ? 200000 : 2000000;
    enum vka_status status =
        make_plan(device, t, 4ull * (p->n_new + 4) * p->n_q, budget, false, &cut);
    bool ok = status == VKA_OK && compare_plans(device, plan, cut, outputs, n, &t->d.rng, why);
    size_t length = strlen(why);
    if (status != VKA_OK)
        snprintf(why, WHY, "cut: %s: %s", vka_status_name(status), vka_device_error(device));
    else if (!ok)
        snprintf(why + length, WHY - length, " when it is cut");
    vka_plan_destroy(&cut);
    return ok;
}

static bool check(struct vka_device *device, struct backward *t, struct worst *worst,
                  struct problem_result *result)
{
    struct vka_plan *plan = NULL;
    struct operand *outputs[COMPARE_MOST] = {&t->d.operands[OPERAND_OUTPUT],
                                             &t->d.operands[OPERAND_LOG_SUM]};
    size_t n = 2;
    char *why = result->why;
    for (int i = 0; i < GRADIENTS; i++)
        if (t->gradients[i].view)
            outputs[n++] = &t->gradients[i];
    if (n == 2) { /* none was drawn */
        result->refused = true;
        return true;
    }
    enum vka_status status =
        make_plan(device, t, t->d.p->workspace_limit, VKA_NO_BUDGET, false, &plan);
    if (status != VKA_OK)
        snprintf(why, WHY, "%s: %s", vka_status_name(status), vka_device_error(device));
    bool ok = status == VKA_OK && compare_runs(device, plan, outputs, n, &t->d.rng, why);
    if (ok && t->d.p->budgets)
        ok = check_cut(device, t, plan, outputs, n, why);
    vka_plan_destroy(&plan);
    if (!ok)
        return false;
    status = problem_backward_oracle(
        &t->d, t->dy.values,
        &(struct ref_attention_gradients){
            t->want[GRADIENT_Q], t->want[GRADIENT_K], t->want[GRADIENT_V], t->want[GRADIENT_SINK],
            t->want[GRADIENT_MASK], t->want[GRADIENT_Q_NORM], t->want[GRADIENT_K_NORM]});
    if (status != VKA_OK)
        snprintf(why, WHY, "the oracle: %s", vka_status_name(status));
    return status == VKA_OK && compare(device, t, "", worst, why) &&
           (t->d.p->seed / 2 % 2 || check_accumulate(device, t, why));
}

bool problem_backward_check(struct vka_device *device, const struct problem *p, struct worst *worst,
                            struct problem_result *result)
{
    struct backward t;
    memset(&t, 0, sizeof t);
    *result = (struct problem_result){0};
    enum vka_status status = create(device, p, &t);
    if (status != VKA_OK)
        snprintf(result->why, WHY, "%s: %s", vka_status_name(status), vka_device_error(device));
    bool ok = status == VKA_OK && check(device, &t, worst, result);
    destroy(&t);
    return ok;
}

void problem_backward_set_type(struct problem *p, enum vka_dtype type)
{
    p->one_type = true;
    p->q = p->k = p->v = p->output = type;
    p->rope = (struct vka_rope){0};
    p->q_norm = p->k_norm = false;
}

/* NaN in a hidden key passes the norm of keys. */
void problem_backward_draw(struct problem *p, uint64_t seed)
{
    problem_draw(p, seed, VKA_PATH_UNFUSED);
    problem_backward_adapt(p, seed);
}

void problem_backward_adapt(struct problem *p, uint64_t seed)
{
    p->way = WAY_BACKWARD;
    p->path = seed % 2 ? VKA_PATH_FUSED : VKA_PATH_UNFUSED;
    p->n_new += p->n_past;
    p->n_past = 0;
    p->has_present = false;
    p->scores_kind = VKA_SCORES_NONE;
    p->log_sum = true;
    p->limits = false;
    p->budgets = seed / 2 % 4 == 0;
    p->one_type = seed / 8 % 3 == 0;
    if (p->one_type)
        problem_backward_set_type(p, seed / 24 % 2 ? VKA_F16 : VKA_BF16);
    p->disabled_kernels = NO_KERNELS;
    p->poison_hidden = p->poison_hidden && !p->k_norm;
}
