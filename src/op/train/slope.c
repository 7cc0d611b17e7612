/* Gradients element by element. */
#include "core/dtype.h"
#include "op/common/copy.h"
#include "op/train/slope.h"
#include "plan/settle.h"

#include <stdio.h>

static struct work work_of(const struct slope *op, const uint32_t size[4])
{
    double n = (double)size[0] * size[1] * size[2] * size[3];
    double each = op->function ? 2 * WORK_SCORE : 3 * WORK_MOVE;
    return (struct work){n * each, 2 * ITEM_LANES * ITEMS_EACH * each, ITEMS_EACH + 1};
}

static void make_pass(const struct vka_plan *plan, const void *job, const struct slice *slice,
                      struct pass *pass)
{
    const struct slope *op = job;
    const uint32_t *size = slice->size;
    const struct vka_tensor dy = tensor_slice(&op->dy, slice), x = tensor_slice(&op->x, slice);
    const struct vka_tensor b = op->b.storage ? tensor_slice(&op->b, slice) : x;
    const struct vka_tensor y = tensor_slice(&op->y, slice);
    struct map_backward_params p = {
        .size0 = size[0],
        .size1 = size[1],
        .size2 = size[2],
        .size3 = size[3],
        .dy = axes_strides(&dy.shape),
        .x = axes_strides(&x.shape),
        .b = axes_strides(&b.shape),
        .y = axes_strides(&y.shape),
        .alpha = op->alpha,
        .scale = op->scale,
    };
    pass->name = op->name;
    pass->reason = "element by element";
    pass->key = (struct pipeline_key){.kernel = KERNEL_map_backward, .n_spec = SLOPE_SPECS};
    plan_bind(plan, pass, 0, &dy, false, &p.dy.offset);
    plan_bind(plan, pass, 1, &x, false, &p.x.offset);
    plan_bind(plan, pass, 2, &b, false, &p.b.offset);
    plan_bind(plan, pass, 3, &y, true, &p.y.offset);
    pass->key.spec[SLOPE_DY_TYPE] = dy.dtype;
    pass->key.spec[SLOPE_X_TYPE] = x.dtype;
    pass->key.spec[SLOPE_B_TYPE] = op->b.storage ? (uint32_t)b.dtype : TYPE_NONE;
    pass->key.spec[SLOPE_Y_TYPE] = y.dtype;
    pass->key.spec[SLOPE_FUNCTION] = op->function;
    pass->key.spec[SLOPE_KIND] = op->kind;
    pass->key.spec[SLOPE_ADD] = op->add;
    pass->key.spec[SLOPE_PAIRS] = axes_are_pairs(&y, p.y.offset);
    pass_set_push(pass, &p, sizeof p);
    axes_set_grid(pass, (double)size[0] * size[1] * size[2] * divide_up(size[3], 2));
    pass->work = work_of(op, size);
    snprintf(pass->detail, sizeof pass->detail, "%ux%ux%ux%u, %s,%s%s%s->%s", size[0], size[1],
             size[2], size[3], vka_dtype_name(dy.dtype), vka_dtype_name(x.dtype),
             op->b.storage ? "," : "", op->b.storage ? vka_dtype_name(b.dtype) : "",
             vka_dtype_name(y.dtype));
}

enum vka_status plan_slope(struct vka_plan *plan, const struct slope *given)
{
    struct slope op = *given;
    struct shape *shapes[] = {&op.y.shape, &op.dy.shape, &op.x.shape, &op.b.shape};
    op.axes = (struct axes_job){{&op.y, &op.dy, &op.x, op.b.storage ? &op.b : NULL}};
    axes_merge(shapes, op.b.storage ? 4 : 3, 0, 4);
    const struct cut cut = {
        .job = &op,
        .multiple = {1, 1, 1, 2 * ITEM_LANES * ITEMS_EACH},
        .least = {1, 1, 1, 2},
        .kernel = KERNEL_map_backward,
        .whole = work_of(&op, op.y.shape.size),
        .probe = plan_probe_moves,
        .make = make_pass,
        .judge = axes_judge,
    };
    ENSURE(plan_settle_kernel(plan, KERNEL_map_backward));
    return plan_cut(plan, &cut, op.y.shape.size);
}
