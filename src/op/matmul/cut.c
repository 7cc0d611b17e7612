/* Cuts and packs matrix products of any size, so that grids, bindings and allocations fit the
 * device, and passes the budget. The bits of a result do not depend on the cuts: kernels sum the
 * same way at every place of a tile, and a span of k continues the sums of the span before. */
#include "op/matmul/cut.h"
#include "core/dtype.h"
#include "params/params.h"
#include "op/common/copy.h"
#include "op/matmul/pass.h"
#include "op/matmul/quantise.h"
#include "op/matmul/budget.h"

/* Bytes of A or B that a kernel can see. */
static uint64_t input_limit(const struct vka_plan *plan, const struct matmul_choice *choice)
{
    uint64_t limit = plan->caps.properties.max_buffer_range;
    bool texels = kernel_table[choice->kernel].needs & NEED_TEXELS;
    return texels ? least(limit, plan->caps.max_texels * 16ull) : limit;
}

/* Batch elements and heads of B; 1 where all share B. */
static void outer_of(const struct vka_tensor *b, uint32_t outer[2])
{
    for (int i = 0; i < 2; i++)
        outer[i] = b->shape.stride[i] ? b->shape.size[i] : 1;
}

/* Bytes of B with packed rows. A cut along n reduces them, even if the range of B itself stays
 * large. */
static uint64_t rows_bytes(const struct vka_tensor *b)
{
    uint32_t outer[2];
    outer_of(b, outer);
    return (uint64_t)outer[0] * outer[1] * b->shape.size[3] * divide_up(b->shape.size[2], 4) * 16;
}

/* Whether A or C must be cut. Not if it fits a binding when packed, and its rows are so close that
 * fewer of them would span as many bytes. */
static bool too_large(const struct vka_plan *plan, const struct vka_tensor *x, uint64_t limit,
                      uint64_t scratch)
{
    const struct shape *s = &x->shape;
    const uint32_t *size = s->size;
    bool close = s->stride[2] * (size[2] - 1ull) < s->stride[3] * (size[3] - 1ull);
    uint64_t packed = (uint64_t)size[0] * size[1] * size[2] * divide_up(size[3], 4) * 16;
    return plan_range(plan, x) > limit && (!close || packed > scratch);
}

/* Fewest columns of a slice. Rows of quantised B are read as they are, however far apart. */
static uint32_t least_columns(const struct matmul_op *op, const struct matmul_choice *choice)
{
    return dtype_is_quantised(op->b.dtype) ? 1 : choice->columns;
}

/* The axis to halve so that grid and bindings fit the device; CUT_FITS where they do, or no cut
 * helps. */
static int axis_to_cut(const struct vka_plan *plan, const struct matmul_op *op,
                       const struct matmul_choice *choice)
{
    const struct caps *caps = &plan->caps;
    const uint32_t *size = op->c.shape.size;
    uint64_t limit = caps->properties.max_buffer_range, input = input_limit(plan, choice);
    uint64_t scratch = least(input, caps->properties.max_allocation), groups[3];
    uint32_t n_block;
    matmul_grid(caps, op, choice, groups, &n_block);
    bool a = too_large(plan, &op->a, input, scratch);
    bool as_it_is = op->b_tile || dtype_is_quantised(op->b.dtype);
    bool b = plan_range(plan, &op->b) > input && (as_it_is || rows_bytes(&op->b) > scratch);
    bool c = too_large(plan, &op->c, limit, scratch);
    uint32_t rows = choice->b_tile ? 2 : 1, columns = choice->b_tile ? 1 : 0; /* axes of the grid */
    if (a || b || c || groups[2] > caps->max_groups[2]) {
        if (size[0] > 1)
            return 0;
        if (size[1] > op->group)
            return 1;
    }
    if ((((a || c) && !b) || groups[rows] > caps->max_groups[rows]) && size[2] > 1)
        return 2;
    bool n = b || c || groups[columns] > caps->max_groups[columns];
    if ((n && size[3] > choice->columns) || (b && size[3] > least_columns(op, choice)))
        return 3;
    return a || b ? matmul_axis_of_k(plan, op, choice) : CUT_FITS;
}

