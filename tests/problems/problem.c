#include "core/inner.h"
#include "core/status.h"
#include "limits.h"
#include "problem_data.h"

#include <gpu/device.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum vka_status problem_plan(struct vka_device *device, const struct problem_data *d,
                             struct vka_plan **plan)
{
    struct vka_attention_op op;
    const struct kernel_set disabled = device->caps.without;
    problem_op(d, &op);
    set_join(&device->caps.without, d->p->disabled_kernels);
    enum vka_status status = vka_plan_create(device,
                                             VKA_INFO(vka_plan_info, .path = d->p->path,
                                                      .workspace_limit = d->p->workspace_limit,
                                                      .submit_budget = d->p->submit_budget),
                                             plan);
    if (status == VKA_OK)
        status = vka_plan_add_attention(*plan, &op);
    if (status == VKA_OK)
        status = vka_plan_finish(*plan);
    device->caps.without = disabled;
    return status;
}

/* Whether a plan for lower limits gives the bits that the last run left in the outputs, or is
 * refused. */
static bool compare_limits(struct vka_device *device, struct problem_data *d,
                           struct operand *const *outputs, size_t n, struct problem_result *result)
{
    char *why = result->why;
    struct vka_plan *plan = NULL;
    double *uncut[COMPARE_MOST] = {0};
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) {
        uncut[i] = malloc(outputs[i]->count * sizeof *uncut[i]);
        ok = uncut[i] != NULL;
        if (ok)
            memcpy(uncut[i], outputs[i]->values, outputs[i]->count * sizeof *uncut[i]);
    }
    struct vka_device_properties usual = limits_lower(device, LEAST_RANGE, LEAST_ALLOCATION);
    enum vka_status status = ok ? problem_plan(device, d, &plan) : VKA_OUT_OF_HOST_MEMORY;
    limits_restore(device, &usual);
    result->refused = status == VKA_UNSUPPORTED;
    if (status != VKA_OK)
        snprintf(why, WHY, "with lower limits: %s: %s", vka_status_name(status),
                 vka_device_error(device));
    ok = status == VKA_OK && compare_runs(device, plan, outputs, n, &d->rng, why);
    for (size_t i = 0; i < n && ok; i++) {
        ok = memcmp(uncut[i], outputs[i]->values, outputs[i]->count * sizeof *uncut[i]) == 0;
        if (!ok)
            snprintf(why, WHY, "output %zu: other bits with lower limits", i);
    }
    for (size_t i = 0; i < n; i++)
        free(uncut[i]);
    vka_plan_destroy(&plan);
    return ok || result->refused;
}

/* Whether runs cut for other budgets, down to the smallest spans, give the bits of plan's. */
static bool compare_budgets(struct vka_device *device, struct problem_data *d,
                            struct vka_plan *plan, struct operand *const *outputs, size_t n,
                            char why[WHY])
{
    static const uint64_t budgets[] = {1000, 1000000, VKA_NO_BUDGET};
    const struct problem *p = d->p;
    struct problem cut = *p;
    bool ok = true;
    d->p = &cut;
    for (size_t i = 0; i < sizeof budgets / sizeof budgets[0] && ok; i++) {
        struct vka_plan *other = NULL;
        cut.submit_budget = budgets[i];
        enum vka_status status = problem_plan(device, d, &other);
        ok = status == VKA_OK && compare_plans(device, plan, other, outputs, n, &d->rng, why);
        size_t length = strlen(why);
        if (status != VKA_OK)
            snprintf(why, WHY, "%s: %s", vka_status_name(status), vka_device_error(device));
        else if (!ok)
            snprintf(why + length, WHY - length, " with a budget of %llu ns",
                     (unsigned long long)budgets[i]);
        vka_plan_destroy(&other);
    }
    d->p = p;
    return ok;
}

/* Whether the other outputs have the same bits where log_sum_exp is not asked for. */
static bool compare_without_log_sum(struct vka_device *device, struct problem_data *d,
                                    struct vka_plan *plan, struct operand *const *outputs, size_t n,
                                    char why[WHY])
{
    struct operand *others[COMPARE_MOST], *log_sum = &d->operands[OPERAND_LOG_SUM];
    struct vka_tensor *view = log_sum->view;
    struct vka_plan *without = NULL;
    size_t n_other = 0;
    for (size_t i = 0; i < n; i++)
        if (outputs[i] != log_sum)
            others[n_other++] = outputs[i];
    log_sum->view = NULL;
    enum vka_status status = problem_plan(device, d, &without);
    log_sum->view = view;
    bool ok =
        status == VKA_OK && compare_plans(device, plan, without, others, n_other, &d->rng, why);
    size_t length = strlen(why);
    if (status != VKA_OK)
        snprintf(why, WHY, "%s: %s", vka_status_name(status), vka_device_error(device));
    else if (!ok)
        snprintf(why + length, WHY - length, " without log_sum_exp");
    vka_plan_destroy(&without);
    return ok;
}

