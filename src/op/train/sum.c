/* Sums over axes, in splits that are summed in turn. */
#include "core/dtype.h"
#include "op/common/copy.h"
#include "op/train/sum.h"
#include "plan/settle.h"

#include <stdio.h>

#define FEW_RESULTS 8u

/* Axes as the kernel has them: those that are kept, then those that are reduced. Axis 3 of y
 * is the splits. */
struct job {
    struct axes_job axes;
    const struct sum_axes *op;
    struct vka_tensor a, b, y;
    struct vka_tensor stats; /* [1][1][1][NORM_STATS * n], or any */
    uint32_t inner;          /* axes that are reduced */
    uint32_t n, n_split;     /* reduced elements; splits of them */
    uint32_t lanes;          /* that add one sum */
    bool columns, add;
    float scale;
};

static struct work work_of(const struct job *job, const uint32_t size[4])
{
    uint32_t split = job->n < AXES_SPLIT ? job->n : AXES_SPLIT, results = AXES_LANES / job->lanes;
    double each = 2 * WORK_MOVE * split;
    return (struct work){
        .ops = each * size[0] * size[1] * size[2] * size[3] + WORK_MOVE * AXES_LANES,
        .longest = each * results,
        .loops = split / (double)job->lanes + 8,
    };
}

/* A slice of an operand: of the kept axes, and of one reduced axis the elements of the splits. */
static struct vka_tensor slice_of(const struct job *job, const struct vka_tensor *t,
                                  const struct slice *slice)
{
    struct vka_tensor view = *t;
    for (uint32_t i = 0; i < 4 - job->inner; i++)
        view = tensor_slice_along(&view, i, slice->first[i], slice->size[i]);
    if (job->inner == 1) {
        uint32_t first = slice->first[3] * AXES_SPLIT, left = job->n - first;
        uint64_t most = (uint64_t)slice->size[3] * AXES_SPLIT;
        view = tensor_slice_along(&view, 3, first, left < most ? left : (uint32_t)most);
    }
    return view;
}

/* Whether two neighbouring results of a slice are a whole word of 16-bit elements: those along the last kept
 * axis. */
static bool are_pairs(const struct job *job, const struct vka_tensor *y, uint32_t offset)
{
    struct vka_tensor t = *y;
    struct shape *s = &t.shape;
    const uint32_t last = 3 - job->inner;
    if (job->inner == 4 || s->size[3] > 1)
        return false;
    s->size[3] = s->size[last];
    s->stride[3] = s->stride[last];
    s->size[last] = 1;
    return axes_are_pairs(&t, offset);
}

static void make_pass(const struct vka_plan *plan, const void *given, const struct slice *slice,
                      struct pass *pass)
{
    const struct job *job = given;
    const struct vka_tensor a = slice_of(job, &job->a, slice), y = tensor_slice(&job->y, slice);
    const struct vka_tensor b = job->b.storage ? slice_of(job, &job->b, slice) : a;
    const uint32_t *size = a.shape.size, first = slice->first[3] * AXES_SPLIT,
                   left = job->n - first;
    const uint64_t most = (uint64_t)slice->size[3] * AXES_SPLIT;
    struct sum_axes_params p = {
        .size0 = size[0],
        .size1 = size[1],
        .size2 = size[2],
        .size3 = size[3],
        .a = axes_strides(&a.shape),
        .b = axes_strides(&b.shape),
        .y = axes_strides(&y.shape),
        .first = job->inner == 1 ? 0 : first,
        .n = left < most ? left : (uint32_t)most,
        .scale = job->scale,
    };
    const struct vka_tensor stats =
        job->stats.storage
            ? tensor_slice_along(&job->stats, 3, NORM_STATS * first, NORM_STATS * p.n)
            : a;
    uint64_t results = 1, per_group = AXES_LANES / job->lanes, groups;
    for (uint32_t i = 0; i < 4 - job->inner; i++)
        results *= size[i];
    groups = (results + per_group - 1) / per_group;
    pass->name = job->op->name;
    pass->reason = "sums over axes";
    pass->key = (struct pipeline_key){.kernel = KERNEL_sum_axes, .n_spec = AXES_SPECS};
    plan_bind(plan, pass, 0, &a, false, &p.a.offset);
    plan_bind(plan, pass, 1, &b, false, &p.b.offset);
    plan_bind(plan, pass, 2, &stats, false, &p.stats_offset);
    plan_bind(plan, pass, 3, &y, true, &p.y.offset);
    if (job->inner > 1) /* elements are counted from the first of all */
        p.stats_offset -= NORM_STATS * first;
    pass->key.spec[AXES_A_TYPE] = a.dtype;
    pass->key.spec[AXES_B_TYPE] = b.dtype;
    pass->key.spec[AXES_Y_TYPE] = y.dtype;
    pass->key.spec[AXES_TERM] = job->op->term;
    pass->key.spec[AXES_INNER] = job->inner;
    pass->key.spec[AXES_RESULT_LANES] = job->lanes;
    pass->key.spec[AXES_COLUMNS] = job->columns;
    pass->key.spec[AXES_ADD] = job->add;
    pass->key.spec[AXES_PAIRS] = per_group > 1 && are_pairs(job, &y, p.y.offset);
    pass_set_push(pass, &p, sizeof p);
    pass->groups[0] = (uint32_t)least(groups, ITEM_GRID);
    pass->groups[1] = saturate(groups / ITEM_GRID + (groups % ITEM_GRID != 0));
    pass->groups[2] = slice->size[3];
    pass->work = work_of(job, slice->size);
    snprintf(pass->detail, sizeof pass->detail, "%llu sums of %u, %s->%s, %u lanes",
             (unsigned long long)results, p.n, vka_dtype_name(a.dtype), vka_dtype_name(y.dtype),
             job->lanes);
}

