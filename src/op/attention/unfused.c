/* Attention in three passes a slice: scores, softmax, weighted sum. A slice is some batch elements
 * with all heads, or some heads of one, or some queries of one head, whatever the workspace holds;
 * its scores are float32 [batch][head][query][pitch]. */
#include "op/attention/attention.h"
#include "op/matmul/matmul.h"

/* Whether one binding can show all that a slice's softmax touches, and one grid cover it. */
static bool slice_fits(const struct vka_plan *plan, const struct attention *a,
                       const struct slice *s, uint64_t limit)
{
    const struct caps *caps = &plan->caps;
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
    const struct vka_device_properties *p = &plan->caps.properties;
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
