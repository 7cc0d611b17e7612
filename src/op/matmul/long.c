/* Products whose k is longer than one chain of sums: pieces of TUNE_CHAIN from k = 0 on, each a
 * product by itself, summed pairwise. A result's bits follow from k alone, not from the cuts. */
#include "op/matmul/budget.h"
#include "params.h"
#include "kernel/tune.h"

#include <stdio.h>
#include <string.h>

static uint32_t pieces_of(const struct matmul_op *op)
{
    return divide_up(op->a.shape.size[3], TUNE_CHAIN);
}

static uint64_t count_c(const struct matmul_op *op)
{
    return shape_count(&op->c.shape);
}

/* Whether the pieces of all of c fit a binding and the workspace. */
static bool fits(const struct vka_plan *plan, const struct matmul_op *op)
{
    const struct vka_device_properties *has = &plan->caps.properties;
    uint64_t bytes = count_c(op) * pieces_of(op) * 4;
    return bytes <= plan->workspace_limit && bytes <= has->max_allocation &&
           bytes <= has->max_buffer_range && plan_range(plan, &op->c) <= has->max_buffer_range;
}

/* A part of c, and where the sums of its first pieces lie. */
struct sum {
    const struct vka_tensor *pieces;
    struct vka_tensor first, c, bias; /* first, c: [batch][n_head][m][n] */
    bool has_bias;
    uint32_t n_piece, piece; /* elements from piece to piece */
    float alpha;
};

static struct work sum_work(const struct sum *s)
{
    const uint32_t *size = s->c.shape.size;
    double element = WORK_MOVE * (s->n_piece + 1.0);
    double groups = (double)size[0] * size[1] * size[2] * divide_up(size[3], SUM_LANES);
    return (struct work){
        .ops = element * groups * SUM_LANES,
        .longest = element * SUM_LANES,
        .loops = s->n_piece / 8.0 + 2,
    };
}

static enum vka_status add_sum(struct vka_plan *plan, const struct sum *s)
{
    const uint32_t *size = s->c.shape.size;
    const uint64_t *from = s->first.shape.stride, *to = s->c.shape.stride;
    struct pass pass = {.name = "sum", .reason = "k was in pieces"};
    struct sum_params p = {
        .m = size[2],
        .n = size[3],
        .n_head = size[1],
        .n_piece = s->n_piece,
        .piece = s->piece,
        .batch = (uint32_t)from[0],
        .head = (uint32_t)from[1],
        .row = (uint32_t)from[2],
        .alpha = s->alpha,
        .c_batch = (uint32_t)to[0],
        .c_head = (uint32_t)to[1],
        .c_row = (uint32_t)to[2],
        .c_col = (uint32_t)to[3],
    };
    pass.key = (struct pipeline_key){.kernel = KERNEL_sum_pieces, .n_spec = SUM_SPECS};
    pass.key.spec[SUM_C_TYPE] = s->c.dtype;
    pass.key.spec[SUM_BIAS_TYPE] = s->has_bias ? s->bias.dtype : BIAS_NONE;
    plan_bind(plan, &pass, 0, s->pieces, false, &p.offset);
    p.offset += (uint32_t)(s->first.shape.offset - s->pieces->shape.offset);
    plan_bind(plan, &pass, 1, s->has_bias ? &s->bias : s->pieces, false, &p.bias_offset);
    plan_bind(plan, &pass, 2, &s->c, true, &p.c_offset);
    pass.push_size = sizeof p;
    memcpy(pass.push, &p, sizeof p);
    pass.work = sum_work(s);
    pass.groups[0] = divide_up(size[3], SUM_LANES);
    pass.groups[1] = size[2];
    pass.groups[2] = size[0] * size[1];
    snprintf(pass.detail, sizeof pass.detail, "%ux%u x%u, %u pieces of %u k", size[2], size[3],
             size[0] * size[1], p.n_piece, TUNE_CHAIN);
    return plan_add_pass(plan, &pass);
}

static bool sum_fits(const struct vka_plan *plan, const struct sum *s)
{
    const struct caps *caps = &plan->caps;
    const uint32_t *size = s->c.shape.size;
    struct work work = sum_work(s);
    return divide_up(size[3], SUM_LANES) <= caps->max_groups[0] && size[2] <= caps->max_groups[1] &&
           (uint64_t)size[0] * size[1] <= caps->max_groups[2] &&
           plan_fits(plan, KERNEL_sum_pieces, &work);
}

