/* Depthwise causal convolution, with the last rows of each sequence as its state. */
#include "core/dtype.h"
#include "op/cache/cache.h"
#include "op/common/check.h"
#include "op/common/copy.h"
#include "op/common/nonfinite.h"
#include "op/state/conv.h"
#include "plan/settle.h"

#include <stdio.h>

#define MOST_ITEMS 0x80000000u /* of a pass */
#define MOST_DILATION (1u << 20)

/* x and y [batch][1][n][channels]; past and present [sequence][1][keep][channels], storage NULL where
 * there is none. */
struct conv {
    struct axes_job axes;
    struct vka_tensor x, y, past, present;
    const struct vka_tensor *weight, *bias; /* [channels][width]; NULL: none */
    struct state_rows rows;
    uint32_t width, dilation, keep;
    enum vka_activation activation;
};

static uint32_t tile_rows(const struct conv *c)
{
    return CONV_EACH * c->dilation;
}

uint32_t conv_residues(uint32_t dilation, uint32_t rows)
{
    return rows < dilation ? rows : dilation;
}

/* Items of a pass: pairs of channels, of each residue of a tile. */
static double count_items(const struct conv *c, const uint32_t size[4])
{
    const double tiles = c->rows.q_start ? (double)(size[2] / tile_rows(c)) + c->rows.n_sequence
                                         : (double)divide_up(size[2], tile_rows(c)) * size[0];
    return tiles * conv_residues(c->dilation, size[2]) * divide_up(size[3], 2);
}

static struct work work_of(const struct conv *c, const uint32_t size[4])
{
    const double each = 2 * CONV_EACH * (3 * WORK_MOVE + 2.0 * c->width);
    const double search = c->rows.q_start ? 33 : 0; /* for the sequence of a tile */
    return (struct work){count_items(c, size) * each, each * ITEM_LANES * ITEMS_EACH,
                         ITEMS_EACH * (1 + search + CONV_EACH)};
}

/* Rows from `lead` before those of the slice on, which the first of them need. */
static struct vka_tensor rows_before(const struct vka_tensor *x, const struct slice *slice,
                                     uint32_t lead)
{
    struct slice wide = *slice;
    wide.first[2] -= lead;
    wide.size[2] += lead;
    return tensor_slice(x, &wide);
}

static void bind_weights(const struct vka_plan *plan, const struct conv *c,
                         const struct slice *slice, const struct vka_tensor *other,
                         struct pass *pass, struct conv_params *p)
{
    const struct vka_tensor w = tensor_slice_along(c->weight, 0, slice->first[3], slice->size[3]);
    const struct vka_tensor bias =
        c->bias ? tensor_slice_along(c->bias, 0, slice->first[3], slice->size[3]) : *other;
    p->w_channel = (uint32_t)w.shape.stride[0];
    p->w_tap = (uint32_t)w.shape.stride[1];
    p->bias_step = (uint32_t)bias.shape.stride[0];
    plan_bind(plan, pass, 1, &w, false, &p->w_offset);
    plan_bind(plan, pass, 2, &bias, false, &p->bias_offset);
}

/* What passes of both kinds bind; slice: of batch and channels. other: what the pass writes, for bindings of
 * which it reads nothing, as validation layers take those for written that the shader might write. */
static void bind_past(const struct vka_plan *plan, const struct conv *c, const struct slice *slice,
                      const struct vka_tensor *other, struct pass *pass, struct conv_params *p)
{
    const uint32_t n_sequence = c->rows.q_start ? c->rows.n_sequence : slice->size[0];
    struct slice kept = *slice;
    kept.size[0] = n_sequence;
    kept.first[2] = 0;
    kept.size[2] = c->keep;
    const struct vka_tensor past = c->past.storage ? tensor_slice(&c->past, &kept) : *other;
    p->batch = n_sequence;
    p->channels = slice->size[3];
    p->dilation = c->dilation;
    p->keep = c->keep;
    p->past_batch = (uint32_t)past.shape.stride[0];
    p->past_row = (uint32_t)past.shape.stride[2];
    p->past_col = (uint32_t)past.shape.stride[3];
    plan_bind(plan, pass, 3, &past, false, &p->past_offset);
    p->n_cached = c->rows.cache ? c->rows.n_sequence : 0;
    p->sequence_first = slice->first[0];
    p->layer = c->rows.layer;
    state_bind_rows(plan, pass, 4, &c->rows, other, slice->first[0], n_sequence, &p->starts_offset,
                    &p->starts_step);
}

