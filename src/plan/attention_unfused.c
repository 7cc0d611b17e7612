/* Attention in three passes a slice: scores, softmax, weighted sum. A slice is some batch elements
 * with all heads, or some heads of one, or some queries of one head, whatever the workspace holds;
 * its scores are float32 [batch][head][query][pitch]. */
#include "plan/attention.h"
#include "plan/attention_budget.h"
#include "plan/calibrate.h"
#include "plan/tune.h"

#include <stdio.h>
#include <string.h>

/* Whether one binding can show all that a slice's softmax touches, and one grid cover it. */
static bool slice_fits(const struct vka_plan *plan, const struct attention *a,
                       const struct slice *s, uint64_t limit)
{
    const struct caps *caps = &plan->device->caps;
    uint64_t pitch = (a->n_kv + 3ull) / 4 * 4;
    uint64_t rows = (uint64_t)s->n_batch * s->n_head * s->n_query;
    if (rows * pitch * 4 > limit || s->n_query > caps->max_groups[0] ||
        (uint64_t)s->n_batch * s->n_head > caps->max_groups[1])
        return false;
    uint64_t range = caps->properties.max_buffer_range;
    uint32_t mask_n_kv;
    if (a->options->mask) {
        struct vka_tensor mask = attention_mask(a, &mask_n_kv);
        mask = attention_slice(&mask, s);
        if (plan_range(plan, &mask) > range)
            return false;
    }
    if (a->options->scores) {
        struct vka_tensor scores = attention_slice(a->options->scores, s);
        if (plan_range(plan, &scores) > range)
            return false;
    }
    return true;
}

/* The largest slice size that fits: all, else halved along batch, then heads, then queries. A cut
 * head count is a multiple of the group or 1. */
static struct slice choose_slice(const struct vka_plan *plan, const struct attention *a)
{
    const struct vka_device_properties *p = &plan->device->caps.properties;
    uint64_t limit = plan->workspace_limit;
    limit = limit < p->max_buffer_range ? limit : p->max_buffer_range;
    limit = limit < p->max_allocation / 2 ? limit : p->max_allocation / 2;
    uint32_t group = a->n_head / a->n_kv_head;
    struct slice s = {0, a->batch, 0, a->n_head, 0, a->n_q};
    while (!slice_fits(plan, a, &s, limit)) {
        if (s.n_batch > 1)
            s.n_batch = (s.n_batch + 1) / 2;
        else if (s.n_head > group)
            s.n_head = (s.n_head / group + 1) / 2 * group;
        else if (s.n_head > 1)
            s.n_head = 1;
        else if (s.n_query > 1)
            s.n_query = (s.n_query + 1) / 2;
        else
            break; /* one row: the least there is; plan_add_pass says if even that is too much */
    }
    if (s.n_query >= 128 && s.n_query < a->n_q)
        s.n_query = s.n_query / 64 * 64; /* whole tiles */
    return s;
}

static struct work softmax_work(const struct attention *a, const struct slice *s)
{
    double row = attention_score_work(a->options) * a->n_kv;
    return (struct work){row * s->n_batch * s->n_head * s->n_query, row};
}

static enum vka_status add_softmax_pass(struct vka_plan *plan, const struct attention *a,
                                        const struct slice *s, const struct vka_tensor *scores)
{
    const struct vka_attention_options *o = a->options;
    struct softmax_choice choice;
    tune_softmax(&plan->device->caps, a->n_kv, &choice);
    struct pass pass = {.name = "softmax", .reason = choice.reason};
    pass.key = (struct pipeline_key){.kernel = choice.kernel, .n_spec = SOFTMAX_SPECS};
    pass.key.spec[SOFTMAX_LANES] = choice.lanes;
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
    pass.push_size = sizeof p;
    memcpy(pass.push, &p, sizeof p);
    pass.work = softmax_work(a, s);
    pass.groups[0] = s->n_query;
    pass.groups[1] = s->n_batch * s->n_head;
    pass.groups[2] = 1;
    snprintf(pass.detail, sizeof pass.detail, "%ux%u rows of %u, %u lanes a row", pass.groups[1],
             s->n_query, a->n_kv, choice.lanes);
    return plan_add_pass(plan, &pass);
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
    TRY(add_softmax_pass(plan, &a, &(struct slice){.n_batch = 1, .n_head = 1, .n_query = a.n_q},
                         &scores));
fail:
    return status;
}