/* Fills the rows of keys and values at and behind the lengths: with NaN, large numbers, others. */
static enum vka_status fill_behind(struct problem_data *d, int turn)
{
    const struct problem *p = d->p;
    const struct operand *length = &d->operands[OPERAND_LENGTH];
    static const enum operand_id ids[] = {OPERAND_PAST_K, OPERAND_PAST_V, OPERAND_K, OPERAND_V};
    enum vka_status status = VKA_OK;
    for (size_t n = 0; n < sizeof ids / sizeof ids[0] && status == VKA_OK; n++) {
        struct operand *o = &d->operands[ids[n]];
        const double before = n < 2 ? 0 : p->n_past; /* keys before the operand's first */
        const size_t width = o->view ? o->size[3] : 0, rows = o->view ? o->size[2] : 0;
        for (size_t r = 0; r < (o->view ? o->count / width : 0); r++) {
            const size_t b = r / rows / p->n_kv_head;
            if ((double)(r % rows) + before < length->values[length->count == 1 ? 0 : b])
                continue;
            for (size_t c = 0; c < width; c++)
                o->values[r * width + c] = turn == 0   ? (double)NAN
                                           : turn == 1 ? (o->dtype == VKA_F16 ? 65504 : 1e30)
                                                       : rng_uniform(&d->rng, -1, 1);
        }
        status = o->view ? operand_write(o) : VKA_OK;
    }
    return status;
}

/* Whether results keep their bits whatever stands at and behind the lengths. Present keys and values
 * are copies of it. */
static bool compare_behind(struct vka_device *device, struct problem_data *d, struct vka_plan *plan,
                           char why[WHY])
{
    static const enum operand_id ids[] = {OPERAND_OUTPUT, OPERAND_SCORES, OPERAND_LOG_SUM};
    struct operand *outputs[3];
    double *clean[3] = {NULL};
    size_t n = 0;
    bool ok = true;
    for (size_t i = 0; i < 3; i++)
        if (d->operands[ids[i]].view)
            outputs[n++] = &d->operands[ids[i]];
    for (size_t i = 0; i < n && ok; i++) {
        clean[i] = malloc(outputs[i]->count * sizeof **clean);
        ok = clean[i] != NULL;
        if (ok)
            memcpy(clean[i], outputs[i]->values, outputs[i]->count * sizeof **clean);
    }
    for (int turn = 0; turn < 3 && ok; turn++) {
        ok = fill_behind(d, turn) == VKA_OK && compare_runs(device, plan, outputs, n, &d->rng, why);
        for (size_t i = 0; i < n && ok; i++)
            for (size_t e = 0; e < outputs[i]->count && ok; e++) {
                const double got = outputs[i]->values[e], want = clean[i][e];
                ok = (isnan(got) && isnan(want)) || memcmp(&got, &want, sizeof got) == 0;
                if (!ok)
                    snprintf(why, WHY,
                             "output %zu[%zu] is %.9g, not %.9g, with %s behind the lengths", i, e,
                             got, want,
                             turn == 0   ? "NaN"
                             : turn == 1 ? "1e30"
                                         : "others");
            }
    }
    for (size_t i = 0; i < n; i++)
        free(clean[i]);
    return ok;
}

struct kernel_set problem_kernels(struct vka_plan *plan)
{
    struct kernel_set kernels = NO_KERNELS;
    struct vka_pass_info pass;
    for (size_t i = 0; i < vka_plan_pass_count(plan); i++)
        for (int k = 0; k < KERNEL_COUNT; k++)
            if (vka_plan_pass(plan, i, &pass) == VKA_OK &&
                strcmp(kernel_table[k].name, pass.kernel) == 0)
                set_add(&kernels, k);
    return kernels;
}

/* The type to which rotated or normalised queries and keys are rounded before they enter the scores;
 * float32: they are not. */
static enum vka_dtype turned_dtype(const struct vka_device *device, const struct problem *p)
{
    const enum vka_dtype types[] = {p->q, p->k, p->v, p->output};
    const bool turned = p->rope.dim || p->q_norm || p->k_norm;
    return turned ? inner_dtype(&device->caps.properties, types, COUNTOF(types)) : VKA_F32;
}

