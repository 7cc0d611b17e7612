/* Unfused attention: scores, softmax and weighted sum of each slice, which is as large as the
 * workspace holds. Scores are float32 [batch][head][query][pitch]; the last of a row's floats is its
 * log-sum-exp, if it is returned. */
#include "op/common/axes.h"
#include "op/common/copy.h"
#include "op/attention/unfused.h"
#include "kernel/softmax.h"
#include "op/attention/budget.h"
#include "op/matmul/matmul.h"
#include "plan/settle.h"

#include <stdio.h>

/* The softmax of a slice's scores in place. */
struct softmax_job {
    const struct attention *a;
    const struct head_slice *slice;
    const struct vka_tensor *scores; /* of the slice */
    struct softmax_choice choice;
};

/* Splits of the keys of a row: without, each lane's sum must be a single chain. With a cache a sequence
 * is split at the same keys in every capacity, and splits behind its length add nothing. */
static uint32_t splits_of(const struct softmax_job *job)
{
    const struct attention *a = job->a;
    const bool whole = a->cached && !a->options->exact_softmax
                           ? a->n_kv <= TUNE_CHAIN
                           : a->n_kv <= (uint64_t)job->choice.lanes * TUNE_CHAIN;
    return whole ? 1 : divide_up(a->n_kv, TUNE_CHAIN);
}

static struct work work_of(const struct softmax_job *job, const uint32_t size[CUT_AXES])
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
                        const struct head_slice *s, bool exchange, struct pass *pass,
                        struct softmax_params *p)
{
    const uint64_t *stride = scores->shape.stride;
    struct vka_tensor view = attention_slice(scores, s);
    plan_bind(plan, pass, 6, &view, true, &p->scores_offset);
    pass->key.spec[SOFTMAX_PAIRS] = exchange && axes_are_pairs(&view, p->scores_offset);
    p->scores_offset = attention_rebase(p->scores_offset, scores, s);
    p->scores_batch = (uint32_t)stride[0];
    p->scores_head = (uint32_t)stride[1];
    p->scores_row = (uint32_t)stride[2];
    p->scores_col = (uint32_t)stride[3];
}

/* Fills in a pass over a slice. splits: what the first pass leaves to the second, NULL for whole
 * rows. */
static void make_stage(const struct vka_plan *plan, const struct softmax_job *job,
                       const struct slice *slice, const struct vka_tensor *splits, uint32_t stage,
                       struct pass *pass)
{
    const struct attention *a = job->a;
    const struct vka_attention_options *options = a->options;
    const struct head_slice s = head_slice_of(job->slice, slice);
    struct vka_tensor scores = tensor_slice(job->scores, slice);
    enum kernel kernel = job->choice.kernel;
    uint32_t lanes = job->choice.lanes;
    pass->name = "softmax";
    pass->reason = job->choice.reason;
    pass->key = (struct pipeline_key){.kernel = kernel, .n_spec = SOFTMAX_SPECS};
    pass->key.spec[SOFTMAX_LANES] = lanes;
    pass->key.spec[SOFTMAX_STAGE] = stage;
    pass->key.spec[SOFTMAX_SPLIT] = splits ? TUNE_CHAIN : 0;
    pass->key.spec[SOFTMAX_EXACT] = options->exact_softmax;
    struct softmax_params p = {
        .z_first = s.batch * a->n_head + s.head,
        .q_first = s.query,
        .n_head = a->n_head,
        .n_row = s.n_query,
        .pitch = (uint32_t)scores.shape.stride[2],
        ATTENTION_DRAW(options),
    };
    if (options->log_sum_exp) { /* behind the keys of each row */
        scores.shape.size[3] = p.pitch;
        pass->key.spec[SOFTMAX_LOG_SUM] = 1;
    }
    for (uint32_t slot = 1; slot < kernel_table[kernel].buffers; slot++)
        plan_bind(plan, pass, slot, &scores, false, NULL); /* where nothing else is */
    plan_bind(plan, pass, 0, &scores, true, &p.slice_offset);
    attention_bind_mask(plan, a, &s, pass, 1, &p.mask, &p.sink_offset, &p.alibi_offset);
    if (options->scores)
        bind_scores(plan, options->scores, &s, job->choice.exchange, pass, &p);
    if (splits)
        plan_bind(plan, pass, 7, splits, stage == SOFTMAX_WEIGH, NULL);
    pass_set_push(pass, &p, sizeof p);
    pass->work = work_of(job, slice->size);
    pass->groups[0] = s.n_query;
    pass->groups[1] = saturate((uint64_t)s.n_batch * s.n_head);
    pass->groups[2] = splits ? splits_of(job) : 1;
    snprintf(pass->detail, sizeof pass->detail, "%ux%u rows of %u, %u lanes, %u splits",
             pass->groups[1], s.n_query, a->n_kv, lanes, pass->groups[2]);
}

