/* Quantises the activations of a product into scratch. */
#include "op/matmul/quantise.h"
#include "op/common/copy.h"
#include "core/dtype.h"
#include "params/params.h"

#include <stdio.h>

struct quantise {
    struct vka_tensor from, to; /* [batch][n_head][m][k] */
    bool relu;
};

static struct work work_of(const uint32_t size[4])
{
    double lanes = (double)divide_up(size[3], ACTIVATION_VALUES) * 8, each = 4.0 * QUANTISE_VALUES;
    double rows = (double)size[0] * size[1] * size[2];
    return (struct work){rows * lanes * each * WORK_MOVE, QUANTISE_LANES * each * WORK_MOVE,
                         2.0 * QUANTISE_VALUES};
}

static void make_pass(const struct vka_plan *plan, const void *job, const struct slice *slice,
                      struct pass *pass)
{
    const struct quantise *q = job;
    const uint32_t *size = slice->size;
    const struct vka_tensor from = tensor_slice(&q->from, slice), to = tensor_slice(&q->to, slice);
    uint32_t bytes;
    const struct shape blocks = tensor_blocks(&to, &bytes);
    const uint32_t words = bytes / 4;
    struct quantise_params p = {
        .n_head = size[1],
        .k = size[3],
        .n_sixteen = blocks.size[3] * (ACTIVATION_VALUES / QUANTISE_VALUES),
        .from_batch = (uint32_t)from.shape.stride[0],
        .from_head = (uint32_t)from.shape.stride[1],
        .from_row = (uint32_t)from.shape.stride[2],
        .from_col = (uint32_t)from.shape.stride[3],
        .to_batch = (uint32_t)blocks.stride[0] * words,
        .to_head = (uint32_t)blocks.stride[1] * words,
        .to_row = (uint32_t)blocks.stride[2] * words,
    };
    pass->name = "quantise";
    pass->reason = "quantised activations";
    pass->key = (struct pipeline_key){.kernel = KERNEL_quantise, .n_spec = QUANTISE_SPECS};
    pass->key.spec[QUANTISE_FROM_TYPE] = from.dtype;
    pass->key.spec[QUANTISE_RELU] = q->relu;
    plan_bind(plan, pass, 0, &from, false, &p.from_offset);
    plan_bind(plan, pass, 1, &to, true, &p.to_offset);
    p.to_offset /= 4;
    pass_set_push(pass, &p, sizeof p);
    pass->work = work_of(size);
    pass->groups[0] = divide_up(p.n_sixteen, QUANTISE_LANES);
    pass->groups[1] = size[2];
    pass->groups[2] = saturate((uint64_t)size[0] * size[1]);
    snprintf(pass->detail, sizeof pass->detail, "%ux%u x%u, %s->i8", size[2], size[3],
             pass->groups[2], vka_dtype_name(from.dtype));
}

enum vka_status matmul_quantise_a(struct vka_plan *plan, struct matmul_op *op)
{
    enum vka_status status = VKA_OK;
    const uint32_t *size = op->a.shape.size,
                   padded = divide_up(size[3], ACTIVATION_VALUES) * ACTIVATION_VALUES;
    struct quantise job = {.from = op->a, .relu = op->relu};
    TRY(plan_scratch(plan, DTYPE_ACTIVATION, (const uint32_t[]){size[0], size[1], size[2], padded},
                     &job.to));
    job.to.shape.size[3] = size[3];
    const struct cut cut = {
        .job = &job,
        .multiple = {1, 1, 1, QUANTISE_LANES * QUANTISE_VALUES},
        .least = {1, 1, 1, ACTIVATION_VALUES},
        .kernel = KERNEL_quantise,
        .whole = work_of(size),
        .probe = plan_probe_moves,
        .make = make_pass,
    };
    TRY(plan_cut(plan, &cut, size));
    op->a = job.to;
    op->relu = false;
fail:
    return status;
}
