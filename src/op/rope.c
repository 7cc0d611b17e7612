#include "op/rope.h"
#include "params.h"
#include "op/matmul/matmul.h"
#include "plan/settle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TWO_PI 6.283185307179586476925286766559
#define ROWS 64u               /* of a workgroup */
#define MOST_OFFSET (1u << 30) /* the kernel clamps to it */

/* Turns a position of each pair, as fractions of 2^64: low and high word. The kernel multiplies in
 * integers, so that no position loses the angle's precision. */
static enum vka_status make_frequencies(struct vka_plan *plan, const struct vka_rope *rope,
                                        struct vka_tensor *frequencies)
{
    enum vka_status status = VKA_OK;
    struct log *log = &plan->device->log;
    uint32_t n = rope->dim / 2;
    double base = rope->base != 0 ? (double)rope->base : 10000;
    uint32_t *words = calloc(2 * (size_t)n + 2, sizeof *words);
    CHECK_ALLOC(words);
    for (uint32_t i = 0; i < n; i++) {
        double turns = pow(base, -2.0 * i / rope->dim) / TWO_PI;
        double high = (turns - floor(turns)) * 4294967296.0;
        words[2 * i + 1] = (uint32_t)high;
        words[2 * i] = (uint32_t)((high - floor(high)) * 4294967296.0);
    }
    const uint32_t size[4] = {1, 1, 1, 2 * n + 2};
    TRY(plan_constant(plan, VKA_I32, size, words, frequencies));
fail:
    free(words);
    return status;
}

/* Rows to be normed and turned, and all that the passes for their parts share. */
struct turn {
    const char *name;
    const struct vka_rope *rope;
    const struct vka_tensor *norm, *offsets, *frequencies;
    float epsilon;
};

/* Rows of [batch][n_head][n_row][head_dim], row 0 at position `first`, from batch element `batch`
 * on. */
struct turned {
    struct vka_tensor from, to;
    uint32_t first, batch;
};

/* Workgroups of a batch element. */
static uint64_t groups_of(const struct turned *r)
{
    const uint32_t *size = r->from.shape.size;
    return ((uint64_t)size[1] * size[2] + ROWS - 1) / ROWS;
}

static struct work work_of(const struct turned *r)
{
    double row = WORK_SCORE * r->from.shape.size[3];
    double loops = 3.0 * r->from.shape.size[3]; /* of a row, which is not cut */
    return (struct work){WORK_SCORE * (double)shape_count(&r->from.shape), ROWS * row, loops};
}

static enum vka_status add_pass(struct vka_plan *plan, const struct turn *t, const struct turned *r)
{
    const uint32_t *size = r->from.shape.size;
    const uint64_t *from = r->from.shape.stride, *to = r->to.shape.stride;
    bool each = t->offsets && t->offsets->shape.size[0] > 1;
    struct vka_tensor offsets = t->offsets ? *t->offsets : *t->frequencies;
    if (each)
        offsets = tensor_part(&offsets, 0, r->batch, size[0]);
    struct rope_params p = {
        .batch = size[0],
        .n_head = size[1],
        .n_row = size[2],
        .head_dim = size[3],
        .from_batch = (uint32_t)from[0],
        .from_head = (uint32_t)from[1],
        .from_row = (uint32_t)from[2],
        .from_col = (uint32_t)from[3],
        .to_batch = (uint32_t)to[0],
        .to_head = (uint32_t)to[1],
        .to_row = (uint32_t)to[2],
        .to_col = 1,
        .first_position = (int32_t)r->first,
        .flags = (t->norm ? ROPE_NORM : 0) | (t->rope->interleaved ? ROPE_INTERLEAVED : 0) |
                 (t->offsets ? ROPE_OFFSET : 0) | (each ? ROPE_OFFSET_PER_BATCH : 0),
        .epsilon = t->epsilon != 0 ? t->epsilon : 1e-6f,
        .dim = t->rope->dim,
    };
    struct pass pass = {.name = t->name, .reason = "one invocation a row"};
    pass.key = (struct pipeline_key){.kernel = KERNEL_rope, .n_spec = ROPE_SPECS};
    pass.key.spec[ROPE_FROM_TYPE] = r->from.dtype;
    pass.key.spec[ROPE_TO_TYPE] = VKA_F32;
    plan_bind(plan, &pass, 0, &r->from, false, &p.from_offset);
    plan_bind(plan, &pass, 1, &r->to, true, &p.to_offset);
    plan_bind(plan, &pass, 2, t->norm ? t->norm : t->frequencies, false, &p.norm_offset);
    plan_bind(plan, &pass, 3, &offsets, false, &p.position_offset);
    plan_bind(plan, &pass, 4, t->frequencies, false, NULL);
    pass.push_size = sizeof p;
    memcpy(pass.push, &p, sizeof p);
    pass.groups[0] = (uint32_t)groups_of(r);
    pass.groups[1] = size[0];
    pass.groups[2] = 1;
    pass.work = work_of(r);
    snprintf(pass.detail, sizeof pass.detail, "%ux%ux%ux%u, %s%s", size[0], size[1], size[2],
             size[3], t->norm ? "norm " : "", t->rope->dim ? "turn" : "");
    return plan_add_pass(plan, &pass);
}

