/* Gradients of the linear operation: two products and a sum over rows. */
#include "core/dtype.h"
#include "op/common/check.h"
#include "op/matmul/linear.h"
#include "op/common/nonfinite.h"
#include "op/train/sum.h"
#include "op/train/slope.h"
#include "op/train/linear.h"
#include "op/train/check.h"
#include "op/common/copy.h"
#include "op/matmul/matmul.h"

static const char caller[] = "vka_plan_add_linear_backward";

/* *rows: t as [rows][width], copied where no strides describe that. */
static enum vka_status flatten(struct vka_plan *plan, const char *name, const struct vka_tensor *t,
                               struct vka_tensor *rows)
{
    const struct shape *s = &t->shape;
    const uint32_t width = s->size[s->rank - 1];
    const uint64_t n = shape_count(s) / width;
    if (n > UINT32_MAX)
        return log_error(&plan->device->log, VKA_UNSUPPORTED, "%s: %s has more than 2^32 - 1 rows",
                         caller, name);
    const uint32_t size[2] = {(uint32_t)n, width};
    struct vka_tensor packed;
    *rows = *t;
    if (shape_reshape(s, 2, size, &rows->shape))
        return VKA_OK;
    const struct vka_tensor from = tensor_rank4(t);
    ENSURE(plan_scratch(plan, t->dtype, from.shape.size, &packed));
    ENSURE(plan_copy(plan, "pack", &from, &packed));
    *rows = packed;
    shape_dense(2, size, &rows->shape);
    rows->shape.offset = packed.shape.offset;
    return VKA_OK;
}

/* *target: where a product goes whose sum with the gradient's contents is taken next: float32 scratch,
 * or the gradient itself. */
static enum vka_status make_target(struct vka_plan *plan, const struct vka_gradient *gradient,
                                   struct vka_tensor *target)
{
    *target = *gradient->tensor;
    if (!gradient->accumulate)
        return VKA_OK;
    const struct vka_tensor like = tensor_rank4(gradient->tensor);
    struct vka_tensor scratch;
    ENSURE(plan_scratch(plan, VKA_F32, like.shape.size, &scratch));
    target->storage = scratch.storage;
    target->dtype = VKA_F32;
    shape_dense(gradient->tensor->shape.rank, gradient->tensor->shape.size, &target->shape);
    target->shape.offset = scratch.shape.offset;
    return VKA_OK;
}

/* gradient = target, where that is not done; with `relu` only where that is above 0. */
static enum vka_status finish(struct vka_plan *plan, const char *name,
                              const struct vka_gradient *gradient, const struct vka_tensor *target,
                              const struct vka_tensor *relu)
{
    struct slope slope = {
        .name = name,
        .dy = tensor_rank4(target),
        .x = tensor_rank4(relu ? relu : target),
        .y = tensor_rank4(gradient->tensor),
        .function = relu ? VKA_RELU : VKA_IDENTITY,
        .kind = SLOPE_DERIVATIVE,
        .add = gradient->accumulate,
    };
    return gradient->accumulate || relu ? plan_slope(plan, &slope) : VKA_OK;
}

static enum vka_status add_input(struct vka_plan *plan, const struct vka_linear_backward_op *op)
{
    const struct vka_tensor weight = tensor_transposed(op->weight);
    struct vka_tensor target;
    ENSURE(make_target(plan, &op->input_gradient, &target));
    ENSURE(plan_linear(plan, &(struct linear){.name = "linear dx",
                                              .input = op->output_gradient,
                                              .weight = &weight,
                                              .output = &target}));
    return finish(plan, "input_gradient", &op->input_gradient, &target,
                  op->relu_input ? op->input : NULL);
}

/* With relu_input the transposed product: its first operand is the input, to which ReLU applies. */
static enum vka_status add_weight(struct vka_plan *plan, const struct vka_linear_backward_op *op)
{
    struct vka_tensor x, dy, target;
    ENSURE(flatten(plan, "input", op->input, &x));
    ENSURE(flatten(plan, "output_gradient", op->output_gradient, &dy));
    ENSURE(make_target(plan, &op->weight_gradient, &target));
    x = tensor_transposed(&x);
    dy = tensor_transposed(&dy);
    const struct vka_tensor swapped = tensor_transposed(&target);
    struct matmul_op product = {
        .name = "linear dw",
        .a = tensor_rank4(op->relu_input ? &x : &dy),
        .b = tensor_rank4(op->relu_input ? &dy : &x),
        .c = tensor_rank4(op->relu_input ? &swapped : &target),
        .group = 1,
        .alpha = 1,
        .relu = op->relu_input,
    };
    ENSURE(plan_matmul(plan, &product));
    return finish(plan, "weight_gradient", &op->weight_gradient, &target, NULL);
}

