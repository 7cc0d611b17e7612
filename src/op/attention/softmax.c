/* The softmax of scores that lie in memory: a pass for whole rows, two for rows in pieces. */
#include "op/attention/budget.h"
#include "plan/calibrate.h"
#include "plan/settle.h"
#include "kernel/tune.h"

#include <stdio.h>
#include <string.h>

/* Workgroups that share a row: each lane's sum is one chain. */
static uint32_t pieces_of(const struct attention *a, const struct softmax_choice *choice)
{
    return a->n_kv <= (uint64_t)choice->lanes * TUNE_CHAIN ? 1 : divide_up(a->n_kv, TUNE_CHAIN);
}

static struct work softmax_work(const struct attention *a, const struct slice *s,
                                const struct softmax_choice *choice)
{
    double row = attention_score_work(a->options) * a->n_kv;
    uint32_t piece = pieces_of(a, choice);
    double keys = piece > 1 ? TUNE_CHAIN : a->n_kv;
    return (struct work){
        .ops = row * s->n_batch * s->n_head * s->n_query,
        .longest = row * keys / a->n_kv,
        .loops = 3 * (keys / choice->lanes + 1) + piece + 64, /* of pieces, and of reductions */
    };
}

/* One pass over a slice; of rows in pieces, stage says which of the two. */
static enum vka_status add_pass(struct vka_plan *plan, const struct attention *a,
                                const struct slice *s, const struct vka_tensor *scores,
                                const struct vka_tensor *pieces, uint32_t stage)
{
    const struct vka_attention_options *o = a->options;
    struct softmax_choice choice;
    tune_softmax(&plan->caps, a->n_kv, &choice);
    uint32_t n_piece = pieces ? pieces_of(a, &choice) : 1;
    struct pass pass = {.name = "softmax", .reason = choice.reason};
    pass.key = (struct pipeline_key){.kernel = choice.kernel, .n_spec = SOFTMAX_SPECS};
    pass.key.spec[SOFTMAX_LANES] = choice.lanes;
    pass.key.spec[SOFTMAX_STAGE] = stage;
    pass.key.spec[SOFTMAX_PIECE] = pieces ? TUNE_CHAIN : 0;
    struct softmax_params p = {
        .z_first = s->batch * a->n_head + s->head,
        .q_first = s->query,
        .n_head = a->n_head,
        .n_row = s->n_query,
        .pitch = (uint32_t)scores->shape.stride[2],
        .softcap = o->softcap,
        .dropout = o->dropout,
        .seed_low = (uint32_t)o->dropout_seed,
        .seed_high = (uint32_t)(o->dropout_seed >> 32),
        .draw_place = o->dropout_batch << 16 | o->dropout_head,
        .draw_query = o->dropout_query,
    };
    for (uint32_t slot = 1; slot < kernel_table[choice.kernel].buffers; slot++)
        plan_bind(plan, &pass, slot, scores, false, NULL); /* where nothing else is */
    plan_bind(plan, &pass, 0, scores, true, &p.slice_offset);
    attention_bind_mask(plan, a, s, &pass, 1, &p.mask, &p.sink_offset, &p.alibi_offset);
    if (o->scores) {
        struct vka_tensor part = attention_slice(o->scores, s);
        plan_bind(plan, &pass, 6, &part, true, &p.scores_offset);
        p.scores_offset = attention_rebase(p.scores_offset, o->scores, s);
        p.scores_batch = (uint32_t)o->scores->shape.stride[0];
        p.scores_head = (uint32_t)o->scores->shape.stride[1];
        p.scores_row = (uint32_t)o->scores->shape.stride[2];
        p.scores_col = (uint32_t)o->scores->shape.stride[3];
    }
    if (pieces)
        plan_bind(plan, &pass, 7, pieces, stage == SOFTMAX_WEIGH, NULL);
    pass.push_size = sizeof p;
    memcpy(pass.push, &p, sizeof p);
    pass.work = softmax_work(a, s, &choice);
    pass.groups[0] = s->n_query;
    pass.groups[1] = s->n_batch * s->n_head;
    pass.groups[2] = n_piece;
    snprintf(pass.detail, sizeof pass.detail, "%ux%u rows of %u, %u lanes, %u pieces",
             pass.groups[1], s->n_query, a->n_kv, choice.lanes, n_piece);
    return plan_add_pass(plan, &pass);
}

