/* Gradients of linear attention: shapes x rules x whether rows are padded, with types, decays, what stands in
 * front, states and the gradients that are wanted drawn; rows from a length on are NaN. All gradients of a
 * problem have to have the same bits where memory or the budget cut it. */
#include "check_linear.h"

#include <vkattn/vkattn_train.h>

#include "patience.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Inputs with a gradient, then the others. */
enum { Q, K, V, DECAY, BETA, LOG, BIAS, SKIP, PAST, GRADIENTS, DY = GRADIENTS, BEHIND, N_INPUT };
static const char *const names[GRADIENTS] = {"q",   "k",    "v",    "decay", "beta",
                                             "log", "bias", "skip", "past"};

static const struct linear_shape shapes[] = {
    {1, 1, 1, 1, 1, 1, 1},   {2, 2, 1, 2, 3, 7, 5},     {2, 1, 2, 4, 70, 16, 18},
    {1, 6, 1, 2, 20, 40, 9}, {1, 1, 1, 2, 130, 65, 33}, {1, 2, 1, 2, 9, 130, 10},
    {1, 1, 1, 1, 600, 6, 3}, /* more than a span */
};

struct trial {
    struct vka_linear_attention_op op;
    struct operand in[N_INPUT], out[GRADIENTS], output, lengths;
    double *want[GRADIENTS];
    bool front;
};

/* ---- The oracle ------------------------------------------------------------------------------- */

static size_t length_of(const struct trial *t, const struct linear_shape *s, size_t sequence)
{
    return t->lengths.view ? (size_t)fmin(fmax(t->lengths.values[sequence], 0), s->n) : s->n;
}

/* Copies the first n rows of each head of a sequence from all[batch][head][row][width], or adds them back. */
static void copy_rows(double *all, const struct operand *o, size_t sequence, size_t n, double *own,
                      bool back)
{
    const size_t width = o->rank == 4 ? o->size[3] : 1, heads = o->size[1], rows = o->size[2];
    for (size_t i = 0; i < heads * n * width; i++) {
        const size_t head = i / (n * width), at = i % (n * width);
        double *a = &all[(sequence * heads + head) * rows * width + at];
        if (back)
            *a += own[i];
        else
            own[i] = *a;
    }
}

/* Sets want of all gradients. */
static enum vka_status oracle(struct trial *t, const struct linear_shape *s)
{
    const size_t size = (size_t)s->n_state * s->head_dim * s->value_dim;
    const struct linear_gates gates = {&t->in[DECAY], &t->in[BETA], &t->in[LOG], &t->in[BIAS],
                                       &t->in[SKIP]};
    struct ref_linear l = linear_reference(&t->op, s, &gates);
    enum vka_status status = VKA_OK;
    for (size_t i = 0; i < s->batch && status == VKA_OK; i++) {
        double *own[N_INPUT] = {NULL}, *d[GRADIENTS] = {NULL};
        bool whole = true;
        l.n = length_of(t, s, i);
        for (int j = 0; j < N_INPUT; j++) {
            const bool rows = j <= BETA || j == DY;
            if (!t->in[j].view || !rows)
                continue;
            own[j] = calloc(t->in[j].count + 1, sizeof(double));
            whole &= own[j] != NULL;
            if (own[j])
                copy_rows(t->in[j].values, &t->in[j], i, l.n, own[j], false);
            if (j <= BETA)
                whole &= (d[j] = calloc(t->in[j].count + 1, sizeof(double))) != NULL;
        }
        whole &= (d[PAST] = calloc(size, sizeof(double))) != NULL;
        if (whole && t->in[BEHIND].view)
            memcpy(d[PAST], t->in[BEHIND].values + i * size, size * sizeof(double));
        const struct ref_linear_inputs x = {
            own[Q],     own[K],    own[V],
            own[DECAY], own[BETA], t->in[PAST].view ? t->in[PAST].values + i * size : NULL};
        const struct ref_linear_gradients g = {d[Q],         d[K],          d[V],
                                               d[DECAY],     d[BETA],       d[PAST],
                                               t->want[LOG], t->want[BIAS], t->want[SKIP]};
        status =
            whole ? ref_linear_attention_backward(&l, &x, own[DY], &g) : VKA_OUT_OF_HOST_MEMORY;
        for (int j = 0; j <= BETA && status == VKA_OK; j++)
            if (t->in[j].view)
                copy_rows(t->want[j], &t->in[j], i, l.n, d[j], true);
        if (status == VKA_OK && t->in[PAST].view)
            memcpy(t->want[PAST] + i * size, d[PAST], size * sizeof(double));
        for (int j = 0; j < N_INPUT; j++)
            free(own[j]);
        for (int j = 0; j < GRADIENTS; j++)
            free(d[j]);
    }
    return status;
}

