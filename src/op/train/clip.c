/* Gradients clipped by their norm. */
#include "op/common/check.h"
#include "op/common/nonfinite.h"
#include "op/train/sum.h"
#include "op/train/slope.h"
#include "op/train/scalars.h"
#include "op/train/check.h"

#include <math.h>
#include <stdlib.h>

static const char caller[] = "vka_plan_add_clip";

/* A gradient that is listed twice would count and be clipped twice. */
static enum vka_status check_apart(struct vka_device *device, const struct vka_clip_op *op)
{
    struct listed_tensor *list = calloc(op->n_gradient, sizeof *list);
    if (!list)
        return log_error(&device->log, VKA_OUT_OF_HOST_MEMORY, "%s: out of memory", caller);
    for (size_t i = 0; i < op->n_gradient; i++)
        list[i] = (struct listed_tensor){"gradient", i, true, op->gradients[i]};
    const enum vka_status status = train_check_items(device, caller, list, op->n_gradient);
    free(list);
    return status;
}

static enum vka_status check(struct vka_plan *plan, const struct vka_clip_op *op)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    ENSURE_ARG(op->gradients && op->n_gradient, "%s: there are no gradients", caller);
    ENSURE_ARG(op->n_gradient <= INT32_MAX, "%s: there are %zu gradients", caller, op->n_gradient);
    ENSURE_ARG(op->max_norm > 0 && isfinite(op->max_norm), "%s: max_norm is %g, not above 0",
               caller, op->max_norm);
    ENSURE(train_check_number(device, caller, "norm", op->norm, CHECK_F32));
    for (size_t i = 0; i < op->n_gradient; i++) {
        const struct vka_tensor *others[] = {op->norm};
        ENSURE(check_tensor(device, caller, "gradients", op->gradients[i],
                            CHECK_FLOAT | CHECK_WRITTEN));
        ENSURE(check_no_overlap(device, caller, "gradients", op->gradients[i], others, 1));
    }
    return check_apart(device, op);
}

/* sums[i] = the sum of squares of gradient i. */
static enum vka_status add_squares(struct vka_plan *plan, const struct vka_clip_op *op,
                                   const struct vka_tensor *sums)
{
    for (uint32_t i = 0; i < op->n_gradient; i++) {
        const struct sum_axes square = {
            .name = "squares",
            .a = tensor_rank4(op->gradients[i]),
            .b = tensor_rank4(op->gradients[i]),
            .y = tensor_slice_along(sums, 3, i, 1),
            .reduced = 15,
            .term = TERM_PRODUCT,
            .scale = 1,
        };
        ENSURE(plan_sum_axes(plan, &square));
    }
    return VKA_OK;
}

static enum vka_status add(struct vka_plan *plan, const void *given)
{
    const struct vka_clip_op *op = given;
    struct vka_tensor sums, total, factor;
    ENSURE(check(plan, op));
    ENSURE(plan_scalar_scratch(plan, (uint32_t)op->n_gradient, &sums));
    ENSURE(plan_scalar_scratch(plan, 1, &total));
    ENSURE(plan_scalar_scratch(plan, 1, &factor));
    ENSURE(add_squares(plan, op, &sums));
    const struct sum_axes sum = {
        .name = "squares", .a = sums, .y = total, .reduced = 8, .term = TERM_VALUE, .scale = 1};
    const struct scalars clip = {.name = "norm",
                                 .kind = SCALARS_CLIP,
                                 .x = &total,
                                 .y = op->norm,
                                 .z = &factor,
                                 .params.max_norm = (float)op->max_norm};
    ENSURE(plan_sum_axes(plan, &sum));
    ENSURE(plan_scalars(plan, &clip));
    for (size_t i = 0; i < op->n_gradient; i++) {
        struct slope scale = {.name = "clip",
                              .dy = tensor_rank4(op->gradients[i]),
                              .x = factor,
                              .y = tensor_rank4(op->gradients[i]),
                              .kind = SLOPE_VALUE};
        axes_broadcast(&scale.x, scale.y.shape.size);
        ENSURE(plan_slope(plan, &scale));
    }
    return plan_count_nonfinite(plan, "norm", op->norm);
}

enum vka_status vka_plan_add_clip(struct vka_plan *plan, const struct vka_clip_op *op)
{
    return plan_add(plan, __func__, op, sizeof *op, add);
}
