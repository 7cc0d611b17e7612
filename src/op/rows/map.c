/* Element-wise functions, sums and products, with broadcasting. */
#include "core/dtype.h"
#include "op/rows/map.h"
#include "op/common/axes.h"
#include "op/common/check.h"
#include "op/common/copy.h"
#include "op/common/nonfinite.h"
#include "plan/settle.h"

#include <math.h>
#include <stdio.h>

_Static_assert(ELEMENT_GELU == VKA_GELU && ELEMENT_GELU_TANH == VKA_GELU_TANH &&
                   ELEMENT_SILU == VKA_SILU && ELEMENT_RELU == VKA_RELU &&
                   ELEMENT_TANH == VKA_TANH && ELEMENT_SIGMOID == VKA_SIGMOID,
               "the kernel's numbers");

/* Of rank 4 and the output's sizes, with stride 0 where they repeat. b: storage NULL where there is
 * none. */
struct map {
    struct axes_job axes;
    const char *name;
    struct vka_tensor x, b, y;
    enum vka_activation function;
    bool multiply;
    float alpha;
};

static struct work work_of(const struct map *map, const uint32_t size[4])
{
    double n = (double)size[0] * size[1] * size[2] * size[3];
    double each = map->function ? WORK_SCORE : 2 * WORK_MOVE;
    return (struct work){n * each, 2 * UNIT_LANES * UNIT_RUN * each, UNIT_RUN + 1};
}

static void make_pass(const struct vka_plan *plan, const void *job, const struct box *part,
                      struct pass *pass)
{
    const struct map *map = job;
    const uint32_t *size = part->size;
    const struct vka_tensor x = tensor_box(&map->x, part), y = tensor_box(&map->y, part);
    const struct vka_tensor b = map->b.storage ? tensor_box(&map->b, part) : x;
    struct map_params p = {
        .size0 = size[0],
        .size1 = size[1],
        .size2 = size[2],
        .size3 = size[3],
        .x = axes_strides(&x.shape),
        .b = axes_strides(&b.shape),
        .y = axes_strides(&y.shape),
        .alpha = map->alpha,
    };
    pass->name = map->name;
    pass->reason = "element by element";
    pass->key = (struct pipeline_key){.kernel = KERNEL_map, .n_spec = ELEMENT_SPECS};
    plan_bind(plan, pass, 0, &x, false, &p.x.offset);
    plan_bind(plan, pass, 1, &b, false, &p.b.offset);
    plan_bind(plan, pass, 2, &y, true, &p.y.offset);
    pass->key.spec[ELEMENT_X_TYPE] = x.dtype;
    pass->key.spec[ELEMENT_B_TYPE] = map->b.storage ? (uint32_t)b.dtype : TYPE_NONE;
    pass->key.spec[ELEMENT_Y_TYPE] = y.dtype;
    pass->key.spec[ELEMENT_FUNCTION] = map->function;
    pass->key.spec[ELEMENT_MULTIPLY] = map->multiply;
    pass->key.spec[ELEMENT_PAIRS] = axes_are_pairs(&y, p.y.offset);
    pass_set_push(pass, &p, sizeof p);
    axes_set_grid(pass, (double)size[0] * size[1] * size[2] * divide_up(size[3], 2));
    pass->work = work_of(map, size);
    snprintf(pass->detail, sizeof pass->detail, "%ux%ux%ux%u, %s%s%s->%s", size[0], size[1],
             size[2], size[3], vka_dtype_name(x.dtype), map->b.storage ? "," : "",
             map->b.storage ? vka_dtype_name(b.dtype) : "", vka_dtype_name(y.dtype));
}

static enum vka_status add_map(struct vka_plan *plan, struct map *map)
{
    struct shape *shapes[] = {&map->y.shape, &map->x.shape, &map->b.shape};
    map->axes = (struct axes_job){{&map->y, &map->x, map->b.storage ? &map->b : NULL}};
    axes_merge(shapes, map->b.storage ? 3 : 2, 0, 4);
    const struct cut cut = {
        .job = map,
        .unit = {1, 1, 1, 2 * UNIT_LANES * UNIT_RUN},
        .least = {1, 1, 1, 2},
        .kernel = KERNEL_map,
        .whole = work_of(map, map->y.shape.size),
        .probe = plan_probe_moves,
        .make = make_pass,
        .judge = axes_judge,
    };
    ENSURE(plan_settle_kernel(plan, KERNEL_map));
    return plan_cut(plan, &cut, map->y.shape.size);
}

/* Checks the operands, whose names are those of the arguments, and fills in the map. b may be
 * NULL. */