/* ---- Problems --------------------------------------------------------------------------------- */

/* Keys of length 1, so that the delta rules stay bounded; decays of which most are weak, and some leave
 * nothing. */
static double draw(struct check *c, const struct trial *t, int which, uint32_t head_dim)
{
    const double x = rng_uniform(&c->rng, -1, 1);
    switch (which) {
    case Q:
    case K:
        return x / sqrt(head_dim / 3.0) * (t->op.norm_epsilon > 0 ? 4 : 1);
    case LOG: /* e^95 is infinite */
        return rng_chance(&c->rng, 20) ? 95 : x - 1;
    case DECAY:
        if (t->front) /* ln(1 + e^-800) is 0 in double too */
            return rng_chance(&c->rng, 4) ? -800 : 4 * x - 2;
        return rng_chance(&c->rng, 10)  ? 25 * (x - 1)
               : rng_chance(&c->rng, 4) ? (x < 0 ? -200 : -INFINITY)
                                        : 0.1 * (x - 1);
    case BETA:
        return t->op.beta_sigmoid ? 4 * x : rng_chance(&c->rng, 20) ? (x < 0 ? 0 : 1) : (x + 1) / 2;
    default:
        return x;
    }
}

static enum vka_status fill(struct check *c, struct trial *t, const struct linear_shape *s,
                            int which)
{
    struct operand *o = &t->in[which];
    const size_t width = o->rank == 4 ? o->size[3] : 1;
    if (!o->view)
        return VKA_OK;
    for (size_t i = 0; i < o->count; i++) {
        const bool rows = which <= BETA || which == DY;
        const size_t row = i / width % s->n, sequence = rows ? i / width / s->n / o->size[1] : 0;
        const double x = draw(c, t, which, s->head_dim);
        o->values[i] = rows && row >= length_of(t, s, sequence) ? NAN : operand_round(o->dtype, x);
    }
    return operand_write(o);
}

/* The length of a row of one feature is that feature: of its gradient little is left, but for a large epsilon. */
static void draw_front(struct check *c, struct trial *t, uint32_t head_dim, bool gated, bool delta,
                       bool key_decay)
{
    t->op.given = rng_chance(&c->rng, 30) ? VKA_GIVEN_SCALE : 0;
    t->op.scale = t->op.given ? 0.75f : 0;
    if (rng_chance(&c->rng, 40))
        return;
    t->front = gated && rng_chance(&c->rng, 80);
    t->op.norm_epsilon = rng_chance(&c->rng, 60) ? head_dim > 1 ? 0.0625f : 4 : 0;
    t->op.beta_sigmoid = delta && rng_chance(&c->rng, 80);
    t->op.decay_steps = t->front && !key_decay && rng_chance(&c->rng, 60);
    if (t->op.decay_steps) {
        t->op.step_min = rng_chance(&c->rng, 50) ? 0.125f : 0;
        t->op.step_max = rng_chance(&c->rng, 50) ? 0.5f : 0;
    }
}

/* Half of the cases are of float32 alone, of which most GPUs train. */
static enum vka_dtype type_of(struct check *c, bool mixed)
{
    static const enum vka_dtype types[] = {VKA_F32, VKA_F16, VKA_BF16};
    return mixed ? types[rng_range(&c->rng, 0, 2)] : VKA_F32;
}

static enum vka_status create_lengths(struct check *c, struct trial *t,
                                      const struct linear_shape *s)
{
    const struct layout dense = layout_dense();
    enum vka_status status = operand_create(c->device, VKA_I32, 1, &s->batch, &dense, &t->lengths);
    for (size_t i = 0; i < s->batch && status == VKA_OK; i++)
        t->lengths.values[i] = (double)rng_range(&c->rng, 0, s->n + 2) - 1;
    return status == VKA_OK ? operand_write(&t->lengths) : status;
}

