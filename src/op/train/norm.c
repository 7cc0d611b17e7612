/* Gradients of RMS norm and layer norm. */
#include "op/rows/norm.h"
#include "core/dtype.h"
#include "op/common/check.h"
#include "op/common/copy.h"
#include "op/common/nonfinite.h"
#include "op/train/sum.h"
#include "op/train/norm.h"
#include "op/train/check.h"
#include "plan/settle.h"

#include <math.h>
#include <stdio.h>

static const char caller[] = "vka_plan_add_norm_backward";

/* All of rank 4, but the weight: a vector of a row, of rank 1. Storage NULL: absent. */
struct norm {
    struct axes_job axes;
    struct vka_tensor x, dy, dx, weight;
    struct vka_tensor stats; /* the rows' axes, 1 for those of a row, but the last: NORM_STATS */
    uint32_t inner, lanes;   /* axes of a row */
    bool center, add;
    float epsilon;
};

static uint64_t row_length(const struct norm *norm)
{
    return norm_row_length(&norm->x.shape, norm->inner);
}

/* Five times over the row; in the loops of an invocation those of a row that is scaled, too, see
 * lib/row_power.glsl. */
static struct work work_of(const struct norm *norm, double rows)
{
    double n = (double)row_length(norm), row = 8 * WORK_MOVE * n, rounds = n / norm->lanes + 1;
    return (struct work){rows * row, row, 7 * (rounds + rounds / BACK_BLOCK + 2)};
}

static void make_pass(const struct vka_plan *plan, const void *job, const struct slice *slice,
                      struct pass *pass)
{
    const struct norm *norm = job;
    const uint32_t *size = slice->size;
    struct slice rows_slice = *slice;
    uint64_t rows = 1;
    for (uint32_t i = 0; i < 4; i++) {
        if (i < 4 - norm->inner)
            rows *= size[i];
        else
            rows_slice.size[i] = norm->stats.shape.size[i];
    }
    const struct vka_tensor x = tensor_slice(&norm->x, slice), dy = tensor_slice(&norm->dy, slice);
    const struct vka_tensor dx = norm->dx.storage ? tensor_slice(&norm->dx, slice) : x;
    const struct vka_tensor stats = tensor_slice(&norm->stats, &rows_slice);
    struct norm_backward_params p = {
        .size0 = size[0],
        .size1 = size[1],
        .size2 = size[2],
        .size3 = size[3],
        .x = axes_strides(&x.shape),
        .dy = axes_strides(&dy.shape),
        .dx = axes_strides(&dx.shape),
        .stats0 = (uint32_t)stats.shape.stride[0],
        .stats1 = (uint32_t)stats.shape.stride[1],
        .stats2 = (uint32_t)stats.shape.stride[2],
        .weight_step = (uint32_t)norm->weight.shape.stride[0],
        .epsilon = norm->epsilon,
    };
    const bool weight = norm->weight.storage != NULL, wanted = norm->dx.storage != NULL;
    pass->name = "norm backward";
    pass->reason = "a workgroup a row";
    pass->key = (struct pipeline_key){.kernel = KERNEL_norm_backward, .n_spec = BACK_SPECS};
    plan_bind(plan, pass, 0, &x, false, &p.x.offset);
    plan_bind(plan, pass, 1, weight ? &norm->weight : &x, false, &p.weight_offset);
    plan_bind(plan, pass, 2, &dy, false, &p.dy.offset);
    plan_bind(plan, pass, 3, &dx, wanted, &p.dx.offset);
    plan_bind(plan, pass, 4, &stats, true, &p.stats_offset);
    pass->key.spec[BACK_LANES] = norm->lanes;
    pass->key.spec[BACK_X_TYPE] = x.dtype;
    pass->key.spec[BACK_WEIGHT_TYPE] = weight ? (uint32_t)norm->weight.dtype : TYPE_NONE;
    pass->key.spec[BACK_DY_TYPE] = dy.dtype;
    pass->key.spec[BACK_DX_TYPE] = wanted ? (uint32_t)dx.dtype : TYPE_NONE;
    pass->key.spec[BACK_CENTER] = norm->center;
    pass->key.spec[BACK_INNER] = norm->inner;
    pass->key.spec[BACK_ADD] = norm->add;
    pass_set_push(pass, &p, sizeof p);
    axes_set_row_grid(pass, rows);
    pass->work = work_of(norm, (double)rows);
    snprintf(pass->detail, sizeof pass->detail, "%llu rows of %llu, %s,%s->%s, %u lanes",
             (unsigned long long)rows, (unsigned long long)row_length(norm),
             vka_dtype_name(x.dtype), vka_dtype_name(dy.dtype),
             wanted ? vka_dtype_name(dx.dtype) : "statistics", norm->lanes);
}

