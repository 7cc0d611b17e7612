#include "trainer.h"

#include "network.h"

#include <vkattn/vkattn_train.h>

#include <stdlib.h>

#define NOT_COUNTED (-100) /* a label whose row has no loss */

struct trainer {
    struct network network;
    struct activations gradients;
    struct parameters parameter_gradients, first, second;
    struct vka_tensor *labels, *loss, *step;
    struct vka_plan *plan;
};

/* ---- The plan -------------------------------------------------------------------------------- */

/* The gradients of a slot's weight and bias, and of its input unless that is NULL. */
static enum vka_status add_linear_backward(const struct trainer *t, enum model_slot slot,
                                           struct vka_tensor *input,
                                           struct vka_tensor *output_gradient,
                                           struct vka_tensor *input_gradient)
{
    return vka_plan_add_linear_backward(
        t->plan,
        VKA_INFO(vka_linear_backward_op, .input = input,
                 .weight = t->network.parameters.weight[slot], .output_gradient = output_gradient,
                 .relu_input = slot == MODEL_CLASSIFIER, .input_gradient.tensor = input_gradient,
                 .weight_gradient.tensor = t->parameter_gradients.weight[slot],
                 .bias_gradient.tensor = t->parameter_gradients.bias[slot]));
}

static enum vka_status add_attention_backward(const struct trainer *t)
{
    const struct network *n = &t->network;
    const struct activations *g = &t->gradients;
    struct vka_attention_op forward;
    enum vka_status status;

    TRY(add_linear_backward(t, MODEL_OUTPUT, n->values.context_rows, g->hidden, g->context_rows));
    network_attention(n, &forward);
    TRY(vka_plan_add_attention_backward(t->plan,
                                        VKA_INFO(vka_attention_backward_op, .forward = &forward,
                                                 .output_gradient = g->context_by_head,
                                                 .q_gradient.tensor = g->by_head[MODEL_QUERY],
                                                 .k_gradient.tensor = g->by_head[MODEL_KEY],
                                                 .v_gradient.tensor = g->by_head[MODEL_VALUE])));
    for (int slot = MODEL_QUERY; slot <= MODEL_VALUE; slot++)
        TRY(add_linear_backward(t, (enum model_slot)slot, n->input, g->projected[slot], NULL));
fail:
    return status;
}

static enum vka_status add_adam(const struct trainer *t, double learning_rate)
{
    const struct parameters *p = &t->network.parameters, *g = &t->parameter_gradients;
    struct vka_parameter list[2 * MODEL_SLOT_COUNT];
    size_t n = 0;

    for (int i = 0; i < MODEL_SLOT_COUNT; i++) {
        if (!model_has_slot(t->network.model, (enum model_slot)i))
            continue;
        list[n++] = (struct vka_parameter){p->weight[i], g->weight[i], t->first.weight[i],
                                           t->second.weight[i]};
        list[n++] =
            (struct vka_parameter){p->bias[i], g->bias[i], t->first.bias[i], t->second.bias[i]};
    }
    return vka_plan_add_optimiser(
        t->plan, VKA_INFO(vka_optimiser_op, .kind = VKA_ADAM, .parameters = list, .n_parameter = n,
                          .learning_rate = learning_rate, .step = t->step));
}

static enum vka_status record(struct trainer *t, double learning_rate)
{
    const struct network *n = &t->network;
    const struct activations *g = &t->gradients;
    enum vka_status status;

    TRY(network_add_forward(n, t->plan));
    TRY(vka_plan_add_cross_entropy(
        t->plan, VKA_INFO(vka_cross_entropy_op, .logits = n->values.logits, .labels = t->labels,
                          .loss = t->loss, .gradient = g->logits)));
    TRY(add_linear_backward(t, MODEL_CLASSIFIER, n->values.flat, g->logits, g->flat));
    TRY(n->model->n_hidden ? add_linear_backward(t, MODEL_HIDDEN, n->input, g->hidden, NULL)
                           : add_attention_backward(t));
    TRY(add_adam(t, learning_rate));
    TRY(vka_plan_finish(t->plan));
fail:
    return status;
}