static enum vka_status create(struct check *c, struct trial *t, const struct linear_shape *s,
                              enum vka_rule rule, bool lengths, bool key_decay)
{
    const uint32_t n_out = s->n_head > s->n_state ? s->n_head : s->n_state;
    const bool gated = rule == VKA_RULE_GATED || rule == VKA_RULE_GATED_DELTA;
    const bool delta = rule == VKA_RULE_DELTA || rule == VKA_RULE_GATED_DELTA;
    const bool mixed = rng_chance(&c->rng, 50), wide_bias = key_decay && rng_chance(&c->rng, 70);
    const struct {
        bool is;
        uint32_t rank, size[4];
    } all[N_INPUT] = {
        [Q] = {true, 4, {s->batch, s->n_head, s->n, s->head_dim}},
        [K] = {true, 4, {s->batch, s->n_kv_head, s->n, s->head_dim}},
        [V] = {true, 4, {s->batch, s->n_state, s->n, s->value_dim}},
        [DECAY] = {gated, key_decay ? 4 : 3, {s->batch, s->n_state, s->n, s->head_dim}},
        [BETA] = {delta, 3, {s->batch, rng_chance(&c->rng, 30) ? 1 : s->n_state, s->n}},
        [LOG] = {t->front, 1, {s->n_state}},
        [BIAS] = {t->front && rng_chance(&c->rng, 70),
                  wide_bias ? 2 : 1,
                  {s->n_state, s->head_dim}},
        [SKIP] = {rng_chance(&c->rng, 30), 1, {s->n_state}},
        [PAST] = {rng_chance(&c->rng, 60), 4, {s->batch, s->n_state, s->head_dim, s->value_dim}},
        [DY] = {true, 4, {s->batch, n_out, s->n, s->value_dim}},
        [BEHIND] = {rng_chance(&c->rng, 50), 4, {s->batch, s->n_state, s->head_dim, s->value_dim}},
    };
    enum vka_dtype in[N_INPUT], out[N_INPUT];
    bool wanted[N_INPUT];
    for (int i = 0; i < N_INPUT; i++) {
        in[i] = type_of(c, mixed && i != PAST);
        out[i] = type_of(c, mixed);
        wanted[i] = i == K || (i < GRADIENTS && rng_chance(&c->rng, 85)); /* one at least */
    }
    check_turn(c);
    enum vka_status status = lengths ? create_lengths(c, t, s) : VKA_OK;
    for (int i = 0; i < N_INPUT && status == VKA_OK; i++) {
        if (!all[i].is)
            continue;
        status = model_operand(c, in[i], all[i].rank, all[i].size, &t->in[i]);
        if (i >= GRADIENTS || status != VKA_OK)
            continue;
        t->want[i] = calloc(t->in[i].count + 1, sizeof(double));
        if (!t->want[i])
            status = VKA_OUT_OF_HOST_MEMORY;
        else if (wanted[i])
            status = model_operand(c, out[i], all[i].rank, all[i].size, &t->out[i]);
    }
    if (status == VKA_OK)
        status = model_operand(c, VKA_F32, 4, all[DY].size, &t->output);
    for (int i = 0; i < N_INPUT && status == VKA_OK; i++)
        status = fill(c, t, s, i);
    return status;
}

static void set_op(struct trial *t)
{
    struct vka_tensor **const slots[GRADIENTS] = {
        &t->op.q,         &t->op.k,          &t->op.v,    &t->op.decay,     &t->op.beta,
        &t->op.decay_log, &t->op.decay_bias, &t->op.skip, &t->op.past_state};
    for (int i = 0; i < GRADIENTS; i++)
        *slots[i] = t->in[i].view;
    t->op.lengths = t->lengths.view;
    t->op.output = t->output.view;
}

/* ---- Plans ------------------------------------------------------------------------------------ */

static enum vka_status make_plan(struct check *c, const struct trial *t,
                                 const struct vka_plan_info *info, bool accumulate,
                                 struct vka_plan **plan)
{
    struct vka_linear_attention_backward_op op = {.struct_size = sizeof op,
                                                  .forward = &t->op,
                                                  .output_gradient = t->in[DY].view,
                                                  .present_state_gradient = t->in[BEHIND].view};
    struct vka_gradient *const slots[GRADIENTS] = {
        &op.q_gradient,          &op.k_gradient,    &op.v_gradient,
        &op.decay_gradient,      &op.beta_gradient, &op.decay_log_gradient,
        &op.decay_bias_gradient, &op.skip_gradient, &op.past_state_gradient};
    for (int i = 0; i < GRADIENTS; i++)
        *slots[i] = (struct vka_gradient){t->out[i].view, accumulate};
    enum vka_status status = vka_plan_create(c->device, info, plan);
    if (status == VKA_OK)
        status = vka_plan_add_linear_attention_backward(*plan, &op);
    return status == VKA_OK ? vka_plan_finish(*plan) : status;
}