static enum vka_status add_passes(struct vka_plan *plan, const struct attention *a,
                                  const struct slice *s, const struct vka_tensor *scores,
                                  const struct softmax_choice *choice)
{
    enum vka_status status = VKA_OK;
    uint32_t n = pieces_of(a, choice);
    struct vka_tensor pieces;
    if (n == 1)
        return add_pass(plan, a, s, scores, NULL, SOFTMAX_WHOLE);
    TRY(plan_scratch(plan, VKA_F32, (const uint32_t[]){s->n_batch, s->n_head, s->n_query, 2 * n},
                     &pieces));
    TRY(add_pass(plan, a, s, scores, &pieces, SOFTMAX_WEIGH));
    TRY(add_pass(plan, a, s, scores, &pieces, SOFTMAX_FINISH));
    plan_scratch_free(plan, &pieces);
fail:
    return status;
}

/* Rows of a softmax to be measured, and their keys. */
#define PROBE_KEYS 1024u

static enum vka_status add_softmax_probe(struct vka_plan *plan, const void *problem, uint32_t n)
{
    enum vka_status status = VKA_OK;
    struct attention a = *(const struct attention *)problem;
    const struct vka_attention_options options = {.masked_row = VKA_MASKED_ZERO};
    a.options = &options;
    a.n_kv = a.n_kv < PROBE_KEYS ? (a.n_kv + 3) / 4 * 4 : PROBE_KEYS;
    a.n_q = calibrate_groups(plan, 4ull * a.n_kv, n);
    struct vka_tensor scores;
    TRY(plan_scratch(plan, VKA_F32, (const uint32_t[]){1, 1, a.n_q, a.n_kv}, &scores));
    TRY(add_pass(plan, &a, &(struct slice){.n_batch = 1, .n_head = 1, .n_query = a.n_q}, &scores,
                 NULL, SOFTMAX_WHOLE));
fail:
    return status;
}

/* Cut along batch, then heads, then queries until it fits the budget. */
static enum vka_status add_parts(struct vka_plan *plan, const struct attention *a,
                                 const struct slice *s, const struct vka_tensor *scores)
{
    enum vka_status status = VKA_OK;
    struct softmax_choice choice;
    struct slice half[2];
    tune_softmax(&plan->caps, a->n_kv, &choice);
    struct work work = softmax_work(a, s, &choice);
    if (!attention_halve(s, 1, 1, half) || plan_fits(plan, choice.kernel, &work))
        return add_passes(plan, a, s, scores, &choice);
    for (int i = 0; i < 2; i++) {
        struct slice in = half[i]; /* counted from the scores' first */
        in.batch -= s->batch;
        in.head -= s->head;
        in.query -= s->query;
        struct vka_tensor part = attention_slice(scores, &in);
        TRY(add_parts(plan, a, &half[i], &part));
    }
fail:
    return status;
}

struct job {
    uint32_t n_kv;
    struct softmax_choice choice;
};

static uint64_t choose(const struct caps *caps, void *given)
{
    struct job *job = given;
    tune_softmax(caps, job->n_kv, &job->choice);
    return UINT64_C(1) << job->choice.kernel;
}

enum vka_status attention_add_softmax(struct vka_plan *plan, const struct attention *a,
                                      const struct slice *s, const struct vka_tensor *scores)
{
    enum vka_status status = VKA_OK;
    struct job job = {.n_kv = a->n_kv};
    TRY(plan_settle(plan, 0, choose, &job));
    struct work work = softmax_work(a, s, &job.choice);
    TRY(calibrate(plan, job.choice.kernel, &work, add_softmax_probe, a));
    TRY(add_parts(plan, a, s, scores));
fail:
    return status;
}
