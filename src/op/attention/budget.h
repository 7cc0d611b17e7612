/* What fused attention is predicted to take, and how a slice of it is cut into passes for a
 * submit's budget. */
#ifndef VKA_OP_ATTENTION_BUDGET_H
#define VKA_OP_ATTENTION_BUDGET_H

#include "op/attention/attention.h"

/* Operations that a score takes, beside the products: softmax, biases, dropout. */
double attention_score_work(const struct vka_attention_options *options);

/* Visible keys among first .. end - 1, summed over queries `query` to query + n - 1 of one head; as
 * many as there may be where only the device knows. */
double attention_count_keys(const struct attention *a, uint32_t query, uint32_t n, uint32_t first,
                            uint32_t end);

/* How a slice is cut. A pass has `tiles` tiles of rows (a ragged batch's alone are cut here: pass i
 * has every so many-th, from tile i on, lest all of a long sequence come together) and
 * `pieces` pieces of the keys, or one of n_span spans of the keys of a piece, or of all keys where
 * they are in none; between spans the state of the softmax is kept. */
struct attention_parts {
    uint32_t tiles, n_tile; /* of a pass and of the slice, along x of the grid */
    uint32_t pieces;
    uint32_t n_span;    /* not 1: pieces is 1 */
    uint32_t key, keys; /* span i is keys key + i * keys on, from the piece's first */
};

struct key_range {
    uint32_t first, end;
};

/* Keys a span has a multiple of. */
uint32_t attention_span_unit(const struct attention_choice *c);

/* The keys of a chain of sums: of a piece, or all that some query of the slice sees. */
struct key_range attention_chain_keys(const struct attention *a,
                                      const struct attention_parts *parts, uint32_t piece);

/* The keys of the pass for pieces from `piece` on and a span; none where it has nothing to do. */
struct key_range attention_pass_keys(const struct attention *a, const struct attention_parts *parts,
                                     uint32_t piece, uint32_t span);

/* The keys that some query of a slice may see: bounds[0] .. bounds[1] - 1. */
void attention_find_bounds(const struct attention *a, const struct slice *s, uint32_t bounds[2]);

/* What a pass does that has `tiles` tiles of rows of a slice, and those keys. */
struct work attention_work(const struct attention *a, const struct slice *s, uint32_t tiles,
                           struct key_range keys);

/* Cuts a slice into parts; false where not all that they are would fit the device and the budget,
 * and smaller slices would. last: there are none. */
bool attention_cut(const struct vka_plan *plan, const struct attention *a, const struct slice *s,
                   bool last, struct attention_parts *parts);

/* The slice's tiles of rows. */
uint32_t attention_tiles(const struct attention *a, const struct slice *s);

/* Its workgroups along y of the grid, for each piece. */
uint32_t attention_groups(const struct attention *a, const struct slice *s);

/* Adds the passes of a slice that is cut so. */
enum vka_status attention_add_parts(struct vka_plan *plan, const struct attention *a,
                                    const struct slice *s, const struct attention_parts *parts);

/* Adds all of the problem, whose operands are as the kernel wants them, in slices that fit. */
enum vka_status attention_add_slices(struct vka_plan *plan, const struct attention *a);

#endif
