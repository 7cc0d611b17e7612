/* The oracle: the attention contract of vkattn.h in plain C, in double. It shares no code with
 * kernels or plans and is simple instead of fast. All arrays are dense.
 * SPDX-License-Identifier: MIT */
#ifndef VKA_REFERENCE_H
#define VKA_REFERENCE_H

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
    bool causal, window;
    int64_t window_left, window_right;
    uint32_t given; /* as of struct vka_attention_options */
    double scale;   /* 0: 1 / sqrt(head_dim), unless given */
    double softcap; /* 0: none */
    enum vka_masked_row masked_row;
    struct vka_rope rope;
    const double *q_norm, *k_norm; /* [head_dim]; NULL: none */
    double norm_epsilon;           /* 0: 1e-6, unless given */
    const double *sink;            /* [n_head]; NULL: none */
    const double *alibi;           /* [n_head]; NULL: none */
    double dropout;
    uint64_t dropout_seed;
    size_t dropout_batch; /* added to the batch element of the draw */
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

/* A step of sequences whose new rows are packed, with a cache. */
struct ref_step {
    /* Options and sizes: batch is that of the cache; n_q the packed rows, of q, k and v; n_kv its
     * capacity; q [n_head][n_q][head_dim] and k, v alike; a mask broadcasts to
     * [1][n_head][n_q][n_kv]; context and log_sum_exp, [n_head][n_q][...], are written in rows of
     * sequences. Neither past, lengths, offsets nor other results. Sequence s is batch element s of
     * dropout. */
    struct ref_attention a;
    const int64_t *start;    /* [batch + 1], not decreasing, clamped to 0 .. n_q */
    const int64_t *n_append; /* [batch]; NULL: all */
    const bool *refused;     /* [batch]: for another reason than its capacity it appends nothing */
    int64_t *length;         /* [batch], which grows */
    double *keys, *values;   /* [batch][n_kv_head][n_kv][...], as the scores read them */
    /* Turns a row, normalised and rotated, into what the scores read: of `which` 0 a query, 1 a key,
     * 2 a value. NULL: it is. */
    void (*keep)(const void *user, int which, double *row, size_t dim);
    const void *user;
};

/* Sets full[batch] where the new rows exceed the capacity, or a sequence is refused. */
enum vka_status ref_step(const struct ref_step *s, bool *full);

/* The position of query 0 of a batch element. */
int64_t ref_first_position(const struct ref_attention *a, size_t b);

/* The factor of a weight in dropout: 0 if it is dropped, else 1 / (1 - rate). */
double ref_dropout_factor(const struct ref_attention *a, size_t b, size_t h, size_t i, size_t j);

/* The steps before the scores, on x[rows][dim] in place. RMS norm: x / sqrt(mean(x^2) + epsilon)
 * times weight[dim]. Rotation: row r has the position first + r; the error is
 * at most 3e-7 if the position is within 2^31 and base is at least 1. */
double ref_scale(const struct ref_attention *a);   /* that its `scale` stands for */
double ref_epsilon(const struct ref_attention *a); /* that its `norm_epsilon` stands for */
void ref_rms_norm(double *x, size_t rows, size_t dim, const double *weight, double epsilon);
void ref_rope(double *x, size_t rows, size_t dim, const struct vka_rope *rope, int64_t first);

/* Philox4x32-10: four words for one counter. */
void ref_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* y[rows][out] = (relu ? max(x, 0) : x)[rows][in] w[out][in]^T + bias[out]; bias may be NULL. */
void ref_linear(const double *x, const double *w, const double *bias, size_t rows, size_t in,
                size_t out, bool relu, double *y);

/* The normalised squared error of the worst row: the largest |got - want|^2 / max(|want|^2, tiny)
 * of the rows, each of `width` elements. Non-finite values must match (NaN with NaN, infinities of
 * the same sign) and then count as 0; otherwise the result is infinite. tiny is 1e-60, so it only
 * matters for rows that should be 0. *worst_row, if worst_row is not NULL, becomes the index of
 * that row. */
double ref_row_nmse(const double *got, const double *want, size_t rows, size_t width,
                    size_t *worst_row);

/* Value i of a block of a block type, of the layouts that vkattn.h names. */
double ref_block_value(enum vka_dtype dtype, const uint8_t *block, size_t i);

/* The values that a cache of type Q8_0 or Q4_0 keeps of a block of 32: y[32], as vkattn_cache.h
 * says. */
void ref_cache_block(enum vka_dtype dtype, const float x[32], double y[32]);

/* What is left of a row x[n] of float32 values where vka_linear_op.activations is I8: y[n]. */
void ref_activations(const double *x, size_t n, double *y);

/* What a cache of type F8_E4M3 keeps of x in a head with this scale. */
double ref_cache_f8(float x, float scale);

/* Rotates a row by a Hadamard matrix on each block of `block` features, in float32 with sums in the
 * order of the features; y[dim]. */
void ref_hadamard(const float *x, size_t dim, size_t block, float *y);

/* Converts storage types: to wider ones exactly, to narrower ones rounding to nearest, ties to
 * even. */
double ref_from_f16(uint16_t h);
double ref_from_bf16(uint16_t b);
uint16_t ref_to_f16(double x);
uint16_t ref_to_bf16(double x);

#endif
