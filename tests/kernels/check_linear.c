/* Linear attention: shapes x what rows a sequence has x rules, with types, decays and what stands in front
 * drawn; rows from a length on are NaN. */
#include "check_linear.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum rows { DENSE, LENGTHS, RAGGED, N_ROWS };
enum { Q, K, V, DECAY, BETA, PAST, LOG, BIAS, SKIP, PRESENT, STARTS, Y, N_OPERAND };

static const struct linear_shape shapes[] = {
    {1, 1, 1, 1, 1, 1, 1},   {2, 2, 2, 2, 1, 128, 128}, {3, 2, 1, 2, 5, 17, 19},
    {2, 1, 1, 4, 37, 8, 5},  {2, 6, 1, 2, 20, 40, 24},  {1, 1, 1, 1, 70, 65, 130},
    {2, 2, 1, 4, 9, 257, 8},
};

/* For linear_chunked: q has no more heads than the states. */
static const struct linear_shape long_shapes[] = {
    {1, 1, 1, 1, 1, 1, 1},      {2, 2, 1, 2, 100, 17, 19},  {2, 1, 1, 2, 65, 40, 36},
    {1, 1, 1, 1, 200, 65, 130}, {3, 1, 1, 4, 131, 8, 5},    {1, 2, 1, 2, 128, 128, 64},
    {1, 1, 1, 1, 4200, 8, 5},   {1, 1, 1, 1, 130, 192, 40},
};

static const enum vka_dtype mixes[][4] = {
    /* q and k, v, decay and beta, y */
    {VKA_F32, VKA_F32, VKA_F32, VKA_F32},
    {VKA_F16, VKA_F16, VKA_F16, VKA_F16},
    {VKA_BF16, VKA_F16, VKA_F32, VKA_BF16},
};

struct linear_case {
    struct vka_linear_attention_op op;
    struct operand o[N_OPERAND];
    double *want, *state; /* of y; of the state after */
    double size;          /* of values and states */
    uint32_t n_sequence;
    bool past, front; /* a state before; decays are made of a step */
};

static enum vka_status add(struct vka_plan *plan, const void *op)
{
    return vka_plan_add_linear_attention(plan, op);
}

/* Batch, first row and rows of a sequence. */
static void find_rows(const struct linear_case *t, const struct linear_shape *s, enum rows rows,
                      size_t sequence, size_t *batch, size_t *first, size_t *n)
{
    const double *starts = t->o[STARTS].values;
    *batch = rows == RAGGED ? 0 : sequence;
    *first = rows == RAGGED ? (size_t)starts[sequence] : 0;
    *n = s->n;
    if (rows == RAGGED)
        *n = (size_t)(starts[sequence + 1] - starts[sequence]);
    else if (rows == LENGTHS)
        *n = (size_t)fmin(fmax(starts[sequence], 0), s->n);
}

/* Copies rows of [head][row][width] of a batch to or from dense ones of a sequence. */
static void copy_rows(double *all, double *own, size_t heads, size_t n_all, size_t width,
                      size_t first, size_t n, bool back)
{
    for (size_t h = 0; h < heads; h++)
        for (size_t i = 0; i < n * width; i++) {
            double *a = &all[(h * n_all + first) * width + i], *b = &own[h * n * width + i];
            if (back)
                *a = *b;
            else
                *b = *a;
        }
}

static double *rows_of(const struct operand *o, size_t batch, size_t first, size_t n)
{
    if (!o->view)
        return NULL;
    const size_t width = o->rank == 4 ? o->size[3] : 1, heads = o->size[1];
    double *own = calloc(heads * n * width + 1, sizeof *own);
    if (own)
        copy_rows(o->values + batch * heads * o->size[2] * width, own, heads, o->size[2], width,
                  first, n, false);
    return own;
}

struct ref_linear linear_reference(const struct vka_linear_attention_op *op,
                                   const struct linear_shape *s, const struct linear_gates *gates)
{
    return (struct ref_linear){
        .n_head = s->n_head,
        .n_kv_head = s->n_kv_head,
        .n_state = s->n_state,
        .head_dim = s->head_dim,
        .value_dim = s->value_dim,
        .key_decay = gates->decay->rank == 4,
        .shared_beta = gates->beta->view && gates->beta->size[1] == 1,
        .scale = op->given ? (double)op->scale : 1 / sqrt(s->head_dim),
        .norm_epsilon = (double)op->norm_epsilon,
        .step_min = (double)op->step_min,
        .step_max = op->step_max > 0 ? (double)op->step_max : INFINITY,
        .sigmoid = op->beta_sigmoid,
        .steps = op->decay_steps,
        .key_bias = gates->bias->rank == 2,
        .log = gates->log->values,
        .bias = gates->bias->values,
        .skip = gates->skip->values,
    };
}

