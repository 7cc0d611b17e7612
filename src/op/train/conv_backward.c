/* Gradients of the causal convolution. The slopes are those of its sums: g = output_gradient * f'(sum). */
#include "core/dtype.h"
#include "op/common/check.h"
#include "op/common/copy.h"
#include "op/common/nonfinite.h"
#include "op/state/conv.h"
#include "op/train/check.h"
#include "op/train/slope.h"
#include "op/train/sum.h"
#include "params/state.h"
#include "plan/settle.h"

#include <stdio.h>

static const char caller[] = "vka_plan_add_causal_conv_backward";

/* x and g [batch][1][n][channels]; past and dpresent [batch][1][keep][channels], storage NULL where there
 * is none. */
struct conv {
    struct vka_tensor x, g, past, dpresent;
    const struct vka_tensor *weight; /* [channels][width] */
    struct state_rows rows;
    uint32_t width, dilation, keep;
};

/* ---- Gradients of rows ------------------------------------------------------------------------ */

/* The gradient of the input, or of the past. */
struct rows_job {
    struct axes_job axes;
    const struct conv *conv;
    struct vka_tensor y;
    bool past, add;
};

static uint32_t tile_rows(const struct conv *c)
{
    return CONV_EACH * c->dilation;
}

static double count_items(const struct conv *c, const uint32_t size[4])
{
    return (double)divide_up(size[2], tile_rows(c)) * conv_residues(c->dilation, size[2]) *
           size[0] * divide_up(size[3], 2);
}

static struct work work_of_rows(const struct conv *c, const uint32_t size[4])
{
    const double each = 2 * CONV_EACH * (4 * WORK_MOVE + 2.0 * c->width);
    return (struct work){count_items(c, size) * each, each * ITEM_LANES * ITEMS_EACH,
                         ITEMS_EACH * (1.0 + CONV_EACH + c->width)};
}

/* Rows of g that a slice of y sums. */
static struct vka_tensor slopes_of(const struct rows_job *job, const struct slice *slice,
                                   struct conv_backward_params *p)
{
    const struct conv *c = job->conv;
    const uint64_t n = c->g.shape.size[2], own_end = (uint64_t)slice->first[2] + slice->size[2];
    struct slice wide = *slice;
    wide.first[2] = job->past ? 0 : slice->first[2];
    wide.size[2] = (uint32_t)least(own_end + (job->past ? 0 : c->keep), n) - wide.first[2];
    p->g_first = wide.first[2];
    p->g_end = wide.first[2] + wide.size[2];
    return tensor_slice(&c->g, &wide);
}

static void bind_rows(const struct vka_plan *plan, const struct rows_job *job,
                      const struct slice *slice, const struct vka_tensor *g, struct pass *pass,
                      struct conv_backward_params *p)
{
    const struct conv *c = job->conv;
    struct slice kept = *slice;
    kept.first[2] = 0;
    kept.size[2] = c->keep;
    const struct vka_tensor w = tensor_slice_along(c->weight, 0, slice->first[3], slice->size[3]);
    const struct vka_tensor present = c->dpresent.storage ? tensor_slice(&c->dpresent, &kept) : *g;
    p->g_batch = (uint32_t)g->shape.stride[0];
    p->g_row = (uint32_t)g->shape.stride[2];
    p->g_col = (uint32_t)g->shape.stride[3];
    p->w_channel = (uint32_t)w.shape.stride[0];
    p->w_tap = (uint32_t)w.shape.stride[1];
    p->present_batch = (uint32_t)present.shape.stride[0];
    p->present_row = (uint32_t)present.shape.stride[2];
    p->present_col = (uint32_t)present.shape.stride[3];
    plan_bind(plan, pass, 0, g, false, &p->g_offset);
    plan_bind(plan, pass, 1, &w, false, &p->w_offset);
    plan_bind(plan, pass, 2, &present, false, &p->present_offset);
    state_bind_rows(plan, pass, 3, &c->rows, g, slice->first[0], slice->size[0], &p->lengths_offset,
                    &p->lengths_step);
}

