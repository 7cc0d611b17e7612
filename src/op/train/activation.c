/* Gradients of element-wise functions and their gated forms. */
#include "op/common/check.h"
#include "op/common/nonfinite.h"
#include "op/train/sum.h"
#include "op/train/slope.h"
#include "op/train/check.h"

#include <math.h>

static const char caller[] = "vka_plan_add_activation_backward";

/* Operands of rank 4 and of output_gradient's sizes, with stride 0 where they repeat. */
struct operands {
    struct vka_tensor dy, x, b; /* b: storage NULL: none */
    float alpha;
};

/* The gradient of the input, or of the multiplier. */
static enum vka_status add_gradient(struct vka_plan *plan, const char *name,
                                    const struct vka_activation_backward_op *op,
                                    const struct operands *t, bool of_multiplier,
                                    const struct vka_gradient *gradient)
{
    if (!gradient->tensor)
        return VKA_OK;
    const uint32_t *size = t->dy.shape.size;
    const struct vka_tensor y = tensor_rank4(gradient->tensor);
    const unsigned reduced = train_repeats(&y, size);
    struct slope slope = {
        .name = of_multiplier ? "multiplier gradient" : "activation gradient",
        .dy = t->dy,
        .x = t->x,
        .b = of_multiplier ? (struct vka_tensor){0} : t->b,
        .y = y,
        .function = op->kind,
        .kind = of_multiplier ? SLOPE_VALUE : SLOPE_DERIVATIVE,
        .alpha = t->alpha,
        .add = gradient->accumulate && !reduced,
    };
    if (reduced)
        ENSURE(plan_scratch(plan, VKA_F32, size, &slope.y));
    ENSURE(plan_slope(plan, &slope));
    if (reduced) {
        const struct sum_axes sum = {
            .name = slope.name,
            .a = slope.y,
            .y = y,
            .reduced = reduced,
            .term = TERM_VALUE,
            .scale = 1,
            .add = gradient->accumulate,
        };
        ENSURE(plan_sum_axes(plan, &sum));
        plan_scratch_free(plan, &slope.y);
    }
    return plan_count_nonfinite(plan, name, gradient->tensor);
}

static enum vka_status check_overlaps(struct vka_device *device,
                                      const struct vka_activation_backward_op *op)
{
    const struct vka_tensor *dx = op->input_gradient.tensor;
    const struct named_tensor written[] = {{"input_gradient", dx},
                                           {"multiplier_gradient", op->multiplier_gradient.tensor}};
    const struct vka_tensor *inputs[] = {op->input, op->multiplier, op->output_gradient};
    if (dx && !op->input_gradient.accumulate && !op->multiplier_gradient.tensor &&
        axes_same(dx, op->output_gradient))
        inputs[2] = NULL;
    return train_check_apart(device, caller, written, COUNTOF(written), inputs, COUNTOF(inputs));
}

/* Checks an operand and broadcasts it. */
static enum vka_status check_operand(struct vka_device *device, const char *name,
                                     const struct vka_tensor *t, const struct vka_tensor *dy,
                                     struct vka_tensor *wide)
{
    struct log *log = &device->log;
    char got[SHAPE_TEXT], want[SHAPE_TEXT];
    const struct vka_tensor whole = tensor_rank4(dy);
    ENSURE(check_tensor(device, caller, name, t, CHECK_FLOAT));
    *wide = tensor_rank4(t);
    ENSURE_ARG(t->shape.rank <= dy->shape.rank && axes_broadcast(wide, whole.shape.size),
               "%s: %s %s does not broadcast to output_gradient %s", caller, name,
               shape_text(&t->shape, got), shape_text(&dy->shape, want));
    return VKA_OK;
}

static enum vka_status check(struct vka_plan *plan, const struct vka_activation_backward_op *op,
                             struct operands *t)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    ENSURE_ARG((unsigned)op->kind < VKA_ACTIVATION_COUNT, "%s: kind is %d", caller, (int)op->kind);
    ENSURE_ARG(isfinite(op->alpha), "%s: alpha is %g", caller, (double)op->alpha);
    ENSURE(check_tensor(device, caller, "output_gradient", op->output_gradient, CHECK_FLOAT));
    ENSURE(check_operand(device, "input", op->input, op->output_gradient, &t->x));
    if (op->multiplier)
        ENSURE(check_operand(device, "multiplier", op->multiplier, op->output_gradient, &t->b));
    ENSURE_ARG(op->multiplier || !op->multiplier_gradient.tensor,
               "%s: multiplier_gradient is given, but multiplier is NULL", caller);
    ENSURE_ARG(op->input_gradient.tensor || op->multiplier_gradient.tensor,
               "%s: no gradient is wanted", caller);
    ENSURE(train_check_gradient(device, caller, "input_gradient", &op->input_gradient,
                                &op->input->shape));
    if (op->multiplier)
        ENSURE(train_check_gradient(device, caller, "multiplier_gradient", &op->multiplier_gradient,
                                    &op->multiplier->shape));
    return check_overlaps(device, op);
}

static enum vka_status add(struct vka_plan *plan, const void *given)
{
    const struct vka_activation_backward_op *op = given;
    struct operands t = {0};
    ENSURE(check(plan, op, &t));
    t.dy = tensor_rank4(op->output_gradient);
    t.alpha = op->alpha != 0 ? op->alpha : 1;
    ENSURE(add_gradient(plan, "multiplier_gradient", op, &t, true, &op->multiplier_gradient));
    return add_gradient(plan, "input_gradient", op, &t, false, &op->input_gradient);
}

enum vka_status vka_plan_add_activation_backward(struct vka_plan *plan,
                                                 const struct vka_activation_backward_op *op)
{
    return plan_add(plan, __func__, op, sizeof *op, add);
}