static enum vka_status oracle(struct linear_case *t, const struct linear_shape *s, enum rows rows)
{
    const size_t n_out = s->n_head > s->n_state ? s->n_head : s->n_state;
    const size_t size = (size_t)s->n_state * s->head_dim * s->value_dim;
    const struct linear_gates gates = {&t->o[DECAY], &t->o[BETA], &t->o[LOG], &t->o[BIAS],
                                       &t->o[SKIP]};
    struct ref_linear l = linear_reference(&t->op, s, &gates);
    enum vka_status status = VKA_OK;
    for (size_t i = 0; i < t->n_sequence; i++) {
        size_t batch, first, n;
        double *own[BETA + 1], *y;
        bool whole = true;
        find_rows(t, s, rows, i, &batch, &first, &n);
        l.n = n;
        for (int j = 0; j <= BETA; j++) {
            own[j] = rows_of(&t->o[j], batch, first, n);
            whole &= own[j] || !t->o[j].view;
        }
        y = calloc(n_out * n * s->value_dim + 1, sizeof *y);
        if (t->past)
            memcpy(t->state + i * size, t->o[PAST].values + i * size, size * sizeof(double));
        if (whole && y) {
            ref_linear_attention(&l, own[Q], own[K], own[V], own[DECAY], own[BETA],
                                 t->state + i * size, y);
            copy_rows(t->want + batch * n_out * s->n * s->value_dim, y, n_out, s->n, s->value_dim,
                      first, n, true);
        } else {
            status = VKA_OUT_OF_HOST_MEMORY;
        }
        for (int j = 0; j <= BETA; j++)
            free(own[j]);
        free(y);
    }
    return status;
}

/* Keys of length 1, so that the delta rules stay bounded, unless they are divided by it; decays from 0 to
 * -50, most of them weak, some that leave nothing; betas of exactly 0 and 1. */
static double draw(struct check *c, const struct linear_case *t, int operand, uint32_t head_dim)
{
    const double x = rng_uniform(&c->rng, -1, 1);
    switch (operand) {
    case Q:
    case K:
        return x / sqrt(head_dim / 3.0) * (t->op.norm_epsilon > 0 ? 4 : 1);
    case LOG: /* e^95 is infinite */
        return rng_chance(&c->rng, 4) ? 95 : 3 * x - 1;
    case DECAY:
        if (t->front) /* ln(1 + e^-800) is 0 in double too */
            return rng_chance(&c->rng, 4) ? -800 : 6 * x - 2;
        return rng_chance(&c->rng, 20)   ? 25 * (x - 1)
               : rng_chance(&c->rng, 10) ? 0
               : rng_chance(&c->rng, 4)  ? x < 0 ? -200 : -INFINITY
                                         : 0.05 * (x - 1);
    case BETA:
        return t->op.beta_sigmoid ? 8 * x : rng_chance(&c->rng, 20) ? x < 0 ? 0 : 1 : (x + 1) / 2;
    case V:
    case PAST:
        return x * t->size;
    default:
        return x;
    }
}

/* Keys that are divided by their length may have squares that overflow, beside the smallest states too. */
static double draw_size(struct check *c, bool by_length)
{
    if (rng_chance(&c->rng, 5))
        return 0; /* no length */
    return !by_length || rng_chance(&c->rng, 80) ? 1 : rng_chance(&c->rng, 50) ? 1e20 : 1e8;
}

static enum vka_status fill(struct check *c, struct linear_case *t, const struct linear_shape *s,
                            enum rows rows, int which)
{
    struct operand *o = &t->o[which];
    const size_t width = o->rank == 4 ? o->size[3] : 1;
    const bool by_length = t->op.norm_epsilon > 0 && which <= K && o->dtype != VKA_F16;
    double size = 1;
    if (!o->view)
        return VKA_OK;
    for (size_t i = 0; i < o->count; i++) {
        if (which <= K && i % width == 0)
            size = draw_size(c, by_length);
        const size_t row = i / width % s->n, sequence = i / width / s->n / o->size[1];
        const bool counts =
            which > BETA || rows != LENGTHS || (double)row < t->o[STARTS].values[sequence];
        o->values[i] =
            counts ? operand_round(o->dtype, size * draw(c, t, which, s->head_dim)) : NAN;
    }
    return operand_write(o);
}

