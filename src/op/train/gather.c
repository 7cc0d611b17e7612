/* Gradients of the rows of a table. */
#include "core/dtype.h"
#include "op/common/check.h"
#include "op/common/copy.h"
#include "op/common/nonfinite.h"
#include "op/train/slope.h"
#include "plan/settle.h"

#include <math.h>
#include <stdio.h>

static const char caller[] = "vka_plan_add_gather_backward";

/* ids and dy of rank 4, ids with a last axis of 1; y [1][1][rows of the table][width]. */
struct rows {
    struct axes_job axes;
    struct vka_tensor ids, dy, y;
    uint32_t first, n; /* ids of these passes */
    float scale;
    bool add;
};

static struct work work_of(const struct rows *rows, const uint32_t size[4])
{
    const double blocks = divide_up(size[3], ROWS_COLUMNS);
    /* At worst all ids are of one row, and each other workgroup only looks at them. */
    const double looks = WORK_MOVE * rows->n, sums = 2.0 * WORK_MOVE * rows->n * ROWS_COLUMNS;
    return (struct work){blocks * (size[2] * looks + sums), looks + sums,
                         2.0 * divide_up(rows->n, ROWS_LANES) + 5.0 * rows->n};
}

static void make_pass(const struct vka_plan *plan, const void *job, const struct slice *slice,
                      struct pass *pass)
{
    const struct rows *rows = job;
    const struct vka_tensor dy = tensor_slice_along(&rows->dy, 3, slice->first[3], slice->size[3]);
    const struct vka_tensor y = tensor_slice(&rows->y, slice);
    struct gather_backward_params p = {
        .size0 = dy.shape.size[0],
        .size1 = dy.shape.size[1],
        .size2 = dy.shape.size[2],
        .width = slice->size[3],
        .ids = axes_strides(&rows->ids.shape),
        .dy = axes_strides(&dy.shape),
        .y_row = (uint32_t)y.shape.stride[2],
        .y_col = (uint32_t)y.shape.stride[3],
        .first = rows->first,
        .n = rows->n,
        .row_first = slice->first[2],
        .n_row = slice->size[2],
        .scale = rows->scale,
    };
    pass->name = "gather backward";
    pass->reason = "a workgroup a row of the table";
    pass->key = (struct pipeline_key){.kernel = KERNEL_gather_backward, .n_spec = ROWS_SPECS};
    plan_bind(plan, pass, 0, &rows->ids, false, &p.ids.offset);
    plan_bind(plan, pass, 1, &dy, false, &p.dy.offset);
    plan_bind(plan, pass, 2, &y, true, &p.y_offset);
    pass->key.spec[ROWS_DY_TYPE] = dy.dtype;
    pass->key.spec[ROWS_Y_TYPE] = y.dtype;
    pass->key.spec[ROWS_ADD] = rows->add;
    pass->key.spec[ROWS_PAIRS] = axes_are_pairs(&y, p.y_offset);
    pass_set_push(pass, &p, sizeof p);
    pass->groups[0] = (uint32_t)least(p.n_row, ITEM_GRID);
    pass->groups[1] = p.n_row / ITEM_GRID + (p.n_row % ITEM_GRID != 0);
    pass->groups[2] = divide_up(p.width, ROWS_COLUMNS);
    pass->work = work_of(rows, slice->size);
    snprintf(pass->detail, sizeof pass->detail, "%u rows of %u, %u ids from %u on, %s->%s", p.n_row,
             p.width, p.n, p.first, vka_dtype_name(dy.dtype), vka_dtype_name(y.dtype));
}

static enum vka_status add_ids(struct vka_plan *plan, struct rows *rows)
{
    const struct cut cut = {
        .job = rows,
        .multiple = {1, 1, 1, ROWS_COLUMNS},
        .least = {1, 1, 1, 1},
        .kernel = KERNEL_gather_backward,
        .whole = work_of(rows, rows->y.shape.size),
        .probe = plan_probe_moves,
        .make = make_pass,
        .judge = axes_judge,
    };
    rows->axes = (struct axes_job){{&rows->y}};
    return plan_cut(plan, &cut, rows->y.shape.size);
}