static void make_pass(const struct vka_plan *plan, const void *job, const struct slice *slice,
                      struct pass *pass)
{
    make_stage(plan, job, slice, NULL, SOFTMAX_WHOLE, pass);
}

static enum vka_status add_stage(struct vka_plan *plan, const struct softmax_job *job,
                                 const struct slice *slice, const struct vka_tensor *splits,
                                 uint32_t stage)
{
    struct pass pass = {0};
    make_stage(plan, job, slice, splits, stage, &pass);
    return plan_add_pass(plan, &pass);
}

static enum vka_status add_softmax(struct vka_plan *plan, const void *given,
                                   const struct slice *slice)
{
    const struct softmax_job *job = given;
    const uint32_t *size = slice->size;
    struct vka_tensor splits;
    if (splits_of(job) == 1)
        return add_stage(plan, job, slice, NULL, SOFTMAX_WHOLE);
    ENSURE(plan_scratch(
        plan, VKA_F32, (const uint32_t[]){size[0], size[1], size[2], 2 * splits_of(job)}, &splits));
    ENSURE(add_stage(plan, job, slice, &splits, SOFTMAX_WEIGH));
    ENSURE(add_stage(plan, job, slice, &splits, SOFTMAX_FINISH));
    plan_scratch_free(plan, &splits);
    return VKA_OK;
}

/* Keys of the rows that measure the rate. */
#define PROBE_KEYS 1024u

static enum vka_status add_probe(struct vka_plan *plan, const void *problem, uint32_t n)
{
    struct softmax_job job = *(const struct softmax_job *)problem;
    struct attention a = *job.a;
    const struct vka_attention_options options = {.masked_row = VKA_MASKED_ZERO};
    a.options = &options;
    a.n_kv = a.n_kv < PROBE_KEYS ? (a.n_kv + 3) / 4 * 4 : PROBE_KEYS;
    a.n_q = calibrate_groups(plan, 4ull * a.n_kv, n);
    const struct head_slice all = {.n_batch = 1, .n_head = 1, .n_query = a.n_q};
    struct vka_tensor scores;
    ENSURE(plan_scratch(plan, VKA_F32, (const uint32_t[]){1, 1, a.n_q, a.n_kv}, &scores));
    job = (struct softmax_job){&a, &all, &scores, job.choice};
    tune_softmax(&plan->caps, a.n_kv, &job.choice);
    return add_stage(plan, &job, &(struct slice){{0}, {1, 1, a.n_q, a.n_kv}}, NULL, SOFTMAX_WHOLE);
}

static struct kernel_set choose(const struct caps *caps, void *given)
{
    struct softmax_job *job = given;
    tune_softmax(caps, job->a->n_kv, &job->choice);
    return KERNEL_SET(job->choice.kernel);
}

enum vka_status attention_add_softmax(struct vka_plan *plan, const struct attention *a,
                                      const struct head_slice *s, const struct vka_tensor *scores)
{
    struct softmax_job job = {.a = a, .slice = s, .scores = scores};
    ENSURE(plan_settle(plan, 0, choose, &job));
    if (a->options->exact_softmax && splits_of(&job) > 1)
        return log_error(&plan->device->log, VKA_UNSUPPORTED,
                         "exact_softmax takes at most %u keys on this device, not %u",
                         job.choice.lanes * TUNE_CHAIN, a->n_kv);
    const struct cut cut = {
        .job = &job,
        .multiple = {1, 1, 1, CUT_NEVER},
        .least = {1, 1, 1, CUT_NEVER},
        .kernel = job.choice.kernel,
        .whole = work_of(&job, scores->shape.size),
        .probe = add_probe,
        .make = make_pass,
        .add = add_softmax,
    };
    return plan_cut(plan, &cut, scores->shape.size);
}

struct job {
    const struct attention *a;
    bool with_context;
    uint64_t *largest;                  /* floats of the largest slice's scores */
    const struct vka_tensor *workspace; /* holds the scores of any slice */
};

static struct head_slice slice_of(const struct slice *slice)
{
    return head_slice_of(&(struct head_slice){0}, slice);
}

/* Floats from row to row: keys and, if it is returned, the log-sum-exp. */
static uint32_t pitch_of(const struct attention *a)
{
    return divide_up(a->n_kv + (a->options->log_sum_exp ? 1 : 0), 4) * 4;
}

/* Halves a slice until its scores fit the workspace, the tensors of its softmax fit bindings, and
 * one grid covers it. */
