/* The passes of linear_backward, in slices of sequences, states and tokens. */
#include "op/train/linear_backward_passes.h"

#include "core/arith.h"
#include "core/dtype.h"
#include "op/common/copy.h"
#include "plan/settle.h"

#include <stdio.h>

#define SPAN 512u     /* tokens of a pass, or fewer where the budget wants it */
#define PARAMETERS 12 /* slot */
#define WORK 13       /* slot */
#define AXIS_TOKEN 2

struct job {
    const struct linear_backward *b;
    struct linear_backward_choice tile;
    struct vka_tensor work;
};

static const uint32_t wanted[SUMMED_COUNT] = {
    [SUMMED_Q] = LINEAR_BACK_Q,         [SUMMED_K] = LINEAR_BACK_K,
    [SUMMED_DECAY] = LINEAR_BACK_DECAY, [SUMMED_LOG] = LINEAR_BACK_LOG,
    [SUMMED_BETA] = LINEAR_BACK_BETA,   [SUMMED_SKIP] = LINEAR_BACK_SKIP,
};

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Blocks of the values of a state. */
static uint32_t blocks_of(const struct job *job)
{
    return divide_up(job->b->l.value_dim, 4 * job->tile.fours);
}

/* Fours of all states that a slice keeps of the beginnings of chunks, and of a chunk. */
static uint64_t kept_fours(const struct job *job, const uint32_t size[4], uint32_t states)
{
    const struct linear_backward_choice *t = &job->tile;
    const uint64_t each = (uint64_t)t->lanes * t->features * t->fours;
    return each * blocks_of(job) * size[0] * size[1] * states;
}

static uint32_t heads_each(const struct job *job, int sum)
{
    return sum == SUMMED_Q ? linear_group(&job->b->l) : 1;
}

static uint64_t plane_floats(const struct job *job, int sum, const uint32_t size[4], uint32_t span)
{
    const struct linear_sum *s = &job->b->sums[sum];
    return !s->y.storage ? 0
                         : (uint64_t)blocks_of(job) * size[0] * size[1] * heads_each(job, sum) *
                               span * s->y.shape.size[3];
}

static uint64_t bytes_of(const struct job *job, const uint32_t size[4], uint32_t span)
{
    const uint32_t chunks = divide_up(job->b->l.n, LINEAR_CHUNK);
    uint64_t bytes = 16 * kept_fours(job, size, chunks + LINEAR_CHUNK);
    for (int i = 0; i < SUMMED_COUNT; i++)
        bytes += 4 * plane_floats(job, i, size, span);
    return bytes;
}

static uint64_t room_of(const struct vka_plan *plan)
{
    const struct vka_device_properties *has = &plan->caps.properties;
    return least(has->max_buffer_range, has->max_allocation / 2);
}

/* Bytes that a slice may take: those of one state and one chunk at least. */
static uint64_t most_bytes(const struct vka_plan *plan, const struct job *job)
{
    const uint32_t one[4] = {1, 1, 1, 1};
    const uint64_t least_bytes = bytes_of(job, one, LINEAR_CHUNK);
    const uint64_t most = least(plan->workspace_limit, room_of(plan));
    return most > least_bytes ? most : least_bytes;
}

/* ---- Passes ---------------------------------------------------------------------------------- */

static struct work work_of(const struct job *job, const uint32_t size[4], bool keep)
{
    const struct linear_backward_choice *t = &job->tile;
    const double group = linear_group(&job->b->l), tokens = size[AXIS_TOKEN];
    const double state = (double)t->lanes * t->features * t->fours * 4;
    const double moves = keep ? 1 : 4 + group, each = (tokens + 2) * state * moves * WORK_MOVE;
    const double merge = t->lanes / 8.0 * (t->fours + 1) + 8;
    return (struct work){
        each * blocks_of(job) * size[0] * size[1],
        each,
        (tokens + 1) * (keep ? merge + 4 : 2 * merge + 8 + group * 5),
    };
}

