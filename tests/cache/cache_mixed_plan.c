/* Plans of steps over the layers of a mixed cache. */
#include "cache_mixed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <params/params.h>
#include <params/model.h>
#include <params/state.h>

/* ---- Opening ---------------------------------------------------------------------------------- */

static bool create(const struct mixed *m, struct mixed_op *op, int which, enum vka_dtype dtype,
                   uint32_t rank, const uint32_t size[4], struct rng *rng)
{
    const struct layout layout = rng_chance(rng, 30) ? layout_random(rng, rank) : layout_dense();
    return operand_create(m->device, dtype, rank, size, &layout, &op->io[which]) == VKA_OK;
}

static bool create_operands(const struct mixed *m, const struct mixed_step *step,
                            struct mixed_op *op, struct rng *rng)
{
    const struct mixed_layer *l = &m->sizes.layers[op->layer];
    const uint32_t batch = step->rows == MIXED_RAGGED ? 1 : m->sizes.batch, n = step->n;
    const uint32_t n_value = l->keys ? l->n_kv_head : l->n_state;
    const uint32_t n_out = l->n_head > n_value ? l->n_head : n_value;
    const struct {
        bool is;
        uint32_t rank, size[4];
    } conv[MIXED_IO] = {[MIXED_X] = {true, 3, {batch, n, l->channels}},
                        [MIXED_WEIGHT] = {true, 2, {l->channels, l->width}},
                        [MIXED_OUT] = {true, 3, {batch, n, l->channels}}},
      heads[MIXED_IO] = {[MIXED_Q] = {true, 4, {batch, l->n_head, n, l->head_dim}},
                         [MIXED_K] = {true, 4, {batch, l->n_kv_head, n, l->head_dim}},
                         [MIXED_V] = {true, 4, {batch, n_value, n, l->value_dim}},
                         [MIXED_DECAY] = {!l->keys && mixed_is_gated(l->rule),
                                          l->key_decay ? 4 : 3,
                                          {batch, l->n_state, n, l->head_dim}},
                         [MIXED_BETA] = {!l->keys && mixed_is_delta(l->rule),
                                         3,
                                         {batch, l->shared_beta ? 1 : l->n_state, n}},
                         [MIXED_OUT] = {true, 4, {batch, n_out, n, l->value_dim}}},
      *all = op->kind == MIXED_CONV ? conv : heads;
    bool ok = true;
    for (int i = 0; i < MIXED_IO && ok; i++)
        if (all[i].is)
            ok = create(m, op, i, l->io_dtype, all[i].rank, all[i].size, rng);
    op->want = calloc(op->io[MIXED_OUT].count + 1, sizeof *op->want);
    return ok && op->want;
}

static enum vka_status add(const struct mixed *m, struct vka_plan *plan,
                           const struct mixed_step *step, const struct mixed_op *op)
{
    const struct mixed_layer *l = &m->sizes.layers[op->layer];
    const struct operand *io = op->io;
    if (op->kind == MIXED_CONV)
        return vka_plan_add_causal_conv(
            plan,
            VKA_INFO(vka_causal_conv_op, .input = io[MIXED_X].view, .weight = io[MIXED_WEIGHT].view,
                     .dilation = l->dilation, .activation = l->activation, .cache = m->cache,
                     .cache_layer = op->layer, .lengths = step->n_append, .q_start = step->q_start,
                     .output = io[MIXED_OUT].view));
    if (op->kind == MIXED_LINEAR)
        return vka_plan_add_linear_attention(
            plan, VKA_INFO(vka_linear_attention_op, .rule = l->rule, .q = io[MIXED_Q].view,
                           .k = io[MIXED_K].view, .v = io[MIXED_V].view,
                           .decay = io[MIXED_DECAY].view, .beta = io[MIXED_BETA].view,
                           .cache = m->cache, .cache_layer = op->layer, .lengths = step->n_append,
                           .q_start = step->q_start, .output = io[MIXED_OUT].view));
    return vka_plan_add_attention(
        plan, VKA_INFO(vka_attention_op, .q = io[MIXED_Q].view, .k = io[MIXED_K].view,
                       .v = io[MIXED_V].view, .cache = m->cache, .cache_layer = op->layer,
                       .n_append = step->n_append, .q_start = step->q_start, .options.causal = true,
                       .output = io[MIXED_OUT].view));
}

