#include "layer_problem_data.h"
#include "patience.h"
#include "limits.h"
#include "types.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MANY 10 /* times compare_limit: float32 1e-10 */

static const char *const names[GRADIENTS] = {
    "query",        "key",           "value",      "query.weight", "key.weight",
    "value.weight", "output.weight", "query.bias", "key.bias",     "value.bias",
    "output.bias",  "sink",          "mask",       "q_norm",       "k_norm"};

static enum vka_status create(struct trial *t, enum vka_dtype dtype, uint32_t rank,
                              const uint32_t *size, struct operand *o)
{
    const bool scattered = t->l->p.scattered && rng_chance(&t->rng, 60);
    const struct layout layout = scattered ? layout_random(&t->rng, rank) : layout_dense();
    return operand_create(t->device, dtype, rank, size, &layout, o);
}

static enum vka_status create_filled(struct trial *t, enum vka_dtype dtype, uint32_t rank,
                                     const uint32_t *size, double scale, struct operand *o)
{
    enum vka_status status = create(t, dtype, rank, size, o);
    for (size_t i = 0; status == VKA_OK && i < o->count; i++)
        o->values[i] = operand_round(dtype, rng_uniform(&t->rng, -scale, 1.5 * scale));
    return status == VKA_OK ? operand_write(o) : status;
}

/* [batch][n][width], or [n][batch][width]. */
static void io_size(const struct layer_problem *l, uint32_t n, uint32_t width, uint32_t size[3])
{
    size[l->sequence_first] = l->p.batch;
    size[!l->sequence_first] = n;
    size[2] = width;
}

static enum vka_status create_operands(struct trial *t)
{
    const struct layer_problem *l = t->l;
    enum vka_status status = VKA_OK;
    uint32_t size[3];
    for (int i = 0; i < 3 && status == VKA_OK; i++) {
        io_size(l, i == QUERY ? l->p.n_q : l->p.n_new, l->in[i], size);
        if (layer_problem_owner(l->sharing, i) == i)
            status = create_filled(t, l->x, 3, size, 1, &t->x[i]);
    }
    io_size(l, l->p.n_q, l->out[OUTPUT], size);
    if (status == VKA_OK)
        status = create(t, l->y, 3, size, &t->y);
    if (status == VKA_OK)
        status = create_filled(t, l->y, 3, size, 1, &t->dy);
    for (int i = 0; i < PROJECTIONS - l->no_output && status == VKA_OK; i++) {
        const uint32_t shape[2] = {l->out[i], l->in[i]};
        status = create_filled(t, l->w, 2, shape, 1 / sqrt((double)l->in[i]), &t->w[i]);
        if (status == VKA_OK && l->biases >> i & 1)
            status = create_filled(t, l->w, 1, shape, 0.5, &t->b[i]);
    }
    return status;
}

/* What a gradient belongs to; view NULL: the problem does not have it. */
static const struct operand *subject(const struct trial *t, int i)
{
    static const enum operand_id options[] = {OPERAND_SINK, OPERAND_MASK, OPERAND_Q_NORM,
                                              OPERAND_K_NORM};
    if (i < GRADIENT_W)
        return &t->x[i];
    if (i < GRADIENT_B)
        return &t->w[i - GRADIENT_W];
    return i < GRADIENT_SINK ? &t->b[i - GRADIENT_B] : &t->d.operands[options[i - GRADIENT_SINK]];
}

/* Any subset, of any type. What a mask adds to all keys of a row changes no weight. */
static enum vka_status create_gradients(struct trial *t)
{
    const uint32_t most = rng_chance(&t->rng, 15) ? 80 : 15; /* in percent, that are left out */
    enum vka_status status = VKA_OK;
    for (int i = 0; i < GRADIENTS && status == VKA_OK; i++) {
        const struct operand *of = subject(t, i);
        const bool none = i == GRADIENT_MASK && of->view &&
                          (of->dtype == VKA_BOOL || of->size[of->rank - 1] == 1 ||
                           t->l->p.path == VKA_PATH_FUSED);
        if (!of->view || none || rng_chance(&t->rng, most))
            continue;
        t->want[i] = calloc(of->count, sizeof(double));
        status = t->want[i]
                     ? create(t, type_draw_float(&t->rng), of->rank, of->size, &t->gradients[i])
                     : VKA_OUT_OF_HOST_MEMORY;
    }
    return status;
}

/* The elements as the host keeps them, dense. */
static void *encode(const struct operand *o)
{
    const size_t size = vka_dtype_size(o->dtype);
    uint8_t *bytes = o->view ? malloc(o->count * size) : NULL;
    for (size_t i = 0; bytes && i < o->count; i++)
        operand_encode(o->dtype, o->values[i], bytes + i * size);
    return bytes;
}

