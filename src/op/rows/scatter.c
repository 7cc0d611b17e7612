/* Rows into a tensor at positions that the device knows. */
#include "core/dtype.h"
#include "op/common/axes.h"
#include "op/common/check.h"
#include "op/common/copy.h"
#include "op/common/nonfinite.h"
#include "plan/settle.h"

#include <stdio.h>

/* All tensors have rank 4. */
struct scatter {
    struct axes_job axes; /* x alone, as y is longer along `axis` */
    struct vka_tensor x, y;
    const struct vka_tensor *positions; /* NULL: none */
    uint32_t axis;
    bool circular;
};

static struct work work_of(const uint32_t size[4])
{
    double n = (double)size[0] * size[1] * size[2] * size[3];
    return (struct work){n * WORK_PLACE, WORK_PLACE * ITEM_LANES * ITEMS_EACH, ITEMS_EACH + 1};
}

static void make_pass(const struct vka_plan *plan, const void *job, const struct slice *slice,
                      struct pass *pass)
{
    const struct scatter *scatter = job;
    const uint32_t *size = slice->size;
    struct slice to = *slice;
    to.first[scatter->axis] = 0;
    to.size[scatter->axis] = scatter->y.shape.size[scatter->axis];
    const struct vka_tensor x = tensor_slice(&scatter->x, slice),
                            y = tensor_slice(&scatter->y, &to);
    const struct vka_tensor positions =
        scatter->positions ? tensor_slice_along(scatter->positions, 0, slice->first[0], size[0])
                           : x;
    struct scatter_params p = {
        .size0 = size[0],
        .size1 = size[1],
        .size2 = size[2],
        .size3 = size[3],
        .x = axes_strides(&x.shape),
        .y = axes_strides(&y.shape),
        .position_step = (uint32_t)positions.shape.stride[0],
        .axis = scatter->axis,
        .extent = to.size[scatter->axis],
        .first = slice->first[scatter->axis],
    };
    pass->name = "scatter";
    pass->reason = "rows at positions";
    pass->key = (struct pipeline_key){.kernel = KERNEL_scatter, .n_spec = SCATTER_SPECS};
    plan_bind(plan, pass, 0, &x, false, &p.x.offset);
    plan_bind(plan, pass, 1, &positions, false, &p.position_offset);
    plan_bind(plan, pass, 2, &y, true, &p.y.offset);
    pass->key.spec[SCATTER_X_TYPE] = x.dtype;
    pass->key.spec[SCATTER_Y_TYPE] = y.dtype;
    pass->key.spec[SCATTER_POSITIONS] = scatter->positions != NULL;
    pass->key.spec[SCATTER_CIRCULAR] = scatter->circular;
    struct vka_tensor stored = y;
    stored.shape.size[3] = size[3];
    const bool pairs = axes_are_pairs(&stored, p.y.offset);
    pass->key.spec[SCATTER_PAIRS] = !pairs               ? 0
                                    : scatter->axis == 3 ? SCATTER_PLACES
                                                         : SCATTER_WORDS;
    pass_set_push(pass, &p, sizeof p);
    axes_set_grid(pass, (double)size[0] * size[1] * size[2] * (pairs ? size[3] / 2 : size[3]));
    pass->work = work_of(size);
    snprintf(pass->detail, sizeof pass->detail, "%ux%ux%ux%u into %u of axis %u, %s->%s", size[0],
             size[1], size[2], size[3], p.extent, p.axis, vka_dtype_name(x.dtype),
             vka_dtype_name(y.dtype));
}

static enum vka_status check(struct vka_plan *plan, const struct vka_scatter_op *op)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    static const char *const caller = "vka_plan_add_scatter";
    ENSURE(check_tensor(device, caller, "update", op->update, CHECK_FLOAT));
    ENSURE(check_tensor(device, caller, "output", op->output, CHECK_FLOAT | CHECK_WRITTEN));
    const struct shape *x = &op->update->shape, *y = &op->output->shape;
    ENSURE_ARG(op->axis >= 1 && op->axis < x->rank, "%s: axis is %u, update has rank %u", caller,
               op->axis, x->rank);
    bool like = x->rank == y->rank;
    for (uint32_t i = 0; like && i < x->rank; i++)
        like = i == op->axis || x->size[i] == y->size[i];
    ENSURE_ARG(like, "%s: output differs from update on another axis than %u", caller, op->axis);
    ENSURE_ARG(!op->circular || x->size[op->axis] <= y->size[op->axis],
               "%s: update is longer than output along axis %u, and circular", caller, op->axis);
    if (op->positions) {
        ENSURE(check_tensor(device, caller, "positions", op->positions, CHECK_I32));
        ENSURE(check_shape(device, caller, "positions", op->positions, 1, x->size));
    }
    const struct vka_tensor *inputs[] = {op->update, op->positions};
    return check_no_overlap(device, caller, "output", op->output, inputs, 2);
}

/* At rank 4 with axes of 1 behind axis 0, which the positions are of: neighbours lie along the last. */
static struct vka_tensor insert_axes(const struct vka_tensor *tensor)
{
    struct vka_tensor t = *tensor;
    const struct shape *from = &tensor->shape;
    const uint32_t more = 4 - from->rank;
    t.shape.rank = 4;
    for (uint32_t i = 1; i < 4; i++) {
        t.shape.size[i] = i > more ? from->size[i - more] : 1;
        t.shape.stride[i] = i > more ? from->stride[i - more] : 0;
    }
    return t;
}

static enum vka_status add_scatter(struct vka_plan *plan, const void *given)
{
    const struct vka_scatter_op *op = given;
    ENSURE(check(plan, op));
    struct scatter scatter = {.x = insert_axes(op->update),
                              .y = insert_axes(op->output),
                              .positions = op->positions,
                              .axis = op->axis + 4 - op->update->shape.rank,
                              .circular = op->circular};
    scatter.axes = (struct axes_job){{&scatter.x}};
    struct cut cut = {
        .job = &scatter,
        .multiple = {1, 1, 1, 1},
        .least = {1, 1, 1, 1},
        .kernel = KERNEL_scatter,
        .whole = work_of(scatter.x.shape.size),
        .probe = plan_probe_moves,
        .make = make_pass,
        .judge = axes_judge,
    };
    cut.multiple[3] = ITEM_LANES * ITEMS_EACH;
    ENSURE(plan_settle_kernel(plan, KERNEL_scatter));
    ENSURE(plan_cut(plan, &cut, scatter.x.shape.size));
    return plan_count_nonfinite(plan, "output", op->output);
}

enum vka_status vka_plan_add_scatter(struct vka_plan *plan, const struct vka_scatter_op *op)
{
    return plan_add(plan, __func__, op, sizeof *op, add_scatter);
}