/* Operations on all keys, and on some of the states, in any order. */
static void draw_ops(const struct mixed *m, struct mixed_step *step, struct rng *rng)
{
    const struct mixed_sizes *s = &m->sizes;
    while (!step->n_op)
        for (uint32_t i = 0; i < s->n_layer; i++) {
            const struct mixed_layer *l = &s->layers[i];
            const bool has[] = {[MIXED_KEYS] = l->keys,
                                [MIXED_LINEAR] = l->n_state && rng_chance(rng, 75),
                                [MIXED_CONV] = l->channels && rng_chance(rng, 75)};
            for (int kind = 0; kind < 3; kind++)
                if (has[kind])
                    step->ops[step->n_op++] =
                        (struct mixed_op){.kind = (enum mixed_kind)kind, .layer = i};
        }
    for (uint32_t i = 0; i < step->n_op; i++) {
        const uint32_t j = rng_range(rng, i, step->n_op - 1);
        const struct mixed_op op = step->ops[i];
        step->ops[i] = step->ops[j];
        step->ops[j] = op;
    }
}

/* Whether the first operation begins a step behind `before`: it is one that this has had. */
static bool begins(struct mixed_step *step, const struct mixed_step *before)
{
    for (uint32_t i = 0; i < step->n_op; i++)
        for (uint32_t j = 0; j < before->n_op; j++)
            if (step->ops[i].kind == before->ops[j].kind &&
                step->ops[i].layer == before->ops[j].layer) {
                const struct mixed_op op = step->ops[0];
                step->ops[0] = step->ops[i];
                step->ops[i] = op;
                return true;
            }
    return false;
}

/* Rows of one chunk of linear attention or two, or one more or less, up to `most`. */
static uint32_t near_chunks(struct rng *rng, uint32_t most)
{
    const uint32_t n = LINEAR_CHUNK * (uint32_t)rng_range(rng, 1, most / LINEAR_CHUNK);
    return n == most ? n : n - 1 + (uint32_t)rng_range(rng, 0, 2);
}

static bool open_step(struct mixed_plan *p, struct mixed_step *step, const struct mixed *m,
                      struct rng *rng)
{
    const struct mixed_sizes *s = &m->sizes;
    const uint32_t long_rows = rng_chance(rng, 50) ? 150 : 40; /* more than a chunk, or less */
    const uint32_t most = s->capacity < long_rows ? s->capacity : long_rows;
    const uint32_t n_start = s->batch + 1;
    step->rows = (enum mixed_rows)rng_range(rng, MIXED_DENSE, MIXED_RAGGED);
    step->n = rng_chance(rng, 40) ? 1 : rng_range(rng, 1, most);
    if (most > 65 && rng_chance(rng, 30))
        step->n = near_chunks(rng, most);
    bool ok = true;
    if (step->rows == MIXED_RAGGED) {
        step->n += rng_range(rng, 0, s->batch);
        ok = vka_tensor_create(m->device, VKA_I32, 1, &n_start, &step->q_start) == VKA_OK;
    }
    if (step->rows == MIXED_PADDED || (step->rows == MIXED_RAGGED && rng_chance(rng, 50))) {
        const uint32_t count = rng_chance(rng, 15) ? 1 : s->batch;
        step->one = count == 1;
        ok &= vka_tensor_create(m->device, VKA_I32, 1, &count, &step->n_append) == VKA_OK;
    }
    for (uint32_t i = 0; i < step->n_op && ok; i++)
        ok = create_operands(m, step, &step->ops[i], rng) &&
             add(m, p->plan, step, &step->ops[i]) == VKA_OK;
    return ok;
}

bool mixed_plan_open(struct mixed_plan *p, const struct mixed *m, struct rng *rng)
{
    *p = (struct mixed_plan){.n_step = 1};
    const struct vka_plan_info info = {.struct_size = sizeof info,
                                       .submit_budget = rng_chance(rng, 25) ? 1 : 0};
    draw_ops(m, &p->steps[0], rng);
    if (rng_chance(rng, 30)) {
        draw_ops(m, &p->steps[1], rng);
        p->n_step += begins(&p->steps[1], &p->steps[0]);
    }
    bool ok = vka_plan_create(m->device, &info, &p->plan) == VKA_OK;
    for (uint32_t i = 0; i < p->n_step && ok; i++)
        ok = open_step(p, &p->steps[i], m, rng);
    return ok && vka_plan_finish(p->plan) == VKA_OK;
}

void mixed_plan_close(struct mixed_plan *p)
{
    vka_plan_destroy(&p->plan);
    for (uint32_t i = 0; i < p->n_step; i++) {
        struct mixed_step *step = &p->steps[i];
        vka_tensor_destroy(&step->n_append);
        vka_tensor_destroy(&step->q_start);
        for (uint32_t j = 0; j < step->n_op; j++) {
            for (int k = 0; k < MIXED_IO; k++)
                operand_destroy(&step->ops[j].io[k]);
            free(step->ops[j].want);
        }
    }
}

/* ---- Inputs ----------------------------------------------------------------------------------- */