static void make_rows(const struct vka_plan *plan, const void *given, const struct slice *slice,
                      struct pass *pass)
{
    const struct rows_job *job = given;
    const struct conv *c = job->conv;
    const uint32_t *size = slice->size;
    struct conv_backward_params p = {
        .batch = size[0],
        .n = c->g.shape.size[2],
        .channels = size[3],
        .first = slice->first[2],
        .end = slice->first[2] + size[2],
        .shift = job->past ? c->keep : 0,
        .keep = c->keep,
        .dilation = c->dilation,
        .residues = conv_residues(c->dilation, size[2]),
    };
    const struct vka_tensor g = slopes_of(job, slice, &p), y = tensor_slice(&job->y, slice);
    p.y_batch = (uint32_t)y.shape.stride[0];
    p.y_row = (uint32_t)y.shape.stride[2];
    p.y_col = (uint32_t)y.shape.stride[3];
    pass->name = job->past ? "causal conv dpast" : "causal conv dx";
    pass->reason = "two channels an invocation";
    pass->key = (struct pipeline_key){.kernel = KERNEL_conv_backward, .n_spec = CONV_BACK_SPECS};
    bind_rows(plan, job, slice, &g, pass, &p);
    plan_bind(plan, pass, 4, &y, true, &p.y_offset);
    pass->key.spec[CONV_BACK_G_TYPE] = g.dtype;
    pass->key.spec[CONV_BACK_W_TYPE] = c->weight->dtype;
    pass->key.spec[CONV_BACK_PRESENT_TYPE] =
        c->dpresent.storage ? (uint32_t)c->dpresent.dtype : TYPE_NONE;
    pass->key.spec[CONV_BACK_Y_TYPE] = y.dtype;
    pass->key.spec[CONV_BACK_WIDTH] = c->width;
    pass->key.spec[CONV_BACK_LENGTHS] = c->rows.lengths != NULL;
    pass->key.spec[CONV_BACK_ADD] = job->add;
    pass->key.spec[CONV_BACK_G_PAIRS] = axes_are_pairs(&g, p.g_offset);
    pass->key.spec[CONV_BACK_Y_PAIRS] = axes_are_pairs(&y, p.y_offset);
    pass_set_push(pass, &p, sizeof p);
    axes_set_grid(pass, count_items(c, size));
    pass->work = work_of_rows(c, size);
    snprintf(pass->detail, sizeof pass->detail, "%u rows of %u channels, %u wide, %s->%s", size[2],
             size[3], c->width, vka_dtype_name(g.dtype), vka_dtype_name(y.dtype));
}

static enum vka_status add_rows(struct vka_plan *plan, const struct conv *c, bool past,
                                const struct vka_gradient *gradient)
{
    if (!gradient->tensor)
        return VKA_OK;
    struct rows_job job = {
        .conv = c,
        .y = past ? causal_conv_kept(gradient->tensor) : tensor_one_head(gradient->tensor),
        .past = past,
        .add = gradient->accumulate,
    };
    const struct cut cut = {
        .job = &job,
        .multiple = {1, 1, tile_rows(c), 2 * ITEM_LANES * ITEMS_EACH},
        .least = {1, 1, 1, 1},
        .kernel = KERNEL_conv_backward,
        .whole = work_of_rows(c, job.y.shape.size),
        .probe = plan_probe_moves,
        .make = make_rows,
        .judge = axes_judge,
    };
    job.axes = (struct axes_job){{&job.y}};
    ENSURE(plan_settle_kernel(plan, KERNEL_conv_backward));
    return plan_cut(plan, &cut, job.y.shape.size);
}

/* ---- Gradients of weight and bias -------------------------------------------------------------- */