/* Merges the axes of a row, and those before it. */
static void merge(struct norm *norm)
{
    const uint32_t first = 4 - norm->inner;
    struct shape *shapes[4] = {&norm->x.shape, &norm->dy.shape};
    size_t n = 2;
    if (norm->dx.storage)
        shapes[n++] = &norm->dx.shape;
    axes_merge(shapes, n, first, 4);
    shapes[n++] = &norm->stats.shape;
    if (first)
        axes_merge(shapes, n, 0, first);
    while (norm->inner > 1 && norm->x.shape.size[4 - norm->inner] == 1)
        norm->inner--;
    norm->axes = (struct axes_job){{&norm->x, &norm->dy, norm->dx.storage ? &norm->dx : NULL}};
}

static enum vka_status add_rows(struct vka_plan *plan, const struct vka_norm_backward_op *op,
                                const struct vka_tensor *stats)
{
    struct norm norm = {
        .x = tensor_rank4(op->input),
        .dy = tensor_rank4(op->output_gradient),
        .stats = *stats,
        .inner = op->axes ? op->axes : 1,
        .center = op->kind == VKA_LAYER_NORM,
        .add = op->input_gradient.accumulate,
        .epsilon = (float)or_default((double)op->epsilon, op->given, VKA_GIVEN_EPSILON, 1e-5),
    };
    if (op->input_gradient.tensor)
        norm.dx = tensor_rank4(op->input_gradient.tensor);
    ENSURE(plan_norm_vector(plan, caller, "weight", op->weight, &norm.weight));
    merge(&norm);
    norm.lanes = axes_choose_lanes(&plan->caps, row_length(&norm));
    struct cut cut = {
        .job = &norm,
        .kernel = KERNEL_norm_backward,
        .whole = work_of(&norm, (double)shape_count(&norm.x.shape) / (double)row_length(&norm)),
        .probe = plan_probe_moves,
        .make = make_pass,
        .judge = axes_judge,
    };
    for (uint32_t i = 0; i < 4; i++)
        cut.multiple[i] = cut.least[i] = i < 4 - norm.inner ? 1 : CUT_NEVER;
    return plan_cut(plan, &cut, norm.x.shape.size);
}

/* The gradient of the weight, or of the bias: sums over the rows. */
static enum vka_status add_sum(struct vka_plan *plan, const struct vka_norm_backward_op *op,
                               const struct vka_tensor *stats, const struct vka_gradient *gradient)
{
    if (!gradient->tensor)
        return VKA_OK;
    const uint32_t axes = op->axes ? op->axes : 1;
    struct sum_axes sum = {
        .name = "norm sums",
        .a = tensor_rank4(op->output_gradient),
        .y = tensor_rank4(gradient->tensor),
        .reduced = (1u << (4 - axes)) - 1,
        .term = stats ? TERM_NORMALISED : TERM_VALUE,
        .scale = 1,
        .add = gradient->accumulate,
        .stats = stats,
    };
    if (stats)
        sum.b = tensor_rank4(op->input);
    return plan_sum_axes(plan, &sum);
}

