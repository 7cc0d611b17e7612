/* Element-wise functions, sums and products, with broadcasting. */
#include "op/common/check.h"
#include "op/common/element.h"
#include "op/common/nonfinite.h"

#include <math.h>

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

static enum vka_status add_activation(struct vka_plan *plan, const void *given)
{
    const struct vka_activation_op *op = given;
    struct log *log = &plan->device->log;
    static const char *const caller = "vka_plan_add_activation";
    static const char *const names[] = {"input", "multiplier"};
    struct map map = {.name = "activation", .multiply = true};
    ENSURE_ARG((unsigned)op->kind < VKA_ACTIVATION_COUNT, "%s: kind is %d", caller, (int)op->kind);
    ENSURE_ARG(isfinite(op->alpha), "%s: alpha is %g", caller, (double)op->alpha);
    ENSURE(check(plan, caller, names, op->input, op->multiplier, op->output, &map));
    map.function = op->kind;
    map.alpha = op->alpha != 0 ? op->alpha : 1;
    ENSURE(plan_map(plan, &map));
    return plan_count_nonfinite(plan, "output", op->output);
}

static enum vka_status add_binary(struct vka_plan *plan, const void *given)
{
    const struct vka_binary_op *op = given;
    struct log *log = &plan->device->log;
    static const char *const caller = "vka_plan_add_binary";
    static const char *const names[] = {"a", "b"};
    struct map map = {.name = "add"};
    ENSURE_ARG((unsigned)op->kind < VKA_BINARY_COUNT, "%s: kind is %d", caller, (int)op->kind);
    ENSURE_ARG(op->b, "%s: b is NULL", caller);
    ENSURE(check(plan, caller, names, op->a, op->b, op->output, &map));
    map.multiply = op->kind == VKA_MULTIPLY;
    if (map.multiply)
        map.name = "multiply";
    ENSURE(plan_map(plan, &map));
    return plan_count_nonfinite(plan, "output", op->output);
}

enum vka_status vka_plan_add_activation(struct vka_plan *plan, const struct vka_activation_op *op)
{
    return plan_add(plan, __func__, op, sizeof *op, add_activation);
}

enum vka_status vka_plan_add_binary(struct vka_plan *plan, const struct vka_binary_op *op)
{
    return plan_add(plan, __func__, op, sizeof *op, add_binary);
}