/* Cut along batch, then heads, then queries until it fits the budget. */
enum vka_status attention_add_softmax(struct vka_plan *plan, const struct attention *a,
                                      const struct slice *s, const struct vka_tensor *scores)
{
    enum vka_status status = VKA_OK;
    struct softmax_choice choice;
    struct work work = softmax_work(a, s);
    struct slice half[2];
    tune_softmax(&plan->device->caps, a->n_kv, &choice);
    TRY(calibrate(plan, choice.kernel, &work, add_softmax_probe, a));
    if (!attention_halve(s, 1, 1, half) || plan_time(plan, choice.kernel, &work) <= plan->budget)
        return add_softmax_pass(plan, a, s, scores);
    for (int i = 0; i < 2; i++) {
        struct slice in = half[i]; /* counted from the scores' first */
        in.batch -= s->batch;
        in.head -= s->head;
        in.query -= s->query;
        struct vka_tensor part = attention_slice(scores, &in);
        TRY(attention_add_softmax(plan, a, &half[i], &part));
    }
fail:
    return status;
}

static enum vka_status add_slice(struct vka_plan *plan, const struct attention *a,
                                 const struct slice *s, const struct vka_tensor *workspace,
                                 bool with_context)
{
    enum vka_status status = VKA_OK;
    uint32_t group = a->n_head / a->n_kv_head;
    struct vka_tensor scores = *workspace; /* of the first slice's size: this one may be smaller */
    uint64_t pitch = workspace->shape.stride[2];
    const uint32_t size[4] = {s->n_batch, s->n_head, s->n_query, (uint32_t)pitch};
    shape_dense(4, size, &scores.shape);
    scores.shape.size[3] = a->n_kv;
    TRY(plan_matmul(plan, &(struct matmul_op){
                              .name = "scores",
                              .a = attention_slice(&a->q, s),
                              .b = attention_slice_kv(&a->k, a, s),
                              .c = scores,
                              .group = s->n_head < group ? s->n_head : group,
                              .alpha = a->scale,
                          }));
    TRY(attention_add_softmax(plan, a, s, &scores));
    if (!with_context)
        return VKA_OK;
    struct vka_tensor v = attention_slice_kv(&a->v, a, s); /* [batch][head][value_dim][n_kv] */
    struct shape t = v.shape;
    v.shape.size[2] = t.size[3];
    v.shape.size[3] = t.size[2];
    v.shape.stride[2] = t.stride[3];
    v.shape.stride[3] = t.stride[2];
    TRY(plan_matmul(plan, &(struct matmul_op){
                              .name = "context",
                              .a = scores,
                              .b = v,
                              .c = attention_slice(&a->output, s),
                              .group = s->n_head < group ? s->n_head : group,
                              .alpha = 1,
                              .hidden = attention_hides(a),
                          }));
fail:
    return status;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static enum vka_status add_slices(struct vka_plan *plan, const struct attention *a,
                                  bool with_context)
{
    enum vka_status status = VKA_OK;
    const struct slice step = choose_slice(plan, a);
    struct vka_tensor workspace;
    const uint32_t size[4] = {step.n_batch, step.n_head, step.n_query, (a->n_kv + 3) / 4 * 4};
    TRY(plan_scratch(plan, VKA_F32, size, &workspace));
    for (uint32_t b = 0; b < a->batch; b += step.n_batch)
        for (uint32_t h = 0; h < a->n_head; h += step.n_head)
            for (uint32_t q = 0; q < a->n_q; q += step.n_query) {
                const struct slice s = {
                    b, least(step.n_batch, a->batch - b), h, least(step.n_head, a->n_head - h),
                    q, least(step.n_query, a->n_q - q),
                };
                TRY(add_slice(plan, a, &s, &workspace, with_context));
            }
fail:
    return status;
}

enum vka_status plan_attention_unfused(struct vka_plan *plan, const struct attention *a)
{
    return add_slices(plan, a, true);
}

enum vka_status plan_attention_scores(struct vka_plan *plan, const struct attention *a)
{
    return add_slices(plan, a, false);
}
