/* The oracle of the operations of vkattn_train.h, in plain C and double. All arrays are dense.
 * SPDX-License-Identifier: MIT */
#ifndef VKA_REFERENCE_TRAIN_H
#define VKA_REFERENCE_TRAIN_H

#include <vkattn/vkattn_train.h>

#include <reference/reference.h>

/* Gradients of ref_linear: dx[rows][in], dw[out][in], db[out], each NULL where it is not wanted. */
void ref_linear_backward(const double *x, const double *w, const double *dy, size_t rows, size_t in,
                         size_t out, bool relu, double *dx, double *dw, double *db);

/* The derivative of ref_activation at x; of ReLU 0 at 0. */
double ref_activation_slope(enum vka_activation kind, double alpha, double x);

/* The mean loss of rows of logits; gradient[rows][n] is that of scale times it, and
 * may be logits; NULL: not wanted. */
double ref_cross_entropy(const double *logits, const int32_t *labels, size_t rows, size_t n,
                         double smoothing, double scale, double *gradient);

/* The same of the mean squared error over n elements. */
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

/* Gradients of attention, each NULL where it is not wanted. Those of past keys are of the keys as
 * they enter the scores. The weights of a fully masked row are constants. */
struct ref_attention_gradients {
    double *q;               /* [batch][n_head][n_q][head_dim] */
    double *k, *v;           /* [batch][n_kv_head][n_kv][...] */
    double *sink;            /* [n_head] */
    double *mask;            /* as float_mask */
    double *q_norm, *k_norm; /* [head_dim] */
};

/* dy: [batch][n_head][n_q][value_dim]. VKA_OK or VKA_OUT_OF_HOST_MEMORY. */
enum vka_status ref_attention_backward(const struct ref_attention *a, const double *dy,
                                       const struct ref_attention_gradients *g);

/* A layer. Projections are query, key, value and output. */
struct ref_layer {
    struct ref_attention a; /* sizes and options; its operands and results are not read */
    size_t in[3], out;      /* widths of inputs and output */
    bool interleaved;
    const double *x[3]; /* [batch][n][in] */
    const double *w[4]; /* [out][in]; that of the output NULL: none */
    const double *b[4]; /* [out]; NULL: none */
};

/* Each NULL where it is not wanted. That of an input is what its own projection gives. */
struct ref_layer_gradients {
    double *x[3], *w[4], *b[4];
    struct ref_attention_gradients options; /* without q, k and v */
};

/* y: [batch][n_q][out]. VKA_OK or VKA_OUT_OF_HOST_MEMORY. */
enum vka_status ref_layer(const struct ref_layer *l, double *y);
enum vka_status ref_layer_backward(const struct ref_layer *l, const double *dy,
                                   const struct ref_layer_gradients *g);

#endif
