/* The oracle of the operations with a state, in plain C and double: one sequence a call. All arrays are
 * dense. SPDX-License-Identifier: MIT */
#ifndef VKA_REFERENCE_STATE_H
#define VKA_REFERENCE_STATE_H

#include <vkattn/vkattn_model.h>

/* y[n][channels] as vka_causal_conv_op says, of x[n][channels], w[channels][width], bias[channels] and
 * past[channels][keep], which may be NULL; keep = (width - 1) * dilation. present[channels][keep], which
 * may be NULL, is not past. */
struct ref_causal_conv {
    size_t n, channels, width, dilation;
    enum vka_activation activation;
};
void ref_causal_conv(const struct ref_causal_conv *c, const double *x, const double *w,
                     const double *bias, const double *past, double *y, double *present);

/* Its gradients, of dy[n][channels] and dpresent[channels][keep], which may be NULL: dx[n][channels] and
 * dpast[channels][keep]; dw[channels][width] and db[channels] are added to. */
struct ref_conv_gradients {
    double *dx, *dw, *db, *dpast;
};
void ref_causal_conv_backward(const struct ref_causal_conv *c, const double *x, const double *w,
                              const double *bias, const double *past, const double *dy,
                              const double *dpresent, const struct ref_conv_gradients *made);

/* y[n_out][n][value_dim] as vka_linear_attention_op says, of q[n_head][n][head_dim],
 * k[n_kv_head][n][head_dim], v[n_state][n][value_dim], decay[n_state][n][1 or head_dim] and
 * beta[n_state][n], or of one head; NULL: none. state[n_state][head_dim][value_dim] is that before, and
 * becomes that after. */
struct ref_linear {
    size_t n, n_head, n_kv_head, n_state, head_dim, value_dim;
    bool key_decay, shared_beta;
    double scale;
    /* In front, as the operation has them: step_max infinite without a bound. */
    double norm_epsilon, step_min, step_max;
    bool sigmoid, steps, key_bias;
    const double *log, *bias, *skip; /* [n_state], bias [n_state][1 or head_dim]; NULL: none */
};
void ref_linear_attention(const struct ref_linear *l, const double *q, const double *k,
                          const double *v, const double *decay, const double *beta, double *state,
                          double *y);

/* What ref_linear_attention reads; state: that before, NULL: 0. */
struct ref_linear_inputs {
    const double *q, *k, *v, *decay, *beta, *state;
};

/* Gradients of these, and of log, bias and skip of ref_linear, to which is added; those of what there is not
 * are not touched. state holds the gradient of the state after, and becomes that of the state before. */
struct ref_linear_gradients {
    double *q, *k, *v, *decay, *beta, *state, *log, *bias, *skip;
};

/* dy[n_out][n][value_dim]. VKA_OK or VKA_OUT_OF_HOST_MEMORY. */
enum vka_status ref_linear_attention_backward(const struct ref_linear *l,
                                              const struct ref_linear_inputs *x, const double *dy,
                                              const struct ref_linear_gradients *d);

#endif
