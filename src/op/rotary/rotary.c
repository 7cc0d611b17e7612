/* Rotary embedding of a tensor, by positions, frequencies or tables. */
#include <vkattn/vkattn_train.h>

#include "core/dtype.h"
#include "op/common/axes.h"
#include "op/common/check.h"
#include "op/common/copy.h"
#include "op/common/nonfinite.h"
#include "op/rotary/frequencies.h"
#include "plan/settle.h"

#include <math.h>
#include <stdio.h>

struct rotary {
    struct axes_job axes;
    const struct vka_rotary_op *op;
    struct vka_tensor x, y, frequencies;
    struct vka_tensor positions; /* [batch or 1][n]; storage NULL: none */
    struct vka_tensor cos, sin;  /* [batch or 1][n][dim / 2], or [n_table][dim / 2]; or none */
    uint32_t dim;
    bool back; /* turns back, as gradients do */
};

static enum vka_status make_frequencies(struct vka_plan *plan, struct rotary *rotary)
{
    const struct vka_rotary_op *op = rotary->op;
    const struct vka_rope rope = {.dim = op->cos ? 0 : rotary->dim,
                                  .base = op->base,
                                  .frequencies = op->frequencies,
                                  .attention_factor = op->attention_factor};
    return plan_frequencies(plan, &rope, &rotary->frequencies);
}

/* each: what of ROTARY_PAIRS, 1 or 2, an item is. */
static struct work work_of(const uint32_t size[4], uint32_t each)
{
    double n = (double)size[0] * size[1] * size[2] * size[3];
    return (struct work){n * WORK_SCORE, 2.0 * each * WORK_SCORE * ITEM_LANES * ITEMS_EACH,
                         ITEMS_EACH + 1};
}

/* Rows of batch elements and positions of a slice: of axes 0 and 1. */
static struct vka_tensor rows_of(const struct vka_tensor *t, const struct slice *slice)
{
    struct vka_tensor rows = *t;
    if (rows.shape.size[0] > 1)
        rows = tensor_slice_along(&rows, 0, slice->first[0], slice->size[0]);
    else
        rows.shape.stride[0] = 0;
    return tensor_slice_along(&rows, 1, slice->first[2], slice->size[2]);
}

static void bind_tables(const struct vka_plan *plan, const struct rotary *rotary,
                        const struct slice *slice, struct rotary_params *p, struct pass *pass)
{
    bool by_position = rotary->positions.storage != NULL;
    struct vka_tensor cos = rotary->cos, sin = rotary->sin;
    if (!cos.storage) {
        plan_bind(plan, pass, 2, &rotary->frequencies, false, NULL);
        plan_bind(plan, pass, 3, &rotary->frequencies, false, NULL);
        pass->key.spec[ROTARY_COS_TYPE] = pass->key.spec[ROTARY_SIN_TYPE] = TYPE_NONE;
        return;
    }
    if (!by_position) {
        cos = rows_of(&cos, slice);
        sin = rows_of(&sin, slice);
        p->cos_batch = (uint32_t)cos.shape.stride[0];
        p->sin_batch = (uint32_t)sin.shape.stride[0];
    }
    const int row = by_position ? 0 : 1;
    p->cos_row = (uint32_t)cos.shape.stride[row];
    p->cos_col = (uint32_t)cos.shape.stride[row + 1];
    p->sin_row = (uint32_t)sin.shape.stride[row];
    p->sin_col = (uint32_t)sin.shape.stride[row + 1];
    p->n_table = cos.shape.size[0];
    plan_bind(plan, pass, 2, &cos, false, &p->cos_offset);
    plan_bind(plan, pass, 3, &sin, false, &p->sin_offset);
    pass->key.spec[ROTARY_COS_TYPE] = cos.dtype;
    pass->key.spec[ROTARY_SIN_TYPE] = sin.dtype;
}

