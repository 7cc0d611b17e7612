#include "network.h"

#include <stdlib.h>
#include <string.h>

static enum vka_status make(const struct network *n, uint32_t rank, const uint32_t *shape,
                            struct vka_tensor **tensor)
{
    return vka_tensor_create(n->device, VKA_F32, rank, shape, tensor);
}

/* ---- Parameters ------------------------------------------------------------------------------ */

/* A tensor with data, or 0 if data is NULL. */
static enum vka_status make_filled(struct vka_device *device, uint32_t rank, const uint32_t *shape,
                                   const float *data, struct vka_tensor **tensor)
{
    void *zeros = NULL;
    enum vka_status status;

    TRY(vka_tensor_create(device, VKA_F32, rank, shape, tensor));
    const size_t size = vka_tensor_size(*tensor);
    if (!data) {
        zeros = calloc(1, size);
        status = zeros ? VKA_OK : VKA_OUT_OF_HOST_MEMORY;
    }
    if (status == VKA_OK)
        status = vka_tensor_write(*tensor, data ? data : zeros, size);
    free(zeros);
fail:
    return status;
}

enum vka_status parameters_create(struct vka_device *device, const struct model *model,
                                  const struct model_values *values, struct parameters *p)
{
    enum vka_status status = VKA_OK;

    for (int i = 0; i < MODEL_SLOT_COUNT; i++) {
        const enum model_slot slot = (enum model_slot)i;
        uint32_t shape[2];
        if (!model_has_slot(model, slot))
            continue;
        model_slot_shape(model, slot, &shape[0], &shape[1]);
        TRY(make_filled(device, 2, shape, values ? values->weight[i] : NULL, &p->weight[i]));
        TRY(make_filled(device, 1, shape, values ? values->bias[i] : NULL, &p->bias[i]));
    }
fail:
    return status;
}

void parameters_destroy(struct parameters *p)
{
    for (int i = 0; i < MODEL_SLOT_COUNT; i++) {
        vka_tensor_destroy(&p->weight[i]);
        vka_tensor_destroy(&p->bias[i]);
    }
}

/* ---- Activations ----------------------------------------------------------------------------- */

/* Makes a projection and its view by heads. */
static enum vka_status make_projection(const struct network *n, int slot, struct activations *a)
{
    const struct model *m = n->model;
    const uint32_t head = m->interleaved ? 3 : 2, channel = m->interleaved ? 2 : 3;
    const uint32_t shape[] = {n->batch, m->n_patch, m->n_head * m->width};
    const uint32_t interleaved[] = {n->batch, m->n_patch, m->width, m->n_head};
    const uint32_t blocked[] = {n->batch, m->n_patch, m->n_head, m->width};
    const uint32_t axes[] = {0, head, m->channels ? channel : 1, m->channels ? 1 : channel};
    struct vka_tensor *heads = NULL;
    enum vka_status status;

    TRY(make(n, 3, shape, &a->projected[slot]));
    TRY(vka_tensor_reshape(a->projected[slot], 4, m->interleaved ? interleaved : blocked, &heads));
    TRY(vka_tensor_permute(heads, axes, &a->by_head[slot]));
fail:
    vka_tensor_destroy(&heads);
    return status;
}

static enum vka_status make_attention(const struct network *n, struct activations *a)
{
    const struct model *m = n->model;
    const uint32_t positions = model_positions(m), features = m->channels ? m->n_patch : m->width;
    const uint32_t shape[] = {n->batch, positions, m->n_head, features};
    const uint32_t axes[] = {0, 2, 1, 3};
    const uint32_t rows[] = {n->batch, m->n_patch, m->n_head * m->width};
    enum vka_status status;

    for (int slot = MODEL_QUERY; slot <= MODEL_VALUE; slot++)
        TRY(make_projection(n, slot, a));
    TRY(make(n, 4, shape, &a->context));
    TRY(vka_tensor_permute(a->context, axes, &a->context_by_head));
    TRY(vka_tensor_reshape(a->context, 3, rows, &a->context_rows));
fail:
    return status;
}

enum vka_status activations_create(const struct network *n, struct activations *a)
{
    const struct model *m = n->model;
    const uint32_t tokens[] = {n->batch, m->n_patch, m->width};
    const uint32_t flat[] = {n->batch, m->n_hidden ? m->n_hidden : m->n_patch * m->width};
    const uint32_t logits[] = {n->batch, m->n_class};
    enum vka_status status = VKA_OK;

