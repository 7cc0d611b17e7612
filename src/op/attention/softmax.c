/* Softmax of scores in memory: one pass where a workgroup takes a whole row, two where the keys of
 * a row are split over workgroups. */
#include "op/attention/fused.h"
#include "kernel/softmax.h"
#include "plan/settle.h"

#include <stdio.h>

/* The softmax of a slice's scores in place. */
struct job {
    const struct attention *a;
    const struct slice *slice;
    const struct vka_tensor *scores; /* of the slice */
    struct softmax_choice choice;
};

/* Splits of the keys of a row: without, each lane's sum must be a single chain. With a cache a sequence
 * is split at the same keys in every capacity, and splits behind its length add nothing. */
static uint32_t splits_of(const struct job *job)
{
    const struct attention *a = job->a;
    const bool whole = a->cached && !a->options->exact_softmax
                           ? a->n_kv <= TUNE_CHAIN
                           : a->n_kv <= (uint64_t)job->choice.lanes * TUNE_CHAIN;
    return whole ? 1 : divide_up(a->n_kv, TUNE_CHAIN);
}

static struct work work_of(const struct job *job, const uint32_t size[CUT_AXES])
{
    const struct attention *a = job->a;
    double row = attention_score_work(a->options) * a->n_kv;
    uint32_t n_split = splits_of(job);
    double keys = n_split > 1 ? TUNE_CHAIN : a->n_kv;
    return (struct work){
        .ops = row * size[0] * size[1] * size[2],
        .longest = row * keys / a->n_kv,
        .loops = 3 * (keys / job->choice.lanes + 1) + n_split + 64, /* splits and reductions */
    };
}

static void bind_scores(const struct vka_plan *plan, const struct vka_tensor *scores,
                        const struct slice *s, struct pass *pass, struct softmax_params *p)
{
    const uint64_t *stride = scores->shape.stride;
    struct vka_tensor part = attention_slice(scores, s);
    plan_bind(plan, pass, 6, &part, true, &p->scores_offset);
    p->scores_offset = attention_rebase(p->scores_offset, scores, s);
    p->scores_batch = (uint32_t)stride[0];
    p->scores_head = (uint32_t)stride[1];
    p->scores_row = (uint32_t)stride[2];
    p->scores_col = (uint32_t)stride[3];
}

/* Fills in a pass over a part. splits: what the first pass leaves to the second, NULL for whole
 * rows. */
static void make_stage(const struct vka_plan *plan, const struct job *job, const struct box *part,
                       const struct vka_tensor *splits, uint32_t stage, struct pass *pass)
{
    const struct attention *a = job->a;
    const struct vka_attention_options *o = a->options;
    const struct slice s = attention_slice_part(job->slice, part);
    struct vka_tensor scores = tensor_box(job->scores, part);
    enum kernel kernel = job->choice.kernel;
    uint32_t lanes = job->choice.lanes;
    pass->name = "softmax";
    pass->reason = job->choice.reason;
    pass->key = (struct pipeline_key){.kernel = kernel, .n_spec = SOFTMAX_SPECS};
    pass->key.spec[SOFTMAX_LANES] = lanes;
    pass->key.spec[SOFTMAX_STAGE] = stage;
    pass->key.spec[SOFTMAX_PIECE] = splits ? TUNE_CHAIN : 0;
    pass->key.spec[SOFTMAX_EXACT] = o->exact_softmax;
    struct softmax_params p = {
        .z_first = s.batch * a->n_head + s.head,
        .q_first = s.query,
        .n_head = a->n_head,
        .n_row = s.n_query,
        .pitch = (uint32_t)scores.shape.stride[2],
        ATTENTION_DRAW(o),
    };
    if (o->log_sum_exp) { /* behind the keys of each row */
        scores.shape.size[3] = p.pitch;
        pass->key.spec[SOFTMAX_LOG_SUM] = 1;
    }
    for (uint32_t slot = 1; slot < kernel_table[kernel].buffers; slot++)
        plan_bind(plan, pass, slot, &scores, false, NULL); /* where nothing else is */
    plan_bind(plan, pass, 0, &scores, true, &p.slice_offset);
    attention_bind_mask(plan, a, &s, pass, 1, &p.mask, &p.sink_offset, &p.alibi_offset);
    if (o->scores)
        bind_scores(plan, o->scores, &s, pass, &p);
    if (splits)
        plan_bind(plan, pass, 7, splits, stage == SOFTMAX_WEIGH, NULL);
    pass_set_push(pass, &p, sizeof p);
    pass->work = work_of(job, part->size);
    pass->groups[0] = s.n_query;
    pass->groups[1] = saturate((uint64_t)s.n_batch * s.n_head);
    pass->groups[2] = splits ? splits_of(job) : 1;
    snprintf(pass->detail, sizeof pass->detail, "%ux%u rows of %u, %u lanes, %u splits",
             pass->groups[1], s.n_query, a->n_kv, lanes, pass->groups[2]);
}