static enum vka_status check_vectors(struct vka_device *device,
                                     const struct vka_norm_backward_op *op)
{
    const struct shape *x = &op->input->shape;
    const uint32_t axes = op->axes ? op->axes : 1;
    struct shape row = {.rank = axes};
    for (uint32_t i = 0; i < axes; i++)
        row.size[i] = x->size[x->rank - axes + i];
    if (op->weight) {
        ENSURE(check_tensor(device, caller, "weight", op->weight, CHECK_FLOAT));
        ENSURE(check_shape(device, caller, "weight", op->weight, axes, row.size));
    }
    ENSURE(train_check_gradient(device, caller, "weight_gradient", &op->weight_gradient, &row));
    return train_check_gradient(device, caller, "bias_gradient", &op->bias_gradient, &row);
}

static enum vka_status check(struct vka_plan *plan, const struct vka_norm_backward_op *op)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    ENSURE_ARG((unsigned)op->kind < VKA_NORM_COUNT, "%s: kind is %d", caller, (int)op->kind);
    ENSURE(check_tensor(device, caller, "input", op->input, CHECK_FLOAT));
    ENSURE_ARG(op->axes <= op->input->shape.rank, "%s: axes is %u, input has rank %u", caller,
               op->axes, op->input->shape.rank);
    ENSURE(check_given(device, caller, op->given, VKA_GIVEN_EPSILON));
    ENSURE_ARG(op->epsilon >= 0 && isfinite(op->epsilon), "%s: epsilon is %g, not a number from 0",
               caller, (double)op->epsilon);
    ENSURE(check_tensor(device, caller, "output_gradient", op->output_gradient, CHECK_FLOAT));
    ENSURE(axes_check_like(device, caller, "output_gradient", op->output_gradient, op->input));
    const struct named_tensor written[] = {{"input_gradient", op->input_gradient.tensor},
                                           {"weight_gradient", op->weight_gradient.tensor},
                                           {"bias_gradient", op->bias_gradient.tensor}};
    ENSURE_ARG(written[0].tensor || written[1].tensor || written[2].tensor,
               "%s: no gradient is wanted", caller);
    ENSURE(train_check_gradient(device, caller, "input_gradient", &op->input_gradient,
                                &op->input->shape));
    ENSURE(check_vectors(device, op));
    const struct vka_tensor *const inputs[] = {op->input, op->weight, op->output_gradient};
    return train_check_apart(device, caller, written, COUNTOF(written), inputs, COUNTOF(inputs));
}

enum vka_status plan_norm_backward(struct vka_plan *plan, const struct vka_norm_backward_op *op)
{
    const struct vka_tensor x = tensor_rank4(op->input);
    const uint32_t outer = 4 - (op->axes ? op->axes : 1);
    uint32_t size[4] = {1, 1, 1, NORM_STATS};
    struct vka_tensor stats;
    for (uint32_t i = 0; i < outer; i++)
        size[i] = x.shape.size[i];
    ENSURE(plan_settle_kernel(plan, KERNEL_norm_backward));
    ENSURE(plan_scratch(plan, VKA_F32, size, &stats));
    if (op->input_gradient.tensor || op->weight_gradient.tensor)
        ENSURE(add_rows(plan, op, &stats));
    ENSURE(add_sum(plan, op, &stats, &op->weight_gradient));
    return add_sum(plan, op, NULL, &op->bias_gradient);
}

static enum vka_status add(struct vka_plan *plan, const void *given)
{
    const struct vka_norm_backward_op *op = given;
    ENSURE(check(plan, op));
    ENSURE(plan_norm_backward(plan, op));
    ENSURE(plan_count_nonfinite(plan, "input_gradient", op->input_gradient.tensor));
    ENSURE(plan_count_nonfinite(plan, "weight_gradient", op->weight_gradient.tensor));
    return plan_count_nonfinite(plan, "bias_gradient", op->bias_gradient.tensor);
}

enum vka_status vka_plan_add_norm_backward(struct vka_plan *plan,
                                           const struct vka_norm_backward_op *op)
{
    return plan_add(plan, __func__, op, sizeof *op, add);
}
