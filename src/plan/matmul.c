#include "plan/matmul.h"
#include "params.h"
#include "plan/tune.h"

#include <stdio.h>
#include <string.h>

struct vka_tensor tensor_part(const struct vka_tensor *tensor, uint32_t axis, uint32_t first,
                              uint32_t count)
{
    struct vka_tensor part = *tensor;
    part.shape.offset += first * part.shape.stride[axis];
    part.shape.size[axis] = count;
    return part;
}

struct vka_tensor tensor_rank4(const struct vka_tensor *tensor)
{
    struct vka_tensor full = *tensor;
    full.shape = shape_rank4(&tensor->shape);
    return full;
}

static uint32_t divide_up(uint32_t a, uint32_t b)
{
    return (a + b - 1) / b;
}

/* Whether elements along `inner` are contiguous float32, and every step along the other axes keeps
 * 16-byte alignment. */
static bool vec4_along(const struct vka_tensor *t, uint32_t inner)
{
    bool aligned = t->dtype == VKA_F32 && t->shape.stride[inner] == 1 && t->shape.offset % 4 == 0;
    for (uint32_t i = 0; i < 4; i++)
        aligned &= i == inner || t->shape.size[i] == 1 || t->shape.stride[i] % 4 == 0;
    return aligned;
}

/* Reading a whole vec4 at the end of a row of n must stay in the row, or in its padding. */
static bool b_vec4(const struct vka_tensor *b)
{
    uint32_t n = b->shape.size[2];
    return vec4_along(b, 2) && (n % 4 == 0 || b->shape.stride[3] >= (n + 3u) / 4 * 4);
}

static void choose(const struct vka_plan *plan, const struct matmul_op *op, bool b_fixed,
                   struct matmul_choice *choice)
{
    const uint32_t *a = op->a.shape.size;
    const struct matmul_problem problem = {
        .batch = (uint64_t)a[0] * a[1],
        .m = a[2],
        .n = op->b.shape.size[2],
        .k = a[3],
        .a_type = op->a.dtype,
        .b_type = op->b.dtype,
        .a_vec = vec4_along(&op->a, 3),
        .b_vec = b_vec4(&op->b),
        .b_fixed = b_fixed,
    };
    tune_matmul(&plan->device->caps, &problem, choice);
}

static void set_key(const struct matmul_op *op, const struct matmul_choice *choice,
                    struct pipeline_key *key)
{
    *key = (struct pipeline_key){.kernel = choice->kernel};
    key->spec[MATMUL_A_TYPE] = op->a.dtype;
    key->spec[MATMUL_B_TYPE] = op->b.dtype;
    key->spec[MATMUL_C_TYPE] = op->c.dtype;
    key->spec[MATMUL_BIAS_TYPE] = op->bias ? op->bias->dtype : BIAS_NONE;
    key->spec[MATMUL_RELU] = op->relu;
    key->spec[MATMUL_HIDDEN] = op->hidden;
    if (choice->kernel == KERNEL_matmul_tile) {
        key->n_spec = MATMUL_TILE_SPECS;
        key->spec[MATMUL_TILE_M] = choice->tile_m;
        key->spec[MATMUL_TILE_N] = choice->tile_n;
        key->spec[MATMUL_SIDE_X] = key->spec[MATMUL_SIDE_Y] = choice->side;
    } else {
        key->n_spec = MATMUL_LANE_SPECS;
        key->spec[MATMUL_LANES] = choice->lanes;
        key->spec[MATMUL_A_VEC] = choice->a_vec;
        key->spec[MATMUL_B_VEC] = choice->b_vec;
        key->spec[MATMUL_ROWS] = choice->rows;
    }
}

static void set_params(const struct vka_plan *plan, const struct matmul_op *op, struct pass *pass)
{
    const uint32_t *a = op->a.shape.size;
    struct matmul_params p = {
        .m = a[2],
        .n = op->b.shape.size[2],
        .k = a[3],
        .alpha = op->alpha,
        .n_head = a[1],
        .group = op->group,
        .a_batch = (uint32_t)op->a.shape.stride[0],
        .a_head = (uint32_t)op->a.shape.stride[1],
        .a_row = (uint32_t)op->a.shape.stride[2],
        .a_col = (uint32_t)op->a.shape.stride[3],
        .b_batch = (uint32_t)op->b.shape.stride[0],
        .b_head = (uint32_t)op->b.shape.stride[1],
        .b_row = (uint32_t)op->b.shape.stride[2],
        .b_col = (uint32_t)op->b.shape.stride[3],
        .c_batch = (uint32_t)op->c.shape.stride[0],
        .c_head = (uint32_t)op->c.shape.stride[1],
        .c_row = (uint32_t)op->c.shape.stride[2],
        .c_col = (uint32_t)op->c.shape.stride[3],
    };
    plan_bind(plan, pass, 0, &op->a, false, &p.a_offset);
    plan_bind(plan, pass, 1, &op->b, false, &p.b_offset);
    plan_bind(plan, pass, 2, op->bias ? op->bias : &op->b, false, &p.bias_offset);
    plan_bind(plan, pass, 3, &op->c, true, &p.c_offset);
    pass->push_size = sizeof p;
    memcpy(pass->push, &p, sizeof p);
}

