#include "op/cache/hadamard.h"
#include "core/arith.h"
#include "op/common/axes.h"
#include "op/common/copy.h"
#include "params/params.h"
#include "plan/cut.h"
#include "plan/settle.h"

#include <math.h>
#include <stdio.h>

struct hadamard {
    const char *name;
    uint32_t block;
    const struct vka_tensor *q_start; /* NULL: not packed */
    struct vka_tensor from, to;
};

static struct work work_of(const struct hadamard *h, const uint32_t size[4])
{
    double sum = WORK_PLACE * (h->block + 1.0);
    return (struct work){sum * size[0] * size[1] * size[2] * size[3], 2 * sum * HADAMARD_LANES,
                         h->block + 1.0};
}

static void make_pass(const struct vka_plan *plan, const void *job, const struct slice *slice,
                      struct pass *pass)
{
    const struct hadamard *h = job;
    const struct vka_tensor from = tensor_slice(&h->from, slice), to = tensor_slice(&h->to, slice);
    const uint64_t *f = from.shape.stride, *t = to.shape.stride;
    const uint32_t *size = slice->size;
    const uint64_t elements = (uint64_t)size[2] * size[3];
    struct hadamard_params p = {
        .n_row = size[2],
        .head_dim = size[3],
        .from_batch = (uint32_t)f[0],
        .from_head = (uint32_t)f[1],
        .from_row = (uint32_t)f[2],
        .from_col = (uint32_t)f[3],
        .to_batch = (uint32_t)t[0],
        .to_head = (uint32_t)t[1],
        .to_row = (uint32_t)t[2],
        .to_col = (uint32_t)t[3],
        .block = h->block,
        .factor = 1 / sqrtf((float)h->block),
        .n_sequence = h->q_start ? h->q_start->shape.size[0] - 1 : 0,
        .row_first = slice->first[2],
    };
    pass->name = h->name;
    pass->reason = "an invocation a feature, or two";
    pass->key = (struct pipeline_key){.kernel = KERNEL_hadamard, .n_spec = HADAMARD_SPECS};
    pass->key.spec[HADAMARD_FROM_TYPE] = from.dtype;
    pass->key.spec[HADAMARD_TO_TYPE] = to.dtype;
    plan_bind(plan, pass, 0, &from, false, &p.from_offset);
    plan_bind(plan, pass, 1, &to, true, &p.to_offset);
    plan_bind(plan, pass, 2, h->q_start ? h->q_start : &from, false,
              h->q_start ? &p.q_start_offset : NULL);
    const bool pairs = axes_are_pairs(&to, p.to_offset);
    const uint64_t items = pairs ? elements / 2 : elements;
    pass->key.spec[HADAMARD_PAIRS] = pairs;
    pass_set_push(pass, &p, sizeof p);
    /* the kernel counts features in 32 bits */
    pass->groups[0] = elements > UINT32_MAX - 2 * HADAMARD_LANES
                          ? UINT32_MAX
                          : divide_up((uint32_t)items, HADAMARD_LANES);
    pass->groups[1] = size[1];
    pass->groups[2] = size[0];
    pass->work = work_of(h, size);
    snprintf(pass->detail, sizeof pass->detail, "%ux%ux%ux%u, blocks of %u", size[0], size[1],
             size[2], size[3], h->block);
}

enum vka_status plan_hadamard(struct vka_plan *plan, const char *name, uint32_t block,
                              const struct vka_tensor *q_start, const struct vka_tensor *from,
                              const struct vka_tensor *to)
{
    const struct hadamard job = {name, block, q_start, *from, *to};
    const struct cut cut = {
        .job = &job,
        .multiple = {1, 1, 1, CUT_NEVER},
        .least = {1, 1, 1, CUT_NEVER},
        .kernel = KERNEL_hadamard,
        .whole = work_of(&job, from->shape.size),
        .probe = plan_probe_moves,
        .make = make_pass,
    };
    ENSURE(plan_settle_kernel(plan, KERNEL_hadamard));
    return plan_cut(plan, &cut, from->shape.size);
}
