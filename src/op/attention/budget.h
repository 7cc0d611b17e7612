/* What a pass of a slice covers, and the time that it is predicted to take. */
#ifndef VKA_OP_ATTENTION_BUDGET_H
#define VKA_OP_ATTENTION_BUDGET_H

#include "op/attention/mask.h"

/* How a slice is cut into passes. Along rows: a pass has `tiles` tiles. Only tiles of a ragged
 * batch are cut here: with n passes, pass i has tiles i, i + n, i + 2n ..., so that no pass gets
 * all of a long sequence. Along keys: a pass has `splits` splits, or one of the n_span spans of a
 * split (of all keys where n_split is 1). A span leaves the state of the softmax to the next. */
struct attention_cuts {
    uint32_t tiles, n_tile; /* of a pass and of the slice, along x of the grid */
    uint32_t splits;
    uint32_t n_span;    /* not 1: splits is 1 */
    uint32_t key, keys; /* span i begins at key + i * keys, counted from the split's first key */
};

struct key_range {
    uint32_t first, end;
};

/* Operations that a score takes, beside the products: softmax, biases, dropout. */
double attention_score_work(const struct vka_attention_options *options);

/* Counts visible keys among first .. end - 1, summed over queries `query` to query + n - 1 of one
 * head. An upper bound where positions are known to the device alone. */
double attention_count_keys(const struct attention *a, uint32_t query, uint32_t n, uint32_t first,
                            uint32_t end);

/* The keys that some query of a slice may see: bounds[0] .. bounds[1] - 1. */
void attention_find_bounds(const struct attention *a, const struct head_slice *s,
                           uint32_t bounds[2]);

/* The work of a pass with `tiles` tiles of rows of a slice, and those keys. */
struct work attention_work(const struct attention *a, const struct head_slice *s, uint32_t tiles,
                           struct key_range keys);

/* Tiles of rows of a slice. */
uint32_t attention_tiles(const struct attention *a, const struct head_slice *s);

/* Workgroups of a slice along y of the grid, for each split. */
uint32_t attention_groups(const struct attention *a, const struct head_slice *s);

/* Sets the tiles of the passes that begin with tile `tile`. */
void attention_set_tiles(const struct attention_cuts *cuts, uint32_t tile,
                         struct attention_params *p);

#endif
