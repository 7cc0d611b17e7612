/* Products of the backward of attention: scores are made again, slice by slice of queries, and each
 * slice adds to the gradients of keys and values. */
#include "op/attention/mask.h"
#include "op/train/attention_slices.h"
#include "op/train/check.h"
#include "op/train/slope.h"
#include "op/train/softmax.h"
#include "op/train/sum.h"
#include "op/common/copy.h"
#include "op/matmul/matmul.h"

/* Scores of a head that a slice holds, and its most queries. */
#define SLICE_SCORES (1u << 22)
#define SLICE_QUERIES 1024u
#define SLICE_MULTIPLE 64u /* queries: a multiple of the tiles of matrix products */

uint32_t attention_slice_queries(uint32_t n_q, uint32_t n_kv)
{
    uint32_t n = SLICE_SCORES / n_kv;
    n = n > SLICE_QUERIES    ? SLICE_QUERIES
        : n > SLICE_MULTIPLE ? n / SLICE_MULTIPLE * SLICE_MULTIPLE
                             : n;
    return n == 0 ? 1 : n < n_q ? n : n_q;
}

/* The rows in a tensor [batch][n_head][n_q][...]. */
static struct vka_tensor rows_of(const struct vka_tensor *t, const struct attention_backward *b,
                                 const struct attention_rows *r)
{
    struct vka_tensor view = tensor_slice_along(t, 0, r->batch, r->n_batch);
    view = tensor_slice_along(&view, 2, r->query, r->n_query);
    view = tensor_slice_along(&view, 1, r->head * b->group + r->member,
                              (r->n_head - 1) * b->group + 1);
    view.shape.size[1] = r->n_head;
    view.shape.stride[1] *= b->group;
    return view;
}

/* Their keys in a tensor [batch][n_kv_head][n_kv][...]. */
static struct vka_tensor keys_of(const struct vka_tensor *t, const struct attention_rows *r)
{
    const struct vka_tensor view = tensor_slice_along(t, 0, r->batch, r->n_batch);
    return tensor_slice_along(&view, 1, r->head, r->n_head);
}

static enum vka_status multiply(struct vka_plan *plan, const char *name, const struct vka_tensor *x,
                                const struct vka_tensor *y, const struct vka_tensor *to,
                                float alpha, bool hidden)
{
    return plan_matmul(plan, &(struct matmul_op){.name = name,
                                                 .a = *x,
                                                 .b = *y,
                                                 .c = *to,
                                                 .group = 1,
                                                 .alpha = alpha,
                                                 .hidden = hidden});
}

static bool is_first(const struct attention_rows *r)
{
    return r->query == 0 && r->member == 0;
}

/* sum += weights^T y, rows of keys; the first slice sets it. */
static enum vka_status add_keys(struct vka_plan *plan, const char *name,
                                const struct attention_backward *b, const struct attention_rows *r,
                                const struct vka_tensor *weights, const struct vka_tensor *y,
                                float alpha, const struct vka_tensor *sum)
{
    const struct vka_tensor to = keys_of(sum, r), rows = tensor_transposed(weights);
    const struct vka_tensor columns = tensor_transposed(y);
    struct vka_tensor view = to;
    const bool hides = attention_hides(&b->a);
    if (!is_first(r))
        ENSURE(plan_scratch(plan, VKA_F32, to.shape.size, &view));
    ENSURE(multiply(plan, name, &rows, &columns, &view, alpha, hides));
    if (is_first(r))
        return VKA_OK;
    ENSURE(plan_slope(plan, &(struct slope){.name = "sum slices",
                                            .dy = view,
                                            .x = view,
                                            .y = to,
                                            .kind = SLOPE_DERIVATIVE,
                                            .add = true}));
    plan_scratch_free(plan, &view);
    return VKA_OK;
}