static enum vka_status fill_starts(struct check *c, struct linear_case *t,
                                   const struct linear_shape *s, enum rows rows)
{
    struct operand *o = &t->o[STARTS];
    const struct layout dense = layout_dense();
    const uint32_t count = rows == RAGGED ? s->batch + 1 : s->batch;
    if (rows == DENSE)
        return VKA_OK;
    enum vka_status status = operand_create(c->device, VKA_I32, 1, &count, &dense, o);
    if (status != VKA_OK)
        return status;
    for (size_t i = 0; i < o->count && rows == LENGTHS; i++)
        o->values[i] = (double)rng_range(&c->rng, 0, s->n + 2) - 1;
    if (rows == RAGGED) { /* all rows are of a sequence, of which some have none */
        o->values[0] = 0;
        for (size_t i = 1; i < o->count; i++)
            o->values[i] = (double)rng_range(&c->rng, (uint64_t)o->values[i - 1], s->n);
        o->values[o->count - 1] = s->n;
    }
    const double first = o->values[0];
    if (rows == RAGGED)
        o->values[0] = -3; /* counts as 0 */
    status = operand_write(o);
    o->values[0] = first;
    return status;
}

static enum vka_status create(struct check *c, const struct linear_shape *s,
                              const enum vka_dtype mix[4], enum rows rows, enum vka_rule rule,
                              bool key_decay, struct linear_case *t)
{
    const uint32_t batch = rows == RAGGED ? 1 : s->batch,
                   n_out = s->n_head > s->n_state ? s->n_head : s->n_state;
    const bool gated = rule == VKA_RULE_GATED || rule == VKA_RULE_GATED_DELTA;
    const bool delta = rule == VKA_RULE_DELTA || rule == VKA_RULE_GATED_DELTA;
    const struct {
        bool is;
        enum vka_dtype dtype;
        uint32_t rank, size[4];
    } want[N_OPERAND] = {
        [Q] = {true, mix[0], 4, {batch, s->n_head, s->n, s->head_dim}},
        [K] = {true, mix[0], 4, {batch, s->n_kv_head, s->n, s->head_dim}},
        [V] = {true, mix[1], 4, {batch, s->n_state, s->n, s->value_dim}},
        [DECAY] = {gated, mix[2], key_decay ? 4 : 3, {batch, s->n_state, s->n, s->head_dim}},
        [BETA] = {delta, mix[2], 3, {batch, rng_chance(&c->rng, 30) ? 1 : s->n_state, s->n}},
        [PAST] = {t->past, VKA_F32, 4, {s->batch, s->n_state, s->head_dim, s->value_dim}},
        [LOG] = {t->front, mix[2], 1, {s->n_state}},
        [BIAS] = {t->front && rng_chance(&c->rng, 70),
                  mix[1],
                  key_decay && rng_chance(&c->rng, 70) ? 2 : 1,
                  {s->n_state, s->head_dim}},
        [SKIP] = {rng_chance(&c->rng, 30), mix[0], 1, {s->n_state}},
        [PRESENT] = {rng_chance(&c->rng, 80),
                     VKA_F32,
                     4,
                     {s->batch, s->n_state, s->head_dim, s->value_dim}},
        [Y] = {true, mix[3], 4, {batch, n_out, s->n, s->value_dim}},
    };
    check_turn(c);
    enum vka_status status = fill_starts(c, t, s, rows);
    t->n_sequence = s->batch;
    for (int i = 0; i < N_OPERAND && status == VKA_OK; i++)
        if (want[i].is)
            status = model_operand(c, want[i].dtype, want[i].rank, want[i].size, &t->o[i]);
    for (int i = 0; i <= SKIP && status == VKA_OK; i++)
        status = fill(c, t, s, rows, i);
    t->want = calloc(t->o[Y].count + 1, sizeof *t->want);
    t->state = calloc((size_t)s->batch * s->n_state * s->head_dim * s->value_dim, sizeof *t->state);
    return status == VKA_OK && (!t->want || !t->state) ? VKA_OUT_OF_HOST_MEMORY : status;
}