/* What a pass over the tokens of a slice does, but without parameters. */
static void fill_pass(const struct vka_plan *plan, const struct job *job, const struct slice *slice,
                      bool keep, struct pass *pass, struct linear_params *p)
{
    const struct linear_backward *b = job->b;
    const struct linear *l = &b->l;
    const uint32_t *size = slice->size;
    uint32_t *spec = pass->key.spec;
    pass->name = keep ? "linear attention, states kept" : "linear attention, backward";
    pass->reason = "token by token, the state in registers";
    pass->key.kernel = KERNEL_linear_backward;
    pass->key.n_spec = LINEAR_BACK_SPECS;
    linear_fill_pass(plan, l, slice, &job->work, pass, p);
    spec[LINEAR_LANES] = job->tile.lanes;
    spec[LINEAR_BACK_KEEP] = keep;
    spec[LINEAR_BACK_FEATURES] = job->tile.features;
    spec[LINEAR_BACK_FOURS] = job->tile.fours;
    struct vka_tensor from = keep ? l->past : b->dv, to = keep ? job->work : b->carry;
    if (from.storage)
        from = tensor_slice_along(&from, 0, slice->first[0], size[0]);
    if (from.storage && !keep)
        from = tensor_slice_along(&from, AXIS_TOKEN, slice->first[AXIS_TOKEN], size[AXIS_TOKEN]);
    if (!keep)
        to = tensor_slice_along(&to, 0, slice->first[0], size[0]);
    p->from = axes_strides(&from.shape);
    p->to = axes_strides(&to.shape);
    plan_bind(plan, pass, 5, from.storage ? &from : &job->work, from.storage && !keep,
              &p->from.offset);
    plan_bind(plan, pass, 6, &to, !keep, &p->to.offset);
    plan_bind(plan, pass, PARAMETERS, &job->work, false, NULL);
    plan_bind(plan, pass, WORK, &job->work, true, NULL);
    spec[LINEAR_FLAGS] |= keep && from.storage ? LINEAR_LOADS : 0u;
    if (!keep)
        spec[LINEAR_BACK_FLAGS] |= b->dv.storage ? LINEAR_BACK_V : 0u;
    for (int i = 0; i < SUMMED_COUNT && !keep; i++)
        spec[LINEAR_BACK_FLAGS] |= b->sums[i].y.storage ? wanted[i] : 0u;
    if (!keep && !b->carried && slice->first[AXIS_TOKEN] + size[AXIS_TOKEN] == l->n)
        spec[LINEAR_BACK_FLAGS] |= LINEAR_BACK_FIRST;
    pass->groups[0] = blocks_of(job);
    pass->groups[1] = size[1];
    pass->groups[2] = size[0];
    pass->work = work_of(job, size, keep);
    snprintf(pass->detail, sizeof pass->detail, "%u tokens, %u x %u states of %ux%u",
             size[AXIS_TOKEN], size[0], size[1], l->head_dim, l->value_dim);
}

/* Where the planes of a slice's spans begin, in floats. */
static void place_planes(const struct job *job, const uint32_t size[4], uint32_t span,
                         uint32_t planes[SUMMED_COUNT])
{
    const uint32_t chunks = divide_up(job->b->l.n, LINEAR_CHUNK);
    uint64_t at = 4 * kept_fours(job, size, chunks + LINEAR_CHUNK);
    for (int i = 0; i < SUMMED_COUNT; i++) {
        planes[i] = (uint32_t)at;
        at += plane_floats(job, i, size, span);
    }
}

static enum vka_status add_pass(struct vka_plan *plan, const struct job *job,
                                const struct slice *slice, bool keep,
                                const uint32_t planes[SUMMED_COUNT])
{
    const uint32_t chunks = divide_up(job->b->l.n, LINEAR_CHUNK);
    const struct linear_backward_params push = {
        .states = (uint32_t)kept_fours(job, slice->size, chunks),
        .q_plane = planes[SUMMED_Q],
        .k_plane = planes[SUMMED_K],
        .decay_plane = planes[SUMMED_DECAY],
        .log_plane = planes[SUMMED_LOG],
        .beta_plane = planes[SUMMED_BETA],
        .skip_plane = planes[SUMMED_SKIP],
    };
    struct pass pass = {0};
    struct linear_params p;
    struct vka_tensor parameters;
    fill_pass(plan, job, slice, keep, &pass, &p);
    ENSURE(plan_constant(plan, sizeof p / 4, &p, &parameters));
    plan_bind(plan, &pass, PARAMETERS, &parameters, false, NULL);
    pass_set_push(&pass, &push, sizeof push);
    return plan_add_pass(plan, &pass);
}

/* Adds a sum over the blocks of a slice, whose tokens are those of a span. */
static enum vka_status add_sum(struct vka_plan *plan, const struct job *job, int sum,
                               const struct slice *slice, uint32_t plane)
{
    const struct linear_sum *s = &job->b->sums[sum];
    const uint32_t *size = slice->size, each = heads_each(job, sum);
    const uint32_t first = slice->first[1] * each, heads = size[1] * each;
    if (!s->y.storage)
        return VKA_OK;
    struct vka_tensor y = tensor_slice_along(&s->y, 0, slice->first[0], size[0]);
    y = tensor_slice_along(&y, AXIS_TOKEN, slice->first[AXIS_TOKEN], size[AXIS_TOKEN]);
    struct linear_sums_params p = {
        .plane = plane,
        .blocks = blocks_of(job),
        .batch = size[0],
        .heads = heads,
        .n = size[AXIS_TOKEN],
        .width = y.shape.size[3],
        .plane_first = first,
        .ratio = s->ratio,
        .y_first = first / s->ratio,
        .y_heads = (first + heads - 1) / s->ratio - first / s->ratio + 1,
        .y = axes_strides(&y.shape),
    };
    const double items = (double)p.batch * p.y_heads * p.n * p.width;
    const double terms = (double)p.blocks * (s->ratio < heads ? s->ratio : heads);
    struct pass pass = {.name = s->name, .reason = "sums of blocks of values"};
    pass.key.kernel = KERNEL_linear_backward_sums;
    plan_bind(plan, &pass, 0, &job->work, false, NULL);
    plan_bind(plan, &pass, 1, &y, true, &p.y.offset);
    pass_set_push(&pass, &p, sizeof p);
    axes_set_grid(&pass, items);
    pass.work =
        (struct work){items * terms * WORK_MOVE, ITEM_LANES * ITEMS_EACH * terms * WORK_MOVE,
                      ITEMS_EACH * (terms * 2 + 1)};
    snprintf(pass.detail, sizeof pass.detail, "%.0f sums of %.0f", items, terms);
    return plan_add_pass(plan, &pass);
}

