/* The oracle of a layer and its gradients.
 * SPDX-License-Identifier: MIT */
#ifndef VKA_REFERENCE_LAYER_H
#define VKA_REFERENCE_LAYER_H

#include <reference/attention_backward.h>

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
