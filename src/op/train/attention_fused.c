/* Gradients of attention without a buffer of scores: three stages of a kernel. */
#include "op/attention/budget.h"
#include "op/attention/fused.h"
#include "op/matmul/matmul.h"
#include "op/train/attention_fused.h"
#include "op/common/copy.h"
#include "plan/settle.h"

#include <stdio.h>

static const char *const stage_names[BACKWARD_STAGES] = {"softmax sums", "dq", "dk and dv"};

/* ---- Choice ---------------------------------------------------------------------------------- */

/* See backward_problem. What is rotated or normalised enters the scores in float32. */
static enum vka_dtype type_of(const struct attention_backward *b)
{
    const struct vka_tensor *gradients[] = {b->op->q_gradient.tensor, b->op->k_gradient.tensor,
                                            b->op->v_gradient.tensor};
    const struct vka_attention_options *options = b->a.options;
    const enum vka_dtype type =
        options->rope.dim || options->q_norm || options->k_norm ? VKA_F32 : b->a.q.dtype;
    bool same = (type == VKA_F16 || type == VKA_BF16) && b->a.k.dtype == type &&
                b->a.v.dtype == type && b->dy.dtype == type;
    for (size_t i = 0; i < COUNTOF(gradients); i++)
        same = same && (!gradients[i] || gradients[i]->dtype == type);
    return same ? type : VKA_F32;
}

/* Names the kernel only where it would be taken: testing it takes a CPU driver seconds. */
static struct kernel_set choose(const struct caps *caps, void *job)
{
    struct attention_backward *b = job;
    const struct backward_problem problem = {b->a.head_dim, b->a.value_dim, type_of(b)};
    tune_attention_backward(caps, &problem, &b->choice);
    return b->choice.usable && (b->fused || b->choice.preferred) ? KERNEL_SET(b->choice.kernel)
                                                                 : NO_KERNELS;
}

/* Whether VKA_PATH_AUTO takes the kernel. Passes bind a head whole, and a mask. */
static bool is_taken(const struct vka_plan *plan, const struct attention_backward *b)
{
    const uint64_t range = plan->caps.properties.max_buffer_range;
    const struct vka_tensor *mask = b->a.options->mask;
    const uint64_t dim = b->a.head_dim > b->a.value_dim ? b->a.head_dim : b->a.value_dim;
    const uint64_t rows = b->a.n_q > b->a.n_kv ? b->a.n_q : b->a.n_kv;
    return b->choice.usable && b->choice.preferred && 4 * dim * rows <= range &&
           !(mask && plan_range(plan, mask) > range);
}

enum vka_status attention_backward_choose(struct vka_plan *plan, struct attention_backward *b)
{
    struct log *log = &plan->device->log;
    b->fused = plan->path == VKA_PATH_FUSED;
    if (plan->path == VKA_PATH_UNFUSED)
        return VKA_OK;
    if (b->op->mask_gradient.tensor) {
        if (b->fused)
            return log_error(
                log, VKA_UNSUPPORTED,
                "vka_plan_add_attention_backward: the gradient of a mask needs a buffer "
                "of scores, which the fused path has not");
        return VKA_OK;
    }
    ENSURE(plan_settle(plan, 0, choose, b));
    if (b->fused && !b->choice.usable)
        return log_error(log, VKA_UNSUPPORTED,
                         "fused gradients of attention are not supported here: the kernel %s %s",
                         kernel_table[b->choice.kernel].name, b->choice.reason);
    b->fused = b->fused || is_taken(plan, b);
    return VKA_OK;
}

/* ---- A pass ---------------------------------------------------------------------------------- */

struct stage {
    const struct attention_backward *b;
    const struct vka_tensor *rows; /* float32 [batch][n_head][n_q][BACKWARD_ROW] */
    uint32_t stage;                /* BACKWARD_ */
    uint32_t n_other_span;         /* spans of the other side's rows */
    uint32_t n_span;               /* BACKWARD_KEYS: for each head of a group */
};

/* Work of a score: its ways through shared memory, for which CPU drivers pay most. */
#define WORK_SHARED 512.0

/* Operations of a score in a stage. */
static double score_work(const struct attention *a, uint32_t stage)
{
    const double products = 2.0 * a->head_dim + 2.0 * a->value_dim;
    const double sums = stage == BACKWARD_QUERIES ? 2.0 * a->head_dim
                        : stage == BACKWARD_KEYS  ? products
                                                  : 0;
    return products + sums + attention_score_work(a->options) + WORK_SHARED;
}

