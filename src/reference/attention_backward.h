/* The oracle of the gradients of attention.
 * SPDX-License-Identifier: MIT */
#ifndef VKA_REFERENCE_ATTENTION_BACKWARD_H
#define VKA_REFERENCE_ATTENTION_BACKWARD_H

#include <reference/reference.h>

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

#endif
