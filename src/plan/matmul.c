#include "plan/matmul.h"
#include "params.h"
#include "plan/choose.h"

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

/* Whether eight elements along k, the last axis, are whole 16 bytes, everywhere in the tensor. */
static bool chunks_along_k(const struct vka_tensor *t)
{
    const struct shape *s = &t->shape;
    bool whole =
        t->dtype != VKA_F32 && s->stride[3] == 1 && s->size[3] % 8 == 0 && s->offset % 8 == 0;
    for (uint32_t i = 0; i < 3; i++)
        whole &= s->size[i] == 1 || s->stride[i] % 8 == 0;
    return whole;
}

static void choose(const struct vka_plan *plan, const struct matmul_op *op,
                   struct matmul_choice *choice)
{
    const uint32_t *a = op->a.shape.size;
    bool row = op->a.dtype == VKA_F32 && (op->a.shape.stride[3] == 1 || a[3] == 1);
    const struct matmul_problem problem = {
        .batch = (uint64_t)a[0] * a[1],
        .m = a[2],
        .n = op->c.shape.size[3],
        .k = a[3],
        .a_type = op->a.dtype,
        .b_type = op->b.dtype,
        .a_plain = row && plan_is_ours(plan, &op->a),
        .a_vec = vec4_along(&op->a, 3),
        .b_vec = !op->panel && b_vec4(&op->b),
        .panel = op->panel,
        .a_chunks = chunks_along_k(&op->a),
        .b_chunks = chunks_along_k(&op->b),
        .hidden = op->hidden,
    };
    choose_matmul(&plan->device->caps, &problem, choice);
}

static void set_coop_key(const struct matmul_choice *choice, struct pipeline_key *key)
{
    key->n_spec = MATMUL_COOP_SPECS;
    key->spec[MATMUL_COOP_THREADS] = choice->lanes;
    key->spec[MATMUL_COOP_M] = choice->size.m;
    key->spec[MATMUL_COOP_N] = choice->size.n;
    key->spec[MATMUL_COOP_K] = choice->size.k;
    key->spec[MATMUL_COOP_MATS_M] = choice->mats_m;
    key->spec[MATMUL_COOP_MATS_N] = choice->mats_n;
    key->spec[MATMUL_COOP_A_VEC] = choice->a_vec;
    key->spec[MATMUL_COOP_B_VEC] = choice->b_vec;
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
    if (choice->size.m) {
        set_coop_key(choice, key);
    } else if (choice->kernel == KERNEL_matmul_tile) {
        key->n_spec = MATMUL_TILE_SPECS;
        key->spec[MATMUL_TILE_M] = choice->tile_m;
        key->spec[MATMUL_TILE_N] = choice->tile_n;
        key->spec[MATMUL_SIDE_X] = key->spec[MATMUL_SIDE_Y] = choice->side;
    } else {
        key->n_spec = MATMUL_LANE_SPECS; /* those for packed B read the rows alone */
        key->spec[MATMUL_LANES] = choice->lanes;
        key->spec[MATMUL_A_VEC] = choice->a_vec;
        key->spec[MATMUL_B_VEC] = choice->b_vec;
        key->spec[MATMUL_ROWS] = choice->rows;
    }
}

static void set_params(const struct vka_plan *plan, const struct matmul_op *op, uint32_t n_block,
                       struct pass *pass)
{
    const uint32_t *a = op->a.shape.size;
    struct matmul_params p = {
        .m = a[2],
        .n = op->c.shape.size[3],
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
        .b_panel = op->panel * a[3],
        .n_block = n_block,
    };
    plan_bind(plan, pass, 0, &op->a, false, &p.a_offset);
    plan_bind(plan, pass, 1, &op->b, false, &p.b_offset);
    plan_bind(plan, pass, 2, op->bias ? op->bias : &op->b, false, &p.bias_offset);
    plan_bind(plan, pass, 3, &op->c, true, &p.c_offset);
    pass->push_size = sizeof p;
    memcpy(pass->push, &p, sizeof p);
}

/* Bytes of rows of A that are to stay in a core's cache while all of B goes by. */
#define BLOCK_BYTES (256u << 10)
#define LEAST_GROUPS 65535u /* along an axis, that every device has */