static void bind_x(const struct vka_plan *plan, const struct vka_tensor *x, struct pass *pass,
                   struct conv_params *p)
{
    p->x_batch = (uint32_t)x->shape.stride[0];
    p->x_row = (uint32_t)x->shape.stride[2];
    p->x_col = (uint32_t)x->shape.stride[3];
    plan_bind(plan, pass, 0, x, false, &p->x_offset);
}

static void bind_y(const struct vka_plan *plan, const struct vka_tensor *y, struct pass *pass,
                   struct conv_params *p)
{
    p->y_batch = (uint32_t)y->shape.stride[0];
    p->y_row = (uint32_t)y->shape.stride[2];
    p->y_col = (uint32_t)y->shape.stride[3];
    plan_bind(plan, pass, 5, y, true, &p->y_offset);
}

static void set_key(const struct conv *c, const struct vka_tensor *y, bool keep, struct pass *pass)
{
    pass->key = (struct pipeline_key){.kernel = KERNEL_causal_conv, .n_spec = CONV_SPECS};
    pass->key.spec[CONV_X_TYPE] = c->x.dtype;
    pass->key.spec[CONV_W_TYPE] = keep ? TYPE_F32 : (uint32_t)c->weight->dtype;
    pass->key.spec[CONV_BIAS_TYPE] = keep || !c->bias ? TYPE_NONE : (uint32_t)c->bias->dtype;
    pass->key.spec[CONV_PAST_TYPE] = c->past.storage ? (uint32_t)c->past.dtype : TYPE_NONE;
    pass->key.spec[CONV_Y_TYPE] = y->dtype;
    pass->key.spec[CONV_WIDTH] = keep ? 1 : c->width;
    pass->key.spec[CONV_FUNCTION] = keep ? VKA_IDENTITY : c->activation;
    pass->key.spec[CONV_ROWS] = state_rows_kind(&c->rows);
    pass->key.spec[CONV_KEEP] = keep;
}

static void make_pass(const struct vka_plan *plan, const void *job, const struct slice *slice,
                      struct pass *pass)
{
    const struct conv *c = job;
    const uint32_t *size = slice->size;
    struct conv_params p = {
        .n = size[2],
        .first = slice->first[2],
        .residues = conv_residues(c->dilation, size[2]),
    };
    p.lead = (uint32_t)least(p.first, c->keep);
    const struct vka_tensor x = rows_before(&c->x, slice, p.lead);
    const struct vka_tensor y = tensor_slice(&c->y, slice);
    pass->name = "causal conv";
    pass->reason = "two channels an invocation";
    set_key(c, &y, false, pass);
    bind_x(plan, &x, pass, &p);
    bind_weights(plan, c, slice, &x, pass, &p);
    bind_past(plan, c, slice, &y, pass, &p);
    bind_y(plan, &y, pass, &p);
    pass->key.spec[CONV_X_PAIRS] = axes_are_pairs(&x, p.x_offset);
    pass->key.spec[CONV_Y_PAIRS] = axes_are_pairs(&y, p.y_offset);
    pass_set_push(pass, &p, sizeof p);
    axes_set_grid(pass, count_items(c, size));
    pass->work = work_of(c, size);
    snprintf(pass->detail, sizeof pass->detail, "%u rows of %u channels, %u wide, %s->%s", size[2],
             size[3], c->width, vka_dtype_name(x.dtype), vka_dtype_name(y.dtype));
}