static bool fits(const struct vka_plan *plan, const struct turned *r)
{
    const struct caps *caps = &plan->caps;
    const uint32_t *size = r->from.shape.size;
    uint64_t limit = caps->properties.max_buffer_range;
    struct work work = work_of(r);
    bool one = size[0] == 1 && groups_of(r) == 1;
    return plan_range(plan, &r->from) <= limit && plan_range(plan, &r->to) <= limit &&
           size[0] <= caps->max_groups[1] && groups_of(r) <= caps->max_groups[0] &&
           (one || plan_fits(plan, KERNEL_rope, &work));
}

/* Adds the passes, halved along batch, heads, then rows until they fit the device and the
 * budget. */
static enum vka_status add_parts(struct vka_plan *plan, const struct turn *t,
                                 const struct turned *r)
{
    const uint32_t *size = r->from.shape.size;
    uint32_t axis = size[0] > 1 ? 0 : size[1] > 1 ? 1 : 2, half = size[axis] / 2;
    if (fits(plan, r) || half == 0)
        return add_pass(plan, t, r); /* which says what does not fit */
    struct turned part = *r;
    part.from = tensor_part(&r->from, axis, 0, half);
    part.to = tensor_part(&r->to, axis, 0, half);
    enum vka_status status = add_parts(plan, t, &part);
    if (status != VKA_OK)
        return status;
    part.from = tensor_part(&r->from, axis, half, size[axis] - half);
    part.to = tensor_part(&r->to, axis, half, size[axis] - half);
    part.batch += axis == 0 ? half : 0;
    part.first += axis == 2 ? half : 0;
    return add_parts(plan, t, &part);
}

/* Below base 1 a pair turns by up to 1 / base a position, which no double holds to the fraction of
 * a turn that far positions need. */
static enum vka_status check(struct vka_plan *plan, const char *name, const struct vka_rope *rope,
                             uint64_t first, const uint32_t size[4])
{
    struct log *log = &plan->device->log;
    enum vka_status status = VKA_OK;
    const uint64_t rows = size[2], limit = plan->caps.properties.max_buffer_range;
    CHECK_ARG(!rope->dim || rope->base == 0 || rope->base >= 1, "%s: rope.base is %g, less than 1",
              name, (double)rope->base);
    CHECK_ARG(!rope->dim || first + rows <= 1u << 31, "%s: position %llu exceeds 2^31 - 1", name,
              (unsigned long long)(first + rows - 1));
    if (size[3] > limit / sizeof(float)) /* before its frequencies are made */
        return log_error(log, VKA_UNSUPPORTED,
                         "%s: a row of %u in float32 passes the %llu bytes that a kernel may see",
                         name, size[3], (unsigned long long)limit);
fail:
    return status;
}

enum vka_status plan_rope(struct vka_plan *plan, const char *name, const struct vka_rope *rope,
                          const struct vka_tensor *norm, float epsilon,
                          const struct vka_tensor *offsets, uint32_t first,
                          struct vka_tensor *tensor)
{
    enum vka_status status = VKA_OK;
    struct vka_tensor frequencies;
    struct turn turn = {name, rope, norm, offsets, &frequencies, epsilon};
    struct turned all = {.from = *tensor, .first = offsets ? 0 : first};
    struct vka_tensor row = *tensor, packed = {0};
    for (int i = 0; i < 3; i++)
        row.shape.size[i] = 1;
    TRY(check(plan, name, rope, offsets ? MOST_OFFSET : first, tensor->shape.size));
    TRY(plan_settle_kernel(plan, KERNEL_rope));
    TRY(make_frequencies(plan, rope, &frequencies));
    if (plan_range(plan, &row) > plan->caps.properties.max_buffer_range) {
        TRY(plan_scratch(plan, tensor->dtype, tensor->shape.size, &packed));
        TRY(plan_copy(plan, "pack", tensor, &packed));
        all.from = packed;
    }
    TRY(plan_scratch(plan, VKA_F32, tensor->shape.size, &all.to));
    struct work work = work_of(&all);
    TRY(plan_calibrate_moves(plan, &work));
    TRY(add_parts(plan, &turn, &all));
    if (packed.storage)
        plan_scratch_free(plan, &packed);
    *tensor = all.to;
fail:
    return status;
}
