#include "op/matmul/linear.h"
#include "core/dtype.h"
#include "op/common/check.h"
#include "op/common/nonfinite.h"
#include "op/matmul/matmul.h"

/* Merges axis j into the rows, axis 2, if the strides of both shapes allow it. */
static bool merge_axis(struct shape *in, struct shape *out, uint32_t j)
{
    uint32_t n = in->size[2], more = in->size[j];
    if (more == 1)
        return true;
    if ((uint64_t)more * n > UINT32_MAX)
        return false;
    if (n == 1) {
        in->stride[2] = in->stride[j];
        out->stride[2] = out->stride[j];
    } else if (in->stride[j] != in->stride[2] * n || out->stride[j] != out->stride[2] * n) {
        return false;
    }
    in->size[2] = out->size[2] = n * more;
    in->size[j] = out->size[j] = 1;
    return true;
}

enum vka_status plan_linear(struct vka_plan *plan, const struct linear *linear)
{
    struct matmul_op op = {
        .name = linear->name,
        .a = tensor_rank4(linear->input),
        .b = tensor_rank4(linear->weight),
        .b_tile = linear->b_tile,
        .scale = linear->scale,
        .c = tensor_rank4(linear->output),
        .bias = linear->bias,
        .group = 1,
        .alpha = 1,
        .relu = linear->relu,
        .accumulate = linear->accumulate,
        .integers = linear->integers,
    };
    /* Dense tensors [batch][n] are batch * n rows of one product. */
    if (merge_axis(&op.a.shape, &op.c.shape, 1))
        merge_axis(&op.a.shape, &op.c.shape, 0);
    for (uint32_t i = 0; i < 2; i++) { /* all share the weights */
        op.b.shape.size[i] = op.a.shape.size[i];
        op.b.shape.stride[i] = 0;
    }
    return plan_matmul(plan, &op);
}

static enum vka_status check_scale(struct vka_plan *plan, const char *caller,
                                   const struct vka_linear_op *op)
{
    struct log *log = &plan->device->log;
    const struct shape *w = &op->weight->shape;
    const enum vka_dtype dtype = op->weight->dtype;
    ENSURE_ARG(dtype_is_block(dtype) || (op->weight_scale != NULL) == (dtype == VKA_I8),
               "%s: weight_scale is %s, but weight is %s", caller,
               op->weight_scale ? "given" : "NULL", vka_dtype_name(dtype));
    ENSURE_ARG(dtype != VKA_I8 || w->size[1] == 1 || w->stride[1] == 1,
               "%s: the rows of weight are not contiguous, which i8 needs", caller);
    return check_vector(plan->device, caller, "weight_scale", op->weight_scale, w->size[0]);
}

static enum vka_status check(struct vka_plan *plan, const struct vka_linear_op *op)
{
    enum vka_status status = VKA_OK;
    struct log *log = &plan->device->log;
    static const char *const caller = "vka_plan_add_linear";
    TRY(check_tensor(plan->device, caller, "input", op->input, CHECK_FLOAT));
    TRY(check_tensor(plan->device, caller, "weight", op->weight, CHECK_WEIGHT));
    TRY(check_tensor(plan->device, caller, "output", op->output, CHECK_FLOAT | CHECK_WRITTEN));
    const struct shape *x = &op->input->shape, *w = &op->weight->shape, *y = &op->output->shape;
    uint32_t last = x->rank - 1;
    CHECK_ARG(w->rank == 2, "%s: weight has rank %u, not 2", caller, w->rank);
    CHECK_ARG(x->size[last] == w->size[1], "%s: input has width %u, but weight [%u, %u] needs %u",
              caller, x->size[last], w->size[0], w->size[1], w->size[1]);
    CHECK_ARG(y->rank == x->rank && y->size[last] == w->size[0],
              "%s: output does not have input's rank %u and weight's %u rows as its width", caller,
              x->rank, w->size[0]);
    for (uint32_t i = 0; i < last; i++)
        CHECK_ARG(y->size[i] == x->size[i], "%s: output's axis %u is %u, input's is %u", caller, i,
                  y->size[i], x->size[i]);
    TRY(check_scale(plan, caller, op));
    TRY(check_activations(plan->device, caller, op->activations, op->weight->dtype));
    if (op->bias) {
        TRY(check_tensor(plan->device, caller, "bias", op->bias, CHECK_FLOAT));
        CHECK_ARG(op->bias->shape.rank == 1 && op->bias->shape.size[0] == w->size[0] &&
                      (w->size[0] == 1 || op->bias->shape.stride[0] == 1),
                  "%s: bias is not a contiguous [%u]", caller, w->size[0]);
    }
    const struct vka_tensor *inputs[] = {op->input, op->weight, op->bias, op->weight_scale};
    TRY(check_no_overlap(plan->device, caller, "output", op->output, inputs, COUNTOF(inputs)));
fail:
    return status;
}

static enum vka_status add_linear(struct vka_plan *plan, const void *given)
{
    const struct vka_linear_op *op = given;
    enum vka_status status = VKA_OK;
    TRY(check(plan, op));
    TRY(plan_linear(plan, &(struct linear){.name = "linear",
                                           .input = op->input,
                                           .weight = op->weight,
                                           .scale = op->weight_scale,
                                           .bias = op->bias,
                                           .relu = op->relu_input,
                                           .accumulate = op->accumulate,
                                           .integers = op->activations == VKA_I8,
                                           .output = op->output}));
    TRY(plan_count_nonfinite(plan, "output", op->output));
fail:
    return status;
}

enum vka_status vka_plan_add_linear(struct vka_plan *plan, const struct vka_linear_op *op)
{
    return plan_add(plan, __func__, op, sizeof *op, add_linear);
}