/* Splits of rows: either `group` whole sequences, or rows of one. */
struct sums_job {
    struct axes_job axes;
    const struct conv *conv;
    struct vka_tensor y;          /* float32 [group of sequences][its splits][column][channel] */
    uint32_t group, width, lanes; /* width 0: the bias alone */
    bool columns;
};

static struct work work_of_sums(const struct sums_job *job, const uint32_t size[4])
{
    const uint32_t rows = job->group > 1 ? job->group * job->conv->x.shape.size[2] : CONV_SUM_ROWS;
    const double each = (double)rows * (1 + job->width) * 2 * WORK_MOVE;
    const double groups = (double)size[0] * size[1] * divide_up(size[3], job->lanes);
    return (struct work){
        .ops = groups * job->lanes * each,
        .longest = job->lanes * each,
        .loops = (double)rows * job->lanes / CONV_SUM_LANES + 8.0 * (1 + job->width),
    };
}

static void bind_sums(const struct vka_plan *plan, const struct sums_job *job,
                      const struct slice *slice, struct pass *pass, struct conv_sums_params *p)
{
    const struct conv *c = job->conv;
    const struct slice own = {{slice->first[0] * job->group, 0, p->row_first, slice->first[3]},
                              {p->batch, 1, p->n, slice->size[3]}};
    struct slice wide = own, kept = own;
    wide.first[2] = p->x_first;
    wide.size[2] = p->row_first + p->n - p->x_first;
    kept.first[2] = 0;
    kept.size[2] = c->keep;
    const struct vka_tensor x = tensor_slice(&c->x, &wide), g = tensor_slice(&c->g, &own);
    const struct vka_tensor past = c->past.storage ? tensor_slice(&c->past, &kept) : x;
    p->x_batch = (uint32_t)x.shape.stride[0];
    p->x_row = (uint32_t)x.shape.stride[2];
    p->x_col = (uint32_t)x.shape.stride[3];
    p->past_batch = (uint32_t)past.shape.stride[0];
    p->past_row = (uint32_t)past.shape.stride[2];
    p->past_col = (uint32_t)past.shape.stride[3];
    p->g_batch = (uint32_t)g.shape.stride[0];
    p->g_row = (uint32_t)g.shape.stride[2];
    p->g_col = (uint32_t)g.shape.stride[3];
    plan_bind(plan, pass, 0, job->width ? &x : &g, false, &p->x_offset);
    plan_bind(plan, pass, 1, job->width ? &past : &g, false, &p->past_offset);
    plan_bind(plan, pass, 2, &g, false, &p->g_offset);
    state_bind_rows(plan, pass, 3, &c->rows, &g, own.first[0], p->batch, &p->lengths_offset,
                    &p->lengths_step);
}

