#include "op.h"

#include "onnx.h"
#include "state.h"

#include "case/numbers.h"

#include <stdlib.h>

struct linear {
    struct vka_tensor *input, *weight, *bias, *output;
    struct vka_plan *plan;
};

static void destroy(struct linear *l)
{
    vka_plan_destroy(&l->plan);
    vka_tensor_destroy(&l->input);
    vka_tensor_destroy(&l->weight);
    vka_tensor_destroy(&l->bias);
    vka_tensor_destroy(&l->output);
}

/* Makes a tensor of one or two axes and writes data, unless it is NULL. */
static enum vka_status make(struct tool_device *d, enum vka_dtype dtype, const void *data,
                            uint64_t rows, uint64_t columns, struct vka_tensor **tensor)
{
    const uint32_t shape[] = {(uint32_t)rows, (uint32_t)columns};
    enum vka_status status = vka_tensor_create(d->device, dtype, 2, shape, tensor);
    return status == VKA_OK && data ? vka_tensor_write(*tensor, data, vka_tensor_size(*tensor))
                                    : status;
}

/* output[rows][out] = x[rows][in] W^T + bias, of the case's weight. */
static enum vka_status multiply(struct tool_device *d, const struct case_op *op, const void *x,
                                enum vka_dtype dtype, uint64_t rows, bool bias, double *output)
{
    struct linear l = {0};
    const uint64_t out = op->blocks->shape[0], in = op->input->shape[1];
    float *got = calloc(rows * out, sizeof *got);
    enum vka_status status = got ? VKA_OK : VKA_OUT_OF_HOST_MEMORY;
    if (status == VKA_OK)
        status = make(d, dtype, x, rows, in, &l.input);
    if (status == VKA_OK)
        status = make(d, op->weight_type, op->blocks->data, out, in, &l.weight);
    if (status == VKA_OK && bias && op->bias) {
        const uint32_t n = (uint32_t)out;
        status = vka_tensor_create(d->device, case_dtype(op->bias->dtype), 1, &n, &l.bias);
        if (status == VKA_OK)
            status = vka_tensor_write(l.bias, op->bias->data, op->bias->size);
    }
    if (status == VKA_OK)
        status = make(d, VKA_F32, NULL, rows, out, &l.output);
    if (status == VKA_OK)
        status = vka_plan_create(d->device, VKA_INFO(vka_plan_info, .submit_budget = d->budget),
                                 &l.plan);
    if (status == VKA_OK)
        status = vka_plan_add_linear(l.plan,
                                     VKA_INFO(vka_linear_op, .input = l.input, .weight = l.weight,
                                              .bias = l.bias, .output = l.output));
    if (status == VKA_OK)
        status = vka_plan_finish(l.plan);
    if (status == VKA_OK)
        status = vka_plan_run(l.plan, d->timeout);
    d->busy |= status == VKA_TIMEOUT;
    if (status == VKA_OK)
        status = vka_tensor_read(l.output, got, rows * out * sizeof *got);
    for (uint64_t i = 0; status == VKA_OK && i < rows * out; i++)
        output[i] = (double)got[i];
    destroy(&l);
    free(got);
    return status;
}

/* The weight, as the product with the identity [in][in] shows it. */
static enum vka_status read_weight(struct tool_device *d, const struct case_op *op, double *weight)
{
    const uint64_t out = op->blocks->shape[0], in = op->input->shape[1];
    float *identity = calloc(in * in, sizeof *identity);
    double *transposed = calloc(in * out, sizeof *transposed);
    enum vka_status status = identity && transposed ? VKA_OK : VKA_OUT_OF_HOST_MEMORY;
    for (uint64_t i = 0; status == VKA_OK && i < in; i++)
        identity[i * in + i] = 1;
    if (status == VKA_OK)
        status = multiply(d, op, identity, VKA_F32, in, false, transposed);
    for (uint64_t o = 0; status == VKA_OK && o < out; o++)
        for (uint64_t i = 0; i < in; i++)
            weight[o * in + i] = transposed[i * out + o];
    free(identity);
    free(transposed);
    return status;
}

enum vka_status op_run(struct tool_device *d, const struct case_file *c, struct op_results *r)
{
    const struct case_op *op = &c->op;
    if (op->operation != CASE_LINEAR) {
        r->output = calloc(case_count(op->expect), sizeof *r->output);
        if (op->expect_state)
            r->state = calloc(case_count(op->expect_state), sizeof *r->state);
        if (!r->output || (op->expect_state && !r->state))
            return VKA_OUT_OF_HOST_MEMORY;
        return op->operation >= CASE_CAUSAL_CONV ? state_run(d, op, r->output, r->state)
                                                 : onnx_run(d, op, r->output);
    }
    const uint64_t rows = op->input->shape[0], out = op->blocks->shape[0], in = op->input->shape[1];
    uint32_t values;
    vka_dtype_block(op->weight_type, &values, NULL);
    r->decoded = calloc(out * in, sizeof *r->decoded);
    r->weight = calloc(out * in, sizeof *r->weight);
    r->output = calloc(rows * out, sizeof *r->output);
    if (!r->decoded || !r->weight || !r->output)
        return VKA_OUT_OF_HOST_MEMORY;
    enum vka_status status =
        vka_dtype_decode(op->weight_type, op->blocks->data, out * in / values, r->decoded);
    if (status == VKA_OK)
        status = read_weight(d, op, r->weight);
    return status == VKA_OK ? multiply(d, op, op->input->data, case_dtype(op->input->dtype), rows,
                                       true, r->output)
                            : status;
}

void op_results_free(struct op_results *r)
{
    free(r->decoded);
    free(r->weight);
    free(r->output);
    free(r->state);
}
