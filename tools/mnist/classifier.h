/* The model on a device: one plan, recorded once for a fixed number of images and run for each
 * chunk of them. Uses vkattn.h alone. */
#ifndef MNIST_CLASSIFIER_H
#define MNIST_CLASSIFIER_H

#include "model.h"

struct classifier;

/* A classifier of up to `batch` images a run; keep_attention makes the plan return the weights of
 * the softmax. The device must outlive it, the model need not. The sentence of a failure is the
 * device's. */
enum vka_status classifier_create(struct vka_device *device, const struct model *model,
                                  uint32_t batch, bool keep_attention,
                                  struct classifier **classifier);
void classifier_destroy(struct classifier **classifier);

/* Classifies n images, 1 .. batch: patches[n][n_patch][width] -> logits[n][n_class] and, where it
 * is not NULL and was asked for, attention[n][n_head][units][units]. timeout in nanoseconds. */
enum vka_status classifier_run(struct classifier *classifier, const float *patches, uint32_t n,
                               uint64_t timeout, float *logits, float *attention);

/* Dispatches of one run. */
size_t classifier_passes(const struct classifier *classifier);

#endif
