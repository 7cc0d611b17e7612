#include "plan/cut.h"

int cut_first_axis(const struct box *part, const uint32_t shortest[CUT_AXES])
{
    for (int axis = 0; axis < CUT_AXES; axis++)
        if (part->size[axis] > shortest[axis])
            return axis;
    return CUT_FITS;
}

struct vka_tensor tensor_box(const struct vka_tensor *tensor, const struct box *part)
{
    struct vka_tensor t = *tensor;
    for (uint32_t axis = 0; axis < CUT_AXES; axis++)
        t = tensor_part(&t, axis, part->first[axis], part->size[axis]);
    return t;
}

static int judge_pass(const struct vka_plan *plan, const struct cut *cut, const struct box *part)
{
    struct pass pass = {0};
    cut->make(plan, cut->job, part, &pass);
    if (!plan_pass_has_room(plan, &pass))
        return cut_first_axis(part, cut->least);
    return plan_fits(plan, pass.key.kernel, &pass.work) ? CUT_FITS
                                                        : cut_first_axis(part, cut->unit);
}

static enum vka_status add(struct vka_plan *plan, const struct cut *cut, const struct box *part)
{
    struct pass pass = {0};
    if (cut->add)
        return cut->add(plan, cut->job, part);
    cut->make(plan, cut->job, part, &pass);
    return plan_add_pass(plan, &pass);
}

static enum vka_status add_parts(struct vka_plan *plan, const struct cut *cut,
                                 const struct box *part)
{
    int axis = cut->judge ? cut->judge(plan, cut, part) : judge_pass(plan, cut, part);
    if (axis == CUT_FITS)
        return add(plan, cut, part);
    struct box half = *part;
    uint32_t size = part->size[axis];
    uint32_t unit = size > cut->unit[axis] ? cut->unit[axis] : cut->least[axis];
    half.size[axis] = divide_up(size / 2, unit) * unit;
    enum vka_status status = add_parts(plan, cut, &half);
    half.first[axis] += half.size[axis];
    half.size[axis] = size - half.size[axis];
    return status == VKA_OK ? add_parts(plan, cut, &half) : status;
}

enum vka_status plan_cut(struct vka_plan *plan, const struct cut *cut,
                         const uint32_t size[CUT_AXES])
{
    struct box all = {{0}, {size[0], size[1], size[2], size[3]}};
    if (cut->probe)
        ENSURE(calibrate(plan, cut->kernel, &cut->whole, cut->probe, cut->job));
    return add_parts(plan, cut, &all);
}