static enum vka_status check(struct vka_plan *plan, const struct vka_gather_backward_op *op)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    uint32_t size[4] = {0};
    ENSURE(check_given(device, caller, op->given, VKA_GIVEN_SCALE));
    ENSURE_ARG(isfinite(op->scale), "%s: scale is %g", caller, (double)op->scale);
    ENSURE(check_tensor(device, caller, "ids", op->ids, CHECK_I32));
    ENSURE(check_tensor(device, caller, "output_gradient", op->output_gradient, CHECK_FLOAT));
    const struct vka_tensor *table = op->table_gradient.tensor;
    ENSURE(check_tensor(device, caller, "table_gradient", table, CHECK_FLOAT | CHECK_WRITTEN));
    ENSURE_ARG(table->shape.rank == 2, "%s: table_gradient has rank %u, not 2", caller,
               table->shape.rank);
    ENSURE_ARG(table->shape.size[0] <= INT32_MAX, "%s: table_gradient has more than 2^31 - 1 rows",
               caller);
    const struct shape *ids = &op->ids->shape;
    ENSURE_ARG(ids->rank < 4, "%s: ids has rank 4, not 1 to 3", caller);
    for (uint32_t i = 0; i < ids->rank; i++)
        size[i] = ids->size[i];
    size[ids->rank] = table->shape.size[1];
    ENSURE(
        check_shape(device, caller, "output_gradient", op->output_gradient, ids->rank + 1, size));
    const struct vka_tensor *const inputs[] = {op->ids, op->output_gradient};
    return check_no_overlap(device, caller, "table_gradient", table, inputs, 2);
}

/* Sums of so many ids in float32, and then in the gradient. */
static enum vka_status add_many(struct vka_plan *plan, struct rows *rows, uint32_t n,
                                const struct vka_gradient *gradient)
{
    const struct vka_tensor y = rows->y;
    ENSURE(plan_scratch(plan, VKA_F32, y.shape.size, &rows->y));
    for (rows->first = 0; rows->first < n; rows->first += ROWS_IDS) {
        rows->n = n - rows->first < ROWS_IDS ? n - rows->first : ROWS_IDS;
        rows->add = rows->first > 0;
        ENSURE(add_ids(plan, rows));
    }
    const struct slope slope = {
        .name = "gather gradient",
        .dy = rows->y,
        .x = rows->y,
        .y = y,
        .kind = SLOPE_DERIVATIVE,
        .add = gradient->accumulate,
    };
    return plan_slope(plan, &slope);
}

static enum vka_status add(struct vka_plan *plan, const void *given)
{
    const struct vka_gather_backward_op *op = given;
    ENSURE(check(plan, op));
    const struct vka_gradient *gradient = &op->table_gradient;
    struct rows rows = {
        .ids = axes_append_one(op->ids),
        .dy = tensor_rank4(op->output_gradient),
        .y = tensor_rank4(gradient->tensor),
        .scale = (float)or_default((double)op->scale, op->given, VKA_GIVEN_SCALE, 1),
        .add = gradient->accumulate,
    };
    const uint64_t n = shape_count(&op->ids->shape);
    if (n > INT32_MAX)
        return log_error(&plan->device->log, VKA_UNSUPPORTED, "%s: ids has more than 2^31 - 1",
                         caller);
    ENSURE(plan_settle_kernel(plan, KERNEL_gather_backward));
    rows.n = (uint32_t)n;
    if (n <= ROWS_IDS)
        ENSURE(add_ids(plan, &rows));
    else
        ENSURE(add_many(plan, &rows, (uint32_t)n, gradient));
    return plan_count_nonfinite(plan, "table_gradient", gradient->tensor);
}

enum vka_status vka_plan_add_gather_backward(struct vka_plan *plan,
                                             const struct vka_gather_backward_op *op)
{
    return plan_add(plan, __func__, op, sizeof *op, add);
}