static struct work work_of(const struct stage *s, const struct slice *slice)
{
    const struct attention *a = &s->b->a;
    const struct backward_tile *t = &s->b->choice.tiles[s->stage];
    const double own = backward_own(t), tiles = divide_up(slice->size[2], backward_own(t));
    const uint32_t n_other = s->stage == BACKWARD_KEYS ? a->n_q : a->n_kv;
    const double most =
        s->n_other_span == 1 ? n_other : BACKWARD_SPAN; /* at most: the last is shorter */
    const double scores = own * most * slice->size[3];
    const double score = score_work(a, s->stage);
    return (struct work){
        .ops = scores * score * tiles * t->n_feature_tile * slice->size[0] * slice->size[1],
        .longest = scores * score,
        .loops = tune_backward_loops(&s->b->choice, s->stage) * slice->size[3],
    };
}

struct strides {
    uint32_t *offset, *batch, *head, *row;
};

/* Binds batch elements and heads of a tensor [batch][head][row][...], all rows of them. */
static void bind_heads(const struct vka_plan *plan, struct pass *pass, uint32_t slot,
                       const struct vka_tensor *t, const struct head_slice *s, bool write,
                       struct strides to)
{
    struct vka_tensor view = tensor_slice_along(t, 0, s->batch, s->n_batch);
    view = tensor_slice_along(&view, 1, s->head, s->n_head);
    plan_bind(plan, pass, slot, &view, write, to.offset);
    *to.batch = (uint32_t)t->shape.stride[0];
    *to.head = (uint32_t)t->shape.stride[1];
    *to.row = (uint32_t)t->shape.stride[2];
}

#define STRIDES(name)                                                        \
    (struct strides)                                                         \
    {                                                                        \
        &p->name##_offset, &p->name##_batch, &p->name##_head, &p->name##_row \
    }

static void bind(const struct vka_plan *plan, const struct stage *stage, const struct head_slice *s,
                 struct pass *pass, struct attention_backward_params *p)
{
    const struct attention_backward *b = stage->b;
    const uint32_t first = s->head / b->group;
    const struct head_slice keys = {.batch = s->batch,
                                    .n_batch = s->n_batch,
                                    .head = first,
                                    .n_head = (s->head + s->n_head - 1) / b->group - first + 1};
    uint32_t row; /* of rows it is a constant */
    for (uint32_t slot = 4; slot < 12; slot++)
        plan_bind(plan, pass, slot, stage->rows, false, NULL); /* where nothing else is */
    bind_heads(plan, pass, 0, &b->a.q, s, false, STRIDES(q));
    bind_heads(plan, pass, 1, &b->a.k, &keys, false, STRIDES(k));
    bind_heads(plan, pass, 2, &b->a.v, &keys, false, STRIDES(v));
    bind_heads(plan, pass, 3, &b->dy, s, false, STRIDES(dy));
    attention_bind_mask(plan, &b->a, s, pass, 4, &p->mask, &p->sink_offset, &p->alibi_offset);
    /* Written in one stage alone; but the module can write them, and layers count that in each. */
    bind_heads(plan, pass, 9, stage->rows, s, true,
               (struct strides){&p->rows_offset, &p->rows_batch, &p->rows_head, &row});
    if (stage->stage == BACKWARD_QUERIES)
        bind_heads(plan, pass, 10, &b->dq, s, true, STRIDES(a));
    if (stage->stage == BACKWARD_KEYS && b->dk.storage)
        bind_heads(plan, pass, 10, &b->dk, &keys, true, STRIDES(a));
    if (stage->stage == BACKWARD_KEYS && b->dv.storage)
        bind_heads(plan, pass, 11, &b->dv, &keys, true, STRIDES(b));
}

static struct backward_operands operands_of(const struct attention_backward *b)
{
    const struct vka_attention_options *options = b->a.options;
    const uint32_t n = backward_vector(&b->choice);
    return (struct backward_operands){
        .q_type = b->a.q.dtype,
        .k_type = b->a.k.dtype,
        .v_type = b->a.v.dtype,
        .dy_type = b->dy.dtype,
        .vecs = (attention_rows_of(&b->a.q, n) ? BACKWARD_Q_VEC : 0) |
                (attention_rows_of(&b->a.k, n) ? BACKWARD_K_VEC : 0) |
                (attention_rows_of(&b->a.v, n) ? BACKWARD_V_VEC : 0) |
                (attention_rows_of(&b->dy, n) ? BACKWARD_DY_VEC : 0),
        .general =
            options->mask || options->softcap != 0 || options->alibi || options->dropout != 0,
        .n_q = b->a.n_q,
        .n_kv = b->a.n_kv,
    };
}