/* Tiles of rows in a block, for kernels that read packed B. */
static uint32_t tiles_of_block(uint32_t m, uint32_t k, uint32_t rows)
{
    uint32_t all = divide_up(m, rows);
    uint64_t fit = BLOCK_BYTES / (4ull * k * rows);
    all = all < LEAST_GROUPS ? all : LEAST_GROUPS;
    return fit < 1 ? 1 : fit < all ? (uint32_t)fit : all;
}

static void set_grid(const struct matmul_op *op, const struct matmul_choice *choice,
                     uint64_t groups[3], uint32_t *n_block)
{
    const uint32_t *c = op->c.shape.size;
    uint32_t tiles = divide_up(c[2], choice->rows);
    groups[0] = divide_up(c[3], choice->columns);
    groups[1] = tiles;
    groups[2] = (uint64_t)c[0] * c[1];
    *n_block = 1;
    if (choice->panel) {
        uint32_t block = tiles_of_block(c[2], op->a.shape.size[3], choice->rows);
        *n_block = divide_up(tiles, block);
        groups[1] = groups[0];
        groups[0] = block;
        groups[2] *= *n_block;
    }
}

static enum vka_status add_pass(struct vka_plan *plan, const struct matmul_op *op,
                                const struct matmul_choice *choice)
{
    const uint32_t *a = op->a.shape.size;
    uint32_t n = op->c.shape.size[3], n_block;
    uint64_t groups[3];
    struct pass pass = {.name = op->name, .reason = choice->reason};
    set_grid(op, choice, groups, &n_block);
    memcpy(pass.problem, choice->problem, sizeof pass.problem);
    set_key(op, choice, &pass.key);
    set_params(plan, op, n_block, &pass);
    if (kernel_table[choice->kernel].needs & NEED_ADDRESS)
        pass.n_address = 2;
    for (int i = 0; i < 3; i++)
        pass.groups[i] = groups[i] < UINT32_MAX ? (uint32_t)groups[i] : UINT32_MAX;
    snprintf(pass.detail, sizeof pass.detail, "%ux%ux%u x%u, %s*%s->%s, tile %ux%u", a[2], n, a[3],
             a[0] * a[1], vka_dtype_name(op->a.dtype), vka_dtype_name(op->b.dtype),
             vka_dtype_name(op->c.dtype), choice->rows, choice->columns);
    return plan_add_pass(plan, &pass);
}

/* What B takes when its rows are packed: a cut along n makes that smaller even where the rows of B
 * are so far apart that its range stays. */
static uint64_t rows_bytes(const struct vka_tensor *b)
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
    uint64_t limit = caps->properties.max_buffer_range, groups[3];
    uint32_t n_block;
    set_grid(op, choice, groups, &n_block);
    bool a = plan_range(plan, &op->a) > limit;
    bool b = plan_range(plan, &op->b) > limit && (op->panel || rows_bytes(&op->b) > limit);
    bool over = a || b || plan_range(plan, &op->c) > limit;
    uint32_t rows = op->panel ? 2 : 1, columns = op->panel ? 1 : 0; /* their axes of the grid */
    if (over || groups[2] > caps->max_groups[2]) {
        if (c[0] > 1)
            return 0;
        if (c[1] > op->group)
            return 1;
    }
    if ((over && !b) || groups[rows] > caps->max_groups[rows])
        return c[2] > 1 ? 2 : -2;
    if (over || groups[columns] > caps->max_groups[columns])
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
        uint32_t unit = op->panel ? op->panel : 1;
        part.b = tensor_part(&op->b, 2, first / unit, divide_up(count, unit));
        if (op->bias) {
            *bias = tensor_part(op->bias, op->bias->shape.rank - 1, first, count);
            part.bias = bias;
        }
    }
    return part;
}

/* Batch elements and heads of B, one where all share it. */
static void outer_of(const struct vka_tensor *b, uint32_t outer[2])
{
    for (int i = 0; i < 2; i++)
        outer[i] = b->shape.stride[i] ? b->shape.size[i] : 1;
}

/* Makes `packed`, with one matrix where all share it, stand for B in the op. */
static void replace_b(struct matmul_op *op, const struct vka_tensor *packed)
{
    struct shape was = op->b.shape;
    op->b = *packed;
    for (int i = 0; i < 2; i++) {
        op->b.shape.size[i] = was.size[i];
        op->b.shape.stride[i] = was.stride[i] ? packed->shape.stride[i] : 0;
    }
}

