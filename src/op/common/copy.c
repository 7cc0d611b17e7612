/* Copies between strided tensors, and to the tiles of packed B. */
#include "op/common/copy.h"
#include "op/common/axes.h"
#include "params/params.h"
#include "plan/cut.h"
#include "plan/settle.h"

#include <stdio.h>

struct copy {
    const char *name;
    struct vka_tensor from; /* of rank 4 */
    struct vka_tensor to;   /* same shape; with tiles [size[0]][size[1]][tiles][size[3] * tile] */
    uint32_t tile;          /* 0: none */
};

static struct work work_of(const uint32_t size[4])
{
    double count = (double)size[0] * size[1] * divide_up(size[2], COPY_EACH);
    double one = WORK_MOVE * COPY_EACH * COPY_LANES;
    return (struct work){one * count * divide_up(size[3], COPY_LANES), 2 * one, COPY_EACH + 1};
}

static void make_pass(const struct vka_plan *plan, const struct copy *copy, struct pass *pass)
{
    const uint32_t *size = copy->from.shape.size;
    const uint64_t *f = copy->from.shape.stride, *t = copy->to.shape.stride;
    bool plain = !copy->tile;
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
        .to3 = plain ? (uint32_t)t[3] : copy->tile,
        .tile = plain ? UINT32_MAX : copy->tile,
        .to_tile = plain ? 0 : (uint32_t)t[2],
    };
    pass->name = copy->name;
    pass->reason = plain ? "strided copy" : "tiles for the matrix product";
    pass->key = (struct pipeline_key){.kernel = KERNEL_copy, .n_spec = COPY_SPECS};
    pass->key.spec[COPY_FROM_TYPE] = copy->from.dtype;
    pass->key.spec[COPY_TO_TYPE] = copy->to.dtype;
    plan_bind(plan, pass, 0, &copy->from, false, &p.from_offset);
    plan_bind(plan, pass, 1, &copy->to, true, &p.to_offset);
    pass_set_push(pass, &p, sizeof p);
    const bool pairs = plain && axes_are_pairs(&copy->to, p.to_offset);
    pass->key.spec[COPY_PAIRS] = pairs;
    pass->work = work_of(size);
    pass->groups[0] = divide_up(pairs ? size[3] / 2 : size[3], COPY_LANES);
    pass->groups[1] = divide_up(size[2], COPY_EACH);
    pass->groups[2] = saturate((uint64_t)size[0] * size[1]);
    snprintf(pass->detail, sizeof pass->detail, "%ux%ux%ux%u, %s->%s", size[0], size[1], size[2],
             size[3], vka_dtype_name(copy->from.dtype), vka_dtype_name(copy->to.dtype));
}

static struct copy copy_slice(const struct copy *copy, const struct slice *slice)
{
    struct copy sliced = *copy;
    struct slice to = *slice;
    if (copy->tile) {
        to.first[2] /= copy->tile;
        to.size[2] = divide_up(to.size[2], copy->tile);
        to.first[3] *= copy->tile;
        to.size[3] *= copy->tile;
    }
    sliced.from = tensor_slice(&copy->from, slice);
    sliced.to = tensor_slice(&copy->to, &to);
    return sliced;
}

/* Halves the axis along which an operand reaches furthest that no binding can hold; add_slice cuts
 * what goes into one tile. */
static int judge(const struct vka_plan *plan, const struct cut *cut, const struct slice *slice)
{
    const struct copy copy = copy_slice(cut->job, slice);
    const struct vka_tensor *operand[2] = {&copy.from, &copy.to};
    uint64_t furthest = 0;
    int axis = cut_first_axis(slice, cut->least);
    struct pass pass = {0};
    make_pass(plan, &copy, &pass);
    if (plan_pass_has_room(plan, &pass))
        return plan_fits(plan, KERNEL_copy, &pass.work) ? CUT_FITS
                                                        : cut_first_axis(slice, cut->multiple);
    if (copy.tile && slice->size[2] <= copy.tile)
        return CUT_FITS;
    for (int i = 0; i < 8; i++) {
        const struct vka_tensor *x = operand[i / 4];
        uint64_t reach = x->shape.stride[i % 4] * (slice->size[i % 4] - 1ull);
        if (slice->size[i % 4] <= cut->least[i % 4] || reach <= furthest ||
            plan_range(plan, x) <= plan->caps.properties.max_buffer_range)
            continue;
        furthest = reach;
        axis = i % 4;
    }
    return axis;
}

