#include "op/rows/argmax.h"
#include "core/dtype.h"
#include "op/common/axes.h"
#include "op/common/check.h"
#include "op/common/copy.h"
#include "plan/settle.h"

#include <stdio.h>

struct argmax {
    struct axes_job axes;
    struct vka_tensor x, y; /* y with the sizes of x, and stride 0 along axis 3 */
    uint32_t lanes;
    bool numbers; /* NaN and -inf do not count */
};

static struct work work_of(const struct argmax *argmax, double rows)
{
    double n = argmax->x.shape.size[3], row = WORK_MOVE * n;
    return (struct work){rows * row, row, n / argmax->lanes + 9};
}

static void make_pass(const struct vka_plan *plan, const void *job, const struct slice *slice,
                      struct pass *pass)
{
    const struct argmax *argmax = job;
    const uint32_t *size = slice->size;
    const struct vka_tensor x = tensor_slice(&argmax->x, slice),
                            y = tensor_slice(&argmax->y, slice);
    const uint64_t rows = (uint64_t)size[0] * size[1] * size[2]; /* may wrap; then none fits */
    struct argmax_params p = {
        .size0 = size[0],
        .size1 = size[1],
        .size2 = size[2],
        .size3 = size[3],
        .x = axes_strides(&x.shape),
        .y = axes_strides(&y.shape),
    };
    pass->name = "argmax";
    pass->reason = "a workgroup a row";
    pass->key = (struct pipeline_key){.kernel = KERNEL_argmax, .n_spec = ARGMAX_SPECS};
    pass->key.spec[ARGMAX_LANES] = argmax->lanes;
    pass->key.spec[ARGMAX_TYPE] = x.dtype;
    pass->key.spec[ARGMAX_NUMBERS] = argmax->numbers;
    plan_bind(plan, pass, 0, &x, false, &p.x.offset);
    plan_bind(plan, pass, 1, &y, true, &p.y.offset);
    pass_set_push(pass, &p, sizeof p);
    axes_set_row_grid(pass, rows);
    pass->work = work_of(argmax, (double)rows);
    snprintf(pass->detail, sizeof pass->detail, "%llu rows of %u, %s, %u lanes",
             (unsigned long long)rows, size[3], vka_dtype_name(x.dtype), argmax->lanes);
}

enum vka_status plan_argmax(struct vka_plan *plan, const struct vka_tensor *input,
                            const struct vka_tensor *output, bool numbers)
{
    struct argmax argmax = {.x = *input, .y = *output, .numbers = numbers};
    argmax.y.shape.size[3] = input->shape.size[3];
    argmax.y.shape.stride[3] = 0;
    argmax.lanes = axes_choose_lanes(&plan->caps, input->shape.size[3]);
    argmax.axes = (struct axes_job){{&argmax.x, &argmax.y}};
    const struct cut cut = {
        .job = &argmax,
        .multiple = {1, 1, 1, CUT_NEVER},
        .least = {1, 1, 1, CUT_NEVER},
        .kernel = KERNEL_argmax,
        .whole = work_of(&argmax, (double)shape_count(&argmax.x.shape) / input->shape.size[3]),
        .probe = plan_probe_moves,
        .make = make_pass,
        .judge = axes_judge,
    };
    ENSURE(plan_settle_kernel(plan, KERNEL_argmax));
    return plan_cut(plan, &cut, argmax.x.shape.size);
}

static enum vka_status check(struct vka_plan *plan, const struct vka_argmax_op *op)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    static const char *const caller = "vka_plan_add_argmax";
    ENSURE(check_tensor(device, caller, "input", op->input, CHECK_FLOAT));
    ENSURE(check_tensor(device, caller, "output", op->output, CHECK_I32 | CHECK_WRITTEN));
    const struct shape *x = &op->input->shape;
    const uint32_t one = 1, rank = x->rank > 1 ? x->rank - 1 : 1;
    ENSURE_ARG(x->size[x->rank - 1] <= INT32_MAX, "%s: input has rows of more than 2^31 - 1",
               caller);
    ENSURE(check_shape(device, caller, "output", op->output, rank, x->rank > 1 ? x->size : &one));
    const struct vka_tensor *inputs[] = {op->input};
    return check_no_overlap(device, caller, "output", op->output, inputs, 1);
}

static enum vka_status add_argmax(struct vka_plan *plan, const void *given)
{
    const struct vka_argmax_op *op = given;
    ENSURE(check(plan, op));
    const struct vka_tensor input = tensor_rank4(op->input), output = axes_append_one(op->output);
    return plan_argmax(plan, &input, &output, false);
}

enum vka_status vka_plan_add_argmax(struct vka_plan *plan, const struct vka_argmax_op *op)
{
    return plan_add(plan, __func__, op, sizeof *op, add_argmax);
}