static void make_sums(const struct vka_plan *plan, const void *given, const struct slice *slice,
                      struct pass *pass)
{
    const struct sums_job *job = given;
    const struct conv *c = job->conv;
    const uint32_t *all = c->x.shape.size, *size = slice->size;
    const uint64_t first = (uint64_t)slice->first[1] * CONV_SUM_ROWS;
    const struct vka_tensor y = tensor_slice(&job->y, slice);
    struct conv_sums_params p = {
        .batch =
            (uint32_t)least((uint64_t)size[0] * job->group, all[0] - slice->first[0] * job->group),
        .n = (uint32_t)least((uint64_t)size[1] * CONV_SUM_ROWS, all[2] - first),
        .channels = size[3],
        .group = job->group,
        .row_first = (uint32_t)first,
        .x_first = (uint32_t)(first - least(first, c->keep)),
        .dilation = c->dilation,
        .keep = c->keep,
        .y_group = (uint32_t)y.shape.stride[0],
        .y_split = (uint32_t)y.shape.stride[1],
        .y_column = (uint32_t)y.shape.stride[2],
        .y_channel = (uint32_t)y.shape.stride[3],
    };
    pass->name = "causal conv sums";
    pass->reason = "a split of rows a workgroup";
    pass->key =
        (struct pipeline_key){.kernel = KERNEL_conv_backward_sums, .n_spec = CONV_SUM_SPECS};
    bind_sums(plan, job, slice, pass, &p);
    plan_bind(plan, pass, 4, &y, true, &p.y_offset);
    pass->key.spec[CONV_SUM_X_TYPE] = job->width ? (uint32_t)c->x.dtype : TYPE_F32;
    pass->key.spec[CONV_SUM_PAST_TYPE] =
        job->width && c->past.storage ? (uint32_t)c->past.dtype : TYPE_NONE;
    pass->key.spec[CONV_SUM_G_TYPE] = c->g.dtype;
    pass->key.spec[CONV_SUM_WIDTH] = job->width;
    pass->key.spec[CONV_SUM_LENGTHS] = c->rows.lengths != NULL;
    pass->key.spec[CONV_SUM_CHANNEL_LANES] = job->lanes;
    pass->key.spec[CONV_SUM_COLUMNS] = job->columns;
    pass_set_push(pass, &p, sizeof p);
    pass->groups[0] = divide_up(size[3], job->lanes);
    pass->groups[1] = size[1];
    pass->groups[2] = size[0];
    pass->work = work_of_sums(job, size);
    snprintf(pass->detail, sizeof pass->detail, "%u x %u rows of %u channels, %u wide, %s,%s",
             p.batch, p.n, size[3], job->width, vka_dtype_name(c->x.dtype),
             vka_dtype_name(c->g.dtype));
}

/* Lanes side by side take channels, or rows where those are closer. */
static void choose_lanes(struct sums_job *job)
{
    const struct shape *g = &job->conv->g.shape;
    const uint32_t channels = g->size[3];
    job->columns = channels > 1 && (g->size[2] == 1 || g->stride[3] <= g->stride[2]);
    const uint32_t most = job->columns ? 32 : 4;
    job->lanes = 1;
    while (job->lanes < most && job->lanes < channels)
        job->lanes *= 2;
}

/* Adds columns first .. first + n - 1 of all splits to a gradient [1][1][column][channel]. */
static enum vka_status add_splits(struct vka_plan *plan, const struct sums_job *job, uint32_t first,
                                  uint32_t n, const struct vka_tensor *y, bool accumulate)
{
    struct vka_tensor from = tensor_slice_along(&job->y, 2, first, n), to = *y;
    /* Neighbours lie along the last axis, where they may be words. */
    if (to.shape.stride[2] < to.shape.stride[3]) {
        from = tensor_transposed(&from);
        to = tensor_transposed(&to);
    }
    const struct sum_axes sum = {
        .name = "causal conv sums",
        .a = from,
        .y = to,
        .reduced = 3,
        .term = TERM_VALUE,
        .scale = 1,
        .add = accumulate,
    };
    return plan_sum_axes(plan, &sum);
}

static enum vka_status add_sums(struct vka_plan *plan, const struct conv *c,
                                const struct vka_gradient *weight, const struct vka_gradient *bias)
{
    if (!weight->tensor && !bias->tensor)
        return VKA_OK;
    const uint32_t batch = c->x.shape.size[0], n = c->x.shape.size[2];
    struct sums_job job = {.conv = c, .width = weight->tensor ? c->width : 0};
    job.group = n < CONV_SUM_ROWS ? CONV_SUM_ROWS / n : 1;
    if (job.group > batch)
        job.group = batch;
    choose_lanes(&job);
    ENSURE(plan_settle_kernel(plan, KERNEL_conv_backward_sums));
    const uint32_t size[4] = {divide_up(batch, job.group), divide_up(n, CONV_SUM_ROWS),
                              1 + job.width, c->x.shape.size[3]};
    ENSURE(plan_scratch(plan, VKA_F32, size, &job.y));
    const struct cut cut = {
        .job = &job,
        .multiple = {1, 1, CUT_NEVER, job.lanes},
        .least = {1, 1, CUT_NEVER, 1},
        .kernel = KERNEL_conv_backward_sums,
        .whole = work_of_sums(&job, size),
        .probe = plan_probe_moves,
        .make = make_sums,
        .judge = axes_judge,
    };
    job.axes = (struct axes_job){{&job.y}};
    ENSURE(plan_cut(plan, &cut, size));
    if (weight->tensor) {
        const struct vka_tensor t = tensor_transposed(weight->tensor), y = tensor_rank4(&t);
        ENSURE(add_splits(plan, &job, 1, c->width, &y, weight->accumulate));
    }
    if (bias->tensor) {
        const struct vka_tensor y = tensor_rank4(bias->tensor);
        ENSURE(add_splits(plan, &job, 0, 1, &y, bias->accumulate));
    }
    plan_scratch_free(plan, &job.y);
    return VKA_OK;
}

