/* The oracle of the operations of vkattn_train.h, in plain C and double. All arrays are dense.
 * SPDX-License-Identifier: MIT */
#ifndef VKA_REFERENCE_TRAIN_H
#define VKA_REFERENCE_TRAIN_H

#include <vkattn/vkattn_train.h>

/* Gradients of ref_linear: dx[rows][in], dw[out][in], db[out], each NULL where it is not wanted. */
void ref_linear_backward(const double *x, const double *w, const double *dy, size_t rows, size_t in,
                         size_t out, bool relu, double *dx, double *dw, double *db);

/* The derivative of ref_activation at x; of ReLU 0 at 0. */
double ref_activation_slope(enum vka_activation kind, double alpha, double x);

/* The mean loss of rows of logits; gradient[rows][n] is that of scale times it, and
 * may be logits; NULL: not wanted. */
double ref_cross_entropy(const double *logits, const int32_t *labels, size_t rows, size_t n,
                         double smoothing, double scale, double *gradient);

/* The mean squared error over n elements, and the gradient of scale times it, NULL: not wanted. */
double ref_square_error(const double *x, const double *target, size_t n, double scale,
                        double *gradient);

/* One step of n elements, the step-th, from 1; m and v as vka_parameter has them. Zeros in op are the
 * defaults; its tensors are not read. */
void ref_optimiser(const struct vka_optimiser_op *op, size_t n, int64_t step, double *w,
                   const double *g, double *m, double *v);

/* The norm of n numbers, and what they are multiplied by. */
double ref_clip(const double *g, size_t n, double max_norm, double *factor);

/* Gradients of ref_norm: dx[rows][n], dw[n] and db[n], each NULL where it is not wanted. */
void ref_norm_backward(const double *x, const double *dy, size_t rows, size_t n, enum vka_norm kind,
                       const double *weight, double epsilon, double *dx, double *dw, double *db);

#endif