static enum vka_status check(struct vka_plan *plan, const char *caller, const char *const names[2],
                             const struct vka_tensor *x, const struct vka_tensor *b,
                             const struct vka_tensor *y, struct map *map)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    char got[SHAPE_TEXT], want[SHAPE_TEXT];
    ENSURE(check_tensor(device, caller, names[0], x, CHECK_FLOAT));
    if (b)
        ENSURE(check_tensor(device, caller, names[1], b, CHECK_FLOAT));
    ENSURE(check_tensor(device, caller, "output", y, CHECK_FLOAT | CHECK_WRITTEN));
    const struct vka_tensor *others[] = {x, b};
    uint32_t rank = b && b->shape.rank > x->shape.rank ? b->shape.rank : x->shape.rank;
    map->y = tensor_rank4(y);
    bool whole = y->shape.rank == rank; /* each axis of the output is that of an input */
    for (int i = 0; i < 2; i++) {
        struct vka_tensor *to = i == 0 ? &map->x : &map->b;
        if (!others[i])
            continue;
        *to = tensor_rank4(others[i]);
        ENSURE_ARG(axes_broadcast(to, map->y.shape.size),
                   "%s: %s %s does not broadcast to output %s", caller, names[i],
                   shape_text(&others[i]->shape, got), shape_text(&y->shape, want));
    }
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t a_size = tensor_rank4(x).shape.size[i], b_size = 1;
        if (b)
            b_size = tensor_rank4(b).shape.size[i];
        whole &= map->y.shape.size[i] == (a_size > b_size ? a_size : b_size);
    }
    ENSURE_ARG(whole, "%s: output %s is larger than what its inputs broadcast to", caller,
               shape_text(&y->shape, want));
    return axes_check_in_place(device, caller, "output", y, others, 2, 2);
}

enum vka_status plan_activate(struct vka_plan *plan, enum vka_activation function,
                              const struct vka_tensor *tensor)
{
    struct map map = {.name = "activation", .multiply = true, .function = function, .alpha = 1};
    map.x = map.y = tensor_rank4(tensor);
    return add_map(plan, &map);
}

static enum vka_status add_activation(struct vka_plan *plan, const struct vka_activation_op *op)
{
    struct log *log = &plan->device->log;
    static const char *const caller = "vka_plan_add_activation";
    static const char *const names[] = {"input", "multiplier"};
    struct map map = {.name = "activation", .multiply = true};
    ENSURE_ARG(op, "%s: op is NULL", caller);
    ENSURE_ARG(op->struct_size == sizeof *op, "%s: struct_size is %zu, not %zu", caller,
               op->struct_size, sizeof *op);
    ENSURE_ARG((unsigned)op->kind < VKA_ACTIVATION_COUNT, "%s: kind is %d", caller, (int)op->kind);
    ENSURE_ARG(isfinite(op->alpha), "%s: alpha is %g", caller, (double)op->alpha);
    ENSURE(check(plan, caller, names, op->input, op->multiplier, op->output, &map));
    map.function = op->kind;
    map.alpha = op->alpha != 0 ? op->alpha : 1;
    ENSURE(add_map(plan, &map));
    return plan_count_nonfinite(plan, "output", op->output);
}

static enum vka_status add_binary(struct vka_plan *plan, const struct vka_binary_op *op)
{
    struct log *log = &plan->device->log;
    static const char *const caller = "vka_plan_add_binary";
    static const char *const names[] = {"a", "b"};
    struct map map = {.name = "add"};
    ENSURE_ARG(op, "%s: op is NULL", caller);
    ENSURE_ARG(op->struct_size == sizeof *op, "%s: struct_size is %zu, not %zu", caller,
               op->struct_size, sizeof *op);
    ENSURE_ARG((unsigned)op->kind < VKA_BINARY_COUNT, "%s: kind is %d", caller, (int)op->kind);
    ENSURE_ARG(op->b, "%s: b is NULL", caller);
    ENSURE(check(plan, caller, names, op->a, op->b, op->output, &map));
    map.multiply = op->kind == VKA_MULTIPLY;
    if (map.multiply)
        map.name = "multiply";
    ENSURE(add_map(plan, &map));
    return plan_count_nonfinite(plan, "output", op->output);
}

enum vka_status vka_plan_add_activation(struct vka_plan *plan, const struct vka_activation_op *op)
{
    struct plan_mark mark;
    ENSURE(plan_begin(plan, __func__, &mark));
    while (mark.open)
        plan_end(plan, &mark, add_activation(plan, op));
    return mark.status;
}

enum vka_status vka_plan_add_binary(struct vka_plan *plan, const struct vka_binary_op *op)
{
    struct plan_mark mark;
    ENSURE(plan_begin(plan, __func__, &mark));
    while (mark.open)
        plan_end(plan, &mark, add_binary(plan, op));
    return mark.status;
}