static int judge(const struct vka_plan *plan, const struct cut *cut, const struct slice *slice)
{
    const struct attention *a = ((const struct job *)cut->job)->a;
    const struct caps *caps = &plan->caps;
    uint64_t range = caps->properties.max_buffer_range;
    uint64_t limit =
        least(plan->workspace_limit, least(range, caps->properties.max_allocation / 2));
    const struct head_slice s = slice_of(slice);
    uint64_t heads = (uint64_t)s.n_batch * s.n_head;
    bool fits = heads * s.n_query <= limit / 4 / pitch_of(a) && s.n_query <= caps->max_groups[0] &&
                heads <= caps->max_groups[1];
    if (a->options->mask) {
        struct vka_tensor mask = attention_mask(a, &(uint32_t){0});
        mask = attention_slice(&mask, &s);
        fits &= plan_range(plan, &mask) <= range;
    }
    if (a->options->scores) {
        struct vka_tensor scores = attention_slice(a->options->scores, &s);
        fits &= plan_range(plan, &scores) <= range;
    }
    return fits ? CUT_FITS : cut_first_axis(slice, cut->least);
}

static enum vka_status add_context(struct vka_plan *plan, const struct attention *a,
                                   const struct head_slice *s, const struct vka_tensor *scores,
                                   uint32_t group)
{
    struct vka_tensor v = attention_slice_kv(&a->v, a, s); /* [batch][head][value_dim][n_kv] */
    struct shape t = v.shape;
    v.shape.size[2] = t.size[3];
    v.shape.size[3] = t.size[2];
    v.shape.stride[2] = t.stride[3];
    v.shape.stride[3] = t.stride[2];
    return plan_matmul(plan, &(struct matmul_op){
                                 .name = "context",
                                 .a = *scores,
                                 .b = v,
                                 .c = attention_slice(&a->output, s),
                                 .group = group,
                                 .alpha = 1,
                                 .hidden = attention_hides(a),
                                 .cached = a->cached,
                             });
}

/* Copies what the softmax left in the last column of the scores. */
static enum vka_status copy_log_sum(struct vka_plan *plan, const struct attention *a,
                                    const struct head_slice *s, const struct vka_tensor *scores)
{
    struct vka_tensor to, from = *scores;
    if (!attention_log_sum(a, &to))
        return VKA_OK;
    to = attention_slice(&to, s);
    from.shape.size[3] = pitch_of(a);
    from = tensor_slice_along(&from, 3, pitch_of(a) - 1, 1);
    return plan_copy(plan, "log-sum-exp", &from, &to);
}

static enum vka_status add_slice(struct vka_plan *plan, const void *given,
                                 const struct slice *slice)
{
    const struct job *job = given;
    const struct attention *a = job->a;
    const struct head_slice s = slice_of(slice);
    const uint32_t size[4] = {s.n_batch, s.n_head, s.n_query, pitch_of(a)};
    uint32_t group = (uint32_t)least(s.n_head, a->n_head / a->n_kv_head);
    struct vka_tensor scores = *job->workspace;
    shape_dense(4, size, &scores.shape);
    scores.shape.size[3] = a->n_kv;
    ENSURE(plan_matmul(plan, &(struct matmul_op){
                                 .name = "scores",
                                 .a = attention_slice(&a->q, &s),
                                 .b = attention_slice_kv(&a->k, a, &s),
                                 .c = scores,
                                 .group = group,
                                 .alpha = a->scale,
                                 .cached = a->cached,
                             }));
    ENSURE(attention_add_softmax(plan, a, &s, &scores));
    ENSURE(copy_log_sum(plan, a, &s, &scores));
    if (job->with_context)
        ENSURE(add_context(plan, a, &s, &scores, group));
    return VKA_OK;
}

static enum vka_status measure_slice(struct vka_plan *plan, const void *given,
                                     const struct slice *slice)
{
    const struct job *job = given;
    uint64_t floats = (uint64_t)slice->size[0] * slice->size[1] * slice->size[2] * pitch_of(job->a);
    (void)plan;
    if (floats > *job->largest)
        *job->largest = floats;
    return VKA_OK;
}

#define TILE 64u /* queries: a multiple of the tiles of matrix products */

enum vka_status plan_attention_unfused(struct vka_plan *plan, const struct attention *a,
                                       bool with_context)
{
    uint64_t largest = 0;
    struct vka_tensor workspace;
    const struct job job = {a, with_context, &largest, &workspace};
    struct cut cut = {
        .job = &job,
        .multiple = {1, a->n_head / a->n_kv_head, TILE, CUT_NEVER},
        .least = {1, 1, 1, CUT_NEVER},
        .judge = judge,
        .add = measure_slice,
    };
    const uint32_t size[CUT_AXES] = {a->batch, a->n_head, a->n_q, 1};
    ENSURE(plan_cut(plan, &cut, size));
    ENSURE(plan_scratch(plan, VKA_F32,
                        (const uint32_t[]){1, 1, (uint32_t)(largest / pitch_of(a)), pitch_of(a)},
                        &workspace));
    cut.add = add_slice;
    return plan_cut(plan, &cut, size);
}