/* Whether the sum takes as many lanes as `few` or `many` terms want. */
static void choose_lanes(struct job *job)
{
    const struct shape *a = &job->a.shape;
    uint64_t results = 1, step = UINT64_MAX;
    uint32_t terms = job->n < AXES_SPLIT ? job->n : AXES_SPLIT;
    for (uint32_t i = 0; i < 4 - job->inner; i++) {
        results *= a->size[i];
        step = a->size[i] > 1 ? a->stride[i] : step;
    }
    job->columns = results >= FEW_RESULTS && (step < a->stride[3] || a->size[3] == 1);
    if (job->columns)
        job->lanes = terms <= 16 ? 1 : terms <= 128 ? 4 : 8;
    else
        job->lanes = terms < 64 ? 4 : terms < 512 ? 16 : 64;
}

static enum vka_status add_passes(struct vka_plan *plan, struct job *job)
{
    const uint32_t *y = job->y.shape.size;
    const uint32_t size[4] = {y[0], y[1], y[2], job->n_split};
    choose_lanes(job);
    job->axes = (struct axes_job){{&job->y}};
    struct cut cut = {
        .job = job,
        .multiple = {1, 1, 1, 1},
        .least = {1, 1, 1, 1},
        .kernel = KERNEL_sum_axes,
        .whole = work_of(job, size),
        .probe = plan_probe_moves,
        .make = make_pass,
        .judge = axes_judge,
    };
    if (job->inner < 4) /* the results of a workgroup */
        cut.multiple[3 - job->inner] = AXES_LANES / job->lanes;
    return plan_cut(plan, &cut, size);
}

/* Copies axis `from` of an operand to axis `to` of the job's, where it is there. */
static void place_axis(const struct vka_tensor *from, uint32_t i, struct vka_tensor *to, uint32_t j)
{
    if (!from->storage)
        return;
    to->shape.size[j] = from->shape.size[i];
    to->shape.stride[j] = from->shape.stride[i];
}

static void reset_axes(const struct vka_tensor *from, struct vka_tensor *to)
{
    *to = *from;
    to->shape.rank = 4;
    for (int i = 0; i < 4; i++) {
        to->shape.size[i] = 1;
        to->shape.stride[i] = 0;
    }
}

