/* Passes of the kernel `map`: element-wise functions, sums and products. */
#include "op/common/element.h"
#include "core/dtype.h"
#include "op/common/copy.h"
#include "plan/settle.h"

#include <stdio.h>

_Static_assert(ELEMENT_GELU == VKA_GELU && ELEMENT_GELU_TANH == VKA_GELU_TANH &&
                   ELEMENT_SILU == VKA_SILU && ELEMENT_RELU == VKA_RELU &&
                   ELEMENT_TANH == VKA_TANH && ELEMENT_SIGMOID == VKA_SIGMOID,
               "the kernel's numbers");

static struct work work_of(const struct map *map, const uint32_t size[4])
{
    double n = (double)size[0] * size[1] * size[2] * size[3];
    double each = map->function ? WORK_SCORE : 2 * WORK_MOVE;
    return (struct work){n * each, 2 * ITEM_LANES * ITEMS_EACH * each, ITEMS_EACH + 1};
}

static void make_pass(const struct vka_plan *plan, const void *job, const struct slice *slice,
                      struct pass *pass)
{
    const struct map *map = job;
    const uint32_t *size = slice->size;
    const struct vka_tensor x = tensor_slice(&map->x, slice), y = tensor_slice(&map->y, slice);
    const struct vka_tensor b = map->b.storage ? tensor_slice(&map->b, slice) : x;
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

enum vka_status plan_map(struct vka_plan *plan, struct map *map)
{
    struct shape *shapes[] = {&map->y.shape, &map->x.shape, &map->b.shape};
    map->axes = (struct axes_job){{&map->y, &map->x, map->b.storage ? &map->b : NULL}};
    axes_merge(shapes, map->b.storage ? 3 : 2, 0, 4);
    const struct cut cut = {
        .job = map,
        .multiple = {1, 1, 1, 2 * ITEM_LANES * ITEMS_EACH},
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

enum vka_status plan_activate(struct vka_plan *plan, enum vka_activation function,
                              const struct vka_tensor *tensor)
{
    struct map map = {.name = "activation", .multiply = true, .function = function, .alpha = 1};
    map.x = map.y = tensor_rank4(tensor);
    return plan_map(plan, &map);
}