/* Adds the slopes of one batch element and head to the gradient of the mask. */
static enum vka_status add_mask(struct vka_plan *plan, const struct attention_backward *b,
                                const struct attention_rows *r, const struct vka_tensor *slopes)
{
    const uint32_t first[3] = {r->batch, r->head * b->group + r->member, r->query};
    const uint32_t *whole = b->mask.shape.size;
    struct sum_axes sum = {
        .name = "mask gradient", .a = *slopes, .y = b->mask, .scale = 1, .add = b->add_mask};
    for (uint32_t axis = 0; axis < 3; axis++) {
        if (whole[axis] > 1)
            sum.y = tensor_slice_along(&sum.y, axis, first[axis], slopes->shape.size[axis]);
        else
            sum.add |= first[axis] > 0;
    }
    if (whole[3] > 1)
        sum.a = tensor_slice_along(slopes, 3, 0, whole[3]);
    sum.reduced = train_repeats(&sum.y, sum.a.shape.size);
    return plan_sum_axes(plan, &sum);
}

/* Scratch for scores and slopes; the numbers of a row begin with its log-sum-exp. */
static enum vka_status make_slopes(struct vka_plan *plan, const struct attention_backward *b,
                                   const struct attention_rows *r, struct attention_slopes *s)
{
    const uint32_t n_kv = b->a.n_kv;
    const uint32_t size[4] = {r->n_batch, r->n_head, r->n_query, SLOPES_PITCH(n_kv)};
    const uint32_t row[4] = {r->n_batch, r->n_head, r->n_query, SLOPES_ROW_PITCH(n_kv)};
    struct vka_tensor log_sum;
    ENSURE(plan_scratch(plan, VKA_F32, size, &s->scores));
    ENSURE(plan_scratch(plan, VKA_F32, size, &s->slopes));
    s->scores.shape.size[3] = s->slopes.shape.size[3] = n_kv;
    ENSURE(plan_scratch(plan, VKA_F32, row, &s->rows));
    const struct vka_tensor to = tensor_slice_along(&s->rows, 3, SLOPES_ROW_LOG_SUM, 1);
    attention_log_sum(&b->a, &log_sum);
    log_sum = rows_of(&log_sum, b, r);
    return plan_copy(plan, "log-sum-exp", &log_sum, &to);
}

/* Adds up the sums of splits of the keys. */
static enum vka_status add_splits(struct vka_plan *plan, const struct vka_tensor *rows)
{
    const uint32_t n = (rows->shape.size[3] - SLOPES_ROW_SPLITS) / 2;
    for (uint32_t i = 0; i < 2 && n > 0; i++) {
        struct sum_axes sum = {
            .name = "softmax sums",
            .a = tensor_slice_along(rows, 3, SLOPES_ROW_SPLITS + i, 2 * n - 1),
            .y = tensor_slice_along(rows, 3, SLOPES_ROW_SUM + i, 1),
            .reduced = 8,
            .term = TERM_VALUE,
            .scale = 1,
        };
        sum.a.shape.size[3] = n;
        sum.a.shape.stride[3] *= 2;
        ENSURE(plan_sum_axes(plan, &sum));
    }
    return VKA_OK;
}

/* Weights and slopes, from queries, keys and values. */
static enum vka_status add_slopes(struct vka_plan *plan, const struct attention_backward *b,
                                  const struct attention_rows *r, const struct attention_slopes *s,
                                  uint32_t stage)
{
    const struct vka_tensor q = rows_of(&b->a.q, b, r), k = keys_of(&b->a.k, r);
    const struct vka_tensor dy = rows_of(&b->dy, b, r), v = keys_of(&b->a.v, r);
    ENSURE(multiply(plan, "scores", &q, &k, &s->scores, b->a.scale, false));
    ENSURE(multiply(plan, "weight gradients", &dy, &v, &s->slopes, 1, false));
    ENSURE(attention_add_slopes(plan, b, r, s, SLOPES_SUM));
    ENSURE(add_splits(plan, &s->rows));
    return attention_add_slopes(plan, b, r, s, stage);
}