/* The first row that is kept where each sequence has all n: others may keep any. */
static uint32_t first_kept(const struct conv *c, uint32_t n)
{
    const bool all = state_rows_kind(&c->rows) == ROWS_DENSE;
    return !all || n < c->keep ? 0 : n - c->keep;
}

static struct work work_of_keep(const struct conv *c, const uint32_t size[4])
{
    const double n = (c->rows.q_start ? c->rows.n_sequence : (double)size[0]) * size[3];
    const double each = 2 * WORK_MOVE * c->keep;
    return (struct work){n * each, each * ITEM_LANES * ITEMS_EACH, ITEMS_EACH * (1.0 + c->keep)};
}

/* Whether the rows of two channels follow each other in whole words of 16-bit elements. */
static bool are_dense(const struct vka_tensor *y, uint32_t offset)
{
    struct vka_tensor both = *y;
    struct shape *s = &both.shape;
    const uint32_t keep = s->size[2];
    if (s->stride[2] != 1 || s->size[3] % 2 || s->stride[3] != keep)
        return false;
    s->size[2] = s->size[3] / 2;
    s->stride[2] = 2ull * keep;
    s->size[3] = 2 * keep;
    s->stride[3] = 1;
    return axes_are_pairs(&both, offset);
}

/* The slice is of batch and channels, and has all rows. */
static void make_keep(const struct vka_plan *plan, const void *job, const struct slice *slice,
                      struct pass *pass)
{
    const struct conv *c = job;
    const uint32_t n_sequence = c->rows.q_start ? c->rows.n_sequence : slice->size[0];
    struct slice last = *slice, kept = *slice;
    struct conv_params p = {.first = first_kept(c, slice->size[2])};
    last.first[2] = p.first;
    p.n = last.size[2] = slice->size[2] - p.first;
    kept.size[0] = n_sequence;
    kept.size[2] = c->keep;
    const struct vka_tensor x = tensor_slice(&c->x, &last), y = tensor_slice(&c->present, &kept);
    pass->name = "causal conv state";
    pass->reason = "an invocation a channel";
    set_key(c, &y, true, pass);
    bind_x(plan, &x, pass, &p);
    plan_bind(plan, pass, 1, &x, false, NULL);
    plan_bind(plan, pass, 2, &x, false, NULL);
    bind_past(plan, c, slice, &y, pass, &p);
    bind_y(plan, &y, pass, &p);
    const bool columns = axes_are_pairs(&y, p.y_offset),
               dense = !columns && are_dense(&y, p.y_offset);
    const bool pairs = columns || dense;
    pass->key.spec[CONV_Y_PAIRS] = columns;
    pass->key.spec[CONV_Y_DENSE] = dense;
    pass_set_push(pass, &p, sizeof p);
    axes_set_grid(pass, (double)n_sequence * (pairs ? slice->size[3] / 2 : slice->size[3]));
    pass->work = work_of_keep(c, slice->size);
    snprintf(pass->detail, sizeof pass->detail, "%u sequences of %u channels, %u rows, %s",
             n_sequence, slice->size[3], c->keep, vka_dtype_name(y.dtype));
}

static enum vka_status check_kept(struct vka_plan *plan, const char *caller,
                                  const struct vka_causal_conv_op *op, uint32_t n_sequence,
                                  uint64_t keep)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    const uint32_t shape[3] = {n_sequence, op->input->shape.size[2], (uint32_t)keep};
    ENSURE_ARG(keep || (!op->past && !op->present),
               "%s: past or present is given, but a convolution 1 wide keeps no rows", caller);
    if (op->past) {
        ENSURE(check_tensor(device, caller, "past", op->past, CHECK_FLOAT));
        ENSURE(check_shape(device, caller, "past", op->past, 3, shape));
    }
    if (!op->present)
        return VKA_OK;
    const struct vka_tensor *others[] = {op->past, op->input,   op->weight,
                                         op->bias, op->lengths, op->q_start};
    ENSURE(check_tensor(device, caller, "present", op->present, CHECK_FLOAT | CHECK_WRITTEN));
    ENSURE(check_shape(device, caller, "present", op->present, 3, shape));
    return axes_check_in_place(device, caller, "present", op->present, others, 6, 1);
}

