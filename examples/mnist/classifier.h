/* The model on a device: one plan, recorded once for a fixed number of images and run for each
 * batch of them. Uses only vkattn.h. */
#ifndef MNIST_CLASSIFIER_H
#define MNIST_CLASSIFIER_H

#include "model.h"

struct classifier;

/* Makes a classifier of up to `batch` images a run. With keep_attention the plan returns the
 * softmax weights. The device must outlive it, the model need not. The sentence of a failure is in
 * vka_device_error. */
enum vka_status classifier_create(struct vka_device *device, const struct model *model,
                                  uint32_t batch, bool keep_attention,
                                  struct classifier **classifier);
void classifier_destroy(struct classifier **classifier);

/* Classifies n images, 1 .. batch: input[n][...] of model_input -> logits[n][n_class] and, with
 * keep_attention and unless it is NULL, attention[n][n_head][positions][positions]. timeout in
 * nanoseconds. */
enum vka_status classifier_run(struct classifier *classifier, const float *input, uint32_t n,
                               uint64_t timeout, float *logits, float *attention);

/* The number of passes of a run. */
size_t classifier_passes(const struct classifier *classifier);

#endif