static void make_pass(const struct vka_plan *plan, const void *job, const struct box *part,
                      struct pass *pass)
{
    make_stage(plan, job, part, NULL, SOFTMAX_WHOLE, pass);
}

static enum vka_status add_stage(struct vka_plan *plan, const struct job *job,
                                 const struct box *part, const struct vka_tensor *splits,
                                 uint32_t stage)
{
    struct pass pass = {0};
    make_stage(plan, job, part, splits, stage, &pass);
    return plan_add_pass(plan, &pass);
}

static enum vka_status add_part(struct vka_plan *plan, const void *given, const struct box *part)
{
    const struct job *job = given;
    const uint32_t *size = part->size;
    struct vka_tensor splits;
    if (splits_of(job) == 1)
        return add_stage(plan, job, part, NULL, SOFTMAX_WHOLE);
    ENSURE(plan_scratch(
        plan, VKA_F32, (const uint32_t[]){size[0], size[1], size[2], 2 * splits_of(job)}, &splits));
    ENSURE(add_stage(plan, job, part, &splits, SOFTMAX_WEIGH));
    ENSURE(add_stage(plan, job, part, &splits, SOFTMAX_FINISH));
    plan_scratch_free(plan, &splits);
    return VKA_OK;
}

/* Keys of the rows that measure the rate. */
#define PROBE_KEYS 1024u

static enum vka_status add_probe(struct vka_plan *plan, const void *problem, uint32_t n)
{
    struct job job = *(const struct job *)problem;
    struct attention a = *job.a;
    const struct vka_attention_options options = {.masked_row = VKA_MASKED_ZERO};
    a.options = &options;
    a.n_kv = a.n_kv < PROBE_KEYS ? (a.n_kv + 3) / 4 * 4 : PROBE_KEYS;
    a.n_q = calibrate_groups(plan, 4ull * a.n_kv, n);
    const struct slice all = {.n_batch = 1, .n_head = 1, .n_query = a.n_q};
    struct vka_tensor scores;
    ENSURE(plan_scratch(plan, VKA_F32, (const uint32_t[]){1, 1, a.n_q, a.n_kv}, &scores));
    job = (struct job){&a, &all, &scores, job.choice};
    tune_softmax(&plan->caps, a.n_kv, &job.choice);
    return add_stage(plan, &job, &(struct box){{0}, {1, 1, a.n_q, a.n_kv}}, NULL, SOFTMAX_WHOLE);
}

static uint64_t choose(const struct caps *caps, void *given)
{
    struct job *job = given;
    tune_softmax(caps, job->a->n_kv, &job->choice);
    return UINT64_C(1) << job->choice.kernel;
}

enum vka_status attention_add_softmax(struct vka_plan *plan, const struct attention *a,
                                      const struct slice *s, const struct vka_tensor *scores)
{
    struct job job = {.a = a, .slice = s, .scores = scores};
    ENSURE(plan_settle(plan, 0, choose, &job));
    if (a->options->exact_softmax && splits_of(&job) > 1)
        return log_error(&plan->device->log, VKA_UNSUPPORTED,
                         "exact_softmax takes at most %u keys on this device, not %u",
                         job.choice.lanes * TUNE_CHAIN, a->n_kv);
    const struct cut cut = {
        .job = &job,
        .unit = {1, 1, 1, CUT_NEVER},
        .least = {1, 1, 1, CUT_NEVER},
        .kernel = job.choice.kernel,
        .whole = work_of(&job, scores->shape.size),
        .probe = add_probe,
        .make = make_pass,
        .add = add_part,
    };
    return plan_cut(plan, &cut, scores->shape.size);
}