static enum vka_status create_layer(struct trial *t)
{
    const struct layer_problem *l = t->l;
    struct vka_layer_info info = {
        .struct_size = sizeof info,
        .n_head = l->p.n_kv_head * l->p.group,
        .n_kv_head = l->p.n_kv_head,
        .head_dim = l->p.head_dim,
        .value_dim = l->p.value_dim,
        .query_dim = l->in[QUERY],
        .key_dim = l->in[KEY],
        .value_input_dim = l->in[VALUE],
        .output_dim = l->out[OUTPUT],
        .dtype = l->w,
        .interleaved = l->interleaved,
    };
    struct vka_linear_tensors *tensors[] = {&info.query_tensors, &info.key_tensors,
                                            &info.value_tensors, &info.output_tensors};
    struct vka_linear_weights *host[] = {&info.query, &info.key, &info.value, &info.output};
    for (int i = 0; i < PROJECTIONS; i++)
        if (l->in_tensors)
            *tensors[i] = (struct vka_linear_tensors){t->w[i].view, t->b[i].view};
        else
            *host[i] = (struct vka_linear_weights){encode(&t->w[i]), encode(&t->b[i])};
    const enum vka_status status = vka_layer_create(t->device, &info, &t->layer);
    for (int i = 0; i < PROJECTIONS; i++) {
        free((void *)host[i]->weight);
        free((void *)host[i]->bias);
    }
    return status;
}

static void destroy(struct trial *t)
{
    vka_layer_destroy(&t->layer);
    for (int i = 0; i < GRADIENTS; i++) {
        operand_destroy(&t->gradients[i]);
        free(t->want[i]);
    }
    for (int i = 0; i < PROJECTIONS; i++) {
        if (i < 3)
            operand_destroy(&t->x[i]);
        operand_destroy(&t->w[i]);
        operand_destroy(&t->b[i]);
    }
    operand_destroy(&t->y);
    operand_destroy(&t->dy);
    free(t->want_y);
    problem_data_destroy(&t->d);
}

/* ---- Plans ----------------------------------------------------------------------------------- */

static enum vka_status make_plan(const struct trial *t, uint64_t budget, uint64_t workspace,
                                 bool accumulate, struct vka_plan **plan)
{
    const struct layer_problem *l = t->l;
    const struct operand *o = t->gradients;
    struct vka_attention_op attention;
    struct vka_gradient g[GRADIENTS];
    problem_op(&t->d, &attention);
    for (int i = 0; i < GRADIENTS; i++)
        g[i] = (struct vka_gradient){o[i].view, accumulate};
    const struct vka_layer_op forward = {
        .struct_size = sizeof forward,
        .layer = t->layer,
        .query = t->x[QUERY].view,
        .key = l->sharing == SHARE_QUERY_KEY ? t->x[QUERY].view : t->x[KEY].view,
        .value = l->sharing == SHARE_ENDS ? t->x[QUERY].view : t->x[VALUE].view,
        .output = t->y.view,
        .layout = l->sequence_first ? VKA_SEQUENCE_FIRST : VKA_BATCH_FIRST,
        .attention = attention.options,
    };
    const struct vka_layer_backward_op backward = {
        .struct_size = sizeof backward,
        .forward = &forward,
        .output_gradient = t->dy.view,
        .query_gradient = g[GRADIENT_X + QUERY],
        .key_gradient = g[GRADIENT_X + KEY],
        .value_gradient = g[GRADIENT_X + VALUE],
        .query_weights = {g[GRADIENT_W + QUERY], g[GRADIENT_B + QUERY]},
        .key_weights = {g[GRADIENT_W + KEY], g[GRADIENT_B + KEY]},
        .value_weights = {g[GRADIENT_W + VALUE], g[GRADIENT_B + VALUE]},
        .output_weights = {g[GRADIENT_W + OUTPUT], g[GRADIENT_B + OUTPUT]},
        .sink_gradient = g[GRADIENT_SINK],
        .mask_gradient = g[GRADIENT_MASK],
        .q_norm_gradient = g[GRADIENT_Q_NORM],
        .k_norm_gradient = g[GRADIENT_K_NORM],
    };
    enum vka_status status =
        vka_plan_create(t->device,
                        VKA_INFO(vka_plan_info, .path = l->p.path, .submit_budget = budget,
                                 .workspace_limit = workspace),
                        plan);
    if (status == VKA_OK && !accumulate)
        status = vka_plan_add_layer(*plan, &forward);
    if (status == VKA_OK)
        status = vka_plan_add_layer_backward(*plan, &backward);
    return status == VKA_OK ? vka_plan_finish(*plan) : status;
}

/* ---- Comparison ------------------------------------------------------------------------------ */

static bool compare_one(const struct trial *t, const struct operand *o, const double *want,
                        double terms, const char *name, struct worst *worst, char why[WHY])
{
    size_t row = 0;
    const double nmse = compare_terms(o, want, terms, &row);
    if (nmse > worst->nmse[o->dtype]) {
        worst->nmse[o->dtype] = nmse;
        snprintf(worst->where[o->dtype], sizeof worst->where[0], "%s, seed %llu", name,
                 (unsigned long long)t->l->p.seed);
    }
    if (nmse <= MANY * compare_limit(o->dtype))
        return true;
    const size_t at = row * o->size[o->rank - 1];
    snprintf(why, WHY, "%s (%s): NMSE %.3g at row %zu, which begins %.9g, not %.9g", name,
             vka_dtype_name(o->dtype), nmse, row, o->values[at], want[at]);
    return false;
}

