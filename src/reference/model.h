/* The oracle of the operations of vkattn_model.h, in plain C and double. All arrays are dense.
 * SPDX-License-Identifier: MIT */
#ifndef VKA_REFERENCE_MODEL_H
#define VKA_REFERENCE_MODEL_H

#include <vkattn/vkattn_model.h>

/* y[rows][n] = norm(x[rows][n]) * weight[n] + bias[n]; weight and bias may be NULL. */
void ref_norm(const double *x, size_t rows, size_t n, enum vka_norm kind, const double *weight,
              const double *bias, double epsilon, double *y);

/* y[rows][n] = sum of slices[i][rows][n] e^(l[i][rows]) / sum of e^(l[i][rows]) over n_slice slices, and
 * log_sum[rows] = ln of that sum, as vka_merge_op says. */
void ref_merge(const double *const *slices, const double *const *l, size_t n_slice, size_t rows,
               size_t n, double *y, double *log_sum);

/* y[batch][rows][out] as vka_conv1d_op says, of x[batch][length][in], w[out][width][in] and
 * bias[out], which may be NULL. */
struct ref_conv1d {
    size_t batch, length, in, width, out, stride, before, rows;
    enum vka_activation activation;
};
void ref_conv1d(const struct ref_conv1d *c, const double *x, const double *w, const double *bias,
                double *y);

/* The function at x. */
double ref_activation(enum vka_activation kind, double alpha, double x);

/* Probabilities of vka_sample_op, whose temperature is above 0, in w[n]: 0 for what is left out, all
 * 0 where nothing can be drawn. Sorts by value, unlike the kernel. VKA_OK or
 * VKA_OUT_OF_HOST_MEMORY. */
enum vka_status ref_sample(const double *logits, size_t n, const struct vka_sample_op *op,
                           double *w);

#endif