static void make_pass(const struct vka_plan *plan, const void *job, const struct slice *slice,
                      struct pass *pass)
{
    const struct rotary *rotary = job;
    const uint32_t *size = slice->size;
    const struct vka_tensor x = tensor_slice(&rotary->x, slice),
                            y = tensor_slice(&rotary->y, slice);
    bool by_position = rotary->positions.storage != NULL;
    const struct vka_tensor positions =
        by_position ? rows_of(&rotary->positions, slice) : rotary->frequencies;
    struct rotary_params p = {
        .batch = size[0],
        .n_head = size[1],
        .n = size[2],
        .head_dim = size[3],
        .dim = rotary->dim,
        .x = axes_strides(&x.shape),
        .y = axes_strides(&y.shape),
        .position_batch = (uint32_t)positions.shape.stride[0],
        .position_row = (uint32_t)positions.shape.stride[1],
        .first = slice->first[2],
        .factor = rotary->op->attention_factor != 0 ? rotary->op->attention_factor : 1,
        .sign = rotary->back ? -1 : 1,
    };
    pass->name = rotary->back ? "rotary backward" : "rotary";
    pass->reason = rotary->cos.storage ? "tables" : "frequencies";
    pass->key = (struct pipeline_key){.kernel = KERNEL_rotary, .n_spec = ROTARY_SPECS};
    plan_bind(plan, pass, 0, &x, false, &p.x.offset);
    plan_bind(plan, pass, 1, &positions, false, &p.position_offset);
    bind_tables(plan, rotary, slice, &p, pass);
    plan_bind(plan, pass, 4, &rotary->frequencies, false, NULL);
    plan_bind(plan, pass, 5, &y, true, &p.y.offset);
    pass->key.spec[ROTARY_X_TYPE] = x.dtype;
    pass->key.spec[ROTARY_Y_TYPE] = y.dtype;
    pass->key.spec[ROTARY_POSITIONS] = by_position;
    pass->key.spec[ROTARY_INTERLEAVED] = rotary->op->interleaved;
    const bool pairs = rotary->dim % 4 == 0 && axes_are_pairs(&y, p.y.offset);
    const uint32_t each = pairs ? 2 : 1;
    pass->key.spec[ROTARY_PAIRS] = pairs;
    pass_set_push(pass, &p, sizeof p);
    axes_set_grid(pass, (double)size[0] * size[1] * size[2] *
                            ((size[3] - rotary->dim + rotary->dim / 2) / each));
    pass->work = work_of(size, each);
    snprintf(pass->detail, sizeof pass->detail, "%ux%ux%ux%u, %u rotate, %s->%s", size[0], size[1],
             size[2], size[3], rotary->dim, vka_dtype_name(x.dtype), vka_dtype_name(y.dtype));
}

static enum vka_status check_tables(struct vka_plan *plan, const char *caller,
                                    const struct vka_rotary_op *op, uint32_t dim)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    const struct shape *x = &op->input->shape;
    const struct vka_tensor *const tables[] = {op->cos, op->sin};
    static const char *const names[] = {"cos", "sin"};
    ENSURE_ARG(!op->cos == !op->sin, "%s: %s is NULL, but %s is given", caller,
               op->cos ? "sin" : "cos", op->cos ? "cos" : "sin");
    for (int i = 0; i < 2 && op->cos; i++) {
        ENSURE(check_tensor(device, caller, names[i], tables[i], CHECK_FLOAT));
        const struct shape *t = &tables[i]->shape;
        bool batch = t->rank == 3 && (t->size[0] == 1 || t->size[0] == x->size[0]) &&
                     t->size[1] == x->size[2] && t->size[2] == dim / 2;
        bool table = t->rank == 2 && t->size[1] == dim / 2;
        ENSURE_ARG(op->positions ? table : batch, "%s: %s is not [%s][%u]", caller, names[i],
                   op->positions ? "n_position" : "batch or 1][n", dim / 2);
    }
    ENSURE_ARG(!op->cos || op->cos->shape.size[0] == op->sin->shape.size[0],
               "%s: sin has another number of rows than cos", caller);
    ENSURE_ARG(!op->cos || !op->frequencies, "%s: frequencies are given beside cos and sin",
               caller);
    ENSURE_ARG(op->base == 0 || (!op->cos && !op->frequencies),
               "%s: base is given beside frequencies or tables", caller);
    ENSURE_ARG(op->base == 0 || (op->base >= 1 && isfinite(op->base)),
               "%s: base is %g, not a number from 1 on", caller, (double)op->base);
    for (uint32_t i = 0; op->frequencies && i < dim / 2; i++)
        ENSURE_ARG(fabs(op->frequencies[i]) <= 1, "%s: frequencies[%u] is %g, not -1 to 1", caller,
                   i, op->frequencies[i]);
    return VKA_OK;
}

