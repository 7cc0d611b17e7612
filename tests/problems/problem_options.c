/* The options of a problem, for all ways to run it: how they are drawn, and put to the operation
 * and to the oracle. A new option is a row of problem.def and a line in each of these. */
#include "problem_data.h"
#include "types.h"

#include <math.h>

/* What a way takes: of a hundred problems, those that have an option. */
static const struct way {
    uint8_t causal, window, open_left, open_right; /* open: of a hundred windows */
    uint8_t far_left;                              /* farther than any key */
    uint8_t left, right;                           /* the most */
    uint8_t mask, whole_mask, repeats, one_key;    /* of masks: all axes; of axes: one element */
    uint8_t lengths, offsets, far_offsets, poison_hidden, poison_visible;
    uint8_t masked_rows; /* kinds */
    uint8_t scale, softcap, scores, sink, alibi, dropout, rope, whole_rope;
    uint8_t q_norm, k_norm, epsilon, given;
    bool mask_one_row; /* a mask for keys, whichever queries see them */
} ways[WAY_COUNT] = {
    [WAY_DENSE] = {.causal = 35,
                   .window = 25,
                   .open_left = 25,
                   .open_right = 25,
                   .far_left = 5,
                   .left = 40,
                   .right = 40,
                   .mask = 40,
                   .repeats = 35,
                   .one_key = 5,
                   .lengths = 30,
                   .offsets = 30,
                   .far_offsets = 50,
                   .poison_hidden = 50,
                   .poison_visible = 4,
                   .masked_rows = VKA_MASKED_ROW_COUNT,
                   .scale = 40,
                   .softcap = 25,
                   .scores = 40,
                   .sink = 20,
                   .alibi = 20,
                   .dropout = 20,
                   .rope = 30,
                   .whole_rope = 60,
                   .q_norm = 12,
                   .k_norm = 12,
                   .epsilon = 50,
                   .given = 15},
    [WAY_PACKED] = {.causal = 81,
                    .window = 25,
                    .open_left = 20,
                    .open_right = 50,
                    .left = 40,
                    .right = 10,
                    .mask = 37,
                    .repeats = 30,
                    .scale = 20,
                    .masked_rows = VKA_MASKED_ROW_COUNT,
                    .softcap = 22,
                    .sink = 21,
                    .alibi = 22,
                    .dropout = 16,
                    .rope = 50,
                    .q_norm = 16,
                    .k_norm = 16,
                    .epsilon = 30},
    [WAY_LAYER] = {.causal = 100,
                   .window = 30,
                   .open_right = 100,
                   .left = 12,
                   .right = 1,
                   .mask = 62,
                   .whole_mask = 70,
                   .repeats = 20,
                   .masked_rows = 1,
                   .scale = 20,
                   .softcap = 20,
                   .sink = 20,
                   .alibi = 20,
                   .rope = 55,
                   .q_norm = 20,
                   .k_norm = 20,
                   .epsilon = 30,
                   .mask_one_row = true},
};

/* ---- Drawing --------------------------------------------------------------------------------- */

/* Any rank and broadcast; the last axis may also end early. */
static void draw_mask(struct problem *p, struct rng *rng, const struct way *way)
{
    const uint32_t n_kv = problem_n_kv(p);
    const uint32_t full[4] = {p->batch, problem_n_head(p), p->n_q, n_kv};
    p->mask = rng_chance(rng, 50) ? VKA_BOOL : type_draw_float(rng);
    p->mask_rank = way->whole_mask && rng_chance(rng, way->whole_mask) ? 4 : rng_range(rng, 1, 4);
    for (uint32_t i = 0; i < p->mask_rank; i++) {
        uint32_t size = full[4 - p->mask_rank + i];
        p->mask_shape[i] = rng_chance(rng, way->repeats) ? 1 : size;
    }
    uint32_t *last = &p->mask_shape[p->mask_rank - 1];
    *last = rng_chance(rng, way->one_key) ? 1 : n_kv;
    if (n_kv > 2 && rng_chance(rng, 25))
        *last = rng_range(rng, 2, n_kv - 1);
    if (way->mask_one_row && p->mask_rank > 1)
        p->mask_shape[p->mask_rank - 2] = 1;
}

static int32_t draw_reach(struct rng *rng, uint32_t open, uint32_t most)
{
    return rng_chance(rng, open) ? -1 : (int32_t)rng_range(rng, 0, most);
}

static enum per_batch draw_per_batch(struct rng *rng, uint32_t percent)
{
    return rng_chance(rng, percent) ? (enum per_batch)rng_range(rng, 1, 2) : PER_BATCH_NONE;
}

static void draw_visibility(struct problem *p, struct rng *rng, const struct way *way)
{
    p->causal = rng_chance(rng, way->causal);
    p->window = rng_chance(rng, way->window);
    if (p->window) {
        p->window_left = draw_reach(rng, way->open_left, way->left);
        p->window_right = draw_reach(rng, way->open_right, way->right);
        if (rng_chance(rng, way->far_left))
            p->window_left = rng_chance(rng, 50) ? 1 << 30 : INT32_MAX;
    }
    if (rng_chance(rng, way->mask))
        draw_mask(p, rng, way);
    p->lengths = draw_per_batch(rng, way->lengths);
    p->offsets = draw_per_batch(rng, way->offsets);
    p->masked_row = (enum vka_masked_row)rng_range(rng, 0, way->masked_rows - 1u);
    p->poison_hidden = rng_chance(rng, way->poison_hidden);
    p->poison_visible = rng_chance(rng, way->poison_visible);
}

