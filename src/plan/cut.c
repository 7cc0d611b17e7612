#include "plan/cut.h"

int cut_first_axis(const struct slice *slice, const uint32_t shortest[CUT_AXES])
{
    for (int axis = 0; axis < CUT_AXES; axis++)
        if (slice->size[axis] > shortest[axis])
            return axis;
    return CUT_FITS;
}

struct vka_tensor tensor_slice(const struct vka_tensor *tensor, const struct slice *slice)
{
    struct vka_tensor t = *tensor;
    for (uint32_t axis = 0; axis < CUT_AXES; axis++)
        t = tensor_slice_along(&t, axis, slice->first[axis], slice->size[axis]);
    return t;
}

static int judge_pass(const struct vka_plan *plan, const struct cut *cut, const struct slice *slice)
{
    struct pass pass = {0};
    cut->make(plan, cut->job, slice, &pass);
    if (!plan_pass_has_room(plan, &pass))
        return cut_first_axis(slice, cut->least);
    return plan_fits(plan, pass.key.kernel, &pass.work) ? CUT_FITS
                                                        : cut_first_axis(slice, cut->multiple);
}

static enum vka_status add(struct vka_plan *plan, const struct cut *cut, const struct slice *slice)
{
    struct pass pass = {0};
    if (cut->add)
        return cut->add(plan, cut->job, slice);
    cut->make(plan, cut->job, slice, &pass);
    return plan_add_pass(plan, &pass);
}

static enum vka_status add_slices(struct vka_plan *plan, const struct cut *cut,
                                  const struct slice *slice)
{
    int axis = cut->judge ? cut->judge(plan, cut, slice) : judge_pass(plan, cut, slice);
    if (axis == CUT_FITS)
        return add(plan, cut, slice);
    struct slice half = *slice;
    uint32_t size = slice->size[axis];
    uint32_t multiple = size > cut->multiple[axis] ? cut->multiple[axis] : cut->least[axis];
    half.size[axis] = divide_up(size / 2, multiple) * multiple;
    enum vka_status status = add_slices(plan, cut, &half);
    half.first[axis] += half.size[axis];
    half.size[axis] = size - half.size[axis];
    return status == VKA_OK ? add_slices(plan, cut, &half) : status;
}

enum vka_status plan_cut(struct vka_plan *plan, const struct cut *cut,
                         const uint32_t size[CUT_AXES])
{
    struct slice all = {{0}, {size[0], size[1], size[2], size[3]}};
    if (cut->probe)
        ENSURE(calibrate(plan, cut->kernel, &cut->whole, cut->probe, cut->job));
    return add_slices(plan, cut, &all);
}