/* Kernels whose weights are rounded to bfloat16 before they meet the values. */
#define BFLOAT16_WEIGHTS                                                \
    KERNEL_SET(KERNEL_attention_coop_bf16, KERNEL_attention_coop2_bf16, \
               KERNEL_attention_coop2_ext_bf16)

/* What contexts may have of their type's limit. Where queries are rounded to 16 bits, each score is off
 * by up to 2^-11 or 2^-8 of its terms' magnitudes, and a weight by as much of itself: a row of one small
 * weight, as dropout leaves, has all of that. */
static double output_allowance(enum vka_dtype turned, struct kernel_set kernels)
{
    return turned != VKA_F32 ? 4 : set_meets(kernels, BFLOAT16_WEIGHTS) ? 2 : 1;
}

static bool compare(const struct vka_device *device, const struct problem_data *d,
                    struct kernel_set kernels, struct worst *worst, char why[WHY])
{
    const struct {
        enum operand_id id;
        const char *name;
        const double *want;
        bool exact;
    } rows[] = {
        {OPERAND_OUTPUT, "output", d->context, false},
        {OPERAND_SCORES, "scores", d->scores, false},
        {OPERAND_PRESENT_K, "present_key", d->key, false},
        {OPERAND_PRESENT_V, "present_value", d->value, true},
    };
    const enum vka_dtype turned = turned_dtype(device, d->p);
    char where[PROBLEM_TEXT];
    problem_text(d->p, where);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct operand *o = &d->operands[rows[i].id];
        double limit = rows[i].exact ? 0 : compare_limit(o->dtype);
        if (rows[i].id == OPERAND_SCORES)
            limit = fmax(limit, compare_limit(turned));
        if (rows[i].id == OPERAND_OUTPUT)
            limit *= output_allowance(turned, kernels);
        if (o->view && !compare_values(o, rows[i].want, limit, rows[i].name, where, worst, why))
            return false;
    }
    const struct operand *log_sum = &d->operands[OPERAND_LOG_SUM];
    return !log_sum->view || compare_log_sums(log_sum, d->log_sum, turned, why);
}

static bool check_dense(struct vka_device *device, const struct problem *p, struct worst *worst,
                        struct problem_result *result)
{
    struct problem_data d;
    struct vka_plan *plan = NULL;
    struct operand *outputs[COMPARE_MOST];
    size_t n = 0;
    bool ok = false;
    enum vka_status status = problem_data_create(device, p, &d);
    if (status == VKA_OK)
        status = problem_plan(device, &d, &plan);
    if (status != VKA_OK) {
        snprintf(result->why, WHY, "%s: %s", vka_status_name(status), vka_device_error(device));
        goto fail;
    }
    result->kernels = problem_kernels(plan);
    for (int i = OPERAND_OUTPUT; i < OPERAND_COUNT; i++)
        if (d.operands[i].view)
            outputs[n++] = &d.operands[i];
    if (!compare_runs(device, plan, outputs, n, &d.rng, result->why))
        goto fail;
    if (p->limits && !compare_limits(device, &d, outputs, n, result))
        goto fail;
    if (p->budgets && !compare_budgets(device, &d, plan, outputs, n, result->why))
        goto fail;
    if (p->log_sum && p->seed % 4 == 0 &&
        !compare_without_log_sum(device, &d, plan, outputs, n, result->why))
        goto fail;
    status = problem_oracle(&d);
    if (status != VKA_OK)
        snprintf(result->why, WHY, "the oracle: %s", vka_status_name(status));
    else
        ok = compare(device, &d, result->kernels, worst, result->why);
    if (ok && p->lengths) /* the last, as it changes the operands */
        ok = compare_behind(device, &d, plan, result->why);
fail:
    vka_plan_destroy(&plan);
    problem_data_destroy(&d);
    return ok;
}

bool problem_check(struct vka_device *device, const struct problem *p, struct worst *worst,
                   struct problem_result *result)
{
    static bool (*const checks[WAY_COUNT])(struct vka_device *, const struct problem *,
                                           struct worst *, struct problem_result *) = {
        [WAY_DENSE] = check_dense,
        [WAY_PACKED] = ragged_check,
        [WAY_LAYER] = problem_quantised_check,
        [WAY_BACKWARD] = problem_backward_check,
    };
    *result = (struct problem_result){0};
    return checks[p->way](device, p, worst, result);
}