static struct cache_use use_of(const struct vka_causal_conv_op *op)
{
    return (struct cache_use){op->cache,   op->cache_layer, op->input->shape.size[1],
                              op->lengths, op->q_start,     HELD_CONV};
}

enum vka_status causal_conv_check(struct vka_plan *plan, const char *caller,
                                  const struct vka_causal_conv_op *op, struct state_rows *rows)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    ENSURE(check_tensor(device, caller, "input", op->input, CHECK_FLOAT));
    const struct shape *x = &op->input->shape;
    ENSURE_ARG(x->rank == 3, "%s: input has rank %u, not 3", caller, x->rank);
    ENSURE_ARG(x->size[1] <= INT32_MAX, "%s: input has more than 2^31 - 1 rows", caller);
    ENSURE(check_tensor(device, caller, "weight", op->weight, CHECK_FLOAT));
    const struct shape *w = &op->weight->shape;
    ENSURE_ARG(w->rank == 2 && w->size[0] == x->size[2],
               "%s: weight must have the shape [%u][width], as input has %u channels", caller,
               x->size[2], x->size[2]);
    if (op->bias) {
        ENSURE(check_tensor(device, caller, "bias", op->bias, CHECK_FLOAT));
        ENSURE(check_shape(device, caller, "bias", op->bias, 1, &x->size[2]));
    }
    ENSURE_ARG((unsigned)op->activation < VKA_ACTIVATION_COUNT, "%s: activation is %d", caller,
               (int)op->activation);
    const struct cache_use use = use_of(op);
    ENSURE(state_check_rows(plan, caller, op->lengths, op->q_start, &use, x->size[0], rows));
    ENSURE(check_tensor(device, caller, "output", op->output, CHECK_FLOAT | CHECK_WRITTEN));
    ENSURE(axes_check_like(device, caller, "output", op->output, op->input));
    const uint32_t dilation = op->dilation ? op->dilation : 1;
    ENSURE(check_kept(plan, caller, op, rows->n_sequence, (w->size[1] - 1ull) * dilation));
    const struct vka_tensor *others[] = {op->input,   op->weight,  op->bias,   op->past,
                                         op->present, op->lengths, op->q_start};
    ENSURE(check_no_overlap(device, caller, "output", op->output, others, 7));
    if (w->size[1] > CONV_MOST)
        return log_error(log, VKA_UNSUPPORTED, "%s: weight is %u wide, but at most %u are had",
                         caller, w->size[1], CONV_MOST);
    if (op->dilation > MOST_DILATION)
        return log_error(log, VKA_UNSUPPORTED, "%s: dilation is %u, but at most %u are had", caller,
                         op->dilation, MOST_DILATION);
    return VKA_OK;
}

static enum vka_status check_cache(struct vka_plan *plan, const char *caller,
                                   const struct vka_causal_conv_op *op, uint32_t n_sequence)
{
    struct log *log = &plan->device->log;
    const uint32_t *x = op->input->shape.size, width = op->weight->shape.size[1];
    const uint32_t keep = (width - 1) * (op->dilation ? op->dilation : 1);
    const struct cache_use use = use_of(op);
    ENSURE_ARG(!op->past && !op->present, "%s: past or present is given, but the cache holds them",
               caller);
    return state_check_cache(plan, caller, &use, 3, (const uint32_t[]){n_sequence, x[2], keep});
}

struct vka_tensor causal_conv_kept(const struct vka_tensor *tensor)
{
    if (!tensor)
        return (struct vka_tensor){0};
    const struct vka_tensor t = tensor_transposed(tensor);
    return tensor_one_head(&t);
}

/* Items are numbers of 32 bits: those of a batch of ragged sequences, each of which may have rows of every
 * residue, may be more. */