/* Copies B to [k][n] with n padded to whole vec4. */
static enum vka_status pack_rows(struct vka_plan *plan, struct matmul_op *op, enum vka_dtype dtype)
{
    enum vka_status status = VKA_OK;
    uint32_t outer[2], n = op->b.shape.size[2], k = op->b.shape.size[3];
    struct vka_tensor packed, from = op->b;
    outer_of(&op->b, outer);
    TRY(plan_scratch(plan, dtype, (const uint32_t[]){outer[0], outer[1], k, divide_up(n, 4) * 4},
                     &packed));
    from.shape.size[0] = outer[0];
    from.shape.size[1] = outer[1];
    struct shape *to = &packed.shape; /* as [batch][head][n][k] */
    uint64_t row = to->stride[2];
    to->size[2] = n;
    to->size[3] = k;
    to->stride[2] = 1;
    to->stride[3] = row;
    TRY(plan_copy(plan, "pack", &from, &packed));
    replace_b(op, &packed);
fail:
    return status;
}

static enum vka_status pack_panels(struct vka_plan *plan, struct matmul_op *op, uint32_t panel)
{
    enum vka_status status = VKA_OK;
    uint32_t outer[2], n = op->b.shape.size[2], k = op->b.shape.size[3];
    struct vka_tensor packed, from = op->b;
    if ((uint64_t)k * panel > UINT32_MAX)
        return log_error(&plan->device->log, VKA_UNSUPPORTED, "%s: k is %u", op->name, k);
    outer_of(&op->b, outer);
    TRY(plan_scratch(plan, VKA_F32,
                     (const uint32_t[]){outer[0], outer[1], divide_up(n, panel), k * panel},
                     &packed));
    from.shape.size[0] = outer[0];
    from.shape.size[1] = outer[1];
    TRY(plan_copy_to_panels(plan, "pack", &from, &packed, panel));
    replace_b(op, &packed);
    op->panel = panel;
fail:
    return status;
}

/* Copies A to float32 with rows of whole vec4. */
static enum vka_status pack_a(struct vka_plan *plan, struct matmul_op *op)
{
    enum vka_status status = VKA_OK;
    const uint32_t *size = op->a.shape.size;
    struct vka_tensor packed;
    TRY(plan_scratch(plan, VKA_F32,
                     (const uint32_t[]){size[0], size[1], size[2], divide_up(size[3], 4) * 4},
                     &packed));
    packed.shape.size[3] = size[3];
    TRY(plan_copy(plan, "pack", &op->a, &packed));
    op->a = packed;
fail:
    return status;
}

/* Halves are whole groups, and whole tiles as long as there are more. No kernel sums differently by
 * a row's place in its tile, so a result's bits do not depend on the cut. */
static enum vka_status add_parts(struct vka_plan *plan, const struct matmul_op *op,
                                 const struct matmul_choice *choice)
{
    int axis = axis_to_cut(plan, op, choice);
    uint64_t limit = plan->device->caps.properties.max_buffer_range;
    if (axis < 0 && !op->panel && plan_range(plan, &op->b) > limit) {
        struct matmul_op packed = *op;
        struct matmul_choice plain = *choice;
        bool coop = choice->size.m != 0; /* whose inputs are of one type */
        if (coop)
            plain.b_vec = false; /* that was said of the rows as they lay */
        enum vka_status status = pack_rows(plan, &packed, coop ? op->b.dtype : VKA_F32);
        return status == VKA_OK ? add_pass(plan, &packed, &plain) : status;
    }
    if (axis < 0)
        return add_pass(plan, op, choice); /* which says what does not fit */
    uint32_t size = op->c.shape.size[axis];
    uint32_t rows = op->c.shape.size[2] > choice->rows ? choice->rows : 1;
    const uint32_t unit[4] = {1, op->group, rows, choice->columns};
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
    enum vka_status status = VKA_OK;
    struct matmul_choice choice;
    struct matmul_op packed = *op;
    choose(plan, op, &choice);
    if (choice.pack_a)
        TRY(pack_a(plan, &packed));
    if (choice.panel && !op->panel)
        TRY(pack_panels(plan, &packed, choice.panel));
    TRY(add_parts(plan, &packed, &choice));
fail:
    return status;
}
