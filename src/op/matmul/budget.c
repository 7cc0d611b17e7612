#include "op/matmul/budget.h"
#include "op/matmul/pass.h"
#include "core/block.h"
#include "core/dtype.h"
#include "params/params.h"
#include "plan/calibrate.h"

#define PROBE_DEPTH 512u /* k of the measured product */
#define LEAST_DEPTH 256u /* largest k that is not cut: 17 million operations in the largest tile */

int matmul_first_axis(const struct matmul_op *op, const struct matmul_choice *choice, uint32_t rows)
{
    const uint32_t *c = op->c.shape.size, shortest[4] = {1, op->group, rows, choice->columns};
    return cut_first_axis(&(struct slice){{0}, {c[0], c[1], c[2], c[3]}}, shortest);
}

uint32_t matmul_least_k(const struct matmul_op *op, const struct matmul_choice *choice)
{
    if (matmul_reads_blocks(choice->kernel))
        return MATMUL_GROUP; /* the state of a group is more than a sum */
    const enum vka_dtype b = op->b.dtype;
    uint32_t values;
    vka_dtype_block(b, &values, NULL);
    uint32_t k = values > MATMUL_BLOCK ? values : MATMUL_BLOCK;
    /* Rows whose bundles are read by aligned vectors of 16 bytes: those of each slice are. */
    while (BUNDLE_PAIR_WORDS(b) != 0 && choice->b_vec == 2 && dtype_bytes(b, k) % 16 != 0)
        k *= 2;
    return k;
}

int matmul_axis_of_k(const struct vka_plan *plan, const struct matmul_op *op,
                     const struct matmul_choice *choice)
{
    const struct vka_device_properties *p = &plan->caps.properties;
    const uint32_t *size = op->c.shape.size;
    uint64_t sums = (uint64_t)size[0] * size[1] * size[2] * size[3] * 8;
    if (op->a.shape.size[3] <= matmul_least_k(op, choice))
        return CUT_FITS;
    int axis = sums > least(p->max_buffer_range, p->max_allocation)
                   ? matmul_first_axis(op, choice, 1)
                   : CUT_FITS;
    return axis == CUT_FITS ? AXIS_K : axis;
}

int matmul_budget_axis(const struct vka_plan *plan, const struct matmul_op *op,
                       const struct matmul_choice *choice)
{
    struct work work = matmul_work(op, choice);
    bool long_k = op->a.shape.size[3] > LEAST_DEPTH;
    if (plan_fits(plan, choice->kernel, &work))
        return CUT_FITS;
    if (work.loops > budget_max_loops(&plan->caps) && long_k)
        return matmul_axis_of_k(plan, op, choice);
    int axis = matmul_first_axis(op, choice, choice->rows);
    return axis == CUT_FITS && long_k ? matmul_axis_of_k(plan, op, choice) : axis;
}

/* B of the probe, n x k, laid out as the op's is. */
static enum vka_status make_b(struct vka_plan *plan, const struct matmul_op *op, uint32_t n,
                              uint32_t k, struct vka_tensor *b)
{
    enum vka_status status = VKA_OK;
    bool quantised = dtype_is_quantised(op->b.dtype);
    bool along_n = op->b.shape.stride[2] == 1 && op->b.shape.size[2] > 1 && !quantised;
    uint32_t rows = along_n ? k : n, multiple = quantised ? MOST_BLOCK_VALUES : 8;
    uint32_t columns = divide_up(along_n ? n : k, multiple) * multiple;
    if (op->b_tile)
        return plan_scratch(plan, op->b.dtype,
                            (const uint32_t[]){1, 1, divide_up(n, op->b_tile), k * op->b_tile}, b);
    TRY(plan_scratch(plan, op->b.dtype, (const uint32_t[]){1, 1, rows, columns}, b));
    b->shape.size[2] = n;
    b->shape.size[3] = k;
    b->shape.stride[2] = along_n ? 1 : columns;
    b->shape.stride[3] = along_n ? columns : 1;
fail:
    return status;
}

enum vka_status matmul_probe(struct vka_plan *plan, const void *problem, uint32_t n)
{
    enum vka_status status = VKA_OK;
    const struct matmul_job *probe = problem;
    const struct matmul_choice *choice = probe->choice;
    struct matmul_op op = *probe->op;
    uint32_t k = op.a.shape.size[3], multiple = op.integers ? ACTIVATION_VALUES : 8;
    struct vka_tensor bias;
    n = calibrate_groups(plan, 4ull * choice->rows * choice->columns, n);
    k = k < PROBE_DEPTH ? k : PROBE_DEPTH;
    TRY(plan_scratch(plan, op.a.dtype,
                     (const uint32_t[]){1, 1, choice->rows, divide_up(k, multiple) * multiple},
                     &op.a));
    TRY(make_b(plan, probe->op, choice->columns, k, &op.b));
    TRY(plan_scratch(plan, op.c.dtype, (const uint32_t[]){n, 1, choice->rows, choice->columns},
                     &op.c));
    if (op.bias) {
        TRY(plan_scratch(plan, op.bias->dtype, (const uint32_t[]){1, 1, 1, choice->columns},
                         &bias));
        op.bias = &bias;
    }
    op.a.shape.size[0] = op.b.shape.size[0] = n;
    op.a.shape.stride[0] = op.b.shape.stride[0] = 0;
    op.a.shape.size[3] = k;
    op.span = (struct matmul_span){0};
    op.scale = NULL;
    op.group = 1;
    TRY(matmul_add_pass(plan, &op, choice));
fail:
    return status;
}