/* ---- The operation ----------------------------------------------------------------------------- */

static enum vka_status check_forward(struct vka_plan *plan, const struct vka_causal_conv_op *f,
                                     struct state_rows *rows)
{
    struct log *log = &plan->device->log;
    ENSURE_ARG(f, "%s: forward is NULL", caller);
    ENSURE_ARG(f->struct_size == sizeof *f, "%s: forward.struct_size is %zu, not %zu", caller,
               f->struct_size, sizeof *f);
    if (f->cache || f->q_start)
        return log_error(log, VKA_UNSUPPORTED,
                         "%s: forward has %s which has no backward: give rows of a padded batch, "
                         "with lengths, and past",
                         caller, f->cache ? "a cache" : "q_start, a ragged batch,");
    ENSURE(causal_conv_check(plan, caller, f, rows));
    ENSURE_ARG(!f->past || !f->present || !axes_same(f->past, f->present),
               "%s: forward has present in place of past, which its gradients need", caller);
    return VKA_OK;
}

static enum vka_status check_gradients(struct vka_device *device,
                                       const struct vka_causal_conv_backward_op *op)
{
    struct log *log = &device->log;
    const struct vka_causal_conv_op *f = op->forward;
    const struct named_tensor written[] = {{"input_gradient", op->input_gradient.tensor},
                                           {"weight_gradient", op->weight_gradient.tensor},
                                           {"bias_gradient", op->bias_gradient.tensor},
                                           {"past_gradient", op->past_gradient.tensor}};
    const struct vka_tensor *const inputs[] = {f->input,
                                               f->weight,
                                               f->bias,
                                               f->past,
                                               f->lengths,
                                               op->output_gradient,
                                               op->present_gradient};
    ENSURE_ARG(written[0].tensor || written[1].tensor || written[2].tensor || written[3].tensor,
               "%s: no gradient is wanted", caller);
    ENSURE_ARG(f->bias || !op->bias_gradient.tensor,
               "%s: bias_gradient is given, but forward has no bias", caller);
    ENSURE_ARG(f->past || !op->past_gradient.tensor,
               "%s: past_gradient is given, but forward has no past", caller);
    ENSURE(train_check_gradient(device, caller, "input_gradient", &op->input_gradient,
                                &f->input->shape));
    ENSURE(train_check_gradient(device, caller, "weight_gradient", &op->weight_gradient,
                                &f->weight->shape));
    if (f->bias)
        ENSURE(train_check_gradient(device, caller, "bias_gradient", &op->bias_gradient,
                                    &f->bias->shape));
    if (f->past)
        ENSURE(train_check_gradient(device, caller, "past_gradient", &op->past_gradient,
                                    &f->past->shape));
    return train_check_apart(device, caller, written, COUNTOF(written), inputs, COUNTOF(inputs));
}

