/* RMS norm and layer norm, with a residual added or gated. */
#include "core/dtype.h"
#include "op/common/axes.h"
#include "op/common/check.h"
#include "op/common/copy.h"
#include "op/common/nonfinite.h"
#include "op/rows/norm.h"
#include "plan/settle.h"

#include <math.h>
#include <stdio.h>

/* All of rank 4, but weight and bias: vectors of a row, of rank 1. Storage NULL: absent. */
struct norm {
    struct axes_job axes;
    struct vka_tensor x, other, sum, y, weight, bias; /* other: the residual or the gate */
    uint32_t inner, lanes;                            /* axes of a row */
    uint32_t gate, function;                          /* GATE_NONE: other is the residual */
    uint32_t groups;                                  /* more than 1: axis 2 is of them */
    bool center;
    float epsilon;
};

uint64_t norm_row_length(const struct shape *shape, uint32_t inner)
{
    uint64_t n = 1;
    for (uint32_t i = 4 - inner; i < 4; i++)
        n *= shape->size[i];
    return n;
}

static uint64_t row_length(const struct norm *norm)
{
    return norm_row_length(&norm->x.shape, norm->inner);
}

/* Three times over the row; in the loops of an invocation those of a row that is scaled, too, see
 * lib/row_power.glsl. */
static struct work work_of(const struct norm *norm, double rows)
{
    double n = (double)row_length(norm), row = 4 * WORK_MOVE * n;
    double rounds = n / 2 / norm->lanes + 1;
    const double loops = (norm->center ? 5 : 3) * (rounds + rounds / NORM_BLOCK + 2);
    return (struct work){rows * row, row, loops};
}

static void bind(const struct vka_plan *plan, struct pass *pass, uint32_t slot,
                 const struct vka_tensor *t, const struct vka_tensor *other, bool write,
                 uint32_t *offset)
{
    plan_bind(plan, pass, slot, t->storage ? t : other, write && t->storage, offset);
}

static uint32_t type_of(const struct vka_tensor *t)
{
    return t->storage ? (uint32_t)t->dtype : TYPE_NONE;
}

static struct vka_tensor slice_of(const struct vka_tensor *t, const struct slice *slice)
{
    return t->storage ? tensor_slice(t, slice) : *t;
}

static void make_pass(const struct vka_plan *plan, const void *job, const struct slice *slice,
                      struct pass *pass)
{
    const struct norm *norm = job;
    const uint32_t *size = slice->size;
    const struct vka_tensor x = tensor_slice(&norm->x, slice), y = tensor_slice(&norm->y, slice);
    const struct vka_tensor other = slice_of(&norm->other, slice);
    const struct vka_tensor sum = slice_of(&norm->sum, slice);
    uint64_t rows = 1;
    for (uint32_t i = 0; i < 4 - norm->inner; i++)
        rows *= size[i];
    struct norm_params p = {
        .size0 = size[0],
        .size1 = size[1],
        .size2 = size[2],
        .size3 = size[3],
        .x = axes_strides(&x.shape),
        .other = axes_strides(&other.shape),
        .sum = axes_strides(&sum.shape),
        .y = axes_strides(&y.shape),
        .weight_step = (uint32_t)norm->weight.shape.stride[0],
        .bias_step = (uint32_t)norm->bias.shape.stride[0],
        .epsilon = norm->epsilon,
    };
    pass->name = norm->center ? "layer norm" : "rms norm";
    pass->reason = "a workgroup a row";
    pass->key = (struct pipeline_key){.kernel = KERNEL_norm, .n_spec = NORM_SPECS};
    bind(plan, pass, 0, &x, &x, false, &p.x.offset);
    bind(plan, pass, 1, &other, &x, false, &p.other.offset);
    bind(plan, pass, 2, &norm->weight, &x, false, &p.weight_offset);
    bind(plan, pass, 3, &norm->bias, &x, false, &p.bias_offset);
    bind(plan, pass, 4, &sum, &x, true, &p.sum.offset);
    bind(plan, pass, 5, &y, &y, true, &p.y.offset);
    pass->key.spec[NORM_LANES] = norm->lanes;
    pass->key.spec[NORM_X_TYPE] = x.dtype;
    pass->key.spec[NORM_OTHER_TYPE] = type_of(&other);
    pass->key.spec[NORM_WEIGHT_TYPE] = type_of(&norm->weight);
    pass->key.spec[NORM_BIAS_TYPE] = type_of(&norm->bias);
    pass->key.spec[NORM_SUM_TYPE] = type_of(&sum);
    pass->key.spec[NORM_Y_TYPE] = y.dtype;
    pass->key.spec[NORM_CENTER] = norm->center;
    pass->key.spec[NORM_INNER] = norm->inner;
    pass->key.spec[NORM_GATE] = norm->gate;
    pass->key.spec[NORM_FUNCTION] = norm->function;
    pass->key.spec[NORM_GROUPS] = norm->groups > 1;
    pass->key.spec[NORM_SUM_PAIRS] = sum.storage && axes_are_pairs(&sum, p.sum.offset);
    pass->key.spec[NORM_Y_PAIRS] = axes_are_pairs(&y, p.y.offset);
    pass_set_push(pass, &p, sizeof p);
    axes_set_row_grid(pass, rows);
    pass->work = work_of(norm, (double)rows);
    snprintf(pass->detail, sizeof pass->detail, "%llu rows of %llu, %s->%s, %u lanes",
             (unsigned long long)rows, (unsigned long long)row_length(norm),
             vka_dtype_name(x.dtype), vka_dtype_name(y.dtype), norm->lanes);
}

