#include "core/inner.h"
#include "core/status.h"
#include "limits.h"
#include "problem_data.h"

#include <gpu/device.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void problem_op(const struct problem_data *d, struct vka_attention_op *op)
{
    const struct problem *p = d->p;
    const struct operand *o = d->operands;
    *op = (struct vka_attention_op){
        .struct_size = sizeof *op,
        .q = o[OPERAND_Q].view,
        .k = o[OPERAND_K].view,
        .v = o[OPERAND_V].view,
        .output = o[OPERAND_OUTPUT].view,
        .past_key = o[OPERAND_PAST_K].view,
        .past_value = o[OPERAND_PAST_V].view,
        .present_key = o[OPERAND_PRESENT_K].view,
        .present_value = o[OPERAND_PRESENT_V].view,
        .options =
            {
                .mask = o[OPERAND_MASK].view,
                .kv_length = o[OPERAND_LENGTH].view,
                .query_offset = o[OPERAND_OFFSET].view,
                .causal = p->causal,
                .window = p->window,
                .window_left = p->window_left,
                .window_right = p->window_right,
                .given = p->given,
                .scale = p->scale,
                .softcap = p->softcap,
                .masked_row = p->masked_row,
                .scores_kind = p->scores_kind,
                .scores = o[OPERAND_SCORES].view,
                .log_sum_exp = o[OPERAND_LOG_SUM].view,
                .rope = p->rope,
                .q_norm = o[OPERAND_Q_NORM].view,
                .k_norm = o[OPERAND_K_NORM].view,
                .norm_epsilon = p->norm_epsilon,
                .sink = o[OPERAND_SINK].view,
                .alibi = o[OPERAND_ALIBI].view,
                .dropout = p->dropout,
                .dropout_seed = p->dropout_seed,
                .exact_softmax = p->exact,
            },
    };
}

enum vka_status problem_plan(struct vka_device *device, const struct problem_data *d,
                             struct vka_plan **plan)
{
    struct vka_attention_op op;
    uint64_t disabled = device->caps.without;
    problem_op(d, &op);
    device->caps.without |= d->p->disabled_kernels;
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

/* Whether runs cut for other budgets, down to the smallest pieces, give the bits of plan's. */
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

static uint64_t kernels_of(struct vka_plan *plan)
{
    uint64_t kernels = 0;
    struct vka_pass_info pass;
    for (size_t i = 0; i < vka_plan_pass_count(plan); i++)
        for (int k = 0; k < KERNEL_COUNT; k++)
            if (vka_plan_pass(plan, i, &pass) == VKA_OK &&
                strcmp(kernel_table[k].name, pass.kernel) == 0)
                kernels |= 1ull << k;
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
#define BFLOAT16_WEIGHTS (1ull << KERNEL_attention_coop_bf16 | 1ull << KERNEL_attention_coop2_bf16)

static bool compare(const struct vka_device *device, const struct problem_data *d, uint64_t kernels,
                    struct worst *worst, char why[WHY])
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
        if (rows[i].id == OPERAND_OUTPUT && kernels & BFLOAT16_WEIGHTS)
            limit *= turned == VKA_BF16 ? 4 : 2;
        if (o->view && !compare_values(o, rows[i].want, limit, rows[i].name, where, worst, why))
            return false;
    }
    const struct operand *log_sum = &d->operands[OPERAND_LOG_SUM];
    return !log_sum->view || compare_log_sums(log_sum, d->log_sum, turned, why);
}

bool problem_check(struct vka_device *device, const struct problem *p, struct worst *worst,
                   struct problem_result *result)
{
    struct problem_data d;
    struct vka_plan *plan = NULL;
    struct operand *outputs[COMPARE_MOST];
    size_t n = 0;
    bool ok = false;
    *result = (struct problem_result){0};
    enum vka_status status = problem_data_create(device, p, &d);
    if (status == VKA_OK)
        status = problem_plan(device, &d, &plan);
    if (status != VKA_OK) {
        snprintf(result->why, WHY, "%s: %s", vka_status_name(status), vka_device_error(device));
        goto fail;
    }
    result->kernels = kernels_of(plan);
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

/* Appends to text where the condition holds. */
#define SAY(condition, ...)                       \
    if ((condition) && length < PROBLEM_TEXT - 1) \
    length += (size_t)snprintf(text + length, PROBLEM_TEXT - length, __VA_ARGS__)

const char *problem_text(const struct problem *p, char text[PROBLEM_TEXT])
{
    static const char *const rows[] = {"zero", "uniform", "nan"};
    static const char *const kinds[] = {"none", "raw", "softcap", "bias", "softmax"};
    size_t length = 0;
    text[0] = '\0';
    SAY(true, "seed %llu: batch %u heads %u/%u n_q %u n_kv %u+%u dims %u,%u types %s %s %s %s",
        (unsigned long long)p->seed, p->batch, p->n_kv_head * p->group, p->n_kv_head, p->n_q,
        p->n_past, p->n_new, p->head_dim, p->value_dim, vka_dtype_name(p->q), vka_dtype_name(p->k),
        vka_dtype_name(p->v), vka_dtype_name(p->output));
    SAY(p->scattered, " strided");
    SAY(p->n_past, " past %s", vka_dtype_name(p->past));
    SAY(p->has_present, " present %s", vka_dtype_name(p->present));
    SAY(p->causal, " causal");
    SAY(p->window, " window %d,%d", p->window_left, p->window_right);
    SAY(p->mask_rank, " mask %s", vka_dtype_name(p->mask));
    for (uint32_t i = 0; i < p->mask_rank; i++)
        SAY(true, "%s%u", i ? "x" : " ", p->mask_shape[i]);
    SAY(p->lengths, " lengths %s", p->lengths == PER_BATCH_EACH ? "each" : "one");
    SAY(p->offsets, " %soffsets %s", p->far_offsets ? "far " : "",
        p->offsets == PER_BATCH_EACH ? "each" : "one");
    SAY(p->scale != 0, " scale %.9g", (double)p->scale);
    SAY(p->softcap != 0, " softcap %.9g", (double)p->softcap);
    SAY(true, " masked row %s", rows[p->masked_row]);
    SAY(p->scores_kind, " scores %s %s", kinds[p->scores_kind], vka_dtype_name(p->scores));
    SAY(p->log_sum, " log_sum_exp");
    SAY(p->exact, " exact softmax");
    SAY(p->rope.dim, " rope %u base %g%s", p->rope.dim, (double)p->rope.base,
        p->rope.interleaved ? " interleaved" : "");
    SAY(p->q_norm, " q_norm");
    SAY(p->k_norm, " k_norm");
    SAY(p->norm_epsilon != 0, " epsilon %g", (double)p->norm_epsilon);
    SAY(p->given, " given %u", p->given);
    SAY(p->sink, " sink");
    SAY(p->alibi, " alibi");
    SAY(p->dropout != 0, " dropout %.9g seed %llu", (double)p->dropout,
        (unsigned long long)p->dropout_seed);
    SAY(p->poison_hidden, " hidden poisoned");
    SAY(p->poison_visible, " one key NaN");
    for (int k = 0; k < KERNEL_COUNT; k++)
        SAY(p->disabled_kernels >> k & 1, " not %s", kernel_table[k].name);
    SAY(p->workspace_limit, " workspace %llu", (unsigned long long)p->workspace_limit);
    return text;
}