static void draw_scores(struct problem *p, struct rng *rng, const struct way *way)
{
    if (rng_chance(rng, way->scale))
        p->scale = (float)(rng_uniform(rng, -1.5, 1.5) / sqrt((double)p->head_dim));
    if (rng_chance(rng, way->softcap))
        p->softcap = (float)rng_uniform(rng, 0.5, 50);
    if (rng_chance(rng, way->scores)) {
        p->scores_kind = (enum vka_scores)rng_range(rng, 1, VKA_SCORES_COUNT - 1);
        p->scores = type_draw_float(rng);
    }
    p->sink = rng_chance(rng, way->sink);
    p->alibi = rng_chance(rng, way->alibi);
    p->far_offsets = !p->alibi && rng_chance(rng, way->far_offsets);
    if (rng_chance(rng, way->dropout)) {
        p->dropout = (float)rng_uniform(rng, 0.01, 0.95);
        p->dropout_seed = rng_next(rng);
    }
}

static void draw_rope(struct problem *p, struct rng *rng, const struct way *way)
{
    uint32_t pairs = p->head_dim / 2;
    if (pairs && rng_chance(rng, way->rope)) {
        p->rope.dim = 2 * (rng_chance(rng, way->whole_rope) ? pairs : rng_range(rng, 1, pairs));
        p->rope.base = rng_chance(rng, 50) ? 0 : (float)rng_uniform(rng, 2, 1e6);
        p->rope.interleaved = rng_chance(rng, 50);
    }
    p->q_norm = rng_chance(rng, way->q_norm);
    p->k_norm = rng_chance(rng, way->k_norm);
    p->norm_epsilon =
        rng_chance(rng, 100u - way->epsilon) ? 0 : (float)rng_uniform(rng, 1e-8, 1e-2);
}

/* Which zeros are meant: a scale of 0 gives all visible keys one weight. */
static void draw_given(struct problem *p, struct rng *rng, const struct way *way)
{
    if (rng_chance(rng, way->given)) {
        p->scale = rng_chance(rng, 50) ? 0 : -0.0f;
        p->given |= VKA_GIVEN_SCALE;
    }
    if (rng_chance(rng, way->given)) {
        p->norm_epsilon = 0;
        p->given |= VKA_GIVEN_EPSILON;
    }
}

void problem_draw_options(struct problem *p, struct rng *rng)
{
    const struct way *way = &ways[p->way];
    draw_visibility(p, rng, way);
    draw_scores(p, rng, way);
    draw_rope(p, rng, way);
    draw_given(p, &(struct rng){p->seed ^ 0x61e4}, way);
}

/* ---- The operation and the oracle ------------------------------------------------------------ */

struct vka_attention_op problem_op_of(const struct problem *p,
                                      struct vka_tensor *const view[OPERAND_COUNT])
{
    return (struct vka_attention_op){
        .struct_size = sizeof(struct vka_attention_op),
        .q = view[OPERAND_Q],
        .k = view[OPERAND_K],
        .v = view[OPERAND_V],
        .output = view[OPERAND_OUTPUT],
        .past_key = view[OPERAND_PAST_K],
        .past_value = view[OPERAND_PAST_V],
        .present_key = view[OPERAND_PRESENT_K],
        .present_value = view[OPERAND_PRESENT_V],
        .q_start = view[OPERAND_Q_START],
        .kv_start = view[OPERAND_KV_START],
        .n_append = view[OPERAND_N_APPEND],
        .options =
            {
                .mask = view[OPERAND_MASK],
                .kv_length = view[OPERAND_LENGTH],
                .query_offset = view[OPERAND_OFFSET],
#define OPTION(kind, type, wide, name) .name = p->name,
#include "../../src/attention_options.def"
#undef OPTION
                .scores_kind = p->scores_kind,
                .scores = view[OPERAND_SCORES],
                .log_sum_exp = view[OPERAND_LOG_SUM],
                .rope = p->rope,
                .q_norm = view[OPERAND_Q_NORM],
                .k_norm = view[OPERAND_K_NORM],
                .sink = view[OPERAND_SINK],
                .alibi = view[OPERAND_ALIBI],
                .exact_softmax = p->exact,
            },
    };
}

void problem_op(const struct problem_data *d, struct vka_attention_op *op)
{
    struct vka_tensor *view[OPERAND_COUNT];
    for (int i = 0; i < OPERAND_COUNT; i++)
        view[i] = d->operands[i].view;
    *op = problem_op_of(d->p, view);
}

void problem_ask_options(const struct problem_data *d, struct ref_attention *r)
{
    const struct problem *p = d->p;
    const struct operand *o = d->operands;
#define OPTION(kind, type, wide, name) r->name = (wide)p->name;
#include "../../src/attention_options.def"
#undef OPTION
    r->rope = p->rope;
    r->q_norm = o[OPERAND_Q_NORM].values; /* NULL where there is none */
    r->k_norm = o[OPERAND_K_NORM].values;
    r->sink = o[OPERAND_SINK].values;
    r->alibi = o[OPERAND_ALIBI].values;
}
