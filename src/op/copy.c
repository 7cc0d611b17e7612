/* Copies between strided tensors, and into the panels that some matrix products read. */
#include "op/matmul/matmul.h"
#include "params.h"
#include "plan/calibrate.h"
#include "plan/settle.h"

#include <stdio.h>
#include <string.h>

struct copy {
    const char *name;
    struct vka_tensor from; /* of rank 4 */
    struct vka_tensor to;   /* of the same shape; with panels [0][1][panels][size[3] * panel] */
    uint32_t panel;         /* 0: none */
};

static struct work work_of(const struct copy *copy)
{
    const uint32_t *size = copy->from.shape.size;
    double runs = (double)size[0] * size[1] * divide_up(size[2], COPY_RUN);
    double one = WORK_MOVE * COPY_RUN * COPY_LANES;
    return (struct work){one * runs * divide_up(size[3], COPY_LANES), one, COPY_RUN + 1};
}

static enum vka_status add_copy(struct vka_plan *plan, const struct copy *copy)
{
    const uint32_t *size = copy->from.shape.size;
    const uint64_t *f = copy->from.shape.stride, *t = copy->to.shape.stride;
    bool plain = !copy->panel;
    struct copy_params p = {
        .shape0 = size[0],
        .shape1 = size[1],
        .shape2 = size[2],
        .shape3 = size[3],
        .from0 = (uint32_t)f[0],
        .from1 = (uint32_t)f[1],
        .from2 = (uint32_t)f[2],
        .from3 = (uint32_t)f[3],
        .to0 = (uint32_t)t[0],
        .to1 = (uint32_t)t[1],
        .to2 = plain ? (uint32_t)t[2] : 1,
        .to3 = plain ? (uint32_t)t[3] : copy->panel,
        .panel = plain ? UINT32_MAX : copy->panel,
        .to_panel = plain ? 0 : (uint32_t)t[2],
    };
    struct pass pass = {.name = copy->name,
                        .reason = plain ? "strided copy" : "panels for the matrix product"};
    pass.key = (struct pipeline_key){.kernel = KERNEL_copy, .n_spec = COPY_SPECS};
    pass.key.spec[COPY_FROM_TYPE] = copy->from.dtype;
    pass.key.spec[COPY_TO_TYPE] = copy->to.dtype;
    plan_bind(plan, &pass, 0, &copy->from, false, &p.from_offset);
    plan_bind(plan, &pass, 1, &copy->to, true, &p.to_offset);
    pass.push_size = sizeof p;
    memcpy(pass.push, &p, sizeof p);
    pass.work = work_of(copy);
    pass.groups[0] = divide_up(size[3], COPY_LANES);
    pass.groups[1] = divide_up(size[2], COPY_RUN);
    pass.groups[2] = size[0] * size[1];
    snprintf(pass.detail, sizeof pass.detail, "%ux%ux%ux%u, %s->%s", size[0], size[1], size[2],
             size[3], vka_dtype_name(copy->from.dtype), vka_dtype_name(copy->to.dtype));
    return plan_add_pass(plan, &pass);
}

static bool fits(const struct vka_plan *plan, const struct copy *copy)
{
    const struct caps *caps = &plan->caps;
    const uint32_t *size = copy->from.shape.size;
    uint64_t limit = caps->properties.max_buffer_range;
    return plan_range(plan, &copy->from) <= limit && plan_range(plan, &copy->to) <= limit &&
           (uint64_t)size[0] * size[1] <= caps->max_groups[2] &&
           divide_up(size[2], COPY_RUN) <= caps->max_groups[1] &&
           divide_up(size[3], COPY_LANES) <= caps->max_groups[0];
}

static struct copy copy_part(const struct copy *copy, uint32_t axis, uint32_t first, uint32_t count)
{
    struct copy part = *copy;
    part.from = tensor_part(&copy->from, axis, first, count);
    if (copy->panel && axis == 2) {
        first /= copy->panel;
        count = divide_up(count, copy->panel);
    } else if (copy->panel && axis == 3) {
        first *= copy->panel;
        count *= copy->panel;
    }
    part.to = tensor_part(&copy->to, axis, first, count);
    return part;
}

/* A copy into one panel, as a plain one, which can be cut anywhere. */
static struct copy copy_in_panel(const struct copy *copy)
{
    struct copy plain = *copy;
    struct shape *to = &plain.to.shape;
    plain.panel = 0;
    for (int i = 2; i < 4; i++)
        to->size[i] = copy->from.shape.size[i];
    to->stride[2] = 1;
    to->stride[3] = copy->panel;
    return plain;
}