static int judge_output(const struct vka_plan *plan, const struct cut *cut,
                        const struct slice *slice)
{
    return count_items(cut->job, slice->size) > MOST_ITEMS ? cut_first_axis(slice, cut->least)
                                                           : axes_judge(plan, cut, slice);
}

static enum vka_status add_output(struct vka_plan *plan, struct conv *c)
{
    const bool ragged = c->rows.q_start;
    const struct cut cut = {
        .job = c,
        .multiple = {1, 1, ragged ? CUT_NEVER : tile_rows(c), 2 * ITEM_LANES * ITEMS_EACH},
        .least = {1, 1, ragged ? CUT_NEVER : 1, 1},
        .kernel = KERNEL_causal_conv,
        .whole = work_of(c, c->x.shape.size),
        .probe = plan_probe_moves,
        .make = make_pass,
        .judge = judge_output,
    };
    const uint32_t one[4] = {1, 1, ragged ? c->x.shape.size[2] : 1, 1};
    if (count_items(c, one) > MOST_ITEMS)
        return log_error(
            &plan->device->log, VKA_UNSUPPORTED,
            "vka_plan_add_causal_conv: %u sequences of rows %u apart are more than a pass "
            "counts",
            c->rows.n_sequence, c->dilation);
    c->axes = (struct axes_job){{&c->x, &c->y}};
    return plan_cut(plan, &cut, c->x.shape.size);
}

static enum vka_status add_state(struct vka_plan *plan, struct conv *c)
{
    const struct cut cut = {
        .job = c,
        .multiple = {1, 1, CUT_NEVER, ITEM_LANES * ITEMS_EACH},
        .least = {1, 1, CUT_NEVER, 1},
        .kernel = KERNEL_causal_conv,
        .whole = work_of_keep(c, c->x.shape.size),
        .probe = plan_probe_moves,
        .make = make_keep,
        .judge = axes_judge,
    };
    c->axes = (struct axes_job){{&c->x}};
    return plan_cut(plan, &cut, c->x.shape.size);
}

enum vka_status plan_causal_conv(struct vka_plan *plan, const struct vka_causal_conv_op *op,
                                 const struct state_rows *rows)
{
    struct conv c = {
        .x = tensor_one_head(op->input),
        .y = tensor_one_head(op->output),
        .past = causal_conv_kept(op->past),
        .present = causal_conv_kept(op->present),
        .weight = op->weight,
        .bias = op->bias,
        .rows = *rows,
        .width = op->weight->shape.size[1],
        .dilation = op->dilation ? op->dilation : 1,
        .activation = op->activation,
    };
    c.keep = (c.width - 1) * c.dilation;
    ENSURE(plan_settle_kernel(plan, KERNEL_causal_conv));
    ENSURE(add_output(plan, &c));
    return op->present ? add_state(plan, &c) : VKA_OK;
}

static enum vka_status add_conv(struct vka_plan *plan, const void *given)
{
    static const char caller[] = "vka_plan_add_causal_conv";
    struct vka_causal_conv_op own = *(const struct vka_causal_conv_op *)given;
    const struct vka_causal_conv_op *op = &own;
    struct state_rows rows;
    ENSURE(causal_conv_check(plan, caller, op, &rows));
    if (op->cache) {
        const struct cache_use use = use_of(op);
        ENSURE(check_cache(plan, caller, op, rows.n_sequence));
        own.past = own.present = (struct vka_tensor *)state_cached(&use);
        ENSURE(plan_begin_step(plan, &use));
    }
    ENSURE(plan_causal_conv(plan, op, &rows));
    ENSURE(plan_count_nonfinite(plan, "output", op->output));
    return plan_count_nonfinite(plan, "present", op->present);
}

enum vka_status vka_plan_add_causal_conv(struct vka_plan *plan, const struct vka_causal_conv_op *op)
{
    const enum vka_status status = plan_add(plan, __func__, op, sizeof *op, add_conv);
    if (status == VKA_OK && op->cache) {
        const struct cache_use use = use_of(op);
        plan_end_step(plan, &use);
    }
    return status;
}