    if (!m->n_hidden)
        TRY(make_attention(n, a));
    TRY(m->n_hidden ? make(n, 2, flat, &a->hidden) : make(n, 3, tokens, &a->hidden));
    TRY(vka_tensor_reshape(a->hidden, 2, flat, &a->flat));
    TRY(make(n, 2, logits, &a->logits));
fail:
    return status;
}

void activations_destroy(struct activations *a)
{
    for (int i = 0; i < 3; i++) {
        vka_tensor_destroy(&a->by_head[i]);
        vka_tensor_destroy(&a->projected[i]);
    }
    vka_tensor_destroy(&a->context_by_head);
    vka_tensor_destroy(&a->context_rows);
    vka_tensor_destroy(&a->context);
    vka_tensor_destroy(&a->flat);
    vka_tensor_destroy(&a->hidden);
    vka_tensor_destroy(&a->logits);
}

/* ---- The network ----------------------------------------------------------------------------- */

enum vka_status network_create(struct vka_device *device, const struct model *m, uint32_t batch,
                               struct network *n)
{
    const uint32_t tokens[] = {batch, m->n_patch, m->width};
    const uint32_t pixels[] = {batch, m->rows * m->cols};
    enum vka_status status;

    *n = (struct network){.device = device, .model = m, .batch = batch};
    TRY(parameters_create(device, m, &m->values, &n->parameters));
    TRY(m->n_hidden ? make(n, 2, pixels, &n->input) : make(n, 3, tokens, &n->input));
    TRY(activations_create(n, &n->values));
fail:
    return status;
}

enum vka_status network_keep_weights(struct network *n)
{
    const uint32_t positions = model_positions(n->model);

    return make(n, 4, (const uint32_t[]){n->batch, n->model->n_head, positions, positions},
                &n->weights);
}

enum vka_status network_keep_log_sum_exp(struct network *n)
{
    const uint32_t positions = model_positions(n->model);

    return make(n, 3, (const uint32_t[]){n->batch, n->model->n_head, positions}, &n->log_sum_exp);
}

void network_destroy(struct network *n)
{
    activations_destroy(&n->values);
    parameters_destroy(&n->parameters);
    vka_tensor_destroy(&n->input);
    vka_tensor_destroy(&n->weights);
    vka_tensor_destroy(&n->log_sum_exp);
}

static enum vka_status add_linear(const struct network *n, struct vka_plan *plan,
                                  enum model_slot slot, struct vka_tensor *input,
                                  struct vka_tensor *output)
{
    return vka_plan_add_linear(plan, VKA_INFO(vka_linear_op, .input = input,
                                              .weight = n->parameters.weight[slot],
                                              .bias = n->parameters.bias[slot], .output = output,
                                              .relu_input = slot == MODEL_CLASSIFIER));
}

void network_attention(const struct network *n, struct vka_attention_op *op)
{
    const struct activations *a = &n->values;

    *op = *VKA_INFO(vka_attention_op, .q = a->by_head[MODEL_QUERY], .k = a->by_head[MODEL_KEY],
                    .v = a->by_head[MODEL_VALUE], .output = a->context_by_head);
    op->options.scores_kind = n->weights ? VKA_SCORES_SOFTMAX : VKA_SCORES_NONE;
    op->options.scores = n->weights;
    op->options.log_sum_exp = n->log_sum_exp;
}

enum vka_status network_add_forward(const struct network *n, struct vka_plan *plan)
{
    const struct activations *a = &n->values;
    struct vka_attention_op attention;
    enum vka_status status;

    if (n->model->n_hidden) {
        TRY(add_linear(n, plan, MODEL_HIDDEN, n->input, a->hidden));
    } else {
        for (int slot = MODEL_QUERY; slot <= MODEL_VALUE; slot++)
            TRY(add_linear(n, plan, (enum model_slot)slot, n->input, a->projected[slot]));
        network_attention(n, &attention);
        TRY(vka_plan_add_attention(plan, &attention));
        TRY(add_linear(n, plan, MODEL_OUTPUT, a->context_rows, a->hidden));
    }
    TRY(add_linear(n, plan, MODEL_CLASSIFIER, a->flat, a->logits));
fail:
    return status;
}
