/* Unfused attention: scores, softmax and weighted sum of each slice, which is as large as the
 * workspace holds. Scores are float32 [batch][head][query][pitch]; the last of a row's floats is its
 * log-sum-exp, if it is returned. */
#include "op/attention/attention.h"

struct job {
    const struct attention *a;
    bool with_context;
    uint64_t *largest;                  /* floats of the largest slice's scores */
    const struct vka_tensor *workspace; /* holds the scores of any slice */
};

static struct slice slice_of(const struct box *part)
{
    return attention_slice_part(&(struct slice){0}, part);
}

/* Floats from row to row: keys and, if it is returned, the log-sum-exp. */
static uint32_t pitch_of(const struct attention *a)
{
    return divide_up(a->n_kv + (a->options->log_sum_exp ? 1 : 0), 4) * 4;
}

/* Halves a slice until its scores fit the workspace, the tensors of its softmax fit bindings, and
 * one grid covers it. */
static int judge(const struct vka_plan *plan, const struct cut *cut, const struct box *part)
{
    const struct attention *a = ((const struct job *)cut->job)->a;
    const struct caps *caps = &plan->caps;
    uint64_t range = caps->properties.max_buffer_range;
    uint64_t limit =
        least(plan->workspace_limit, least(range, caps->properties.max_allocation / 2));
    const struct slice s = slice_of(part);
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
    return fits ? CUT_FITS : cut_first_axis(part, cut->least);
}

static enum vka_status add_context(struct vka_plan *plan, const struct attention *a,
                                   const struct slice *s, const struct vka_tensor *scores,
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
                                    const struct slice *s, const struct vka_tensor *scores)
{
    struct vka_tensor to, from = *scores;
    if (!attention_log_sum(a, &to))
        return VKA_OK;
    to = attention_slice(&to, s);
    from.shape.size[3] = pitch_of(a);
    from = tensor_part(&from, 3, pitch_of(a) - 1, 1);
    return plan_copy(plan, "log-sum-exp", &from, &to);
}

static enum vka_status add_slice(struct vka_plan *plan, const void *given, const struct box *part)
{
    const struct job *job = given;
    const struct attention *a = job->a;
    const struct slice s = slice_of(part);
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
                                     const struct box *part)
{
    const struct job *job = given;
    uint64_t floats = (uint64_t)part->size[0] * part->size[1] * part->size[2] * pitch_of(job->a);
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
        .unit = {1, a->n_head / a->n_kv_head, TILE, CUT_NEVER},
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
