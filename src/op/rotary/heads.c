#include "op/rotary/heads.h"
#include "params/params.h"
#include "op/common/copy.h"
#include "op/rotary/frequencies.h"
#include "plan/cut.h"
#include "plan/settle.h"

#include <stdio.h>

#define ROWS 64u  /* rows of a workgroup */
#define SEARCH 33 /* loop iterations that find the sequence of a packed row */

/* Rows [batch][n_head][n_row][head_dim] to be normalised and rotated; row 0 at position `first`, or
 * packed by q_start. */
struct rotation {
    const char *name;
    const struct vka_rope *rope;
    const struct vka_tensor *norm, *offsets, *q_start, *frequencies;
    float epsilon;
    struct vka_tensor from, to;
    uint32_t first;
};

static struct work work_of(const uint32_t size[4])
{
    double rows = (double)size[0] * size[1] * size[2], row = WORK_SCORE * size[3];
    return (struct work){rows * row, ROWS * row, 3.0 * size[3] + SEARCH};
}

static void make_pass(const struct vka_plan *plan, const void *job, const struct slice *slice,
                      struct pass *pass)
{
    const struct rotation *t = job;
    const uint32_t *size = slice->size;
    const uint64_t *f = t->from.shape.stride, *to_stride = t->to.shape.stride;
    struct vka_tensor from = tensor_slice(&t->from, slice), to = tensor_slice(&t->to, slice);
    bool each = t->offsets && t->offsets->shape.size[0] > 1;
    struct vka_tensor offsets = t->offsets ? *t->offsets : *t->frequencies;
    if (each && !t->q_start)
        offsets = tensor_slice_along(&offsets, 0, slice->first[0], size[0]);
    struct rope_params p = {
        .batch = size[0],
        .n_head = size[1],
        .n_row = size[2],
        .head_dim = size[3],
        .from_batch = (uint32_t)f[0],
        .from_head = (uint32_t)f[1],
        .from_row = (uint32_t)f[2],
        .from_col = (uint32_t)f[3],
        .to_batch = (uint32_t)to_stride[0],
        .to_head = (uint32_t)to_stride[1],
        .to_row = (uint32_t)to_stride[2],
        .to_col = 1,
        .first_position = t->q_start ? 0 : (int32_t)(t->first + slice->first[2]),
        .flags = (t->norm ? ROPE_NORM : 0) | (t->rope->interleaved ? ROPE_INTERLEAVED : 0) |
                 (t->offsets ? ROPE_OFFSET : 0) | (each ? ROPE_OFFSET_PER_BATCH : 0),
        .epsilon = t->epsilon,
        .dim = t->rope->dim,
        .n_sequence = t->q_start ? t->q_start->shape.size[0] - 1 : 0,
        .row_first = slice->first[2],
    };
    pass->name = t->name;
    pass->reason = "one invocation a row";
    pass->key = (struct pipeline_key){.kernel = KERNEL_rope, .n_spec = ROPE_SPECS};
    pass->key.spec[ROPE_FROM_TYPE] = from.dtype;
    pass->key.spec[ROPE_TO_TYPE] = to.dtype;
    plan_bind(plan, pass, 0, &from, false, &p.from_offset);
    plan_bind(plan, pass, 1, &to, true, &p.to_offset);
    plan_bind(plan, pass, 2, t->norm ? t->norm : t->frequencies, false, &p.norm_offset);
    plan_bind(plan, pass, 3, &offsets, false, &p.position_offset);
    plan_bind(plan, pass, 4, t->frequencies, false, NULL);
    plan_bind(plan, pass, 5, t->q_start ? t->q_start : t->frequencies, false, &p.q_start_offset);
    pass_set_push(pass, &p, sizeof p);
    pass->groups[0] = saturate(((uint64_t)size[1] * size[2] + ROWS - 1) / ROWS);
    pass->groups[1] = size[0];
    pass->groups[2] = 1;
    pass->work = work_of(size);
    snprintf(pass->detail, sizeof pass->detail, "%ux%ux%ux%u, %s%s", size[0], size[1], size[2],
             size[3], t->norm ? "norm " : "", t->rope->dim ? "rotate" : "");
}

/* Checks base and positions. Bases below 1 are refused: a pair would rotate by up to 1 / base a
 * position, which a double does not hold precisely enough for far positions. */
enum vka_status rotary_check(struct vka_plan *plan, const char *name, const struct vka_rope *rope,
                             uint64_t first, uint32_t rows, uint32_t head_dim)
{
    struct log *log = &plan->device->log;
    const uint64_t limit = plan->caps.properties.max_buffer_range;
    ENSURE_ARG(!rope->dim || rope->base == 0 || rope->base >= 1, "%s: rope.base is %g, less than 1",
               name, (double)rope->base);
    ENSURE_ARG(!rope->dim || first + rows <= 1u << 31, "%s: position %llu exceeds 2^31 - 1", name,
               (unsigned long long)(first + rows - 1));
    if (head_dim > limit / sizeof(float)) /* checked before frequencies are made */
        return log_error(log, VKA_UNSUPPORTED,
                         "%s: a row of %u in float32 exceeds the %llu bytes that a kernel can read",
                         name, head_dim, (unsigned long long)limit);
    return VKA_OK;
}

enum vka_status plan_rotary(struct vka_plan *plan, const char *name, const struct vka_rope *rope,
                            const struct vka_tensor *norm, float epsilon,
                            const struct vka_tensor *offsets, const struct vka_tensor *q_start,
                            uint32_t first, enum vka_dtype dtype, struct vka_tensor *tensor)
{
    struct vka_tensor frequencies;
    const uint32_t *size = tensor->shape.size;
    struct rotation rotation = {name,         rope,    norm,    offsets, q_start,
                                &frequencies, epsilon, *tensor, {0},     offsets ? 0 : first};
    struct vka_tensor row = *tensor, packed = {0};
    for (int i = 0; i < 3; i++)
        row.shape.size[i] = 1;
    ENSURE(rotary_check(plan, name, rope, offsets ? ROTARY_MOST_OFFSET : first, size[2], size[3]));
    ENSURE(plan_settle_kernel(plan, KERNEL_rope));
    ENSURE(plan_frequencies(plan, rope, &frequencies));
    if (plan_range(plan, &row) > plan->caps.properties.max_buffer_range) {
        ENSURE(plan_scratch(plan, tensor->dtype, tensor->shape.size, &packed));
        ENSURE(plan_copy(plan, "pack", tensor, &packed));
        rotation.from = packed;
    }
    ENSURE(plan_scratch(plan, dtype, tensor->shape.size, &rotation.to));
    const struct cut cut = {
        .job = &rotation,
        .multiple = {1, size[2] < ROWS ? ROWS / size[2] : 1, ROWS, CUT_NEVER}, /* a workgroup */
        .least = {1, 1, 1, CUT_NEVER},
        .kernel = KERNEL_rope,
        .whole = work_of(size),
        .probe = plan_probe_moves,
        .make = make_pass,
    };
    ENSURE(plan_cut(plan, &cut, size));
    if (packed.storage)
        plan_scratch_free(plan, &packed);
    *tensor = rotation.to;
    return VKA_OK;
}
