#include "op/common/axes.h"
#include "core/dtype.h"
#include "op/common/check.h"

#define LEAST_LANES 8u
#define MOST_LANES 128u   /* every device starts so many */
#define LANE_ELEMENTS 8u  /* of a GPU's lane: with fewer, fewer lanes */
#define LANE_LOOPS 16384u /* iterations of a lane after which there are more lanes */

/* Most elements of a pass: kernels count them, and invocations up to the end of a workgroup, in 32
 * bits. */
#define MOST_ELEMENTS 4e9

/* Whether axis j can be merged into axis `to`, behind it. */
static bool can_merge(struct shape *const *shapes, size_t n, uint32_t j, uint32_t to)
{
    uint64_t size = shapes[0]->size[to];
    if (size * shapes[0]->size[j] > UINT32_MAX)
        return false;
    for (size_t i = 0; i < n; i++)
        if (size > 1 && shapes[i]->stride[j] != shapes[i]->stride[to] * size)
            return false;
    return true;
}

void axes_merge(struct shape *const *shapes, size_t n, uint32_t first, uint32_t end)
{
    uint32_t to = end - 1;
    for (uint32_t j = to; j-- > first;) {
        uint32_t size = shapes[0]->size[j];
        if (size == 1)
            continue;
        bool merge = can_merge(shapes, n, j, to);
        to -= !merge;
        for (size_t i = 0; i < n; i++) {
            struct shape *s = shapes[i];
            if (!merge || s->size[to] == 1)
                s->stride[to] = s->stride[j];
            s->size[to] = merge ? s->size[to] * size : size;
        }
    }
    for (uint32_t j = first; j < to; j++)
        for (size_t i = 0; i < n; i++) {
            shapes[i]->size[j] = 1;
            shapes[i]->stride[j] = 0;
        }
}

bool axes_broadcast(struct vka_tensor *tensor, const uint32_t size[4])
{
    struct shape *s = &tensor->shape;
    for (int i = 0; i < 4; i++) {
        if (s->size[i] == size[i])
            continue;
        if (s->size[i] != 1)
            return false;
        s->size[i] = size[i];
        s->stride[i] = 0;
    }
    return true;
}

bool axes_same(const struct vka_tensor *a, const struct vka_tensor *b)
{
    const struct extent x = tensor_extent(a), y = tensor_extent(b);
    bool same = a->dtype == b->dtype && x.buffer == y.buffer && x.first == y.first &&
                a->shape.rank == b->shape.rank;
    for (uint32_t i = 0; same && i < a->shape.rank; i++)
        same = a->shape.size[i] == b->shape.size[i] &&
               (a->shape.size[i] == 1 || a->shape.stride[i] == b->shape.stride[i]);
    return same;
}

enum vka_status axes_check_in_place(struct vka_device *device, const char *caller, const char *name,
                                    const struct vka_tensor *written,
                                    const struct vka_tensor **others, size_t n, size_t n_in_place)
{
    for (size_t i = 0; i < n_in_place; i++)
        if (others[i] && axes_same(written, others[i]))
            others[i] = NULL;
    return check_no_overlap(device, caller, name, written, others, n);
}

enum vka_status axes_check_like(struct vka_device *device, const char *caller, const char *name,
                                const struct vka_tensor *tensor, const struct vka_tensor *like)
{
    if (!tensor)
        return VKA_OK;
    ENSURE(check_tensor(device, caller, name, tensor, CHECK_FLOAT));
    return check_shape(device, caller, name, tensor, like->shape.rank, like->shape.size);
}

struct vka_tensor axes_append_one(const struct vka_tensor *tensor)
{
    struct vka_tensor t = tensor_rank4(tensor);
    for (int i = 0; i < 3; i++) {
        t.shape.size[i] = t.shape.size[i + 1];
        t.shape.stride[i] = t.shape.stride[i + 1];
    }
    t.shape.size[3] = 1;
    t.shape.stride[3] = 0;
    return t;
}

/* A CPU driver runs the lanes of a subgroup together and pays for each barrier of more. */
uint32_t axes_choose_lanes(const struct caps *caps, uint64_t n)
{
    bool cpu = caps->properties.type == VKA_DEVICE_CPU;
    uint32_t lanes = LEAST_LANES;
    while (lanes < MOST_LANES && (n / lanes > LANE_LOOPS || (!cpu && n / lanes > LANE_ELEMENTS)))
        lanes *= 2;
    return lanes;
}

int axes_judge(const struct vka_plan *plan, const struct cut *cut, const struct slice *slice)
{
    const struct axes_job *job = cut->job;
    struct pass pass = {0};
    uint64_t furthest = 0;
    int axis = CUT_FITS;
    double count = 1;
    for (int i = 0; i < 4; i++)
        count *= slice->size[i];
    cut->make(plan, cut->job, slice, &pass);
    if (plan_pass_has_room(plan, &pass) && count <= MOST_ELEMENTS)
        return plan_fits(plan, pass.key.kernel, &pass.work) ? CUT_FITS
                                                            : cut_first_axis(slice, cut->multiple);
    for (int i = 0; i < AXES_TENSORS * 4; i++) {
        if (!job->tensors[i / 4] || slice->size[i % 4] <= cut->least[i % 4])
            continue;
        const struct vka_tensor t = tensor_slice(job->tensors[i / 4], slice);
        uint64_t reach = t.shape.stride[i % 4] * (slice->size[i % 4] - 1ull);
        if (reach <= furthest || plan_range(plan, &t) <= plan->caps.properties.max_buffer_range)
            continue;
        furthest = reach;
        axis = i % 4;
    }
    for (int i = 0; i < 4 && !furthest; i++)
        if (slice->size[i] > cut->least[i] && (axis < 0 || slice->size[i] > slice->size[axis]))
            axis = i;
    return axis;
}

void axes_set_grid(struct pass *pass, double items)
{
    uint64_t groups = (uint64_t)(items / (ITEM_LANES * ITEMS_EACH)) + 1;
    pass->groups[0] = (uint32_t)least(groups, ITEM_GRID);
    pass->groups[1] = saturate(groups / ITEM_GRID + (groups % ITEM_GRID != 0));
    pass->groups[2] = 1;
}

struct strided_params axes_strides(const struct shape *shape)
{
    const uint64_t *s = shape->stride;
    return (struct strided_params){0, (uint32_t)s[0], (uint32_t)s[1], (uint32_t)s[2],
                                   (uint32_t)s[3]};
}

bool axes_are_pairs(const struct vka_tensor *tensor, uint32_t offset)
{
    const struct shape *s = &tensor->shape;
    bool even =
        tensor->dtype != VKA_F32 && offset % 2 == 0 && s->size[3] % 2 == 0 && s->stride[3] == 1;
    for (int i = 0; i < 3; i++)
        even &= s->size[i] == 1 || s->stride[i] % 2 == 0;
    return even;
}

void axes_set_row_grid(struct pass *pass, uint64_t rows)
{
    pass->groups[0] = (uint32_t)least(rows, NORM_GRID);
    pass->groups[1] = saturate(rows / NORM_GRID + (rows % NORM_GRID != 0));
    pass->groups[2] = 1;
}