/* What a slice points to. */
struct columns {
    struct vka_tensor bias, scale;
};

/* A slice of c. */
static struct matmul_op op_slice(const struct matmul_op *op, const struct slice *c,
                                 struct columns *columns)
{
    struct matmul_op sliced = *op;
    uint32_t tile = op->b_tile ? op->b_tile : 1;
    const uint32_t *first = c->first, *size = c->size;
    const struct slice a = {{first[0], first[1], first[2], 0},
                            {size[0], size[1], size[2], op->a.shape.size[3]}};
    const struct slice b = {
        {first[0], first[1] / op->group, first[3] / tile, 0},
        {size[0], divide_up(size[1], op->group), divide_up(size[3], tile), op->b.shape.size[3]}};
    sliced.a = tensor_slice(&op->a, &a);
    sliced.b = tensor_slice(&op->b, &b);
    sliced.c = tensor_slice(&op->c, c);
    if (op->span.sums.storage)
        sliced.span.sums = tensor_slice(&op->span.sums, c);
    if (op->bias) {
        columns->bias = tensor_slice_along(op->bias, op->bias->shape.rank - 1, first[3], size[3]);
        sliced.bias = &columns->bias;
    }
    if (op->scale) {
        columns->scale = tensor_slice_along(op->scale, 0, first[3], size[3]);
        sliced.scale = &columns->scale;
    }
    return sliced;
}

struct matmul_op matmul_slice_of_k(const struct matmul_op *op, uint32_t first, uint32_t count)
{
    struct matmul_op sliced = *op;
    uint32_t tile = op->b_tile ? op->b_tile : 1;
    sliced.a = tensor_slice_along(&op->a, 3, first, count);
    sliced.b = tensor_slice_along(&op->b, 3, first * tile, count * tile);
    return sliced;
}

/* Scratch for the sums of c, of one float32 or, where the kernel adds by groups, two. */
static enum vka_status sums_scratch(struct vka_plan *plan, const struct matmul_choice *choice,
                                    const uint32_t size[4], struct vka_tensor *sums)
{
    uint32_t step = choice->size.m ? 1 : 2; /* matmul_coop has no groups */
    enum vka_status status = plan_scratch(
        plan, VKA_F32, (const uint32_t[]){size[0], size[1], size[2], size[3] * step}, sums);
    sums->shape.size[3] = size[3];
    sums->shape.stride[3] = step;
    return status;
}

/* Halves k, at the end of a group where it is longer than one: sums of the first half wait in
 * scratch. */
static enum vka_status add_halves_of_k(struct vka_plan *plan, const struct matmul_job *job,
                                       const struct matmul_op *op)
{
    enum vka_status status = VKA_OK;
    uint32_t k = op->a.shape.size[3],
             multiple = k > MATMUL_GROUP ? MATMUL_GROUP : matmul_least_k(op, job->choice);
    uint32_t half = divide_up(k / 2, multiple) * multiple;
    struct matmul_op first = matmul_slice_of_k(op, 0, half),
                     rest = matmul_slice_of_k(op, half, k - half);
    struct vka_tensor scratch;
    TRY(sums_scratch(plan, job->choice, op->c.shape.size, &scratch));
    first.c = rest.span.sums = scratch;
    first.span.keeps = job->choice->size.m == 0;
    first.span.open = first.span.keeps && half % MATMUL_GROUP != 0;
    first.alpha = 1;
    first.accumulate = false;
    first.bias = first.scale = NULL;
    TRY(matmul_cut(plan, &first, job->choice, job->way));
    TRY(matmul_cut(plan, &rest, job->choice, job->way));
    plan_scratch_free(plan, &scratch);
fail:
    return status;
}

/* k is cut within a slice: the sums of its halves depend on each other. */
static int judge_slice(const struct vka_plan *plan, const struct cut *cut, const struct slice *c)
{
    const struct matmul_job *job = cut->job;
    struct columns columns;
    const struct matmul_op op = op_slice(job->op, c, &columns);
    int axis = job->way->judge(plan, &op, job->choice);
    return axis == AXIS_K ? CUT_FITS : axis;
}