/* The slice: batch elements, heads (BACKWARD_KEYS: key heads), rows that are owned, spans. */
static struct attention_backward_params fill(const struct stage *stage, const struct head_slice *s,
                                             const struct slice *slice)
{
    const struct attention_backward *b = stage->b;
    const struct vka_attention_options *options = b->a.options;
    return (struct attention_backward_params){
        .n_q = b->a.n_q,
        .group = b->group,
        .head_dim = b->a.head_dim,
        .value_dim = b->a.value_dim,
        .own_first = slice->first[2],
        .own_end = slice->first[2] + slice->size[2],
        .span_first = slice->first[3],
        .span_end = slice->first[3] + slice->size[3],
        .n_span = stage->n_span,
        .n_feature_tile = b->choice.tiles[stage->stage].n_feature_tile,
        .batch_first = s->batch,
        .head_first = s->head,
        .scale = b->a.scale,
        ATTENTION_DRAW(options),
    };
}

static void make_pass(const struct vka_plan *plan, const struct stage *stage,
                      const struct slice *slice, struct pass *pass,
                      struct attention_backward_params *p)
{
    const struct attention_backward *b = stage->b;
    const struct backward_tile *tile = &b->choice.tiles[stage->stage];
    const struct backward_operands operands = operands_of(b);
    const uint32_t heads = stage->stage == BACKWARD_KEYS ? b->group : 1;
    const struct head_slice s = {
        .batch = slice->first[0],
        .n_batch = slice->size[0],
        .head = slice->first[1] * heads,
        .n_head = slice->size[1] * heads,
        .n_query = b->a.n_q,
    };
    *p = fill(stage, &s, slice);
    *pass = (struct pass){.name = stage_names[stage->stage], .reason = b->choice.reason};
    tune_backward_key(&b->choice, stage->stage, &operands, &pass->key);
    bind(plan, stage, &s, pass, p);
    pass->groups[0] = divide_up(slice->size[2], backward_own(tile));
    pass->groups[1] = saturate((uint64_t)slice->size[1] * tile->n_feature_tile);
    pass->groups[2] = slice->size[0];
    pass->work = work_of(stage, slice);
    snprintf(pass->detail, sizeof pass->detail, "%ux%u heads, %u rows, spans %u to %u of %u",
             slice->size[0], slice->size[1], slice->size[2], slice->first[3],
             slice->first[3] + slice->size[3] - 1, stage->n_span);
}

static int judge(const struct vka_plan *plan, const struct cut *cut, const struct slice *slice)
{
    struct pass pass;
    struct attention_backward_params p;
    make_pass(plan, cut->job, slice, &pass, &p);
    if (!plan_pass_has_room(plan, &pass))
        return cut_first_axis(slice, cut->least);
    const struct work longest = {pass.work.longest, pass.work.longest, pass.work.loops};
    if (slice->size[3] > 1 && !plan_fits(plan, pass.key.kernel, &longest))
        return 3; /* fewer workgroups would be no faster */
    return plan_fits(plan, pass.key.kernel, &pass.work) ? CUT_FITS
                                                        : cut_first_axis(slice, cut->multiple);
}

static enum vka_status add_slice(struct vka_plan *plan, const void *job, const struct slice *slice)
{
    const struct stage *stage = job;
    struct pass pass;
    struct attention_backward_params p;
    struct vka_tensor parameters;
    make_pass(plan, stage, slice, &pass, &p);
    ENSURE(plan_constant(plan, sizeof p / 4, &p, &parameters));
    plan_bind(plan, &pass, 12, &parameters, false, NULL);
    return plan_add_pass(plan, &pass);
}

/* ---- All stages ------------------------------------------------------------------------------ */

#define PROBE_ROWS 128u /* queries, and keys, of the problem that measures the rate */

static enum vka_status add_stage(struct vka_plan *plan, const struct attention_backward *b,
                                 const struct vka_tensor *rows, uint32_t stage,
                                 calibrate_add *probe);

