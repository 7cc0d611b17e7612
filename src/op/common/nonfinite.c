#include "op/common/nonfinite.h"
#include "params/params.h"
#include "plan/cut.h"
#include "plan/settle.h"

#include <stdio.h>
#include <stdlib.h>

#define ELEMENTS 64u     /* of an invocation, below MOST_GROUPS */
#define MOST_GROUPS 128u /* of a pass: the host adds up to 64 KiB */

/* Invocations that count elements, and passes. */
struct total {
    uint32_t passes, invocations;
};

struct counting {
    const char *name;
    struct vka_tensor tensor;
    const struct vka_tensor *counts; /* NULL: only the total is wanted */
    struct total *total;             /* of the slices so far */
};

static uint32_t groups_of(const struct slice *slice)
{
    const uint32_t *size = slice->size;
    uint64_t count = (uint64_t)size[0] * size[1] * size[2] * size[3];
    return (uint32_t)least(count / (ELEMENTS * NONFINITE_LANES) + 1, MOST_GROUPS);
}

static struct work work_of(const struct slice *slice)
{
    const uint32_t *size = slice->size;
    double count = (double)size[0] * size[1] * size[2] * size[3], groups = groups_of(slice);
    return (struct work){WORK_MOVE * count, WORK_MOVE * count / groups,
                         count / (groups * NONFINITE_LANES) + 2};
}

/* Halves the axis that reaches furthest. */
static int judge(const struct vka_plan *plan, const struct cut *cut, const struct slice *slice)
{
    const struct counting *c = cut->job;
    const struct vka_tensor t = tensor_slice(&c->tensor, slice);
    const struct shape *s = &t.shape;
    struct work work = work_of(slice);
    bool small = shape_count(s) <= ELEMENTS * NONFINITE_LANES;
    if (shape_count(s) == 1 || c->total->passes > MOST_PASSES ||
        (plan_range(plan, &t) <= plan->caps.properties.max_buffer_range &&
         (small || plan_fits(plan, KERNEL_nonfinite, &work))))
        return CUT_FITS;
    int axis = 0;
    for (int i = 1; i < 4; i++)
        if ((s->size[i] - 1) * s->stride[i] > (s->size[axis] - 1) * s->stride[axis])
            axis = i;
    return axis;
}

/* Counts of NaN and Inf in one output. */
struct count {
    struct attached attached;
    const char *name;
    struct storage *words; /* u32 [n][2] NaN and Inf, host-visible, in the plan's scratches */
    uint32_t n;
    uint64_t nan, inf; /* of the last run that was waited for */
};

static enum vka_status sum_counts(struct attached *self, uint64_t ticket, bool last)
{
    struct count *c = (struct count *)self;
    const uint32_t *words = memory_mapped(&c->words->range);
    (void)ticket;
    if (!last)
        return VKA_OK;
    c->nan = c->inf = 0;
    for (uint32_t j = 0; j < c->n; j++) {
        c->nan += words[2 * j];
        c->inf += words[2 * j + 1];
    }
    return VKA_OK;
}

static void free_count(struct attached *self)
{
    free(self); /* the first member of a struct count */
}

/* Attaches a count; *words: its words as a tensor [1][1][1][2 * n]. */
static enum vka_status add_count(struct vka_plan *plan, const char *name, uint32_t n,
                                 struct vka_tensor *words)
{
    struct log *log = &plan->device->log;
    struct count *count = NULL;
    *words = (struct vka_tensor){.dtype = VKA_I32};
    shape_dense(4, (const uint32_t[]){1, 1, 1, 2 * n}, &words->shape);
    ENSURE(plan_host_words(plan, vka_tensor_size(words), &words->storage));
    count = calloc(1, sizeof *count);
    ENSURE_ALLOC(count);
    *count = (struct count){{NULL, sum_counts, free_count, false}, name, words->storage, n, 0, 0};
    return plan_attach(plan, &count->attached);
}