/* Merges the axes of a row, and those before it. */
static void merge(struct norm *norm)
{
    struct shape *shapes[4] = {&norm->x.shape, &norm->y.shape};
    size_t n = 2;
    uint32_t first = 4 - norm->inner;
    if (norm->other.storage)
        shapes[n++] = &norm->other.shape;
    if (norm->sum.storage)
        shapes[n++] = &norm->sum.shape;
    axes_merge(shapes, n, first, 4);
    if (first)
        axes_merge(shapes, n, 0, norm->groups > 1 ? 2 : first);
    while (norm->inner > 1 && norm->x.shape.size[4 - norm->inner] == 1)
        norm->inner--;
    const struct vka_tensor *all[4] = {&norm->x, &norm->y,
                                       norm->other.storage ? &norm->other : NULL,
                                       norm->sum.storage ? &norm->sum : NULL};
    for (int i = 0; i < 4; i++)
        norm->axes.tensors[i] = all[i];
}

enum vka_status plan_norm_vector(struct vka_plan *plan, const char *caller, const char *name,
                                 const struct vka_tensor *t, struct vka_tensor *vector)
{
    struct vka_tensor packed;
    if (!t)
        return VKA_OK;
    *vector = *t;
    uint64_t count = shape_count(&t->shape);
    if (count > UINT32_MAX)
        return log_error(&plan->device->log, VKA_UNSUPPORTED,
                         "%s: %s has more than 2^32 - 1 elements", caller, name);
    const uint32_t n = (uint32_t)count;
    if (shape_reshape(&t->shape, 1, &n, &vector->shape))
        return VKA_OK;
    const struct vka_tensor from = tensor_rank4(t);
    ENSURE(plan_scratch(plan, t->dtype, from.shape.size, &packed));
    ENSURE(plan_copy(plan, "pack", &from, &packed));
    *vector = packed;
    shape_dense(1, &n, &vector->shape);
    vector->shape.offset = packed.shape.offset;
    return VKA_OK;
}

static enum vka_status check_vectors(struct vka_plan *plan, const char *caller,
                                     const struct vka_norm_op *op, uint32_t axes)
{
    const struct vka_tensor *const vectors[] = {op->weight, op->bias};
    static const char *const names[] = {"weight", "bias"};
    const struct shape *x = &op->input->shape;
    for (size_t i = 0; i < 2; i++) {
        if (!vectors[i])
            continue;
        ENSURE(check_tensor(plan->device, caller, names[i], vectors[i], CHECK_FLOAT));
        ENSURE(check_shape(plan->device, caller, names[i], vectors[i], axes,
                           x->size + x->rank - axes));
    }
    return VKA_OK;
}

/* A gate, and groups of rows. */
static enum vka_status check_gated(struct vka_plan *plan, const char *caller,
                                   const struct vka_norm_op *op)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    const struct shape *x = &op->input->shape;
    ENSURE(axes_check_like(device, caller, "gate", op->gate, op->input));
    ENSURE_ARG(!op->gate || (!op->residual && !op->sum),
               "%s: gate is given, and so is residual or sum: add them before", caller);
    ENSURE_ARG((unsigned)op->gate_activation < VKA_ACTIVATION_COUNT, "%s: gate_activation is %d",
               caller, (int)op->gate_activation);
    ENSURE_ARG(op->gate || (!op->gate_first && op->gate_activation == VKA_IDENTITY),
               "%s: gate_first or gate_activation is given, but gate is NULL", caller);
    if (op->groups <= 1)
        return VKA_OK;
    ENSURE_ARG(op->axes <= 1, "%s: groups is %u, and axes %u: groups are of the last axis alone",
               caller, op->groups, op->axes);
    ENSURE_ARG(x->size[x->rank - 1] % op->groups == 0,
               "%s: groups is %u, no divisor of the last axis of input, %u", caller, op->groups,
               x->size[x->rank - 1]);
    if (x->rank > 3)
        return log_error(log, VKA_UNSUPPORTED,
                         "%s: groups of an input of rank 4: reshape it to rank 3", caller);
    return VKA_OK;
}

