/* Matrix products. Cuts a k that is longer than a chain of sums into splits of TUNE_CHAIN, each a
 * product of its own, and adds them pairwise. The bits of a result depend on k alone, not on other
 * cuts. */
#include "op/common/axes.h"
#include "op/matmul/matmul.h"
#include "op/common/copy.h"
#include "op/matmul/pass.h"
#include "op/matmul/cut.h"
#include "op/matmul/budget.h"
#include "params/params.h"
#include "kernel/tune.h"

#include <stdio.h>

static uint32_t splits_of(const struct matmul_op *op)
{
    return divide_up(op->a.shape.size[3], TUNE_CHAIN);
}

static uint64_t count_c(const struct matmul_op *op)
{
    return shape_count(&op->c.shape);
}

/* Whether the splits of c fit a binding and the workspace. */
static bool fits(const struct vka_plan *plan, const struct matmul_op *op)
{
    const struct vka_device_properties *has = &plan->caps.properties;
    uint64_t bytes = count_c(op) * splits_of(op) * 4;
    return bytes <= plan->workspace_limit && bytes <= has->max_allocation &&
           bytes <= has->max_buffer_range && plan_range(plan, &op->c) <= has->max_buffer_range;
}

/* The splits of a product: elements of one and the next are `split` apart. */
struct sum {
    const struct vka_tensor *splits;
    struct vka_tensor first; /* split 0, as c */
    struct vka_tensor c;     /* [batch][n_head][m][n] */
    const struct vka_tensor *bias;
    uint32_t n_split, split;
    float alpha;
    bool accumulate;
};

static struct work sum_work(uint32_t n_split, const uint32_t size[4])
{
    double element = WORK_MOVE * (n_split + 1.0);
    double groups = (double)size[0] * size[1] * size[2] * divide_up(size[3], SUM_LANES);
    return (struct work){
        .ops = element * groups * SUM_LANES,
        .longest = 2 * element * SUM_LANES,
        .loops = n_split / 4.0 + 4,
    };
}

static void make_sum(const struct vka_plan *plan, const void *job, const struct slice *slice,
                     struct pass *pass)
{
    const struct sum *s = job;
    const uint32_t *size = slice->size;
    const uint64_t *from = s->first.shape.stride, *to = s->c.shape.stride;
    struct vka_tensor first = tensor_slice(&s->first, slice), c = tensor_slice(&s->c, slice), bias;
    struct sum_params p = {
        .m = size[2],
        .n = size[3],
        .n_head = size[1],
        .n_split = s->n_split,
        .split = s->split,
        .batch = (uint32_t)from[0],
        .head = (uint32_t)from[1],
        .row = (uint32_t)from[2],
        .alpha = s->alpha,
        .c_batch = (uint32_t)to[0],
        .c_head = (uint32_t)to[1],
        .c_row = (uint32_t)to[2],
        .c_col = (uint32_t)to[3],
    };
    pass->name = "sum";
    pass->reason = "k was split";
    pass->key = (struct pipeline_key){.kernel = KERNEL_sum_splits, .n_spec = SUM_SPECS};
    pass->key.spec[SUM_C_TYPE] = c.dtype;
    pass->key.spec[SUM_BIAS_TYPE] = s->bias ? s->bias->dtype : BIAS_NONE;
    pass->key.spec[SUM_ADD] = s->accumulate;
    plan_bind(plan, pass, 0, s->splits, false, &p.offset);
    p.offset += (uint32_t)(first.shape.offset - s->splits->shape.offset);
    plan_bind(plan, pass, 1, s->splits, false, NULL);
    if (s->bias) {
        bias = tensor_slice_along(s->bias, s->bias->shape.rank - 1, slice->first[3], size[3]);
        plan_bind(plan, pass, 1, &bias, false, &p.bias_offset);
    }
    plan_bind(plan, pass, 2, &c, true, &p.c_offset);
    pass_set_push(pass, &p, sizeof p);
    pass->work = sum_work(s->n_split, size);
    const bool pairs = axes_are_pairs(&c, p.c_offset);
    pass->key.spec[SUM_C_PAIRS] = pairs;
    pass->groups[0] = divide_up(pairs ? size[3] / 2 : size[3], SUM_LANES);
    pass->groups[1] = size[2];
    pass->groups[2] = saturate((uint64_t)size[0] * size[1]);
    snprintf(pass->detail, sizeof pass->detail, "%ux%u x%u, %u splits of %u k", size[2], size[3],
             pass->groups[2], p.n_split, TUNE_CHAIN);
}