static enum vka_status add_slice(struct vka_plan *plan, const void *job, const struct slice *slice)
{
    const struct counting *c = job;
    const struct vka_tensor t = tensor_slice(&c->tensor, slice);
    const uint32_t *size = t.shape.size, n = groups_of(slice) * NONFINITE_LANES;
    const uint64_t *stride = t.shape.stride;
    uint32_t first = c->total->invocations;
    c->total->passes++;
    c->total->invocations += n;
    if (!c->counts)
        return VKA_OK;
    struct pass pass = {.name = "count", .reason = "NaN and Inf are counted"};
    struct nonfinite_params p = {
        .shape0 = size[0],
        .shape1 = size[1],
        .shape2 = size[2],
        .shape3 = size[3],
        .from0 = (uint32_t)stride[0],
        .from1 = (uint32_t)stride[1],
        .from2 = (uint32_t)stride[2],
        .from3 = (uint32_t)stride[3],
    };
    struct vka_tensor counts = tensor_slice_along(c->counts, 3, 2 * first, 2 * n);
    pass.key = (struct pipeline_key){.kernel = KERNEL_nonfinite, .n_spec = NONFINITE_SPECS};
    pass.key.spec[NONFINITE_TYPE] = t.dtype;
    plan_bind(plan, &pass, 0, &t, false, &p.from_offset);
    plan_bind(plan, &pass, 1, &counts, true, &p.first);
    p.first /= 2; /* in pairs of words: an invocation's begin at an even one */
    pass_set_push(&pass, &p, sizeof p);
    pass.work = work_of(slice);
    pass.groups[0] = groups_of(slice);
    pass.groups[1] = pass.groups[2] = 1;
    snprintf(pass.detail, sizeof pass.detail, "%s %ux%ux%ux%u, %s", c->name, size[0], size[1],
             size[2], size[3], vka_dtype_name(t.dtype));
    return plan_add_pass(plan, &pass);
}

enum vka_status plan_count_nonfinite(struct vka_plan *plan, const char *name,
                                     const struct vka_tensor *tensor)
{
    struct vka_tensor counts;
    struct total total = {0};
    if (!plan->count_nonfinite || !tensor)
        return VKA_OK;
    struct counting counting = {name, tensor_rank4(tensor), NULL, &total};
    const struct cut cut = {.job = &counting,
                            .multiple = {1, 1, 1, 1},
                            .least = {1, 1, 1, 1},
                            .judge = judge,
                            .add = add_slice};
    ENSURE(plan_settle_kernel(plan, KERNEL_nonfinite));
    ENSURE(plan_cut(plan, &cut, counting.tensor.shape.size));
    ENSURE(plan_check_room(plan, total.passes));
    ENSURE(add_count(plan, name, total.invocations, &counts));
    counting.counts = &counts;
    total = (struct total){0};
    return plan_cut(plan, &cut, counting.tensor.shape.size);
}

/* Attached count `index`; NULL past the last. */
static const struct count *find_count(const struct vka_plan *plan, size_t index)
{
    for (size_t i = 0; i < plan->n_attached; i++)
        if (plan->attached[i]->release == free_count && index-- == 0)
            return (const struct count *)plan->attached[i];
    return NULL;
}

struct storage *plan_count_words(const struct vka_plan *plan, size_t index)
{
    const struct count *count = find_count(plan, index);
    return count ? count->words : NULL;
}

size_t vka_plan_nonfinite_count(const struct vka_plan *plan)
{
    size_t n = 0;
    while (plan && find_count(plan, n))
        n++;
    return n;
}

enum vka_status vka_plan_nonfinite(const struct vka_plan *plan, size_t index,
                                   struct vka_nonfinite_info *info)
{
    if (!plan)
        return VKA_INVALID;
    struct log *log = &plan->device->log;
    ENSURE_ARG(info, "%s: info is NULL", __func__);
    const struct count *c = find_count(plan, index);
    ENSURE_ARG(c, "%s: index %zu is past the last counted output", __func__, index);
    ENSURE_ARG(plan->waited, "%s: no run of the plan has been waited for", __func__);
    *info = (struct vka_nonfinite_info){.name = c->name, .nan = c->nan, .inf = c->inf};
    return VKA_OK;
}