static enum vka_status add_slice(struct vka_plan *plan, const void *given, const struct slice *c)
{
    const struct matmul_job *job = given;
    struct columns columns;
    const struct matmul_op op = op_slice(job->op, c, &columns);
    if (job->way->judge(plan, &op, job->choice) == AXIS_K)
        return add_halves_of_k(plan, job, &op);
    return job->way->add(plan, &op, job->choice);
}

enum vka_status matmul_cut(struct vka_plan *plan, const struct matmul_op *op,
                           const struct matmul_choice *choice, const struct matmul_way *way)
{
    const struct matmul_job job = {op, choice, way};
    const struct cut cut = {
        .job = &job,
        .multiple = {1, op->group, choice->rows, choice->columns},
        .least = {1, op->group, 1, least_columns(op, choice)},
        .probe = way->probe,
        .kernel = choice->kernel,
        .whole = matmul_work(op, choice),
        .judge = judge_slice,
        .add = add_slice,
    };
    return plan_cut(plan, &cut, op->c.shape.size);
}

/* Replaces B of the op by `packed`, which has size 1 where all share B. */
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
    struct shape *to = &packed.shape; /* seen as [batch][head][n][k] */
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

/* Copies A to rows of whole vec4. */
static enum vka_status pack_a(struct vka_plan *plan, struct matmul_op *op, enum vka_dtype dtype)
{
    enum vka_status status = VKA_OK;
    const uint32_t *size = op->a.shape.size;
    struct vka_tensor packed;
    TRY(plan_scratch(plan, dtype,
                     (const uint32_t[]){size[0], size[1], size[2], divide_up(size[3], 4) * 4},
                     &packed));
    packed.shape.size[3] = size[3];
    TRY(plan_copy(plan, "pack", &op->a, &packed));
    op->packed_a = op->packed_a ? op->packed_a : op->a.dtype;
    op->a = packed;
fail:
    return status;
}

/* Adds one pass. Operands that span more than a binding are packed into scratch. */
static enum vka_status add_dense(struct vka_plan *plan, const struct matmul_op *given,
                                 const struct matmul_choice *given_choice)
{
    enum vka_status status = VKA_OK;
    struct matmul_op op = *given;
    struct matmul_choice choice = *given_choice;
    uint64_t input = input_limit(plan, &choice);
    bool mixed = kernel_table[choice.kernel].needs & NEED_MIXED_DOT;
    bool one_type = choice.size.m != 0 || mixed; /* takes inputs of one type */
    bool vectors = one_type || choice.kernel == KERNEL_matmul_few ||
                   choice.kernel == KERNEL_matmul_few_half || choice.kernel == KERNEL_matmul_tile;
    bool a = !op.integers && plan_range(plan, &op.a) > input, b = plan_range(plan, &op.b) > input;
    /* Sums for the next span are two a result, as near as they can be. */
    bool c = !op.span.keeps && plan_range(plan, &op.c) > plan->caps.properties.max_buffer_range;
    if (vectors) { /* true of the rows before packing only */
        choice.a_vec &= !a;
        choice.b_vec = b ? 0 : choice.b_vec;
    }
    b = b && !op.b_tile && !dtype_is_quantised(op.b.dtype);
    if (b)
        TRY(pack_rows(plan, &op, one_type ? op.b.dtype : VKA_F32));
    if (a)
        TRY(pack_a(plan, &op, one_type || dtype_is_quantised(op.b.dtype) ? op.a.dtype : VKA_F32));
    if (c)
        TRY(plan_scratch(plan, op.c.dtype, given->c.shape.size, &op.c));
    if (c && op.accumulate)
        TRY(plan_copy(plan, "pack", &given->c, &op.c));
    TRY(matmul_add_pass(plan, &op, &choice));
    if (c)
        TRY(plan_copy(plan, "unpack", &op.c, &given->c));
    if (a)
        plan_scratch_free(plan, &op.a);
    if (b)
        plan_scratch_free(plan, &op.b);
    if (c)
        plan_scratch_free(plan, &op.c);
fail:
    return status;
}

