/* Losses and their gradients: cross-entropy, and the mean squared error. */
#include "core/dtype.h"
#include "op/common/check.h"
#include "op/common/copy.h"
#include "op/common/nonfinite.h"
#include "op/train/sum.h"
#include "op/train/slope.h"
#include "op/train/scalars.h"
#include "op/train/check.h"
#include "plan/settle.h"

#include <math.h>
#include <stdio.h>

/* All of rank 4; labels and statistics have a last axis of 1, with stride 0. */
struct loss {
    struct axes_job axes;
    struct vka_tensor x, labels, stats, y;
    struct vka_tensor totals;
    uint32_t lanes;
    float smoothing, scale;
    bool gradient; /* the second pass */
};

static struct work work_of(const struct loss *loss, const uint32_t size[4])
{
    double row = 2 * WORK_SCORE * size[3], rounds = size[3] / (double)loss->lanes + 1;
    return (struct work){(double)size[0] * size[1] * size[2] * row, row,
                         3 * (rounds + rounds / LOSS_BLOCK + 9)};
}

static void make_pass(const struct vka_plan *plan, const void *job, const struct slice *slice,
                      struct pass *pass)
{
    const struct loss *loss = job;
    const uint32_t *size = slice->size;
    struct slice rows_slice = *slice;
    rows_slice.size[3] = 1;
    const struct vka_tensor x = tensor_slice(&loss->x, slice), y = tensor_slice(&loss->y, slice);
    const struct vka_tensor labels = tensor_slice(&loss->labels, &rows_slice);
    const struct vka_tensor stats = tensor_slice(&loss->stats, &rows_slice);
    const uint64_t rows = (uint64_t)size[0] * size[1] * size[2];
    struct cross_entropy_params p = {
        .size0 = size[0],
        .size1 = size[1],
        .size2 = size[2],
        .size3 = size[3],
        .x = axes_strides(&x.shape),
        .labels = axes_strides(&labels.shape),
        .y = axes_strides(&y.shape),
        .stats0 = (uint32_t)stats.shape.stride[0],
        .stats1 = (uint32_t)stats.shape.stride[1],
        .stats2 = (uint32_t)stats.shape.stride[2],
        .smoothing = loss->smoothing,
        .scale = loss->scale,
    };
    /* A row of statistics is as long as its stride says: bind all of it. */
    struct vka_tensor whole = stats;
    whole.shape.size[3] = LOSS_STATS;
    whole.shape.stride[3] = 1;
    pass->name = loss->gradient ? "cross-entropy gradient" : "cross-entropy";
    pass->reason = "a workgroup a row";
    pass->key = (struct pipeline_key){.kernel = KERNEL_cross_entropy, .n_spec = LOSS_SPECS};
    plan_bind(plan, pass, 0, &x, false, &p.x.offset);
    plan_bind(plan, pass, 1, &labels, false, &p.labels.offset);
    plan_bind(plan, pass, 2, &whole, !loss->gradient, &p.stats_offset);
    if (loss->gradient) {
        plan_bind(plan, pass, 3, &loss->totals, false, &p.totals_offset);
        plan_bind(plan, pass, 4, &y, true, &p.y.offset);
    } else { /* what it reads and writes anyway: other passes may use totals and y meanwhile */
        plan_bind(plan, pass, 3, &x, false, NULL);
        plan_bind(plan, pass, 4, &whole, true, NULL);
    }
    pass->key.spec[LOSS_LANES] = loss->lanes;
    pass->key.spec[LOSS_X_TYPE] = x.dtype;
    pass->key.spec[LOSS_Y_TYPE] = y.dtype;
    pass->key.spec[LOSS_GRADIENT] = loss->gradient;
    pass_set_push(pass, &p, sizeof p);
    axes_set_row_grid(pass, rows);
    pass->work = work_of(loss, size);
    snprintf(pass->detail, sizeof pass->detail, "%llu rows of %u, %s->%s, %u lanes",
             (unsigned long long)rows, size[3], vka_dtype_name(x.dtype), vka_dtype_name(y.dtype),
             loss->lanes);
}

