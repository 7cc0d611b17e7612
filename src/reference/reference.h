/* The oracle: the attention contract of vkattn.h in plain C, in double. It shares no code with
 * kernels or plans and is simple instead of fast. All arrays are dense.
 * SPDX-License-Identifier: MIT */
#ifndef VKA_REFERENCE_H
#define VKA_REFERENCE_H

#include <reference/blocks.h>
#include <reference/numbers.h>

#include <vkattn/vkattn.h>

struct ref_attention {
    size_t batch, n_head, n_kv_head, n_q, n_kv, head_dim, value_dim;
    const double *q;          /* [batch][n_head][n_q][head_dim] */
    const double *k;          /* [batch][n_kv_head][n_kv][head_dim], past keys first */
    const double *v;          /* [batch][n_kv_head][n_kv][value_dim] */
    size_t n_past;            /* leading keys, already normalised and rotated */
    size_t mask_rank;         /* 0: no mask */
    size_t mask_shape[4];     /* [mask_rank], aligned to the last axes */
    const uint8_t *bool_mask; /* give one of the two if mask_rank is not 0 */
    const double *float_mask;
    const int64_t *kv_length; /* [kv_length_count], count batch or 1; NULL: n_kv */
    size_t kv_length_count;
    const int64_t *query_offset; /* [query_offset_count]; NULL: n_past */
    size_t query_offset_count;
    /* These are the options of struct vka_attention_options. */
#define OPTION(kind, type, wide, name) wide name;
#include "../attention_options.def"
#undef OPTION
    struct vka_rope rope;
    const double *q_norm, *k_norm; /* [head_dim]; NULL: none */
    const double *sink;            /* [n_head]; NULL: none */
    const double *alibi;           /* [n_head]; NULL: none */
    size_t dropout_batch;          /* added to the batch element of the draw */
    /* Results, each may be NULL. */
    double *context;                  /* [batch][n_head][n_q][value_dim] */
    double *scores[VKA_SCORES_COUNT]; /* [batch][n_head][n_q][n_kv] by kind; [NONE] unused */
    double *log_sum_exp;              /* [batch][n_head][n_q] */
    double *key;   /* [batch][n_kv_head][n_kv][head_dim], normalised and rotated */
    double *query; /* [batch][n_head][n_q][head_dim], the same */
};

/* Computes attention. VKA_OK or VKA_OUT_OF_HOST_MEMORY; the caller has checked the shapes. A
 * visible key whose score is NaN or +inf, or whose float mask is +inf, makes the context and the
 * visible weights of its row NaN. A key whose float mask is NaN is hidden. */
enum vka_status ref_attention(const struct ref_attention *a);

/* The position of query 0 of a batch element. */
int64_t ref_first_position(const struct ref_attention *a, size_t b);

/* The factor of a weight in dropout: 0 if it is dropped, else 1 / (1 - rate). */
double ref_dropout_factor(const struct ref_attention *a, size_t b, size_t h, size_t i, size_t j);

/* What scale and norm_epsilon stand for. */
double ref_scale(const struct ref_attention *a);
double ref_epsilon(const struct ref_attention *a);

#endif