/* What models have in front, in half of the cases. */
static void draw_front(struct check *c, struct linear_case *t, enum vka_rule rule, bool key_decay)
{
    const bool gated = rule == VKA_RULE_GATED || rule == VKA_RULE_GATED_DELTA;
    const bool delta = rule == VKA_RULE_DELTA || rule == VKA_RULE_GATED_DELTA;
    if (rng_chance(&c->rng, 50))
        return;
    t->front = gated && rng_chance(&c->rng, 80);
    t->op.norm_epsilon = rng_chance(&c->rng, 60) ? 1e-6f : 0;
    t->op.beta_sigmoid = delta && rng_chance(&c->rng, 80);
    t->op.decay_steps = t->front && !key_decay && rng_chance(&c->rng, 60);
    if (t->op.decay_steps) {
        t->op.step_min = rng_chance(&c->rng, 50) ? 0.125f : 0;
        t->op.step_max = rng_chance(&c->rng, 50) ? 1.5f : 0;
    }
}

static void run_problem(struct check *c, const struct linear_shape *s, const enum vka_dtype mix[4],
                        enum rows rows, enum vka_rule rule)
{
    static const char *const names[] = {"", ", lengths", ", ragged"};
    static const char *const rules[] = {"linear", "gated", "delta", "gated delta"};
    struct linear_case t = {.op = {.struct_size = sizeof t.op, .rule = rule}};
    char text[CASE_TEXT];
    const bool key_decay = c->kernel == KERNEL_linear_recurrent && rng_chance(&c->rng, 50);
    draw_front(c, &t, rule, key_decay);
    /* Without it all of y has one token's q.k, which may vanish. */
    t.past = rng_chance(&c->rng, 70) || s->n == 1;
    t.size = mix[1] == VKA_F32 && mix[3] == VKA_F32 && rng_chance(&c->rng, 50) ? 0x1p-90 : 1;
    t.op.given = rng_chance(&c->rng, 30) ? VKA_GIVEN_SCALE : 0;
    t.op.scale = t.op.given ? 0.75f : 0;
    enum vka_status status = create(c, s, mix, rows, rule, key_decay, &t);
    struct vka_tensor **const slots[N_OPERAND] = {&t.op.q,
                                                  &t.op.k,
                                                  &t.op.v,
                                                  &t.op.decay,
                                                  &t.op.beta,
                                                  &t.op.past_state,
                                                  &t.op.decay_log,
                                                  &t.op.decay_bias,
                                                  &t.op.skip,
                                                  &t.op.present_state,
                                                  rows == LENGTHS ? &t.op.lengths : &t.op.q_start,
                                                  &t.op.output};
    for (int i = 0; i < N_OPERAND; i++)
        *slots[i] = t.o[i].view;
    if (status == VKA_OK)
        status = oracle(&t, s, rows);
    snprintf(text, sizeof text, "%s%s%s%s%s%s, %ux%u, heads %u:%u:%u of %ux%u, %s -> %s%s",
             rules[rule], t.op.decay && key_decay ? " by key" : "",
             t.op.norm_epsilon > 0 ? ", unit" : "", t.op.beta_sigmoid ? ", sigmoid" : "",
             t.op.decay_steps ? ", steps"
             : t.front        ? ", softplus"
                              : "",
             t.op.skip ? ", skip" : "", s->batch, s->n, s->n_head, s->n_kv_head, s->n_state,
             s->head_dim, s->value_dim, vka_dtype_name(mix[0]), vka_dtype_name(mix[3]),
             names[rows]);
    model_check(c, status, add, &t.op, &t.o[Y], t.want, text);
    if (t.op.present_state)
        model_check(c, status, add, &t.op, &t.o[PRESENT], t.state, text);
    for (int i = 0; i < N_OPERAND; i++)
        operand_destroy(&t.o[i]);
    free(t.want);
    free(t.state);
}

