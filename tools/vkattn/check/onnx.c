#include "onnx.h"

#include "case/numbers.h"

#include <vkattn/vkattn_model.h>

#include <stdlib.h>

struct run {
    struct tool_device *d;
    const struct case_op *op;
    struct vka_tensor *inputs[CASE_INPUTS], *output;
    struct vka_tensor *views[4]; /* of a rotary embedding of rows */
    struct vka_plan *plan;
};

static void destroy(struct run *r)
{
    vka_plan_destroy(&r->plan);
    for (int i = 0; i < 4; i++)
        vka_tensor_destroy(&r->views[i]);
    for (int i = 0; i < CASE_INPUTS; i++)
        vka_tensor_destroy(&r->inputs[i]);
    vka_tensor_destroy(&r->output);
}

enum vka_status onnx_upload(struct tool_device *d, const struct vka_io_array *array,
                            enum vka_dtype dtype, struct vka_tensor **tensor)
{
    uint32_t size[4];
    for (uint32_t i = 0; i < array->rank; i++)
        size[i] = (uint32_t)array->shape[i];
    enum vka_status status = vka_tensor_create(d->device, dtype, array->rank, size, tensor);
    if (status != VKA_OK)
        return status;
    double *values = case_doubles(array);
    void *data = malloc(vka_tensor_size(*tensor));
    if (values && data) {
        case_narrow(values, case_count(array), dtype, data);
        status = vka_tensor_write(*tensor, data, vka_tensor_size(*tensor));
    } else {
        status = VKA_OUT_OF_HOST_MEMORY;
    }
    free(values);
    free(data);
    return status;
}

/* Rows [batch][n][n_head * head_dim] as [batch][n_head][n][head_dim]; views[0], [1]: two views. */
static enum vka_status split_heads(const struct run *r, struct vka_tensor *rows,
                                   struct vka_tensor *views[2])
{
    const uint64_t *size = r->op->inputs[0]->shape;
    const uint32_t heads = r->op->num_heads;
    const uint32_t split[4] = {(uint32_t)size[0], (uint32_t)size[1], heads,
                               (uint32_t)size[2] / heads};
    enum vka_status status = vka_tensor_reshape(rows, 4, split, &views[0]);
    return status == VKA_OK
               ? vka_tensor_permute(views[0], (const uint32_t[]){0, 2, 1, 3}, &views[1])
               : status;
}

static enum vka_status add_rotary(struct run *r)
{
    const struct case_op *op = r->op;
    enum vka_status status = VKA_OK;
    const bool rows = op->inputs[0]->rank == 3;
    if (rows)
        status = split_heads(r, r->inputs[0], r->views);
    if (rows && status == VKA_OK)
        status = split_heads(r, r->output, r->views + 2);
    if (status != VKA_OK)
        return status;
    return vka_plan_add_rotary(
        r->plan,
        VKA_INFO(vka_rotary_op, .input = rows ? r->views[1] : r->inputs[0], .cos = r->inputs[1],
                 .sin = r->inputs[2], .positions = r->inputs[3], .dim = op->rotary_dim,
                 .interleaved = op->interleaved, .output = rows ? r->views[3] : r->output));
}

static enum vka_status add(struct run *r)
{
    const struct case_op *op = r->op;
    struct vka_tensor *const *in = r->inputs;
    switch (op->operation) {
    case CASE_RMS_NORMALIZATION:
    case CASE_LAYER_NORMALIZATION:
        return vka_plan_add_norm(
            r->plan, VKA_INFO(vka_norm_op,
                              .kind = op->operation == CASE_RMS_NORMALIZATION ? VKA_RMS_NORM
                                                                              : VKA_LAYER_NORM,
                              .axes = op->inputs[0]->rank - op->axis, .given = VKA_GIVEN_EPSILON,
                              .epsilon = (float)op->epsilon, .input = in[0], .weight = in[1],
                              .bias = in[2], .output = r->output));
    case CASE_ROTARY_EMBEDDING:
        return add_rotary(r);
    case CASE_GELU:
        return vka_plan_add_activation(
            r->plan, VKA_INFO(vka_activation_op, .kind = op->tanh ? VKA_GELU_TANH : VKA_GELU,
                              .input = in[0], .output = r->output));
    case CASE_SWISH:
    case CASE_SWIGLU:
        return vka_plan_add_activation(r->plan, VKA_INFO(vka_activation_op, .kind = VKA_SILU,
                                                         .alpha = (float)op->alpha, .input = in[0],
                                                         .multiplier = in[1], .output = r->output));
    case CASE_TENSOR_SCATTER:
        return vka_plan_add_scatter(
            r->plan, VKA_INFO(vka_scatter_op, .update = in[1], .positions = in[2], .axis = op->axis,
                              .circular = op->circular, .output = r->output));
    case CASE_CAUSAL_CONV:
    case CASE_LINEAR_ATTENTION:
    case CASE_LINEAR:
    case CASE_OPERATION_COUNT:
        break;
    }
    return VKA_INTERNAL;
}

/* The output begins as the past of a scatter. */
static enum vka_status make_output(struct run *r)
{
    const struct vka_io_array *x = r->op->inputs[0];
    uint32_t size[4];
    for (uint32_t i = 0; i < x->rank; i++)
        size[i] = (uint32_t)x->shape[i];
    return r->op->operation == CASE_TENSOR_SCATTER
               ? onnx_upload(r->d, x, case_dtype(x->dtype), &r->output)
               : vka_tensor_create(r->d->device, case_dtype(x->dtype), x->rank, size, &r->output);
}

static enum vka_status read_output(struct run *r, double *output)
{
    const struct vka_io_array *x = r->op->inputs[0];
    const size_t size = vka_tensor_size(r->output);
    void *data = malloc(size);
    enum vka_status status = data ? vka_tensor_read(r->output, data, size) : VKA_OUT_OF_HOST_MEMORY;
    if (status == VKA_OK)
        case_widen(x->dtype, data, case_count(x), output);
    free(data);
    return status;
}

enum vka_status onnx_run(struct tool_device *d, const struct case_op *op, double *output)
{
    struct run r = {.d = d, .op = op};
    enum vka_status status = VKA_OK;
    for (int i = 0; i < CASE_INPUTS && status == VKA_OK; i++)
        if (op->inputs[i])
            status = onnx_upload(d, op->inputs[i], case_dtype(op->inputs[i]->dtype), &r.inputs[i]);
    if (status == VKA_OK)
        status = make_output(&r);
    if (status == VKA_OK)
        status = vka_plan_create(d->device, VKA_INFO(vka_plan_info, .submit_budget = d->budget),
                                 &r.plan);
    if (status == VKA_OK)
        status = add(&r);
    if (status == VKA_OK)
        status = vka_plan_finish(r.plan);
    if (status == VKA_OK)
        status = vka_plan_run(r.plan, d->timeout);
    d->busy |= status == VKA_TIMEOUT;
    if (status == VKA_OK)
        status = read_output(&r, output);
    destroy(&r);
    return status;
}
