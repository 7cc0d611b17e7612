/* The model on a device: its parameters in tensors and the operations of a forward pass, for the
 * classifier and the trainer. Uses only the public API. */
#ifndef MNIST_NETWORK_H
#define MNIST_NETWORK_H

#include "model.h"

/* Jumps to fail with the status of a call that failed. */
#define TRY(call)             \
    do {                      \
        status = (call);      \
        if (status != VKA_OK) \
            goto fail;        \
    } while (0)

/* What the operations write, or the gradients of that. B images, T patches, C channels (pixels of a
 * patch), H heads; a head attends over U units with F features each: U = T and F = C, or U = C and
 * F = T. An MLP has hidden, flat and logits alone. */
struct activations {
    struct vka_tensor *projected[3];    /* [B][T][H * C]: query, key, value */
    struct vka_tensor *by_head[3];      /* [B][H][U][F], views of those */
    struct vka_tensor *context;         /* [B][U][H][F] */
    struct vka_tensor *context_by_head; /* [B][H][U][F], a view of it */
    struct vka_tensor *context_rows;    /* [B][T][H * C], the same elements in the same order */
    struct vka_tensor *hidden;          /* [B][T][C] or [B][n_hidden], before the ReLU */
    struct vka_tensor *flat;            /* [B][all others], the same as the classifier reads it */
    struct vka_tensor *logits;          /* [B][n_class] */
};

/* One tensor of each slot's weight and bias; NULL of slots that the model does not have. */
struct parameters {
    struct vka_tensor *weight[MODEL_SLOT_COUNT], *bias[MODEL_SLOT_COUNT];
};

struct network {
    struct vka_device *device;
    const struct model *model;
    uint32_t batch;
    struct parameters parameters;
    struct vka_tensor *input; /* [B][T][C], or [B][rows * cols] of an MLP */
    struct activations values;
    struct vka_tensor *weights;     /* the softmax [B][H][U][U]; NULL: not kept */
    struct vka_tensor *log_sum_exp; /* F32 [B][H][U], for the backward pass; NULL: not kept */
};

/* Makes the tensors, of `batch` images; parameters have the model's values. The device and the model
 * must outlive it. */
enum vka_status network_create(struct vka_device *device, const struct model *model, uint32_t batch,
                               struct network *network);
enum vka_status network_keep_weights(struct network *network);
enum vka_status network_keep_log_sum_exp(struct network *network);
void network_destroy(struct network *network);

enum vka_status network_add_forward(const struct network *network, struct vka_plan *plan);

/* Sets *op to the attention of the forward pass, whose input the values are. */
void network_attention(const struct network *network, struct vka_attention_op *op);

enum vka_status activations_create(const struct network *network, struct activations *activations);
void activations_destroy(struct activations *activations);

/* Makes float32 tensors with the shapes of a model's parameters, set to values, or to 0 if values is
 * NULL. */
enum vka_status parameters_create(struct vka_device *device, const struct model *model,
                                  const struct model_values *values, struct parameters *parameters);
void parameters_destroy(struct parameters *parameters);

#endif