/* Adds dq of a few queries of each of n batch elements, which share all inputs. */
static enum vka_status add_probe(struct vka_plan *plan, const void *job, uint32_t n)
{
    const struct stage *stage = job;
    const struct attention *a = &stage->b->a;
    const struct vka_attention_options options = {.masked_row = VKA_MASKED_ZERO};
    const uint32_t own = backward_own(&stage->b->choice.tiles[BACKWARD_QUERIES]);
    struct attention_backward b = {.op = stage->b->op, .choice = stage->b->choice, .group = 1};
    struct vka_tensor rows;
    b.a = (struct attention){
        .batch = calibrate_groups(plan, 4ull * own * (a->head_dim + BACKWARD_ROW), n),
        .n_head = 1,
        .n_kv_head = 1,
        .n_q = own,
        .n_kv = PROBE_ROWS,
        .head_dim = a->head_dim,
        .value_dim = a->value_dim,
        .scale = a->scale,
        .options = &options,
    };
    const struct {
        struct vka_tensor *tensor;
        enum vka_dtype dtype;
        uint32_t batch, size, dim;
    } operands[] = {
        {&b.a.q, a->q.dtype, 1, own, a->head_dim},
        {&b.a.k, a->k.dtype, 1, PROBE_ROWS, a->head_dim},
        {&b.a.v, a->v.dtype, 1, PROBE_ROWS, a->value_dim},
        {&b.dy, stage->b->dy.dtype, 1, own, a->value_dim},
        {&b.dq, VKA_F32, b.a.batch, own, a->head_dim},
        {&rows, VKA_F32, 1, own, BACKWARD_ROW},
    };
    for (size_t i = 0; i < COUNTOF(operands); i++) {
        struct shape *shape = &operands[i].tensor->shape;
        ENSURE(plan_scratch(
            plan, operands[i].dtype,
            (const uint32_t[]){operands[i].batch, 1, operands[i].size, operands[i].dim},
            operands[i].tensor));
        shape->stride[0] = operands[i].batch == 1 ? 0 : shape->stride[0];
        shape->size[0] = b.a.batch;
    }
    return add_stage(plan, &b, &rows, BACKWARD_QUERIES, NULL);
}

static enum vka_status add_stage(struct vka_plan *plan, const struct attention_backward *b,
                                 const struct vka_tensor *rows, uint32_t stage,
                                 calibrate_add *probe)
{
    const struct attention *a = &b->a;
    const bool keys = stage == BACKWARD_KEYS;
    struct stage job = {.b = b, .rows = rows, .stage = stage};
    job.n_other_span = divide_up(keys ? a->n_q : a->n_kv, BACKWARD_SPAN);
    job.n_span = job.n_other_span * (keys ? b->group : 1);
    const uint32_t own = backward_own(&b->choice.tiles[stage]);
    const struct slice all = {
        {0}, {a->batch, keys ? a->n_kv_head : a->n_head, keys ? a->n_kv : a->n_q, job.n_span}};
    const struct cut cut = {
        .job = &job,
        .multiple = {1, 1, own, 1},
        .least = {1, 1, own, 1},
        .kernel = b->choice.kernel,
        .whole = work_of(&job, &all),
        .probe = probe,
        .judge = judge,
        .add = add_slice,
    };
    return plan_cut(plan, &cut, all.size);
}

enum vka_status attention_add_fused(struct vka_plan *plan, const struct attention_backward *given)
{
    struct attention_backward b = *given;
    struct vka_tensor rows, log_sum;
    const uint32_t size[4] = {b.a.batch, b.a.n_head, b.a.n_q, BACKWARD_ROW};
    if (!b.dk.storage)
        b.choice.tiles[BACKWARD_KEYS].a4 = 0;
    if (!b.dv.storage)
        b.choice.tiles[BACKWARD_KEYS].b4 = 0;
    ENSURE(attention_join_rows(plan, &b.a.q, true));
    ENSURE(attention_join_rows(plan, &b.a.k, true));
    ENSURE(attention_join_rows(plan, &b.a.v, true));
    ENSURE(attention_join_rows(plan, &b.dy, true));
    ENSURE(plan_scratch(plan, VKA_F32, size, &rows));
    const struct vka_tensor to = tensor_slice_along(&rows, 3, BACKWARD_ROW_LOG_SUM, 1);
    attention_log_sum(&b.a, &log_sum);
    ENSURE(plan_copy(plan, "log-sum-exp", &log_sum, &to));
    ENSURE(add_stage(plan, &b, &rows, BACKWARD_SUMS, add_probe));
    if (b.dq.storage)
        ENSURE(add_stage(plan, &b, &rows, BACKWARD_QUERIES, add_probe));
    if (b.dk.storage || b.dv.storage)
        ENSURE(add_stage(plan, &b, &rows, BACKWARD_KEYS, add_probe));
    if (!b.sinks.storage)
        return VKA_OK;
    const struct vka_tensor sinks = tensor_slice_along(&rows, 3, BACKWARD_ROW_SINK, 1);
    return plan_copy(plan, "sink sums", &sinks, &b.sinks);
}