static enum vka_status check(struct vka_plan *plan, const struct vka_norm_op *op)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    static const char *const caller = "vka_plan_add_norm";
    ENSURE_ARG((unsigned)op->kind < VKA_NORM_COUNT, "%s: kind is %d", caller, (int)op->kind);
    ENSURE(check_tensor(device, caller, "input", op->input, CHECK_FLOAT));
    ENSURE_ARG(op->axes <= op->input->shape.rank, "%s: axes is %u, input has rank %u", caller,
               op->axes, op->input->shape.rank);
    ENSURE(check_given(device, caller, op->given, VKA_GIVEN_EPSILON));
    ENSURE_ARG(op->epsilon >= 0 && isfinite(op->epsilon), "%s: epsilon is %g, not a number from 0",
               caller, (double)op->epsilon);
    ENSURE(check_tensor(device, caller, "output", op->output, CHECK_FLOAT | CHECK_WRITTEN));
    ENSURE(axes_check_like(device, caller, "output", op->output, op->input));
    ENSURE(axes_check_like(device, caller, "residual", op->residual, op->input));
    ENSURE(check_vectors(plan, caller, op, op->axes ? op->axes : 1));
    ENSURE(check_gated(plan, caller, op));
    const struct vka_tensor *others[] = {op->input, op->residual, op->weight,
                                         op->bias,  op->sum,      op->gate};
    if (op->sum) {
        ENSURE(check_tensor(device, caller, "sum", op->sum, CHECK_FLOAT | CHECK_WRITTEN));
        ENSURE(axes_check_like(device, caller, "sum", op->sum, op->input));
        ENSURE(axes_check_in_place(device, caller, "sum", op->sum, others, 4, 2));
    }
    others[0] = op->input;
    others[1] = op->residual;
    return axes_check_in_place(device, caller, "output", op->output, others, 6, 1);
}

/* At rank 4, with the groups of the last axis as axis 2. NULL: none. */
static struct vka_tensor split_groups(const struct vka_tensor *tensor, uint32_t groups)
{
    if (!tensor)
        return (struct vka_tensor){0};
    struct vka_tensor t = tensor_rank4(tensor);
    if (groups <= 1)
        return t;
    struct shape *s = &t.shape;
    for (int i = 0; i < 2; i++) {
        s->size[i] = s->size[i + 1];
        s->stride[i] = s->stride[i + 1];
    }
    s->size[3] /= groups;
    s->size[2] = groups;
    s->stride[2] = s->stride[3] * s->size[3];
    return t;
}

enum vka_status plan_norm(struct vka_plan *plan, const struct vka_norm_op *op)
{
    struct norm norm = {
        .x = split_groups(op->input, op->groups),
        .y = split_groups(op->output, op->groups),
        .other = split_groups(op->gate ? op->gate : op->residual, op->groups),
        .sum = split_groups(op->sum, op->groups),
        .gate = !op->gate        ? GATE_NONE
                : op->gate_first ? GATE_FIRST
                                 : GATE_BEHIND,
        .function = (uint32_t)op->gate_activation,
        .groups = op->groups,
        .inner = op->axes ? op->axes : 1,
        .center = op->kind == VKA_LAYER_NORM,
        .epsilon = (float)or_default((double)op->epsilon, op->given, VKA_GIVEN_EPSILON, 1e-5),
    };
    ENSURE(plan_settle_kernel(plan, KERNEL_norm));
    ENSURE(plan_norm_vector(plan, "vka_plan_add_norm", "weight", op->weight, &norm.weight));
    ENSURE(plan_norm_vector(plan, "vka_plan_add_norm", "bias", op->bias, &norm.bias));
    merge(&norm);
    norm.lanes = axes_choose_lanes(&plan->caps, row_length(&norm));
    struct cut cut = {
        .job = &norm,
        .kernel = KERNEL_norm,
        .whole = work_of(&norm, (double)shape_count(&norm.x.shape) / (double)row_length(&norm)),
        .probe = plan_probe_moves,
        .make = make_pass,
        .judge = axes_judge,
    };
    for (uint32_t i = 0; i < 4; i++)
        cut.multiple[i] = cut.least[i] = i < (norm.groups > 1 ? 2 : 4 - norm.inner) ? 1 : CUT_NEVER;
    return plan_cut(plan, &cut, norm.x.shape.size);
}

static enum vka_status add_norm(struct vka_plan *plan, const void *given)
{
    const struct vka_norm_op *op = given;
    ENSURE(check(plan, op));
    ENSURE(plan_norm(plan, op));
    ENSURE(plan_count_nonfinite(plan, "sum", op->sum));
    return plan_count_nonfinite(plan, "output", op->output);
}

enum vka_status vka_plan_add_norm(struct vka_plan *plan, const struct vka_norm_op *op)
{
    return plan_add(plan, __func__, op, sizeof *op, add_norm);
}
