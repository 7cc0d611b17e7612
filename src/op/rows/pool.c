/* Means over the rows of sequences. */
#include "core/dtype.h"
#include "op/common/axes.h"
#include "op/common/check.h"
#include "op/common/copy.h"
#include "op/common/nonfinite.h"
#include "plan/settle.h"
#include "params/each.h"

#include <stdio.h>

/* x and y of rank 4, [batch][1][n][width]; y has stride 0 along the rows. */
struct pool {
    struct axes_job axes;
    struct vka_tensor x, y;
    const struct vka_tensor *mask, *lengths; /* NULL: none */
};

static struct work work_of(const uint32_t size[4])
{
    double each = 2 * WORK_MOVE * size[2], n = (double)size[0] * size[3];
    double rows = size[2] / (double)POOL_EACH + 2.0 * size[2] / POOL_BLOCK + 3;
    return (struct work){n * each, each * ITEM_LANES * ITEMS_EACH, ITEMS_EACH * rows};
}

static void make_pass(const struct vka_plan *plan, const void *job, const struct slice *slice,
                      struct pass *pass)
{
    const struct pool *pool = job;
    const uint32_t *size = slice->size;
    const struct vka_tensor x = tensor_slice(&pool->x, slice), y = tensor_slice(&pool->y, slice);
    const struct vka_tensor mask =
        pool->mask ? tensor_slice_along(pool->mask, 0, slice->first[0], size[0]) : x;
    const struct vka_tensor lengths =
        pool->lengths ? tensor_slice_along(pool->lengths, 0, slice->first[0], size[0]) : x;
    struct pool_params p = {
        .batch = size[0],
        .n = size[2],
        .width = size[3],
        .x_batch = (uint32_t)x.shape.stride[0],
        .x_row = (uint32_t)x.shape.stride[2],
        .x_col = (uint32_t)x.shape.stride[3],
        .mask_batch = (uint32_t)mask.shape.stride[0],
        .mask_row = (uint32_t)mask.shape.stride[1],
        .length_step = (uint32_t)lengths.shape.stride[0],
        .y_batch = (uint32_t)y.shape.stride[0],
        .y_col = (uint32_t)y.shape.stride[3],
    };
    pass->name = "pool";
    pass->reason = "an invocation a column";
    pass->key = (struct pipeline_key){.kernel = KERNEL_pool, .n_spec = POOL_SPECS};
    pass->key.spec[POOL_X_TYPE] = x.dtype;
    pass->key.spec[POOL_MASK_TYPE] = pool->mask ? (uint32_t)mask.dtype : TYPE_NONE;
    pass->key.spec[POOL_LENGTHS] = pool->lengths != NULL;
    pass->key.spec[POOL_Y_TYPE] = y.dtype;
    plan_bind(plan, pass, 0, &x, false, &p.x_offset);
    plan_bind(plan, pass, 1, &mask, false, &p.mask_offset);
    plan_bind(plan, pass, 2, &lengths, false, &p.length_offset);
    plan_bind(plan, pass, 3, &y, true, &p.y_offset);
    const bool pairs = axes_are_pairs(&y, p.y_offset);
    pass->key.spec[POOL_PAIRS] = pairs;
    pass->key.spec[POOL_X_PAIRS] = pairs && axes_are_pairs(&x, p.x_offset);
    pass_set_push(pass, &p, sizeof p);
    axes_set_grid(pass, (double)size[0] * (pairs ? size[3] / 2 : size[3]));
    pass->work = work_of(size);
    snprintf(pass->detail, sizeof pass->detail, "%u of %u rows of %u, %s->%s", size[0], size[2],
             size[3], vka_dtype_name(x.dtype), vka_dtype_name(y.dtype));
}

static enum vka_status check(struct vka_plan *plan, const struct vka_pool_op *op)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    static const char *const caller = "vka_plan_add_pool";
    ENSURE(check_tensor(device, caller, "input", op->input, CHECK_FLOAT));
    const struct shape *x = &op->input->shape;
    ENSURE_ARG(x->rank == 3, "%s: input has rank %u, not 3", caller, x->rank);
    ENSURE_ARG(x->size[1] <= INT32_MAX, "%s: input has more than 2^31 - 1 rows", caller);
    if (op->mask) {
        const bool is_bool = op->mask->dtype == VKA_BOOL;
        ENSURE(check_tensor(device, caller, "mask", op->mask, is_bool ? 0 : CHECK_FLOAT));
        ENSURE(check_shape(device, caller, "mask", op->mask, 2, x->size));
    }
    if (op->lengths) {
        ENSURE(check_tensor(device, caller, "lengths", op->lengths, CHECK_I32));
        ENSURE(check_shape(device, caller, "lengths", op->lengths, 1, x->size));
    }
    ENSURE(check_tensor(device, caller, "output", op->output, CHECK_FLOAT | CHECK_WRITTEN));
    ENSURE(check_shape(device, caller, "output", op->output, 2,
                       (const uint32_t[]){x->size[0], x->size[2]}));
    const struct vka_tensor *inputs[] = {op->input, op->mask, op->lengths};
    return check_no_overlap(device, caller, "output", op->output, inputs, 3);
}

static enum vka_status add_pool(struct vka_plan *plan, const void *given)
{
    const struct vka_pool_op *op = given;
    ENSURE(check(plan, op));
    struct pool pool = {.x = tensor_one_head(op->input), .mask = op->mask, .lengths = op->lengths};
    struct shape *y = &pool.y.shape;
    pool.y = *op->output;
    *y = pool.x.shape;
    y->offset = op->output->shape.offset;
    y->stride[0] = op->output->shape.stride[0];
    y->stride[2] = 0;
    y->stride[3] = op->output->shape.stride[1];
    pool.axes = (struct axes_job){{&pool.x, &pool.y}};
    const struct cut cut = {
        .job = &pool,
        .multiple = {1, 1, CUT_NEVER, ITEM_LANES * ITEMS_EACH},
        .least = {1, 1, CUT_NEVER, 1},
        .kernel = KERNEL_pool,
        .whole = work_of(pool.x.shape.size),
        .probe = plan_probe_moves,
        .make = make_pass,
        .judge = axes_judge,
    };
    ENSURE(plan_settle_kernel(plan, KERNEL_pool));
    ENSURE(plan_cut(plan, &cut, pool.x.shape.size));
    return plan_count_nonfinite(plan, "output", op->output);
}

enum vka_status vka_plan_add_pool(struct vka_plan *plan, const struct vka_pool_op *op)
{
    return plan_add(plan, __func__, op, sizeof *op, add_pool);
}