/* Rows of each sequence, and of those the most that it keeps. */
static bool draw_counts(const struct mixed *m, struct mixed_step *step, struct rng *rng)
{
    const uint32_t batch = m->sizes.batch;
    int32_t starts[MIXED_BATCH + 1], counts[MIXED_BATCH];
    bool ok = true;
    uint32_t at = 0;
    for (uint32_t b = 0; b < batch; b++) {
        step->first[b] = at;
        step->had[b] = step->n;
        if (step->rows == MIXED_RAGGED) {
            step->had[b] = rng_chance(rng, 30) ? 0 : rng_range(rng, 0, step->n - at);
            if (rng_chance(rng, 30) && at < step->n)
                step->had[b] = 1;
            if (rng_chance(rng, 25) && step->n - at >= LINEAR_CHUNK)
                step->had[b] = near_chunks(rng, step->n - at);
            at += step->had[b];
        }
        starts[b] = (int32_t)step->first[b];
        counts[b] = rng_chance(rng, 30) ? (int32_t)step->n + (rng_chance(rng, 20) ? 5 : 0)
                                        : (int32_t)rng_range(rng, 0, step->n) -
                                              (rng_chance(rng, 10) ? (int32_t)step->n : 0);
        const int32_t count = counts[step->one ? 0 : b];
        step->kept[b] = !step->n_append ? step->had[b] : count < 0 ? 0 : (uint32_t)count;
        if (step->kept[b] > step->had[b])
            step->kept[b] = step->had[b];
    }
    starts[batch] = (int32_t)at;
    if (starts[0] == 0 && rng_chance(rng, 20))
        starts[0] = -2; /* counts as 0 */
    if (step->q_start)
        ok = vka_tensor_write(step->q_start, starts, 4 * ((size_t)batch + 1)) == VKA_OK;
    if (step->n_append)
        ok &= vka_tensor_write(step->n_append, counts, vka_tensor_size(step->n_append)) == VKA_OK;
    return ok;
}

static double draw_value(const struct mixed *m, const struct mixed_op *op, int which,
                         struct rng *rng)
{
    const struct mixed_layer *l = &m->sizes.layers[op->layer];
    const double x = rng_uniform(rng, -1, 1);
    if (op->kind == MIXED_LINEAR && which <= MIXED_K)
        return x / sqrt(l->head_dim / 3.0);
    if (op->kind == MIXED_LINEAR && which == MIXED_DECAY)
        return rng_chance(rng, 10) ? 25 * (x - 1) : rng_chance(rng, 10) ? 0 : 0.05 * x - 0.04;
    return which == MIXED_BETA ? (x + 1) / 2 : x;
}

void mixed_find_rows(const struct mixed_op *op, int which, uint32_t *heads, uint32_t *width)
{
    const struct operand *o = &op->io[which];
    *heads = op->kind == MIXED_CONV ? 1 : o->size[1];
    *width = op->kind == MIXED_CONV ? o->size[2] : o->rank == 4 ? o->size[3] : 1;
}

double *mixed_row(const struct mixed_step *step, const struct mixed_op *op, int which,
                  double *values, uint32_t b, uint32_t head, uint32_t i)
{
    uint32_t heads, width;
    mixed_find_rows(op, which, &heads, &width);
    const bool packed = step->rows == MIXED_RAGGED;
    const size_t outer = ((packed ? 0 : b) * (size_t)heads + head) * step->n;
    return values + (outer + (packed ? step->first[b] : 0) + i) * width;
}

/* What a state or a cache does not keep is NaN. */
static bool write_operand(const struct mixed *m, const struct mixed_step *step, struct mixed_op *op,
                          int which, struct rng *rng)
{
    struct operand *o = &op->io[which];
    uint32_t heads, width;
    if (!o->view)
        return true;
    for (size_t i = 0; i < o->count; i++)
        o->values[i] = operand_round(o->dtype, draw_value(m, op, which, rng));
    if (op->kind == MIXED_CONV && which == MIXED_WEIGHT)
        return operand_write(o) == VKA_OK;
    mixed_find_rows(op, which, &heads, &width);
    for (uint32_t b = 0; b < m->sizes.batch; b++)
        for (uint32_t h = 0; h < heads; h++)
            for (uint32_t i = step->kept[b]; i < step->had[b]; i++)
                for (uint32_t j = 0; j < width; j++)
                    if (op->kind != MIXED_KEYS || which != MIXED_Q)
                        mixed_row(step, op, which, o->values, b, h, i)[j] = NAN;
    return operand_write(o) == VKA_OK;
}

bool mixed_feed(const struct mixed *m, struct mixed_plan *p, struct rng *rng)
{
    bool ok = true;
    for (uint32_t i = 0; i < p->n_step; i++) {
        struct mixed_step *step = &p->steps[i];
        ok &= draw_counts(m, step, rng);
        for (uint32_t j = 0; j < step->n_op; j++) {
            for (int k = 0; k < MIXED_OUT; k++)
                ok &= write_operand(m, step, &step->ops[j], k, rng);
            ok &= operand_write_noise(&step->ops[j].io[MIXED_OUT], rng) == VKA_OK;
        }
    }
    return ok;
}
