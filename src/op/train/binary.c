/* Gradients of sums and products, whose operands broadcast. */
#include "op/common/check.h"
#include "op/common/nonfinite.h"
#include "op/train/sum.h"
#include "op/train/slope.h"
#include "op/train/check.h"

static const char caller[] = "vka_plan_add_binary_backward";

/* other: the other operand of a product; NULL: of a sum. */
static enum vka_status add_gradient(struct vka_plan *plan, const char *name,
                                    const struct vka_tensor *output_gradient,
                                    const struct vka_tensor *other,
                                    const struct vka_gradient *gradient)
{
    if (!gradient->tensor)
        return VKA_OK;
    const struct vka_tensor dy = tensor_rank4(output_gradient), y = tensor_rank4(gradient->tensor);
    struct vka_tensor wide = {0};
    const unsigned reduced = train_repeats(&y, dy.shape.size);
    if (other) {
        wide = tensor_rank4(other);
        axes_broadcast(&wide, dy.shape.size);
    }
    if (reduced) {
        const struct sum_axes sum = {
            .name = "binary gradient",
            .a = dy,
            .b = wide,
            .y = y,
            .reduced = reduced,
            .term = other ? TERM_PRODUCT : TERM_VALUE,
            .scale = 1,
            .add = gradient->accumulate,
        };
        ENSURE(plan_sum_axes(plan, &sum));
    } else {
        const struct slope slope = {
            .name = "binary gradient",
            .dy = dy,
            .x = other ? wide : dy,
            .y = y,
            .kind = other ? SLOPE_VALUE : SLOPE_DERIVATIVE,
            .add = gradient->accumulate,
        };
        ENSURE(plan_slope(plan, &slope));
    }
    return plan_count_nonfinite(plan, name, gradient->tensor);
}

/* Checks an operand, which need not be given, and its gradient: both broadcast to dy. */
static enum vka_status check_side(struct vka_device *device, const char *const names[2],
                                  const struct vka_tensor *operand,
                                  const struct vka_gradient *gradient, const struct vka_tensor *dy)
{
    struct log *log = &device->log;
    const struct vka_tensor *const sides[2] = {operand, gradient->tensor};
    const struct vka_tensor whole = tensor_rank4(dy);
    char got[SHAPE_TEXT], want[SHAPE_TEXT];
    for (int i = 0; i < 2; i++) {
        if (!sides[i])
            continue;
        ENSURE(check_tensor(device, caller, names[i], sides[i],
                            i ? CHECK_FLOAT | CHECK_WRITTEN : CHECK_FLOAT));
        struct vka_tensor wide = tensor_rank4(sides[i]);
        ENSURE_ARG(sides[i]->shape.rank <= dy->shape.rank &&
                       axes_broadcast(&wide, whole.shape.size),
                   "%s: %s %s does not broadcast to output_gradient %s", caller, names[i],
                   shape_text(&sides[i]->shape, got), shape_text(&dy->shape, want));
    }
    return operand ? train_check_gradient(device, caller, names[1], gradient, &operand->shape)
                   : VKA_OK;
}

static enum vka_status check(struct vka_plan *plan, const struct vka_binary_backward_op *op)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    static const char *const a_names[] = {"a", "a_gradient"}, *const b_names[] = {"b",
                                                                                  "b_gradient"};
    ENSURE_ARG((unsigned)op->kind < VKA_BINARY_COUNT, "%s: kind is %d", caller, (int)op->kind);
    ENSURE(check_tensor(device, caller, "output_gradient", op->output_gradient, CHECK_FLOAT));
    ENSURE_ARG(op->a_gradient.tensor || op->b_gradient.tensor, "%s: no gradient is wanted", caller);
    const bool product = op->kind == VKA_MULTIPLY;
    ENSURE_ARG(!product || !op->a_gradient.tensor || op->b,
               "%s: b is NULL, which a_gradient of a product needs", caller);
    ENSURE_ARG(!product || !op->b_gradient.tensor || op->a,
               "%s: a is NULL, which b_gradient of a product needs", caller);
    ENSURE(check_side(device, a_names, op->a, &op->a_gradient, op->output_gradient));
    ENSURE(check_side(device, b_names, op->b, &op->b_gradient, op->output_gradient));
    const struct named_tensor written[] = {{"a_gradient", op->a_gradient.tensor},
                                           {"b_gradient", op->b_gradient.tensor}};
    const struct vka_tensor *const inputs[] = {op->a, op->b, op->output_gradient};
    return train_check_apart(device, caller, written, COUNTOF(written), inputs, COUNTOF(inputs));
}

static enum vka_status add(struct vka_plan *plan, const void *given)
{
    const struct vka_binary_backward_op *op = given;
    ENSURE(check(plan, op));
    const bool product = op->kind == VKA_MULTIPLY;
    ENSURE(add_gradient(plan, "a_gradient", op->output_gradient, product ? op->b : NULL,
                        &op->a_gradient));
    return add_gradient(plan, "b_gradient", op->output_gradient, product ? op->a : NULL,
                        &op->b_gradient);
}

enum vka_status vka_plan_add_binary_backward(struct vka_plan *plan,
                                             const struct vka_binary_backward_op *op)
{
    return plan_add(plan, __func__, op, sizeof *op, add);
}