static bool compare_gradients(const struct trial *t, const char *how, struct worst *worst,
                              char why[WHY])
{
    for (int i = 0; i < GRADIENTS; i++) {
        char name[64];
        snprintf(name, sizeof name, "gradient of %s%s", names[i], how);
        if (t->gradients[i].view &&
            !compare_one(t, &t->gradients[i], t->want[i], t->terms[i], name, worst, why))
            return false;
    }
    return true;
}

static bool failed(const struct trial *t, const char *what, enum vka_status status, char why[WHY])
{
    if (status != VKA_OK)
        snprintf(why, WHY, "%s: %s: %s", what, vka_status_name(status),
                 vka_device_error(t->device));
    return status != VKA_OK;
}

/* Adds all gradients to what the run before left. */
static bool check_accumulate(struct trial *t, struct worst *worst, char why[WHY])
{
    struct vka_plan *plan = NULL;
    enum vka_status status = make_plan(t, 0, 0, true, &plan);
    for (int i = 0; i < GRADIENTS; i++)
        for (size_t j = 0; t->gradients[i].view && j < t->gradients[i].count; j++)
            t->want[i][j] += t->gradients[i].values[j];
    if (status == VKA_OK)
        status = vka_plan_run(plan, PATIENCE);
    for (int i = 0; i < GRADIENTS && status == VKA_OK; i++)
        if (t->gradients[i].view)
            status = operand_read(&t->gradients[i]);
    vka_plan_destroy(&plan);
    return !failed(t, "accumulated", status, why) &&
           compare_gradients(t, ", accumulated", worst, why);
}

/* Whether the least limits and a budget that nothing keeps give the same bits. A bias's gradient has rows
 * that such a binding does not reach. */
static bool check_cut(struct trial *t, struct vka_plan *plan, struct operand *const *outputs,
                      size_t n, char why[WHY])
{
    const struct problem *p = &t->l->p;
    struct vka_plan *cut = NULL;
    const double scores = (double)p->batch * p->n_kv_head * p->group * p->n_q * p->n_new;
    const bool small = scores < 1e3;
    const uint64_t budget = small ? 1 : scores < 2e4 ? 20000 : 2000000;
    const uint64_t workspace = small ? 1 : 4ull * (p->n_new + 4) * p->n_q;
    const struct vka_device_properties usual =
        limits_lower(t->device, LEAST_RANGE, LEAST_ALLOCATION);
    enum vka_status status = make_plan(t, budget, workspace, false, &cut);
    limits_restore(t->device, &usual);
    bool ok = true;
    if (status == VKA_UNSUPPORTED && !small && strstr(vka_device_error(t->device), "linear db"))
        printf("seed %llu: %s\n", (unsigned long long)p->seed, vka_device_error(t->device));
    else
        ok = !failed(t, "cut", status, why) &&
             compare_plans(t->device, plan, cut, outputs, n, &t->rng, why);
    if (ok && small && vka_plan_pass_count(cut) <= vka_plan_pass_count(plan)) {
        snprintf(why, WHY, "a cut plan has as few passes");
        ok = false;
    }
    vka_plan_destroy(&cut);
    return ok;
}

static bool check(struct trial *t, struct worst *worst, char why[WHY])
{
    struct operand *outputs[COMPARE_MOST] = {&t->y};
    struct vka_plan *plan = NULL;
    size_t n = 1;
    for (int i = 0; i < GRADIENTS; i++)
        if (t->gradients[i].view)
            outputs[n++] = &t->gradients[i];
    if (n == 1) /* none was drawn */
        return true;
    bool ok = !failed(t, "plan", make_plan(t, VKA_NO_BUDGET, t->l->p.workspace_limit, false, &plan),
                      why) &&
              compare_runs(t->device, plan, outputs, n, &t->rng, why) &&
              (!t->l->cut || check_cut(t, plan, outputs, n, why));
    vka_plan_destroy(&plan);
    return ok && !failed(t, "oracle", layer_problem_oracle(t), why) &&
           compare_one(t, &t->y, t->want_y, 0.1, "output", worst, why) &&
           compare_gradients(t, "", worst, why) &&
           (t->l->p.seed % 2 || check_accumulate(t, worst, why));
}

bool layer_problem_check(struct vka_device *device, const struct layer_problem *l,
                         struct worst *worst, char why[WHY])
{
    struct trial *t = calloc(1, sizeof *t);
    if (!t)
        return false;
    t->device = device;
    t->l = l;
    t->rng = (struct rng){l->p.seed ^ 0x7a1a7};
    const struct kernel_set without = device->caps.without;
    set_join(&device->caps.without, l->p.disabled_kernels);
    enum vka_status status = problem_data_create(device, &l->p, &t->d);
    if (status == VKA_OK)
        status = create_operands(t);
    if (status == VKA_OK)
        status = create_gradients(t);
    if (status == VKA_OK)
        status = create_layer(t);
    const bool ok = !failed(t, "operands", status, why) && check(t, worst, why);
    destroy(t);
    free(t);
    device->caps.without = without;
    return ok;
}