/* Puts the kept axes first and merges what can be; returns how many axes are kept. */
static uint32_t arrange(const struct sum_axes *op, struct job *job)
{
    uint32_t n_kept = 0, n_reduced = 0, kept = 0, reduced = 0;
    for (uint32_t i = 0; i < 4; i++) {
        bool there = op->a.shape.size[i] > 1;
        n_reduced += there && op->reduced >> i & 1;
        n_kept += there && !(op->reduced >> i & 1);
    }
    job->inner = n_reduced ? n_reduced : 1;
    reset_axes(&op->a, &job->a);
    reset_axes(&op->b, &job->b);
    reset_axes(&op->y, &job->y);
    if (n_kept + job->inner > 4)
        return n_kept;
    for (uint32_t i = 0; i < 4; i++) {
        if (op->a.shape.size[i] == 1)
            continue;
        bool is_reduced = op->reduced >> i & 1;
        uint32_t to = is_reduced ? 4 - job->inner + reduced++ : 4 - job->inner - n_kept + kept++;
        place_axis(&op->a, i, &job->a, to);
        place_axis(&op->b, i, &job->b, to);
        if (!is_reduced) {
            job->y.shape.size[to] = op->a.shape.size[i];
            job->y.shape.stride[to] = op->y.shape.stride[i];
        }
    }
    struct shape *shapes[] = {&job->a.shape, &job->y.shape, &job->b.shape};
    if (job->inner < 4)
        axes_merge(shapes, job->b.storage ? 3 : 2, 0, 4 - job->inner);
    shapes[1] = &job->b.shape;
    axes_merge(shapes, job->b.storage ? 2 : 1, 4 - job->inner, 4);
    while (job->inner > 1 && job->a.shape.size[4 - job->inner] == 1)
        job->inner--;
    return n_kept;
}

/* Float32 for the splits of each result: y's axes with its own strides, and splits along axis 3. */
static enum vka_status make_splits(struct vka_plan *plan, struct job *job,
                                   struct vka_tensor *splits)
{
    const uint32_t *size = job->y.shape.size;
    ENSURE(plan_scratch(plan, VKA_F32, (const uint32_t[]){job->n_split, size[0], size[1], size[2]},
                        splits));
    struct shape *s = &splits->shape;
    const uint64_t step = s->stride[0];
    for (int i = 0; i < 3; i++) {
        s->size[i] = size[i];
        s->stride[i] = s->stride[i + 1];
    }
    s->size[3] = job->n_split;
    s->stride[3] = step;
    return VKA_OK;
}

/* Four axes are kept, and none has more than one element to sum: takes the shortest one by one. */
static enum vka_status add_slices(struct vka_plan *plan, const struct sum_axes *op)
{
    uint32_t axis = 0;
    for (uint32_t i = 1; i < 4; i++)
        if (op->a.shape.size[i] < op->a.shape.size[axis])
            axis = i;
    for (uint32_t i = 0; i < op->a.shape.size[axis]; i++) {
        struct sum_axes slice = *op;
        slice.a = tensor_slice_along(&op->a, axis, i, 1);
        if (op->b.storage)
            slice.b = tensor_slice_along(&op->b, axis, i, 1);
        slice.y = tensor_slice_along(&op->y, axis, i, 1);
        ENSURE(plan_sum_axes(plan, &slice));
    }
    return VKA_OK;
}

enum vka_status plan_sum_axes(struct vka_plan *plan, const struct sum_axes *op)
{
    struct job job = {.op = op, .add = op->add, .scale = op->scale};
    ENSURE(plan_settle_kernel(plan, KERNEL_sum_axes));
    if (arrange(op, &job) + job.inner > 4)
        return add_slices(plan, op);
    uint64_t n = 1;
    for (uint32_t i = 4 - job.inner; i < 4; i++)
        n *= job.a.shape.size[i];
    const uint32_t most = UINT32_MAX / (op->stats ? NORM_STATS : 2) - AXES_SPLIT;
    if (n > most)
        return log_error(&plan->device->log, VKA_UNSUPPORTED,
                         "%s: %llu elements are more than a sum counts, %u", op->name,
                         (unsigned long long)n, most);
    job.n = (uint32_t)n;
    job.n_split = divide_up(job.n, AXES_SPLIT);
    if (op->stats) {
        job.stats = *op->stats;
        shape_dense(4, (const uint32_t[]){1, 1, 1, NORM_STATS * job.n}, &job.stats.shape);
        job.stats.shape.offset = op->stats->shape.offset;
    }
    if (job.n_split == 1)
        return add_passes(plan, &job);
    struct vka_tensor splits;
    const struct vka_tensor y = job.y;
    ENSURE(make_splits(plan, &job, &splits));
    job.y = splits;
    job.scale = 1;
    job.add = false;
    ENSURE(add_passes(plan, &job));
    const struct sum_axes rest = {
        .name = op->name,
        .a = splits,
        .y = y,
        .reduced = 8,
        .term = TERM_VALUE,
        .scale = op->scale,
        .add = op->add,
    };
    ENSURE(plan_sum_axes(plan, &rest));
    plan_scratch_free(plan, &splits);
    return VKA_OK;
}