static enum vka_status add_pass(struct vka_plan *plan, const struct matmul_op *op,
                                const struct matmul_choice *choice)
{
    const uint32_t *a = op->a.shape.size;
    uint32_t n = op->b.shape.size[2];
    struct pass pass = {.name = op->name, .reason = choice->reason};
    set_key(op, choice, &pass.key);
    set_params(plan, op, &pass);
    pass.groups[0] = divide_up(n, choice->columns);
    pass.groups[1] = divide_up(a[2], choice->rows);
    pass.groups[2] = a[0] * a[1];
    snprintf(pass.detail, sizeof pass.detail, "%ux%ux%u x%u, %s*%s->%s, tile %ux%u", a[2], n, a[3],
             pass.groups[2], vka_dtype_name(op->a.dtype), vka_dtype_name(op->b.dtype),
             vka_dtype_name(op->c.dtype), choice->rows, choice->columns);
    return plan_add_pass(plan, &pass);
}

/* What B takes when packed: a cut along n makes that smaller even where the rows of B are so far
 * apart that its range stays. */
static uint64_t packed_bytes(const struct vka_tensor *b)
{
    const uint32_t *size = b->shape.size;
    uint64_t outer =
        (b->shape.stride[0] ? size[0] : 1u) * (uint64_t)(b->shape.stride[1] ? size[1] : 1u);
    return outer * size[3] * (divide_up(size[2], 4) * 4ull) * 4;
}

/* The axis of c to halve so that grid and bindings fit the device; -1 where they do, -2 where no
 * cut helps. */
static int axis_to_cut(const struct vka_plan *plan, const struct matmul_op *op,
                       const struct matmul_choice *choice)
{
    const struct caps *caps = &plan->device->caps;
    const uint32_t *c = op->c.shape.size;
    uint64_t limit = caps->properties.max_buffer_range;
    bool a = plan_range(plan, &op->a) > limit;
    bool b = plan_range(plan, &op->b) > limit && packed_bytes(&op->b) > limit;
    bool over = a || b || plan_range(plan, &op->c) > limit;
    if (over || (uint64_t)c[0] * c[1] > caps->max_groups[2]) {
        if (c[0] > 1)
            return 0;
        if (c[1] > op->group)
            return 1;
    }
    if ((over && !b) || divide_up(c[2], choice->rows) > caps->max_groups[1])
        return c[2] > choice->rows ? 2 : -2;
    if (over || divide_up(c[3], choice->columns) > caps->max_groups[0])
        return c[3] > choice->columns ? 3 : -2;
    return -1;
}

/* The part `first .. first + count - 1` of the op along an axis of c. */
static struct matmul_op op_part(const struct matmul_op *op, int axis, uint32_t first,
                                uint32_t count, struct vka_tensor *bias)
{
    struct matmul_op part = *op;
    uint32_t at = (uint32_t)axis;
    part.c = tensor_part(&op->c, at, first, count);
    if (axis <= 2)
        part.a = tensor_part(&op->a, at, first, count);
    if (axis == 0)
        part.b = tensor_part(&op->b, 0, first, count);
    if (axis == 1)
        part.b = tensor_part(&op->b, 1, first / op->group, divide_up(count, op->group));
    if (axis == 3) {
        part.b = tensor_part(&op->b, 2, first, count);
        if (op->bias) {
            *bias = tensor_part(op->bias, op->bias->shape.rank - 1, first, count);
            part.bias = bias;
        }
    }
    return part;
}

/* Copies B to [k][n] with n padded to whole vec4. */
static enum vka_status pack_b(struct vka_plan *plan, struct matmul_op *op)
{
    enum vka_status status = VKA_OK;
    const struct shape *b = &op->b.shape;
    uint32_t batch = b->stride[0] ? b->size[0] : 1, head = b->stride[1] ? b->size[1] : 1;
    const uint32_t size[4] = {batch, head, b->size[3], divide_up(b->size[2], 4) * 4};
    struct vka_tensor packed, from = op->b;
    TRY(plan_scratch(plan, VKA_F32, size, &packed));
    from.shape.size[0] = batch;
    from.shape.size[1] = head;
    struct shape *to = &packed.shape; /* as [batch][head][n][k] */
    uint64_t row = to->stride[2];
    to->size[2] = b->size[2];
    to->size[3] = b->size[3];
    to->stride[2] = 1;
    to->stride[3] = row;
    TRY(plan_copy(plan, "pack", &from, &packed));
    to->size[0] = b->size[0];
    to->size[1] = b->size[1];
    to->stride[0] = b->stride[0] ? to->stride[0] : 0;
    to->stride[1] = b->stride[1] ? to->stride[1] : 0;
    op->b = packed;
fail:
    return status;
}