static enum vka_status check(struct vka_plan *plan, const struct vka_causal_conv_backward_op *op,
                             struct state_rows *rows)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    const struct vka_causal_conv_op *f = op->forward;
    ENSURE(check_forward(plan, f, rows));
    const uint32_t *x = f->input->shape.size, width = f->weight->shape.size[1];
    const uint32_t keep = (width - 1) * (f->dilation ? f->dilation : 1);
    ENSURE(check_tensor(device, caller, "output_gradient", op->output_gradient, CHECK_FLOAT));
    ENSURE(axes_check_like(device, caller, "output_gradient", op->output_gradient, f->input));
    if (op->present_gradient) {
        const uint32_t kept[3] = {x[0], x[2], keep};
        ENSURE_ARG(keep, "%s: present_gradient is given, but a convolution 1 wide keeps no rows",
                   caller);
        ENSURE(check_tensor(device, caller, "present_gradient", op->present_gradient, CHECK_FLOAT));
        ENSURE(check_shape(device, caller, "present_gradient", op->present_gradient, 3, kept));
    }
    return check_gradients(device, op);
}

/* *g: the slopes, in float32 scratch where there is an activation; else output_gradient itself. */
static enum vka_status make_slopes(struct vka_plan *plan,
                                   const struct vka_causal_conv_backward_op *op,
                                   const struct state_rows *rows, struct vka_tensor *g)
{
    const struct vka_causal_conv_op *f = op->forward;
    const struct vka_tensor dy = tensor_one_head(op->output_gradient);
    struct vka_tensor sums, view;
    *g = dy;
    if (f->activation == VKA_IDENTITY)
        return VKA_OK;
    ENSURE(plan_scratch(plan, VKA_F32, dy.shape.size, &sums));
    view = sums;
    shape_dense(3, f->input->shape.size, &view.shape);
    view.shape.offset = sums.shape.offset;
    struct vka_causal_conv_op own = *f;
    own.activation = VKA_IDENTITY;
    own.present = NULL;
    own.output = &view;
    ENSURE(plan_causal_conv(plan, &own, rows));
    ENSURE(plan_scratch(plan, VKA_F32, dy.shape.size, g));
    const struct slope slope = {
        .name = "causal conv slopes",
        .dy = dy,
        .x = sums,
        .y = *g,
        .function = f->activation,
        .kind = SLOPE_DERIVATIVE,
        .alpha = 1,
    };
    ENSURE(plan_slope(plan, &slope));
    plan_scratch_free(plan, &sums);
    return VKA_OK;
}

static enum vka_status add(struct vka_plan *plan, const void *given)
{
    const struct vka_causal_conv_backward_op *op = given;
    struct state_rows rows;
    ENSURE(check(plan, op, &rows));
    const struct vka_causal_conv_op *f = op->forward;
    struct conv c = {
        .x = tensor_one_head(f->input),
        .past = causal_conv_kept(f->past),
        .dpresent = causal_conv_kept(op->present_gradient),
        .weight = f->weight,
        .rows = rows,
        .width = f->weight->shape.size[1],
        .dilation = f->dilation ? f->dilation : 1,
    };
    c.keep = (c.width - 1) * c.dilation;
    ENSURE(make_slopes(plan, op, &rows, &c.g));
    ENSURE(add_sums(plan, &c, &op->weight_gradient, &op->bias_gradient));
    ENSURE(add_rows(plan, &c, false, &op->input_gradient));
    ENSURE(add_rows(plan, &c, true, &op->past_gradient));
    ENSURE(plan_count_nonfinite(plan, "input_gradient", op->input_gradient.tensor));
    ENSURE(plan_count_nonfinite(plan, "weight_gradient", op->weight_gradient.tensor));
    ENSURE(plan_count_nonfinite(plan, "bias_gradient", op->bias_gradient.tensor));
    return plan_count_nonfinite(plan, "past_gradient", op->past_gradient.tensor);
}

enum vka_status vka_plan_add_causal_conv_backward(struct vka_plan *plan,
                                                  const struct vka_causal_conv_backward_op *op)
{
    return plan_add(plan, __func__, op, sizeof *op, add);
}