/* ---- The trainer ----------------------------------------------------------------------------- */

enum vka_status trainer_create(struct vka_device *device, const struct model *model, uint32_t batch,
                               double learning_rate, const struct trainer_state *state,
                               struct trainer **trainer)
{
    struct trainer *t = calloc(1, sizeof *t);
    const uint32_t one = 1;
    const int32_t step = state ? state->step : 0;
    enum vka_status status;

    *trainer = NULL;
    if (!t)
        return VKA_OUT_OF_HOST_MEMORY;
    TRY(network_create(device, model, batch, &t->network));
    if (!model->n_hidden)
        TRY(network_keep_log_sum_exp(&t->network));
    TRY(activations_create(&t->network, &t->gradients));
    TRY(parameters_create(device, model, NULL, &t->parameter_gradients));
    TRY(parameters_create(device, model, state ? &state->first : NULL, &t->first));
    TRY(parameters_create(device, model, state ? &state->second : NULL, &t->second));
    TRY(vka_tensor_create(device, VKA_I32, 1, &batch, &t->labels));
    TRY(vka_tensor_create(device, VKA_F32, 1, &one, &t->loss));
    TRY(vka_tensor_create(device, VKA_I32, 1, &one, &t->step));
    TRY(vka_tensor_write(t->step, &step, sizeof step));
    TRY(vka_plan_create(device, NULL, &t->plan));
    TRY(record(t, learning_rate));
    *trainer = t;
    return VKA_OK;

fail:
    trainer_destroy(&t);
    return status;
}

void trainer_destroy(struct trainer **trainer)
{
    struct trainer *t = trainer ? *trainer : NULL;

    if (!t)
        return;
    vka_plan_destroy(&t->plan);
    network_destroy(&t->network);
    activations_destroy(&t->gradients);
    parameters_destroy(&t->parameter_gradients);
    parameters_destroy(&t->first);
    parameters_destroy(&t->second);
    vka_tensor_destroy(&t->labels);
    vka_tensor_destroy(&t->loss);
    vka_tensor_destroy(&t->step);
    free(t);
    *trainer = NULL;
}

enum vka_status trainer_step(struct trainer *t, const float *input, int32_t *labels, uint32_t n,
                             uint64_t timeout, float *loss, float *logits)
{
    const struct network *net = &t->network;
    enum vka_status status;

    /* Rows without a label have no loss and no gradient. */
    for (uint32_t i = n; i < net->batch; i++)
        labels[i] = NOT_COUNTED;
    TRY(vka_tensor_write(net->input, input, vka_tensor_size(net->input)));
    TRY(vka_tensor_write(t->labels, labels, vka_tensor_size(t->labels)));
    TRY(vka_plan_run(t->plan, timeout));
    TRY(vka_tensor_read(t->loss, loss, sizeof *loss));
    TRY(vka_tensor_read(net->values.logits, logits, vka_tensor_size(net->values.logits)));
fail:
    return status;
}

static enum vka_status read_values(const struct model *model, const struct parameters *p,
                                   struct model_values *values)
{
    enum vka_status status = VKA_OK;

    for (int i = 0; i < MODEL_SLOT_COUNT; i++) {
        if (!model_has_slot(model, (enum model_slot)i))
            continue;
        TRY(vka_tensor_read(p->weight[i], values->weight[i], vka_tensor_size(p->weight[i])));
        TRY(vka_tensor_read(p->bias[i], values->bias[i], vka_tensor_size(p->bias[i])));
    }
fail:
    return status;
}

enum vka_status trainer_read(struct trainer *t, struct model_values *values,
                             struct trainer_state *state)
{
    const struct model *model = t->network.model;
    enum vka_status status;

    TRY(read_values(model, &t->network.parameters, values));
    TRY(read_values(model, &t->first, &state->first));
    TRY(read_values(model, &t->second, &state->second));
    TRY(vka_tensor_read(t->step, &state->step, sizeof state->step));
fail:
    return status;
}