/* Halved along an axis of c until each part fits. */
static enum vka_status add_sums(struct vka_plan *plan, const struct sum *s)
{
    const uint32_t *size = s->c.shape.size, least[4] = {1, 1, 1, SUM_LANES};
    uint32_t axis = 0;
    while (axis < 4 && size[axis] <= least[axis])
        axis++;
    if (axis == 4 || sum_fits(plan, s))
        return add_sum(plan, s);
    uint32_t half = size[axis] / 2, first = 0, count = half;
    for (int i = 0; i < 2; i++, first = half, count = size[axis] - half) {
        struct sum part = *s;
        part.first = tensor_part(&s->first, axis, first, count);
        part.c = tensor_part(&s->c, axis, first, count);
        if (s->has_bias && axis == 3)
            part.bias = tensor_part(&s->bias, s->bias.shape.rank - 1, first, count);
        enum vka_status status = add_sums(plan, &part);
        if (status != VKA_OK)
            return status;
    }
    return VKA_OK;
}

/* The piece's part of the scratch, as c is. */
static struct vka_tensor piece_of(const struct vka_tensor *pieces, const struct matmul_op *op,
                                  uint32_t piece)
{
    struct vka_tensor c = *pieces;
    shape_dense(4, op->c.shape.size, &c.shape);
    c.shape.offset = piece * count_c(op);
    return c;
}

static struct sum sum_of(const struct matmul_op *op, const struct vka_tensor *pieces)
{
    struct sum s = {.pieces = pieces, .c = op->c, .has_bias = op->bias, .alpha = op->alpha};
    s.n_piece = pieces_of(op);
    s.piece = (uint32_t)count_c(op);
    s.first = piece_of(pieces, op, 0);
    if (op->bias)
        s.bias = *op->bias;
    return s;
}

static enum vka_status add_pieces(struct vka_plan *plan, const struct matmul_op *op,
                                  const struct matmul_choice *choice)
{
    enum vka_status status = VKA_OK;
    const uint32_t *size = op->c.shape.size, n = pieces_of(op), k = op->a.shape.size[3];
    struct vka_tensor pieces;
    TRY(plan_scratch(plan, VKA_F32, (const uint32_t[]){n, size[0] * size[1], size[2], size[3]},
                     &pieces));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t first = i * TUNE_CHAIN, rest = k - first;
        struct matmul_op part = matmul_part_of_k(op, first, rest < TUNE_CHAIN ? rest : TUNE_CHAIN);
        part.c = piece_of(&pieces, op, i);
        part.bias = NULL;
        part.alpha = 1;
        TRY(matmul_add_chain(plan, &part, choice));
    }
    const struct sum sum = sum_of(op, &pieces);
    TRY(add_sums(plan, &sum));
    plan_scratch_free(plan, &pieces);
fail:
    return status;
}

/* Halves c until its pieces fit. */
static enum vka_status add_long(struct vka_plan *plan, const struct matmul_op *op,
                                const struct matmul_choice *choice)
{
    const uint32_t *size = op->c.shape.size;
    const uint32_t least[4] = {1, op->group, 1, choice->columns};
    if (!fits(plan, op))
        for (int axis = 0; axis < 4; axis++)
            if (size[axis] > least[axis])
                return matmul_add_halves(plan, op, choice, axis, add_long);
    return add_pieces(plan, op, choice);
}

enum vka_status plan_matmul(struct vka_plan *plan, const struct matmul_op *op)
{
    enum vka_status status = VKA_OK;
    struct matmul_choice choice;
    TRY(matmul_choose(plan, op, &choice));
    bool there = !kernel_missing(choice.kernel, &plan->caps);
    if (there && op->panel && op->panel != choice.panel) /* its kernel was switched off since */
        return log_error(&plan->device->log, VKA_UNSUPPORTED,
                         "%s: the weights are packed for a kernel that is not used: make the "
                         "layer once more",
                         op->name);
    if (op->a.shape.size[3] <= TUNE_CHAIN)
        return matmul_add_chain(plan, op, &choice);
    const struct sum sum = sum_of(op, &(struct vka_tensor){0});
    struct work work = sum_work(&sum);
    TRY(plan_calibrate_moves(plan, &work));
    TRY(add_long(plan, op, &choice));
fail:
    return status;
}