/* The axis to halve, of those longer than their unit: where a binding cannot hold an operand, the
 * one along which that reaches furthest. */
static uint32_t axis_to_cut(const struct vka_plan *plan, const struct copy *copy,
                            const uint32_t unit[4])
{
    const uint32_t *size = copy->from.shape.size;
    const struct vka_tensor *operand[2] = {&copy->from, &copy->to};
    uint64_t furthest = 0;
    uint32_t axis = 0;
    while (axis < 3 && size[axis] <= unit[axis])
        axis++;
    for (uint32_t i = 0; i < 8; i++) {
        const struct vka_tensor *x = operand[i / 4];
        uint64_t reach = x->shape.stride[i % 4] * (size[i % 4] - 1ull);
        if (size[i % 4] <= unit[i % 4] || reach <= furthest ||
            plan_range(plan, x) <= plan->caps.properties.max_buffer_range)
            continue;
        furthest = reach;
        axis = i % 4;
    }
    return axis;
}

/* Adds a copy, halved until it fits the device. */
static enum vka_status add_parts(struct vka_plan *plan, const struct copy *copy)
{
    struct copy plain;
    if (copy->panel && copy->from.shape.size[2] <= copy->panel && !fits(plan, copy)) {
        plain = copy_in_panel(copy);
        copy = &plain;
    }
    const uint32_t *size = copy->from.shape.size;
    bool fit = fits(plan, copy); /* else it is cut for the budget: into whole workgroups */
    const uint32_t unit[4] = {1, 1,
                              copy->panel ? copy->panel
                              : fit       ? COPY_RUN
                                          : 1,
                              fit ? COPY_LANES : 1};
    struct work work = work_of(copy);
    uint32_t axis = axis_to_cut(plan, copy, unit);
    if ((fit && plan_fits(plan, KERNEL_copy, &work)) || size[axis] <= unit[axis])
        return add_copy(plan, copy);
    uint32_t half = divide_up(size[axis] / 2, unit[axis]) * unit[axis];
    struct copy part = copy_part(copy, axis, 0, half);
    enum vka_status status = add_parts(plan, &part);
    if (status != VKA_OK)
        return status;
    part = copy_part(copy, axis, half, size[axis] - half);
    return add_parts(plan, &part);
}

/* n workgroups of a copy, rows to columns. */
static enum vka_status add_probe(struct vka_plan *plan, const void *problem, uint32_t n)
{
    enum vka_status status = VKA_OK;
    struct copy probe = *(const struct copy *)problem;
    n = calibrate_groups(plan, 4 * COPY_RUN * COPY_LANES, n);
    const uint32_t size[4] = {n, 1, COPY_RUN, COPY_LANES};
    TRY(plan_scratch(plan, probe.from.dtype, size, &probe.from));
    TRY(plan_scratch(plan, probe.to.dtype, size, &probe.to));
    probe.to.shape.stride[2] = 1;
    probe.to.shape.stride[3] = COPY_RUN;
    probe.panel = 0;
    TRY(add_copy(plan, &probe));
fail:
    return status;
}

enum vka_status plan_calibrate_moves(struct vka_plan *plan, const struct work *work)
{
    const struct copy any = {"copy", {.dtype = VKA_F32}, {.dtype = VKA_F32}, 0};
    return calibrate(plan, KERNEL_copy, work, add_probe, &any);
}

static enum vka_status add_all(struct vka_plan *plan, const struct copy *copy)
{
    enum vka_status status = VKA_OK;
    struct work work = work_of(copy);
    TRY(plan_settle_kernel(plan, KERNEL_copy));
    TRY(calibrate(plan, KERNEL_copy, &work, add_probe, copy));
    TRY(add_parts(plan, copy));
fail:
    return status;
}

enum vka_status plan_copy(struct vka_plan *plan, const char *name, const struct vka_tensor *from,
                          const struct vka_tensor *to)
{
    return add_all(plan, &(struct copy){name, *from, *to, 0});
}

enum vka_status plan_copy_to_panels(struct vka_plan *plan, const char *name,
                                    const struct vka_tensor *from, const struct vka_tensor *to,
                                    uint32_t panel)
{
    return add_all(plan, &(struct copy){name, *from, *to, panel});
}