static enum vka_status add_sums(struct vka_plan *plan, const struct sum *s)
{
    const struct cut cut = {
        .job = s,
        .multiple = {1, 1, 1, SUM_LANES},
        .least = {1, 1, 1, SUM_LANES},
        .kernel = KERNEL_sum_splits,
        .whole = sum_work(s->n_split, s->c.shape.size),
        .probe = plan_probe_moves,
        .make = make_sum,
    };
    return plan_cut(plan, &cut, s->c.shape.size);
}

/* The scratch of one split, in the shape of c. */
static struct vka_tensor split_of(const struct vka_tensor *splits, const struct matmul_op *op,
                                  uint32_t split)
{
    struct vka_tensor c = *splits;
    shape_dense(4, op->c.shape.size, &c.shape);
    c.shape.offset = split * count_c(op);
    return c;
}

static enum vka_status add_splits(struct vka_plan *plan, const struct matmul_op *op,
                                  const struct matmul_choice *choice)
{
    enum vka_status status = VKA_OK;
    const uint32_t *size = op->c.shape.size, n = splits_of(op), k = op->a.shape.size[3];
    struct vka_tensor splits;
    TRY(plan_scratch(plan, VKA_F32, (const uint32_t[]){n, size[0] * size[1], size[2], size[3]},
                     &splits));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t first = i * TUNE_CHAIN, rest = k - first;
        struct matmul_op split =
            matmul_slice_of_k(op, first, rest < TUNE_CHAIN ? rest : TUNE_CHAIN);
        split.c = split_of(&splits, op, i);
        split.bias = NULL;
        split.accumulate = false;
        split.alpha = 1; /* but each split has its columns multiplied by their scales */
        TRY(matmul_add_chain(plan, &split, choice));
    }
    const struct sum sum = {
        .splits = &splits,
        .first = split_of(&splits, op, 0),
        .c = op->c,
        .bias = op->bias,
        .n_split = n,
        .split = (uint32_t)count_c(op),
        .alpha = op->alpha,
        .accumulate = op->accumulate,
    };
    TRY(add_sums(plan, &sum));
    plan_scratch_free(plan, &splits);
fail:
    return status;
}

static int judge(const struct vka_plan *plan, const struct matmul_op *op,
                 const struct matmul_choice *choice)
{
    return fits(plan, op) ? CUT_FITS : matmul_first_axis(op, choice, 1);
}

/* The product with weights that are packed for a kernel which is not used any more, as the driver
 * refused a pipeline of it or it was switched off since: with their rows [n][k] in scratch. */
static enum vka_status add_unpacked(struct vka_plan *plan, const struct matmul_op *op)
{
    const uint32_t tile = op->b_tile, n_tile = op->b.shape.size[2], k = op->a.shape.size[3];
    struct vka_tensor from = op->b, rows;
    struct matmul_op plain = *op;
    /* Element [i] of row [r] of tile [n] is number (n * k + i) * tile + r. */
    from.shape = (struct shape){.rank = 4,
                                .size = {1, n_tile, tile, k},
                                .stride = {0, op->b.shape.stride[2], 1, tile},
                                .offset = op->b.shape.offset};
    ENSURE(plan_scratch(plan, op->b.dtype, from.shape.size, &rows));
    ENSURE(plan_copy(plan, "unpack weight", &from, &rows));
    plain.b_tile = 0;
    plain.b.storage = rows.storage;
    plain.b.shape =
        (struct shape){.rank = 4,
                       .size = {op->b.shape.size[0], op->b.shape.size[1], op->c.shape.size[3], k},
                       .stride = {0, 0, k, 1},
                       .offset = rows.shape.offset};
    ENSURE(plan_matmul(plan, &plain));
    plan_scratch_free(plan, &rows);
    return VKA_OK;
}

enum vka_status plan_matmul(struct vka_plan *plan, const struct matmul_op *op)
{
    enum vka_status status = VKA_OK;
    struct matmul_choice choice;
    TRY(matmul_choose(plan, op, &choice));
    bool there = !kernel_missing(choice.kernel, &plan->caps);
    if (there && op->b_tile && op->b_tile != choice.b_tile) {
        const struct shape *b = &op->b.shape; /* weights are shared by all batch elements */
        if ((b->size[0] == 1 || !b->stride[0]) && (b->size[1] == 1 || !b->stride[1]))
            return add_unpacked(plan, op);
        return log_error(&plan->device->log, VKA_UNSUPPORTED,
                         "%s: the weights are packed for a kernel that is not used: create the "
                         "layer again",
                         op->name);
    }
    if (op->a.shape.size[3] <= TUNE_CHAIN)
        return matmul_add_chain(plan, op, &choice);
    TRY(matmul_cut(plan, op, &choice, &(const struct matmul_way){judge, add_splits, NULL}));
fail:
    return status;
}
