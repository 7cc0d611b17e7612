/* A model that learns on a device: forward pass, cross-entropy, backward pass and Adam in one plan,
 * recorded once and run for each batch. Uses only the public API. */
#ifndef MNIST_TRAINER_H
#define MNIST_TRAINER_H

#include "model.h"

struct trainer;

/* Adam's moments of all parameters, and how many steps were taken. */
struct trainer_state {
    struct model_values first, second;
    int32_t step;
};

/* Makes a trainer for batches of up to `batch` images. It goes on from the model's values and a
 * state; state NULL: from the beginning. The device must outlive it, the model too. The sentence of a
 * failure is in vka_device_error. */
enum vka_status trainer_create(struct vka_device *device, const struct model *model, uint32_t batch,
                               double learning_rate, const struct trainer_state *state,
                               struct trainer **trainer);
void trainer_destroy(struct trainer **trainer);

/* One step with n images, 1 .. batch: input [batch][...] as model_input gives it, of which n are
 * read, and labels[batch], where those after the first n are written. *loss is the mean of the n,
 * before the step; so are logits [batch][n_class]. timeout in nanoseconds. */
enum vka_status trainer_step(struct trainer *trainer, const float *input, int32_t *labels,
                             uint32_t n, uint64_t timeout, float *loss, float *logits);

/* Copies parameters and state to the host, into arrays that model_values_alloc made. */
enum vka_status trainer_read(struct trainer *trainer, struct model_values *values,
                             struct trainer_state *state);

#endif