static enum vka_status add_rows(struct vka_plan *plan, struct loss *loss)
{
    const struct cut cut = {
        .job = loss,
        .multiple = {1, 1, 1, CUT_NEVER},
        .least = {1, 1, 1, CUT_NEVER},
        .kernel = KERNEL_cross_entropy,
        .whole = work_of(loss, loss->x.shape.size),
        .probe = plan_probe_moves,
        .make = make_pass,
        .judge = axes_judge,
    };
    loss->axes = (struct axes_job){{&loss->x, &loss->y}};
    return plan_cut(plan, &cut, loss->x.shape.size);
}

/* totals float32 [2] = the sums over all rows of losses and of those that count. */
static enum vka_status add_totals(struct vka_plan *plan, const struct loss *loss)
{
    struct sum_axes sum = {
        .name = "cross-entropy sum",
        .a = loss->stats,
        .y = loss->totals,
        .reduced = 7,
        .term = TERM_VALUE,
        .scale = 1,
    };
    sum.a.shape.size[3] = 2;
    sum.a.shape.stride[3] = 1;
    return plan_sum_axes(plan, &sum);
}

/* Statistics of rows, whose last axis is left to the kernel. */
static enum vka_status make_stats(struct vka_plan *plan, struct loss *loss)
{
    const uint32_t *size = loss->x.shape.size;
    const uint64_t rows = (uint64_t)size[0] * size[1];
    if (rows > UINT32_MAX)
        return log_error(&plan->device->log, VKA_UNSUPPORTED,
                         "vka_plan_add_cross_entropy: logits has more than 2^32 - 1 rows");
    ENSURE(plan_scratch(plan, VKA_F32, (const uint32_t[]){size[0], size[1], size[2], LOSS_STATS},
                        &loss->stats));
    loss->stats.shape.size[3] = 1;
    loss->stats.shape.stride[3] = 0;
    return VKA_OK;
}

/* Checks a loss and its gradient, which may be in place of x and shares nothing with the target. */
static enum vka_status check_outputs(struct vka_device *device, const char *caller,
                                     const struct vka_tensor *loss,
                                     const struct vka_tensor *gradient, const struct vka_tensor *x,
                                     const struct vka_tensor *target)
{
    const struct vka_tensor *others[] = {x, target, gradient};
    ENSURE(train_check_number(device, caller, "loss", loss, CHECK_F32));
    ENSURE(check_no_overlap(device, caller, "loss", loss, others, 3));
    if (!gradient)
        return VKA_OK;
    ENSURE(check_tensor(device, caller, "gradient", gradient, CHECK_FLOAT | CHECK_WRITTEN));
    ENSURE(axes_check_like(device, caller, "gradient", gradient, x));
    return axes_check_in_place(device, caller, "gradient", gradient, others, 2, 1);
}

static enum vka_status check_entropy(struct vka_plan *plan, const struct vka_cross_entropy_op *op)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    static const char *const caller = "vka_plan_add_cross_entropy";
    const uint32_t one = 1;
    ENSURE_ARG(op->smoothing >= 0 && op->smoothing <= 1, "%s: smoothing is %g, not 0 to 1", caller,
               (double)op->smoothing);
    ENSURE(check_given(device, caller, op->given, VKA_GIVEN_GRADIENT_SCALE));
    ENSURE_ARG(isfinite(op->gradient_scale), "%s: gradient_scale is %g", caller,
               (double)op->gradient_scale);
    ENSURE(check_tensor(device, caller, "logits", op->logits, CHECK_FLOAT));
    const struct shape *x = &op->logits->shape;
    ENSURE_ARG(x->size[x->rank - 1] <= INT32_MAX, "%s: logits has more than 2^31 - 1 classes",
               caller);
    ENSURE(check_tensor(device, caller, "labels", op->labels, CHECK_I32));
    ENSURE(check_shape(device, caller, "labels", op->labels, x->rank > 1 ? x->rank - 1 : 1,
                       x->rank > 1 ? x->size : &one));
    return check_outputs(device, caller, op->loss, op->gradient, op->logits, op->labels);
}

