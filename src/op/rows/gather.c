/* Rows of a table by ids. */
#include "core/dtype.h"
#include "op/common/axes.h"
#include "op/common/check.h"
#include "op/common/copy.h"
#include "op/common/nonfinite.h"
#include "plan/scratch.h"
#include "plan/settle.h"

#include <math.h>
#include <stdio.h>

/* ids and y of rank 4, ids with a last axis of 1. */
struct gather {
    struct axes_job axes;
    struct vka_tensor table, ids, y;
    struct vka_tensor grid; /* of the table's type, where it has one */
    uint32_t first;         /* row of the whole table that is row 0 of `table` */
    uint32_t n_table;
    float scale;
};

static struct work work_of(const uint32_t size[4])
{
    double n = (double)size[0] * size[1] * size[2] * divide_up(size[3], 4);
    return (struct work){n * 4 * WORK_PLACE, 4 * WORK_PLACE * ITEM_LANES * ITEMS_EACH,
                         5 * ITEMS_EACH + 1};
}

static void make_pass(const struct vka_plan *plan, const void *job, const struct slice *slice,
                      struct pass *pass)
{
    const struct gather *gather = job;
    const uint32_t *size = slice->size;
    struct slice ids_slice = *slice;
    ids_slice.size[3] = 1;
    const struct vka_tensor ids = tensor_slice(&gather->ids, &ids_slice);
    const struct vka_tensor y = tensor_slice(&gather->y, slice), *table = &gather->table;
    uint32_t row_bytes;
    const struct shape rows = tensor_blocks(table, &row_bytes); /* in blocks of so many bytes */
    bool block = dtype_is_block(table->dtype);
    struct gather_params p = {
        .size0 = size[0],
        .size1 = size[1],
        .size2 = size[2],
        .size3 = size[3],
        .ids = axes_strides(&ids.shape),
        .y = axes_strides(&y.shape),
        .table_row = (uint32_t)(block ? rows.stride[0] * row_bytes : table->shape.stride[0]),
        .table_col = (uint32_t)table->shape.stride[1],
        .first = gather->first,
        .n_row = table->shape.size[0],
        .n_table = gather->n_table,
        .scale = gather->scale,
    };
    pass->name = "gather";
    pass->reason = "rows of a table";
    pass->key = (struct pipeline_key){.kernel = KERNEL_gather, .n_spec = GATHER_SPECS};
    plan_bind(plan, pass, 0, &ids, false, &p.ids.offset);
    plan_bind(plan, pass, 1, table, false, &p.table_offset);
    plan_bind(plan, pass, 2, &y, true, &p.y.offset);
    plan_bind(plan, pass, 3, HAS_GRID(table->dtype) ? &gather->grid : table, false, NULL);
    pass->key.spec[GATHER_TABLE_TYPE] = table->dtype;
    pass->key.spec[GATHER_Y_TYPE] = y.dtype;
    pass->key.spec[GATHER_PAIRS] = axes_are_pairs(&y, p.y.offset);
    pass_set_push(pass, &p, sizeof p);
    axes_set_grid(pass, (double)size[0] * size[1] * size[2] * divide_up(size[3], 4));
    pass->work = work_of(size);
    snprintf(pass->detail, sizeof pass->detail, "%ux%ux%ux%u of rows %u to %u, %s->%s", size[0],
             size[1], size[2], size[3], p.first, p.first + (p.n_row - 1),
             vka_dtype_name(table->dtype), vka_dtype_name(y.dtype));
}

/* Rows of the table that a binding holds; 0: none. */
static uint32_t rows_of_binding(const struct vka_plan *plan, const struct vka_tensor *table)
{
    uint32_t n = table->shape.size[0];
    const uint64_t limit = plan->caps.properties.max_buffer_range;
    while (n) {
        struct vka_tensor view = tensor_slice_along(table, 0, 0, n);
        /* A binding may begin up to its alignment before the first row. */
        if (plan_range(plan, &view) + plan_binding_alignment(plan) <= limit ||
            (n == table->shape.size[0] && plan_range(plan, &view) <= limit))
            break;
        n /= 2;
    }
    return n;
}

static enum vka_status check(struct vka_plan *plan, const struct vka_gather_op *op)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    static const char *const caller = "vka_plan_add_gather";
    uint32_t size[4] = {0};
    ENSURE(check_given(device, caller, op->given, VKA_GIVEN_SCALE));
    ENSURE_ARG(isfinite(op->scale), "%s: scale is %g", caller, (double)op->scale);
    ENSURE(check_tensor(device, caller, "table", op->table, CHECK_WEIGHT));
    ENSURE_ARG(op->table->dtype != VKA_I8, "%s: table is i8, which has no scales", caller);
    ENSURE_ARG(op->table->shape.rank == 2, "%s: table has rank %u, not 2", caller,
               op->table->shape.rank);
    ENSURE(check_tensor(device, caller, "ids", op->ids, CHECK_I32));
    ENSURE(check_tensor(device, caller, "output", op->output, CHECK_FLOAT | CHECK_WRITTEN));
    const struct shape *ids = &op->ids->shape;
    ENSURE_ARG(ids->rank < 4, "%s: ids has rank 4, not 1 to 3", caller);
    for (uint32_t i = 0; i < ids->rank; i++)
        size[i] = ids->size[i];
    size[ids->rank] = op->table->shape.size[1];
    ENSURE(check_shape(device, caller, "output", op->output, ids->rank + 1, size));
    const struct vka_tensor *inputs[] = {op->table, op->ids};
    return check_no_overlap(device, caller, "output", op->output, inputs, 2);
}

static enum vka_status add_gather(struct vka_plan *plan, const void *given)
{
    const struct vka_gather_op *op = given;
    ENSURE(check(plan, op));
    struct gather gather = {
        .ids = axes_append_one(op->ids),
        .y = tensor_rank4(op->output),
        .n_table = op->table->shape.size[0],
        .scale = (float)or_default((double)op->scale, op->given, VKA_GIVEN_SCALE, 1),
    };
    if (HAS_GRID(op->table->dtype))
        ENSURE(plan_grid(plan, op->table->dtype, &gather.grid));
    gather.axes = (struct axes_job){{&gather.y, &gather.ids}};
    const struct cut cut = {
        .job = &gather,
        .multiple = {1, 1, 1, CUT_NEVER},
        .least = {1, 1, 1, CUT_NEVER},
        .kernel = KERNEL_gather,
        .whole = work_of(gather.y.shape.size),
        .probe = plan_probe_moves,
        .make = make_pass,
        .judge = axes_judge,
    };
    const uint32_t rows = rows_of_binding(plan, op->table), all = gather.n_table;
    if (!rows)
        return log_error(&plan->device->log, VKA_UNSUPPORTED,
                         "vka_plan_add_gather: a row of table exceeds the %llu bytes that a kernel "
                         "can read",
                         (unsigned long long)plan->caps.properties.max_buffer_range);
    ENSURE(plan_settle_kernel(plan, KERNEL_gather));
    for (gather.first = 0; gather.first < all; gather.first += rows) {
        uint32_t left = all - gather.first;
        gather.table = tensor_slice_along(op->table, 0, gather.first, left < rows ? left : rows);
        ENSURE(plan_cut(plan, &cut, gather.y.shape.size));
        if (left <= rows) /* first + rows may pass 2^32 */
            break;
    }
    return plan_count_nonfinite(plan, "output", op->output);
}

enum vka_status vka_plan_add_gather(struct vka_plan *plan, const struct vka_gather_op *op)
{
    return plan_add(plan, __func__, op, sizeof *op, add_gather);
}