static bool compare_all(struct check *c, const struct trial *t, double times, const char *text)
{
    char why[WHY];
    bool right = true;
    for (int i = 0; i < GRADIENTS; i++) {
        const struct operand *o = &t->out[i];
        size_t row = 0;
        if (!o->view)
            continue;
        for (size_t j = 0; j < o->count && times != 1; j++)
            t->want[i][j] *= times;
        const double error = compare_terms(o, t->want[i], 0, &row);
        if (error > c->worst.nmse[o->dtype]) {
            c->worst.nmse[o->dtype] = error;
            snprintf(c->worst.where[o->dtype], sizeof c->worst.where[0], "%s row %zu of %s",
                     names[i], row, text);
        }
        if (error <= compare_limit(o->dtype))
            continue;
        snprintf(why, sizeof why, "gradient of %s: error %.3g at row %zu", names[i], error, row);
        check_fail(c, text, why);
        right = false;
    }
    return right;
}

/* Two plans of one problem: the same bits, which are right. The second is cut to a state and a chunk. */
static bool run_plans(struct check *c, const struct trial *t, const char *text)
{
    static const struct vka_plan_info whole_info = {.struct_size = sizeof whole_info,
                                                    .submit_budget = VKA_NO_BUDGET};
    static const struct vka_plan_info cut_info = {
        .struct_size = sizeof cut_info, .submit_budget = 1, .workspace_limit = 1};
    struct vka_plan *whole = NULL, *cut = NULL;
    struct operand *outputs[GRADIENTS];
    char why[WHY] = "";
    size_t n = 0;
    bool right = false;
    enum vka_status status = make_plan(c, t, &whole_info, false, &whole);
    if (status == VKA_OK)
        status = make_plan(c, t, &cut_info, false, &cut);
    for (int i = 0; i < GRADIENTS; i++)
        if (t->out[i].view)
            outputs[n++] = (struct operand *)&t->out[i];
    if (status != VKA_OK)
        check_fail(c, text, vka_device_error(c->device));
    else if (!compare_plans(c->device, whole, cut, outputs, n, &c->rng, why))
        check_fail(c, text, why);
    else
        right = compare_all(c, t, 1, text);
    vka_plan_destroy(&whole);
    vka_plan_destroy(&cut);
    return right;
}

/* Adds the gradients to what run_plans left: twice as much. */
static void run_accumulating(struct check *c, const struct trial *t, const char *text)
{
    struct vka_plan *plan = NULL;
    enum vka_status status = make_plan(c, t, NULL, true, &plan);
    if (status == VKA_OK)
        status = vka_plan_run(plan, PATIENCE);
    for (int i = 0; i < GRADIENTS && status == VKA_OK; i++)
        if (t->out[i].view)
            status = operand_read((struct operand *)&t->out[i]);
    if (status != VKA_OK)
        check_fail(c, text, vka_device_error(c->device));
    else
        compare_all(c, t, 2, text);
    vka_plan_destroy(&plan);
}

static void run_problem(struct check *c, const struct linear_shape *s, enum vka_rule rule,
                        bool lengths)
{
    static const char *const rules[] = {"linear", "gated", "delta", "gated delta"};
    const bool gated = rule == VKA_RULE_GATED || rule == VKA_RULE_GATED_DELTA;
    const bool delta = rule == VKA_RULE_DELTA || rule == VKA_RULE_GATED_DELTA;
    const bool key_decay = gated && rng_chance(&c->rng, 50);
    struct trial t = {.op = {.struct_size = sizeof t.op, .rule = rule}};
    char text[CASE_TEXT];
    draw_front(c, &t, s->head_dim, gated, delta, key_decay);
    enum vka_status status = create(c, &t, s, rule, lengths, key_decay);
    set_op(&t);
    if (status == VKA_OK)
        status = oracle(&t, s);
    snprintf(text, sizeof text, "%s%s%s%s%s%s%s, %ux%u, heads %u:%u:%u of %ux%u, %s", rules[rule],
             key_decay ? " by key" : "", t.op.norm_epsilon > 0 ? ", unit" : "",
             t.op.beta_sigmoid ? ", sigmoid" : "",
             t.op.decay_steps ? ", steps"
             : t.front        ? ", softplus"
                              : "",
             t.op.skip ? ", skip" : "", lengths ? ", lengths" : "", s->batch, s->n, s->n_head,
             s->n_kv_head, s->n_state, s->head_dim, s->value_dim, vka_dtype_name(t.in[Q].dtype));
    if (status != VKA_OK)
        check_fail(c, text, vka_device_error(c->device));
    else if (run_plans(c, &t, text) && rng_chance(&c->rng, 30))
        run_accumulating(c, &t, text);
    for (int i = 0; i < N_INPUT; i++)
        operand_destroy(&t.in[i]);
    for (int i = 0; i < GRADIENTS; i++) {
        operand_destroy(&t.out[i]);
        free(t.want[i]);
    }
    operand_destroy(&t.output);
    operand_destroy(&t.lengths);
}