static enum vka_status add_bias(struct vka_plan *plan, const struct vka_linear_backward_op *op)
{
    const struct sum_axes sum = {
        .name = "linear db",
        .a = tensor_rank4(op->output_gradient),
        .y = tensor_rank4(op->bias_gradient.tensor),
        .reduced = 7,
        .term = TERM_VALUE,
        .scale = 1,
        .add = op->bias_gradient.accumulate,
    };
    return plan_sum_axes(plan, &sum);
}

/* The operands: leading axes of dy, and widths that fit. */
static enum vka_status check_shapes(struct vka_device *device,
                                    const struct vka_linear_backward_op *op)
{
    struct log *log = &device->log;
    const struct shape *dy = &op->output_gradient->shape;
    struct shape x = *dy, w = {.rank = 2};
    ENSURE_ARG(!op->weight || op->weight->shape.rank == 2, "%s: weight has rank %u, not 2", caller,
               op->weight->shape.rank);
    const struct vka_tensor *like = op->input ? op->input : op->input_gradient.tensor;
    uint32_t out = dy->size[dy->rank - 1], in = op->weight ? op->weight->shape.size[1] : 1;
    if (!op->weight && like)
        in = like->shape.size[like->shape.rank - 1];
    x.size[x.rank - 1] = in;
    w.size[0] = out;
    w.size[1] = in;
    if (op->weight)
        ENSURE(check_shape(device, caller, "weight", op->weight, 2, w.size));
    if (op->input)
        ENSURE(check_shape(device, caller, "input", op->input, x.rank, x.size));
    ENSURE(train_check_gradient(device, caller, "input_gradient", &op->input_gradient, &x));
    ENSURE(train_check_gradient(device, caller, "weight_gradient", &op->weight_gradient, &w));
    w.rank = 1;
    return train_check_gradient(device, caller, "bias_gradient", &op->bias_gradient, &w);
}

static enum vka_status check(struct vka_plan *plan, const struct vka_linear_backward_op *op)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    ENSURE(check_tensor(device, caller, "output_gradient", op->output_gradient, CHECK_FLOAT));
    bool dx = op->input_gradient.tensor != NULL, dw = op->weight_gradient.tensor != NULL;
    ENSURE_ARG(dx || dw || op->bias_gradient.tensor, "%s: no gradient is wanted", caller);
    if (op->input || dw || (dx && op->relu_input))
        ENSURE(check_tensor(device, caller, "input", op->input, CHECK_FLOAT));
    if (op->weight || dx)
        ENSURE(check_tensor(device, caller, "weight", op->weight, CHECK_FLOAT));
    ENSURE(check_shapes(device, op));
    const struct named_tensor written[] = {{"input_gradient", op->input_gradient.tensor},
                                           {"weight_gradient", op->weight_gradient.tensor},
                                           {"bias_gradient", op->bias_gradient.tensor}};
    const struct vka_tensor *const inputs[] = {op->input, op->weight, op->output_gradient};
    return train_check_apart(device, caller, written, COUNTOF(written), inputs, COUNTOF(inputs));
}

enum vka_status plan_linear_backward(struct vka_plan *plan, const struct vka_linear_backward_op *op)
{
    if (op->input_gradient.tensor)
        ENSURE(add_input(plan, op));
    if (op->weight_gradient.tensor)
        ENSURE(add_weight(plan, op));
    return op->bias_gradient.tensor ? add_bias(plan, op) : VKA_OK;
}

static enum vka_status add(struct vka_plan *plan, const void *given)
{
    const struct vka_linear_backward_op *op = given;
    ENSURE(check(plan, op));
    ENSURE(plan_linear_backward(plan, op));
    ENSURE(plan_count_nonfinite(plan, "input_gradient", op->input_gradient.tensor));
    ENSURE(plan_count_nonfinite(plan, "weight_gradient", op->weight_gradient.tensor));
    return plan_count_nonfinite(plan, "bias_gradient", op->bias_gradient.tensor);
}

enum vka_status vka_plan_add_linear_backward(struct vka_plan *plan,
                                             const struct vka_linear_backward_op *op)
{
    return plan_add(plan, __func__, op, sizeof *op, add);
}
