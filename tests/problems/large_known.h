/* Attention whose result is known without an oracle's cost. Scores, masks and biases are functions
 * of a key's index and of a few classes of heads and queries; values are a ramp A(j) in one factor
 * and one term a feature. So a row of the output is two sums over a range of keys, and those are
 * differences of prefix sums. */
#ifndef TESTS_LARGE_KNOWN_H
#define TESTS_LARGE_KNOWN_H

#include "large_run.h"

/* Classes of queries, key heads, masks and slopes together. */
#define LARGE_TABLES 24

struct large_known {
    const struct large_attention *a;
    uint32_t n; /* keys: of a ragged batch all packed ones, of a cache its capacity */
    uint32_t n_query_class, n_key_class, n_mask_class, n_slope_class;
    uint32_t mask_n;     /* of the mask's last axis */
    double scale, slope; /* slope: the steepest of ALiBi */
    /* [n + 1] each, made when first asked for: sums of the weights, times the ramp, for keys before
     * and (ALiBi) behind the query. */
    struct {
        double *sum[2], *ramp[2];
    } tables[LARGE_TABLES];
    double mean; /* of the ramp over the first n_mean keys */
    int64_t n_mean;
    const uint32_t *first; /* [batch], added to the first row that is filled in; NULL: 0 */
    bool no_memory;
};

/* A row of the output: where it stands, the keys first .. end - 1 that it may see, and the keys that
 * there are, all counted in keys of the tables. */
struct large_row {
    uint32_t batch, head, query;
    int64_t position, first, end, length;
};

/* What the softmax of a row gives: sum of the weights (1, or less beside a sink), weighted mean of
 * the ramp, the sum that weights are divided by, the hot key or -1. */
struct large_softmax {
    double sum, ramp, total;
    int64_t hot;
    bool sees;
};

void large_known_open(struct large_known *k, const struct large_attention *a, uint32_t n);
void large_known_close(struct large_known *k);

struct large_row large_row_at(const struct large_attention *a, uint32_t batch, uint32_t head,
                              uint32_t query, int64_t offset, int64_t length);
struct large_softmax large_softmax_of(struct large_known *k, const struct large_row *row);

/* The row of the output [value_dim]. Returns true where it is that to the bit. */
bool large_context(struct large_known *k, const struct large_row *row, double *want);

/* Returned scores of the row, keys 0 .. n - 1. */
void large_scores(struct large_known *k, const struct large_row *row, double *want);

/* Fill tensors on the host: q [batch][n_head][n_q][head_dim], rows first .. of k and v
 * [batch][n_kv_head][n][...], the mask. */
bool large_fill_q(const struct large_attention *a, struct large_tensor *t);
bool large_fill_k(const struct large_known *k, struct large_tensor *t, uint32_t first, uint32_t n);
bool large_fill_v(const struct large_known *k, struct large_tensor *t, uint32_t first, uint32_t n);
bool large_fill_mask(const struct large_known *k, struct large_tensor *t);

/* ---- Functions of an index ------------------------------------------------------------------- */

#define LARGE_HOT_FACTOR 16.0 /* of q and of k: the hot score is its square, the others are 0 */

/* A value is factor * ramp + term, of its feature and of its key head; the ramp goes from 0 to
 * 1. */
double large_ramp(const struct large_known *k, int64_t j);
double large_factor(uint32_t feature);
double large_term(uint32_t feature, uint32_t kv_head);

/* A key's share of its score, -1 .. 1 in sixteenths. */
double large_level(const struct large_known *k, int64_t j, uint32_t class);

/* What q has in each feature, so that q . k is level * head_dim * this: a power of two, so that it
 * is exact. The default scale leaves sqrt(head_dim) to divide by. */
double large_query_size(const struct large_attention *a);

/* What a mask adds; -Inf hides. Its class: axes over which it is broadcast do not count; at[batch,
 * head, query]. */
double large_mask(const struct large_known *k, int64_t j, uint32_t class);
uint32_t large_mask_class(const struct large_attention *a, const uint32_t at[3]);

/* A head's slope of ALiBi, and the logit of its sink. */
float large_slope(const struct large_known *k, uint32_t head);
float large_sink(const struct large_known *k, uint32_t head);

#endif