/* Halves are whole tiles and whole groups, so that a result's bits do not depend on the cut. */
static enum vka_status add_parts(struct vka_plan *plan, const struct matmul_op *op,
                                 const struct matmul_choice *choice)
{
    int axis = axis_to_cut(plan, op, choice);
    if (axis < 0 && plan_range(plan, &op->b) > plan->device->caps.properties.max_buffer_range) {
        struct matmul_op packed = *op;
        enum vka_status status = pack_b(plan, &packed);
        return status == VKA_OK ? add_pass(plan, &packed, choice) : status;
    }
    if (axis < 0)
        return add_pass(plan, op, choice); /* which says what does not fit */
    uint32_t size = op->c.shape.size[axis];
    const uint32_t unit[4] = {1, op->group, choice->rows, choice->columns};
    uint32_t half = divide_up(size / 2, unit[axis]) * unit[axis];
    struct vka_tensor bias;
    struct matmul_op part = op_part(op, axis, 0, half, &bias);
    enum vka_status status = add_parts(plan, &part, choice);
    if (status != VKA_OK)
        return status;
    part = op_part(op, axis, half, size - half, &bias);
    return add_parts(plan, &part, choice);
}

enum vka_status plan_matmul(struct vka_plan *plan, const struct matmul_op *op)
{
    struct matmul_choice choice;
    struct matmul_op packed = *op;
    choose(plan, op, false, &choice);
    if (!choice.pack_b)
        return add_parts(plan, op, &choice);
    enum vka_status status = pack_b(plan, &packed);
    return status == VKA_OK ? add_parts(plan, &packed, &choice) : status;
}

static enum vka_status add_copy(struct vka_plan *plan, const char *name,
                                const struct vka_tensor *from, const struct vka_tensor *to)
{
    const uint32_t *size = from->shape.size;
    const uint64_t *f = from->shape.stride, *t = to->shape.stride;
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
        .to2 = (uint32_t)t[2],
        .to3 = (uint32_t)t[3],
    };
    struct pass pass = {.name = name, .reason = "strided copy"};
    pass.key = (struct pipeline_key){.kernel = KERNEL_copy, .n_spec = COPY_SPECS};
    pass.key.spec[COPY_FROM_TYPE] = from->dtype;
    pass.key.spec[COPY_TO_TYPE] = to->dtype;
    plan_bind(plan, &pass, 0, from, false, &p.from_offset);
    plan_bind(plan, &pass, 1, to, true, &p.to_offset);
    pass.push_size = sizeof p;
    memcpy(pass.push, &p, sizeof p);
    pass.groups[0] = divide_up(size[2] * size[3], 64);
    pass.groups[1] = size[1];
    pass.groups[2] = size[0];
    snprintf(pass.detail, sizeof pass.detail, "%ux%ux%ux%u, %s->%s", size[0], size[1], size[2],
             size[3], vka_dtype_name(from->dtype), vka_dtype_name(to->dtype));
    return plan_add_pass(plan, &pass);
}

enum vka_status plan_copy(struct vka_plan *plan, const char *name, const struct vka_tensor *from,
                          const struct vka_tensor *to)
{
    const struct caps *caps = &plan->device->caps;
    const uint32_t *size = from->shape.size;
    uint64_t limit = caps->properties.max_buffer_range;
    bool fits = plan_range(plan, from) <= limit && plan_range(plan, to) <= limit &&
                size[0] <= caps->max_groups[2] && size[1] <= caps->max_groups[1] &&
                (uint64_t)size[2] * size[3] / 64 < caps->max_groups[0];
    uint32_t axis = 0;
    while (axis < 3 && size[axis] == 1)
        axis++;
    if (fits || size[axis] == 1)
        return add_copy(plan, name, from, to);
    uint32_t half = size[axis] / 2;
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t first = i ? half : 0, count = i ? size[axis] - half : half;
        struct vka_tensor f = tensor_part(from, axis, first, count);
        struct vka_tensor t = tensor_part(to, axis, first, count);
        enum vka_status status = plan_copy(plan, name, &f, &t);
        if (status != VKA_OK)
            return status;
    }
    return VKA_OK;
}