static enum vka_status add_cut(struct vka_plan *plan, const struct copy *copy,
                               calibrate_add *probe);

/* A copy into one tile that does not fit is a plain one, which can be cut anywhere. */
static enum vka_status add_slice(struct vka_plan *plan, const void *job, const struct slice *slice)
{
    struct copy sliced = copy_slice(job, slice);
    struct shape *to = &sliced.to.shape;
    struct pass pass = {0};
    make_pass(plan, &sliced, &pass);
    if (!sliced.tile || plan_pass_has_room(plan, &pass))
        return plan_add_pass(plan, &pass);
    to->size[2] = sliced.from.shape.size[2];
    to->size[3] = sliced.from.shape.size[3];
    to->stride[2] = 1;
    to->stride[3] = sliced.tile;
    sliced.tile = 0;
    return add_cut(plan, &sliced, NULL);
}

/* Adds a transposing copy of n workgroups. */
static enum vka_status add_probe(struct vka_plan *plan, const void *problem, uint32_t n)
{
    struct copy probe = *(const struct copy *)problem;
    struct pass pass = {0};
    n = calibrate_groups(plan, 4 * COPY_EACH * COPY_LANES, n);
    const uint32_t size[4] = {n, 1, COPY_EACH, COPY_LANES};
    ENSURE(plan_scratch(plan, probe.from.dtype, size, &probe.from));
    ENSURE(plan_scratch(plan, probe.to.dtype, size, &probe.to));
    probe.to.shape.stride[2] = 1;
    probe.to.shape.stride[3] = COPY_EACH;
    probe.tile = 0;
    make_pass(plan, &probe, &pass);
    return plan_add_pass(plan, &pass);
}

enum vka_status plan_probe_moves(struct vka_plan *plan, const void *problem, uint32_t n)
{
    const struct copy any = {"copy", {.dtype = VKA_F32}, {.dtype = VKA_F32}, 0};
    (void)problem;
    return add_probe(plan, &any, n);
}

static enum vka_status add_cut(struct vka_plan *plan, const struct copy *copy, calibrate_add *probe)
{
    uint32_t tile = copy->tile ? copy->tile : 1;
    const struct cut cut = {
        .job = copy,
        .multiple = {1, 1, copy->tile ? tile : COPY_EACH, COPY_LANES},
        .least = {1, 1, tile, 1},
        .kernel = KERNEL_copy,
        .whole = work_of(copy->from.shape.size),
        .probe = probe,
        .judge = judge,
        .add = add_slice,
    };
    return plan_cut(plan, &cut, copy->from.shape.size);
}

static enum vka_status add_all(struct vka_plan *plan, const struct copy *copy)
{
    enum vka_status status = plan_settle_kernel(plan, KERNEL_copy);
    return status == VKA_OK ? add_cut(plan, copy, add_probe) : status;
}

enum vka_status plan_copy(struct vka_plan *plan, const char *name, const struct vka_tensor *from,
                          const struct vka_tensor *to)
{
    return add_all(plan, &(struct copy){name, *from, *to, 0});
}

enum vka_status plan_copy_to_tiles(struct vka_plan *plan, const char *name,
                                   const struct vka_tensor *from, const struct vka_tensor *to,
                                   uint32_t tile)
{
    return add_all(plan, &(struct copy){name, *from, *to, tile});
}