/* ---- Slices ---------------------------------------------------------------------------------- */

/* Whether passes over spans of a slice, which has all tokens, fit memory, device and budget. */
static bool span_fits(const struct vka_plan *plan, const struct job *job, const struct slice *slice,
                      uint32_t span)
{
    struct slice first = *slice;
    struct pass pass = {0};
    struct linear_params p;
    first.size[AXIS_TOKEN] = job->b->l.n < span ? job->b->l.n : span;
    fill_pass(plan, job, &first, false, &pass, &p);
    return bytes_of(job, slice->size, span) <= most_bytes(plan, job) &&
           plan_pass_has_room(plan, &pass) && plan_fits(plan, pass.key.kernel, &pass.work);
}

/* Memory, the limits of the device and the budget for 64 tokens cut sequences, then states. */
static int judge(const struct vka_plan *plan, const struct cut *cut, const struct slice *slice)
{
    return span_fits(plan, cut->job, slice, LINEAR_CHUNK) ? CUT_FITS
                                                          : cut_first_axis(slice, cut->least);
}

/* The tokens first .. first + span - 1 of a slice, or those that there are. */
static struct slice span_at(const struct job *job, const struct slice *slice, uint32_t first,
                            uint32_t span)
{
    struct slice own = *slice;
    const uint32_t left = job->b->l.n - first;
    own.first[AXIS_TOKEN] = first;
    own.size[AXIS_TOKEN] = left < span ? left : span;
    return own;
}

static enum vka_status add_slice(struct vka_plan *plan, const void *given,
                                 const struct slice *slice)
{
    const struct job *job = given;
    const uint32_t n = job->b->l.n, all = divide_up(n, LINEAR_CHUNK) * LINEAR_CHUNK;
    uint32_t span = all < SPAN ? all : SPAN, planes[SUMMED_COUNT];
    while (span > LINEAR_CHUNK && !span_fits(plan, job, slice, span))
        span = divide_up(span / 2, LINEAR_CHUNK) * LINEAR_CHUNK;
    place_planes(job, slice->size, span, planes);
    for (uint32_t first = 0; first < n; first += span) {
        const struct slice own = span_at(job, slice, first, span);
        ENSURE(add_pass(plan, job, &own, true, planes));
    }
    for (uint32_t end = divide_up(n, span); end > 0; end--) {
        const struct slice own = span_at(job, slice, (end - 1) * span, span);
        ENSURE(add_pass(plan, job, &own, false, planes));
        for (int i = 0; i < SUMMED_COUNT; i++)
            ENSURE(add_sum(plan, job, i, &own, planes[i]));
    }
    return VKA_OK;
}

enum vka_status plan_linear_backward_passes(struct vka_plan *plan, const char *caller,
                                            const struct linear_backward *b)
{
    const struct linear *l = &b->l;
    const uint32_t size[4] = {l->rows.n_sequence, l->n_state, l->n, 1}, one[4] = {1, 1, 1, 1};
    struct job job = {.b = b};
    struct log *log = &plan->device->log;
    ENSURE(plan_settle_kernel(plan, KERNEL_linear_backward));
    ENSURE(plan_settle_kernel(plan, KERNEL_linear_backward_sums));
    if (!tune_linear_backward(&plan->caps, l->head_dim, l->value_dim, &job.tile))
        return log_error(log, VKA_UNSUPPORTED,
                         "%s: head_dim is %u, more than the lanes of a workgroup hold", caller,
                         l->head_dim);
    if (bytes_of(&job, one, LINEAR_CHUNK) > room_of(plan))
        return log_error(log, VKA_UNSUPPORTED,
                         "%s: the states of %u tokens take %llu bytes, more than a binding of %llu",
                         caller, l->n, (unsigned long long)bytes_of(&job, one, LINEAR_CHUNK),
                         (unsigned long long)room_of(plan));
    const struct cut cut = {
        .job = &job,
        .multiple = {1, 1, CUT_NEVER, CUT_NEVER},
        .least = {1, 1, CUT_NEVER, CUT_NEVER},
        .kernel = KERNEL_linear_backward,
        .whole = work_of(&job, size, false),
        .probe = plan_probe_moves,
        .judge = judge,
        .add = add_slice,
    };
    const uint32_t span = least(divide_up(l->n, LINEAR_CHUNK) * LINEAR_CHUNK, SPAN);
    const uint64_t bytes = least(bytes_of(&job, size, span), most_bytes(plan, &job));
    const uint32_t shape[4] = {1, 1, 1, (uint32_t)(bytes / 4)};
    ENSURE(plan_scratch(plan, VKA_F32, shape, &job.work));
    return plan_cut(plan, &cut, size);
}