/* Adds what some rows give to all gradients. */
static enum vka_status add_gradients(struct vka_plan *plan, const struct attention_backward *b,
                                     const struct attention_rows *r)
{
    const bool mask = b->mask.storage != NULL, capped = b->a.options->softcap != 0;
    const bool hides = attention_hides(&b->a);
    struct attention_slopes s;
    ENSURE(make_slopes(plan, b, r, &s));
    if (mask && capped) {
        ENSURE(add_slopes(plan, b, r, &s, SLOPES_OF_BIAS));
        ENSURE(add_mask(plan, b, r, &s.slopes));
    }
    ENSURE(add_slopes(plan, b, r, &s, SLOPES_OF_SCORE));
    if (mask && !capped)
        ENSURE(add_mask(plan, b, r, &s.slopes));
    if (b->sinks.storage) {
        const struct vka_tensor from = tensor_slice_along(&s.rows, 3, SLOPES_ROW_SINK, 1);
        const struct vka_tensor to = rows_of(&b->sinks, b, r);
        ENSURE(plan_copy(plan, "sink sums", &from, &to));
    }
    if (b->dv.storage) {
        const struct vka_tensor dy = rows_of(&b->dy, b, r);
        ENSURE(add_keys(plan, "dv", b, r, &s.scores, &dy, 1, &b->dv));
    }
    if (b->dk.storage) {
        const struct vka_tensor q = rows_of(&b->a.q, b, r);
        ENSURE(add_keys(plan, "dk", b, r, &s.slopes, &q, b->a.scale, &b->dk));
    }
    if (!b->dq.storage)
        return VKA_OK;
    const struct vka_tensor dq = rows_of(&b->dq, b, r), k = keys_of(&b->a.k, r);
    const struct vka_tensor columns = tensor_transposed(&k);
    return multiply(plan, "dq", &s.slopes, &columns, &dq, b->a.scale, hides);
}

/* Takes as many batch elements and key heads at a time as scores and slopes fit the workspace, and one
 * where there is a gradient of a mask, which sums over them in order. */
static int judge(const struct vka_plan *plan, const struct cut *cut, const struct slice *slice)
{
    const struct attention_backward *b = cut->job;
    const uint64_t heads = (uint64_t)slice->size[0] * slice->size[1];
    const uint64_t range = plan->caps.properties.max_buffer_range;
    const uint64_t limit = least(plan->workspace_limit / 2, range);
    const bool fits = heads * b->n_slice_q <= limit / 4 / SLOPES_PITCH(b->a.n_kv) &&
                      (heads == 1 || !b->mask.storage);
    return fits ? CUT_FITS : cut_first_axis(slice, cut->least);
}

static enum vka_status add_heads(struct vka_plan *plan, const void *job, const struct slice *slice)
{
    const struct attention_backward *b = job;
    for (uint32_t query = 0; query < b->a.n_q; query += b->n_slice_q)
        for (uint32_t member = 0; member < b->group; member++) {
            const uint32_t left = b->a.n_q - query;
            const struct attention_rows r = {
                .batch = slice->first[0],
                .n_batch = slice->size[0],
                .head = slice->first[1],
                .n_head = slice->size[1],
                .query = query,
                .n_query = left < b->n_slice_q ? left : b->n_slice_q,
                .member = member,
            };
            plan_scratch_enter(plan);
            const enum vka_status status = add_gradients(plan, b, &r);
            plan_scratch_leave(plan);
            ENSURE(status);
        }
    return VKA_OK;
}

enum vka_status attention_add_backward(struct vka_plan *plan, const struct attention_backward *b)
{
    const struct cut cut = {
        .job = b,
        .multiple = {1, 1, CUT_NEVER, CUT_NEVER},
        .least = {1, 1, CUT_NEVER, CUT_NEVER},
        .judge = judge,
        .add = add_heads,
    };
    return plan_cut(plan, &cut, (const uint32_t[]){b->a.batch, b->a.n_kv_head, 1, 1});
}