static enum vka_status add_entropy(struct vka_plan *plan, const void *given)
{
    const struct vka_cross_entropy_op *op = given;
    ENSURE(check_entropy(plan, op));
    struct loss loss = {
        .x = tensor_rank4(op->logits),
        .y = tensor_rank4(op->gradient ? op->gradient : op->logits),
        .labels =
            op->logits->shape.rank > 1 ? axes_append_one(op->labels) : tensor_rank4(op->labels),
        .lanes = axes_choose_lanes(&plan->caps, op->logits->shape.size[op->logits->shape.rank - 1]),
        .smoothing = op->smoothing,
        .scale =
            (float)or_default((double)op->gradient_scale, op->given, VKA_GIVEN_GRADIENT_SCALE, 1),
    };
    const struct scalars mean = {
        .name = "loss", .kind = SCALARS_MEAN, .x = &loss.totals, .y = op->loss};
    ENSURE(plan_settle_kernel(plan, KERNEL_cross_entropy));
    ENSURE(make_stats(plan, &loss));
    ENSURE(plan_scalar_scratch(plan, 2, &loss.totals));
    ENSURE(add_rows(plan, &loss));
    ENSURE(add_totals(plan, &loss));
    ENSURE(plan_scalars(plan, &mean));
    loss.gradient = true;
    if (op->gradient)
        ENSURE(add_rows(plan, &loss));
    ENSURE(plan_count_nonfinite(plan, "loss", op->loss));
    return plan_count_nonfinite(plan, "gradient", op->gradient);
}

enum vka_status vka_plan_add_cross_entropy(struct vka_plan *plan,
                                           const struct vka_cross_entropy_op *op)
{
    return plan_add(plan, __func__, op, sizeof *op, add_entropy);
}

/* ---- Squared error --------------------------------------------------------------------------- */

static enum vka_status check_square(struct vka_plan *plan, const struct vka_square_error_op *op)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    static const char *const caller = "vka_plan_add_square_error";
    ENSURE(check_given(device, caller, op->given, VKA_GIVEN_GRADIENT_SCALE));
    ENSURE_ARG(isfinite(op->gradient_scale), "%s: gradient_scale is %g", caller,
               (double)op->gradient_scale);
    ENSURE(check_tensor(device, caller, "input", op->input, CHECK_FLOAT));
    ENSURE(check_tensor(device, caller, "target", op->target, CHECK_FLOAT));
    ENSURE(axes_check_like(device, caller, "target", op->target, op->input));
    return check_outputs(device, caller, op->loss, op->gradient, op->input, op->target);
}

static enum vka_status add_square(struct vka_plan *plan, const void *given)
{
    const struct vka_square_error_op *op = given;
    ENSURE(check_square(plan, op));
    const double n = (double)shape_count(&op->input->shape);
    const double scale =
        or_default((double)op->gradient_scale, op->given, VKA_GIVEN_GRADIENT_SCALE, 1);
    const struct sum_axes sum = {
        .name = "square error",
        .a = tensor_rank4(op->input),
        .b = tensor_rank4(op->target),
        .y = tensor_rank4(op->loss),
        .reduced = 15,
        .term = TERM_DIFFERENCE,
        .scale = (float)(1 / n),
    };
    ENSURE(plan_sum_axes(plan, &sum));
    if (op->gradient) {
        const struct slope slope = {
            .name = "square error gradient",
            .dy = tensor_rank4(op->input),
            .x = tensor_rank4(op->target),
            .y = tensor_rank4(op->gradient),
            .kind = SLOPE_DIFFERENCE,
            .scale = (float)(2 * scale / n),
        };
        ENSURE(plan_slope(plan, &slope));
    }
    ENSURE(plan_count_nonfinite(plan, "loss", op->loss));
    return plan_count_nonfinite(plan, "gradient", op->gradient);
}

enum vka_status vka_plan_add_square_error(struct vka_plan *plan,
                                          const struct vka_square_error_op *op)
{
    return plan_add(plan, __func__, op, sizeof *op, add_square);
}