/* What the device's limits, then the budget ask for. */
static int judge_dense(const struct vka_plan *plan, const struct matmul_op *op,
                       const struct matmul_choice *choice)
{
    int axis = axis_to_cut(plan, op, choice);
    return axis == CUT_FITS ? matmul_budget_axis(plan, op, choice) : axis;
}

static const struct matmul_way dense = {judge_dense, add_dense, matmul_probe};

/* Cuts A to what an allocation holds packed, where the kernel wants that. */
static int judge_a(const struct vka_plan *plan, const struct matmul_op *op,
                   const struct matmul_choice *choice)
{
    const uint32_t *size = op->a.shape.size;
    uint64_t bytes = (uint64_t)size[0] * size[1] * size[2] * divide_up(size[3], 4) * 16;
    if (!choice->pack_a || bytes <= plan->caps.properties.max_allocation)
        return CUT_FITS;
    return size[0] > 1              ? 0
           : size[1] > op->group    ? 1
           : size[2] > choice->rows ? 2
                                    : matmul_axis_of_k(plan, op, choice);
}

static enum vka_status add_with_a(struct vka_plan *plan, const struct matmul_op *op,
                                  const struct matmul_choice *choice)
{
    enum vka_status status = VKA_OK;
    struct matmul_op packed = *op;
    if (!choice->pack_a)
        return matmul_cut(plan, op, choice, &dense);
    if (op->integers)
        TRY(matmul_quantise_a(plan, &packed));
    else
        TRY(pack_a(plan, &packed, VKA_F32));
    TRY(matmul_cut(plan, &packed, choice, &dense));
    plan_scratch_free(plan, &packed.a);
fail:
    return status;
}

static enum vka_status pack_tiles(struct vka_plan *plan, struct matmul_op *op, uint32_t tile)
{
    enum vka_status status = VKA_OK;
    uint32_t outer[2], n = op->b.shape.size[2], k = op->b.shape.size[3];
    struct vka_tensor packed, from = op->b;
    outer_of(&op->b, outer);
    TRY(plan_scratch(plan, VKA_F32,
                     (const uint32_t[]){outer[0], outer[1], divide_up(n, tile), k * tile},
                     &packed));
    from.shape.size[0] = outer[0];
    from.shape.size[1] = outer[1];
    TRY(plan_copy_to_tiles(plan, "pack", &from, &packed, tile));
    replace_b(op, &packed);
    op->b_tile = tile;
fail:
    return status;
}

static const struct matmul_way with_a = {judge_a, add_with_a, NULL};

/* Cuts B to what an allocation holds in tiles, where the kernel wants that. */
static int judge_b(const struct vka_plan *plan, const struct matmul_op *op,
                   const struct matmul_choice *choice)
{
    uint32_t outer[2], n = op->b.shape.size[2];
    uint64_t row = (uint64_t)op->b.shape.size[3] * choice->b_tile;
    if (!choice->b_tile || op->b_tile)
        return CUT_FITS;
    outer_of(&op->b, outer);
    uint64_t bytes = (uint64_t)outer[0] * outer[1] * divide_up(n, choice->b_tile) * row * 4;
    if (bytes <= plan->caps.properties.max_allocation && row <= UINT32_MAX)
        return CUT_FITS;
    return outer[0] > 1          ? 0
           : outer[1] > 1        ? 1
           : n > choice->columns ? 3
                                 : matmul_axis_of_k(plan, op, choice);
}

static enum vka_status add_with_b(struct vka_plan *plan, const struct matmul_op *op,
                                  const struct matmul_choice *choice)
{
    enum vka_status status = VKA_OK;
    struct matmul_op packed = *op;
    if (!choice->b_tile || op->b_tile)
        return matmul_cut(plan, op, choice, &with_a);
    TRY(pack_tiles(plan, &packed, choice->b_tile));
    TRY(matmul_cut(plan, &packed, choice, &with_a));
    plan_scratch_free(plan, &packed.b);
fail:
    return status;
}

enum vka_status matmul_add_chain(struct vka_plan *plan, const struct matmul_op *op,
                                 const struct matmul_choice *choice)
{
    static const struct matmul_way with_b = {judge_b, add_with_b, NULL};
    return matmul_cut(plan, op, choice, &with_b);
}