/* Other sizes that the same tiles take. */
static struct linear_shape vary(const struct check *c, const struct linear_shape *s)
{
    struct rng rng = c->rng;
    struct linear_shape v = *s;
    if (c->turn == 0)
        return v;
    rng.state = rng_next(&rng) + c->turn;
    v.batch = (uint32_t)rng_range(&rng, 1, 3);
    v.n = rng_chance(&rng, 20) ? 1 : (uint32_t)rng_range(&rng, 1, s->n + 20);
    v.n_kv_head = (uint32_t)rng_range(&rng, 1, 2);
    v.n_state = v.n_kv_head * (uint32_t)rng_range(&rng, 1, 3);
    v.n_head = rng_chance(&rng, 50) ? v.n_state * (uint32_t)rng_range(&rng, 1, 3) : v.n_kv_head;
    v.value_dim -= (uint32_t)rng_range(&rng, 0, (s->value_dim - 1) % 4);
    return v;
}

void check_linear_backward(struct check *c)
{
    for (size_t s = 0; s < COUNTOF(shapes); s++)
        for (int rule = 0; rule < VKA_RULE_COUNT; rule++)
            for (int lengths = 0; lengths < 2; lengths++) {
                if (!check_case(c))
                    continue;
                const struct rng first = c->rng;
                for (c->turn = 0; c->turn < c->each; c->turn++) {
                    const struct linear_shape shape = vary(c, &shapes[s]);
                    run_problem(c, &shape, (enum vka_rule)rule, lengths);
                    c->rng = first;
                }
                c->turn = 0;
            }
}

/* Qwen's heads: two chunks of tokens of 4 states. */
void bench_linear_backward(struct check *c)
{
    enum { HEADS = 4, ROWS = 128, DIM = 128, TENSORS = 8 };
    const uint32_t size[4] = {1, HEADS, ROWS, DIM};
    struct vka_tensor *t[TENSORS] = {NULL};
    struct vka_plan *plan = NULL;
    enum vka_status status = VKA_OK;
    for (int i = 0; i < TENSORS && status == VKA_OK; i++)
        status = vka_tensor_create(c->device, VKA_F32, i < 2 ? 3 : 4, size, &t[i]);
    const struct vka_linear_attention_op forward = {.struct_size = sizeof forward,
                                                    .rule = VKA_RULE_GATED_DELTA,
                                                    .q = t[2],
                                                    .k = t[2],
                                                    .v = t[2],
                                                    .decay = t[0],
                                                    .beta = t[0],
                                                    .output = t[3]};
    if (status == VKA_OK)
        status = vka_plan_create(c->device, VKA_INFO(vka_plan_info, .timestamps = true), &plan);
    if (status == VKA_OK)
        status = vka_plan_add_linear_attention_backward(
            plan,
            VKA_INFO(vka_linear_attention_backward_op, .forward = &forward, .output_gradient = t[4],
                     .q_gradient.tensor = t[5], .k_gradient.tensor = t[6],
                     .v_gradient.tensor = t[7], .decay_gradient.tensor = t[1]));
    check_time(c, plan, status, (double)HEADS * ROWS * DIM * DIM, "Gelement/s",
               "gated delta, 128 tokens, 4 states of 128x128");
    vka_plan_destroy(&plan);
    for (int i = 0; i < TENSORS; i++)
        vka_tensor_destroy(&t[i]);
}