static enum vka_status check(struct vka_plan *plan, const char *caller,
                             const struct vka_rotary_op *op)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    ENSURE(check_tensor(device, caller, "input", op->input, CHECK_FLOAT));
    const struct shape *x = &op->input->shape;
    ENSURE_ARG(x->rank == 4, "%s: input has rank %u, not 4", caller, x->rank);
    const uint32_t dim = op->dim ? op->dim : x->size[3];
    ENSURE_ARG(dim % 2 == 0 && dim <= x->size[3], "%s: dim is %u, not even and at most %u", caller,
               dim, x->size[3]);
    ENSURE_ARG(isfinite(op->attention_factor) && op->attention_factor >= 0,
               "%s: attention_factor is %g, not a positive number, or 0 for 1", caller,
               (double)op->attention_factor);
    ENSURE_ARG(x->size[2] <= INT32_MAX, "%s: input has more than 2^31 - 1 rows", caller);
    if (op->positions) {
        ENSURE(check_tensor(device, caller, "positions", op->positions, CHECK_I32));
        const struct shape *p = &op->positions->shape;
        ENSURE_ARG(p->rank == 2 && (p->size[0] == 1 || p->size[0] == x->size[0]) &&
                       p->size[1] == x->size[2],
                   "%s: positions is not [%u or 1][%u]", caller, x->size[0], x->size[2]);
    }
    ENSURE(check_tables(plan, caller, op, dim));
    ENSURE(check_tensor(device, caller, "output", op->output, CHECK_FLOAT | CHECK_WRITTEN));
    ENSURE(axes_check_like(device, caller, "output", op->output, op->input));
    const struct vka_tensor *others[] = {op->input, op->positions, op->cos, op->sin};
    return axes_check_in_place(device, caller, "output", op->output, others, 4, 1);
}

static enum vka_status add_rotary(struct vka_plan *plan, const char *caller,
                                  const struct vka_rotary_op *op, bool back)
{
    ENSURE(check(plan, caller, op));
    struct rotary rotary = {.op = op, .x = *op->input, .y = *op->output, .back = back};
    rotary.dim = op->dim ? op->dim : op->input->shape.size[3];
    rotary.axes = (struct axes_job){{&rotary.x, &rotary.y}};
    if (op->positions)
        rotary.positions = *op->positions;
    if (op->cos) {
        rotary.cos = *op->cos;
        rotary.sin = *op->sin;
    }
    const struct cut cut = {
        .job = &rotary,
        .multiple = {1, 1, 1, CUT_NEVER},
        .least = {1, 1, 1, CUT_NEVER},
        .kernel = KERNEL_rotary,
        .whole = work_of(rotary.x.shape.size, 2),
        .probe = plan_probe_moves,
        .make = make_pass,
        .judge = axes_judge,
    };
    ENSURE(plan_settle_kernel(plan, KERNEL_rotary));
    ENSURE(make_frequencies(plan, &rotary));
    ENSURE(plan_cut(plan, &cut, rotary.x.shape.size));
    return plan_count_nonfinite(plan, "output", op->output);
}

static enum vka_status add_forward(struct vka_plan *plan, const void *op)
{
    return add_rotary(plan, "vka_plan_add_rotary", op, false);
}

static enum vka_status add_backward(struct vka_plan *plan, const void *op)
{
    return add_rotary(plan, "vka_plan_add_rotary_backward", op, true);
}

enum vka_status vka_plan_add_rotary(struct vka_plan *plan, const struct vka_rotary_op *op)
{
    return plan_add(plan, __func__, op, sizeof *op, add_forward);
}

enum vka_status vka_plan_add_rotary_backward(struct vka_plan *plan, const struct vka_rotary_op *op)
{
    return plan_add(plan, __func__, op, sizeof *op, add_backward);
}