/* Other sizes that the same tiles take. */
static struct linear_shape vary(const struct check *c, const struct linear_shape *s)
{
    struct rng rng = c->rng;
    struct linear_shape v = *s;
    if (c->turn == 0)
        return v;
    rng.state = rng_next(&rng) + c->turn;
    v.batch = (uint32_t)rng_range(&rng, 1, 4);
    /* Where nothing decays, errors add up with the rows: 7,000 of 5 features are 2e-11 off. */
    const uint32_t most = s->n > 4096 ? s->n : 2 * s->n + 1;
    v.n = rng_chance(&rng, 20) ? 1 : (uint32_t)rng_range(&rng, 1, most);
    v.n_kv_head = (uint32_t)rng_range(&rng, 1, 2);
    v.n_state = v.n_kv_head * (uint32_t)rng_range(&rng, 1, 3);
    v.n_head = c->kernel == KERNEL_linear_recurrent && rng_chance(&rng, 50)
                   ? v.n_state * (uint32_t)rng_range(&rng, 1, 3)
                   : v.n_kv_head;
    v.head_dim -= (uint32_t)rng_range(&rng, 0, (s->head_dim - 1) % 4);
    v.value_dim -= (uint32_t)rng_range(&rng, 0, (s->value_dim - 1) % 4);
    return v;
}

/* Problems of a case: each begins with the draws that decide what pipelines are made of. */
static void run_case(struct check *c, const struct linear_shape *s, enum rows rows,
                     enum vka_rule rule)
{
    const struct rng first = c->rng;
    const bool coop = c->kernel == KERNEL_linear_chunked_coop ||
                      c->kernel == KERNEL_linear_weights_coop; /* q and k have 16 bits */
    for (c->turn = 0; c->turn < c->each; c->turn++) {
        const struct linear_shape shape = vary(c, s);
        run_problem(c, &shape, mixes[rng_range(&c->rng, coop, COUNTOF(mixes) - 1)], rows, rule);
        c->rng = first;
    }
    c->turn = 0;
}

/* Where q.k nearly vanishes a row is a difference of large numbers: it has no relative accuracy. */
void check_linear(struct check *c)
{
    const bool recurrent = c->kernel == KERNEL_linear_recurrent;
    c->of_mean = true;
    for (size_t s = 0; s < (recurrent ? COUNTOF(shapes) : COUNTOF(long_shapes)); s++)
        for (int rows = 0; rows < N_ROWS; rows++)
            for (int rule = 0; rule < VKA_RULE_COUNT; rule++)
                if (check_case(c))
                    run_case(c, recurrent ? &shapes[s] : &long_shapes[s], (enum rows)rows,
                             (enum vka_rule)rule);
}

/* The states of Qwen's 48 heads: one token, whose time is that of the states, and 128. */
static void bench_tokens(struct check *c, uint32_t n)
{
    const uint32_t heads = 48, dim = 128, rows[4] = {1, heads, n, dim};
    const uint32_t states[4] = {1, heads, dim, dim}, keys[4] = {1, 16, n, dim};
    const struct layout dense = layout_dense();
    struct operand q = {0}, k = {0}, v = {0}, gate = {0}, state = {0}, y = {0};
    char text[CASE_TEXT];
    enum vka_status status = operand_create(c->device, VKA_F32, 4, keys, &dense, &q);
    if (status == VKA_OK)
        status = operand_create(c->device, VKA_F32, 4, keys, &dense, &k);
    if (status == VKA_OK)
        status = operand_create(c->device, VKA_F32, 4, rows, &dense, &v);
    if (status == VKA_OK)
        status = operand_create(c->device, VKA_F32, 3, rows, &dense, &gate);
    if (status == VKA_OK)
        status = operand_create(c->device, VKA_F32, 4, states, &dense, &state);
    if (status == VKA_OK)
        status = operand_create(c->device, VKA_F32, 4, rows, &dense, &y);
    struct operand *all[] = {&q, &k, &v, &gate, &state, &y};
    for (size_t i = 0; i < 5 && status == VKA_OK; i++)
        status = model_fill(c, all[i], -0.1, 0);
    snprintf(text, sizeof text, "gated delta, %u tokens, 48 states of 128x128", n);
    model_time(c, status, add,
               VKA_INFO(vka_linear_attention_op, .rule = VKA_RULE_GATED_DELTA, .q = q.view,
                        .k = k.view, .v = v.view, .decay = gate.view, .beta = gate.view,
                        .past_state = state.view, .present_state = state.view, .output = y.view),
               8.0 * (double)state.count, text);
    for (size_t i = 0; i < COUNTOF(all); i++)
        operand_destroy(all[i]);
}

void bench_linear(struct check *c)
{
    bench_tokens(c, 1);
    bench_tokens(c, 128);
}
