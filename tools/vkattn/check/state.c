#include "state.h"

#include "onnx.h"

#include "case/numbers.h"

#include <stdlib.h>

#define VIEWS 16

struct run {
    struct tool_device *d;
    const struct case_op *op;
    struct vka_tensor *inputs[CASE_INPUTS], *output, *state;
    struct vka_tensor *views[VIEWS]; /* of those */
    size_t n_view;
    struct vka_plan *plan;
    enum vka_status status; /* of all calls so far */
};

static void destroy(struct run *r)
{
    vka_plan_destroy(&r->plan);
    for (size_t i = 0; i < VIEWS; i++)
        vka_tensor_destroy(&r->views[i]);
    for (int i = 0; i < CASE_INPUTS; i++)
        vka_tensor_destroy(&r->inputs[i]);
    vka_tensor_destroy(&r->output);
    vka_tensor_destroy(&r->state);
}

static struct vka_tensor *reshape(struct run *r, struct vka_tensor *tensor, uint32_t rank,
                                  const uint32_t *size)
{
    if (!tensor || r->status != VKA_OK)
        return NULL;
    r->status = vka_tensor_reshape(tensor, rank, size, &r->views[r->n_view]);
    return r->views[r->n_view++];
}

static struct vka_tensor *permute(struct run *r, struct vka_tensor *tensor, const uint32_t *axes)
{
    if (!tensor || r->status != VKA_OK)
        return NULL;
    r->status = vka_tensor_permute(tensor, axes, &r->views[r->n_view]);
    return r->views[r->n_view++];
}

/* Rows [batch][n][heads * features] as [batch][heads][n][features]. */
static struct vka_tensor *heads_of(struct run *r, struct vka_tensor *rows,
                                   const struct vka_io_array *array, uint32_t heads)
{
    if (!rows)
        return NULL;
    const uint32_t size[4] = {(uint32_t)array->shape[0], (uint32_t)array->shape[1], heads,
                              (uint32_t)array->shape[2] / heads};
    return permute(r, reshape(r, rows, 4, size), (const uint32_t[]){0, 2, 1, 3});
}

static void add_linear_attention(struct run *r)
{
    static const uint32_t exchanged[] = {0, 2, 1};
    const struct case_op *op = r->op;
    const struct vka_io_array *const *in = op->inputs;
    const uint32_t out = op->q_heads > op->state_heads ? op->q_heads : op->state_heads;
    const bool by_head = in[4] && in[4]->shape[2] == op->state_heads;
    const struct vka_linear_attention_op linear = {
        .struct_size = sizeof linear,
        .rule = op->rule,
        .q = heads_of(r, r->inputs[0], in[0], op->q_heads),
        .k = heads_of(r, r->inputs[1], in[1], op->k_heads),
        .v = heads_of(r, r->inputs[2], in[2], op->state_heads),
        .decay = by_head ? permute(r, r->inputs[4], exchanged)
                         : heads_of(r, r->inputs[4], in[4], op->state_heads),
        .beta = permute(r, r->inputs[5], exchanged),
        .scale = (float)op->scale,
        .past_state = r->inputs[3],
        .present_state = r->state,
        .output = heads_of(r, r->output, op->expect, out),
    };
    if (r->status == VKA_OK)
        r->status = vka_plan_add_linear_attention(r->plan, &linear);
}

static void add_causal_conv(struct run *r)
{
    static const uint32_t exchanged[] = {0, 2, 1};
    const uint64_t *w = r->op->inputs[1]->shape;
    const struct vka_causal_conv_op conv = {
        .struct_size = sizeof conv,
        .input = permute(r, r->inputs[0], exchanged),
        .weight = reshape(r, r->inputs[1], 2, (const uint32_t[]){(uint32_t)w[0], (uint32_t)w[2]}),
        .bias = r->inputs[2],
        .activation = r->op->silu ? VKA_SILU : VKA_IDENTITY,
        .past = r->inputs[3],
        .present = r->state,
        .output = permute(r, r->output, exchanged),
    };
    if (r->status == VKA_OK)
        r->status = vka_plan_add_causal_conv(r->plan, &conv);
}

/* A tensor for an array that is computed. */
static enum vka_status make(struct tool_device *d, const struct vka_io_array *array,
                            enum vka_dtype dtype, struct vka_tensor **tensor)
{
    uint32_t size[4];
    for (uint32_t i = 0; i < array->rank; i++)
        size[i] = (uint32_t)array->shape[i];
    return vka_tensor_create(d->device, dtype, array->rank, size, tensor);
}

static enum vka_status read_back(struct vka_tensor *tensor, const struct vka_io_array *array,
                                 enum vka_io_dtype dtype, double *values)
{
    const size_t size = vka_tensor_size(tensor);
    void *data = malloc(size);
    enum vka_status status = data ? vka_tensor_read(tensor, data, size) : VKA_OUT_OF_HOST_MEMORY;
    if (status == VKA_OK)
        case_widen(dtype, data, case_count(array), values);
    free(data);
    return status;
}

static void run(struct run *r)
{
    const struct case_op *op = r->op;
    if (r->status == VKA_OK)
        r->status = vka_plan_create(
            r->d->device, VKA_INFO(vka_plan_info, .submit_budget = r->d->budget), &r->plan);
    if (r->status == VKA_OK)
        op->operation == CASE_CAUSAL_CONV ? add_causal_conv(r) : add_linear_attention(r);
    if (r->status == VKA_OK)
        r->status = vka_plan_finish(r->plan);
    if (r->status == VKA_OK)
        r->status = vka_plan_run(r->plan, r->d->timeout);
    r->d->busy |= r->status == VKA_TIMEOUT;
}

/* The states of linear attention are float32 here, whatever type the case has. */
enum vka_status state_run(struct tool_device *d, const struct case_op *op, double *output,
                          double *state)
{
    struct run r = {.d = d, .op = op};
    const bool linear = op->operation == CASE_LINEAR_ATTENTION;
    const enum vka_io_dtype kept = linear ? VKA_IO_F32 : op->inputs[0]->dtype;
    for (int i = 0; i < CASE_INPUTS && r.status == VKA_OK; i++)
        if (op->inputs[i])
            r.status = onnx_upload(d, op->inputs[i],
                                   case_dtype(i == 3 ? kept : op->inputs[i]->dtype), &r.inputs[i]);
    if (r.status == VKA_OK)
        r.status = make(d, op->expect, case_dtype(op->expect->dtype), &r.output);
    if (r.status == VKA_OK && op->expect_state)
        r.status = make(d, op->expect_state, case_dtype(kept), &r.state);
    run(&r);
    if (r.status == VKA_OK)
        r.status = read_back(r.output, op->expect, op->expect->dtype, output);
    if (r.status == VKA_OK && r.state)
        r.status = read_back(r.state, op->expect_state, kept, state);
    destroy(&r);
    return r.status;
}
