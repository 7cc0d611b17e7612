/* The oracle of attention over packed rows with a cache.
 * SPDX-License-Identifier: MIT */
#ifndef VKA_REFERENCE_STEP_H
#define VKA_REFERENCE_STEP_H

#include <reference/reference.h>

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

#endif
