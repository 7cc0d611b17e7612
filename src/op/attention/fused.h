/* Predicts the time of fused attention, and cuts a slice into passes that fit a submit's budget. */
#ifndef VKA_OP_ATTENTION_FUSED_H
#define VKA_OP_ATTENTION_FUSED_H

#include "op/attention/attention.h"

/* Operations that a score takes, beside the products: softmax, biases, dropout. */
double attention_score_work(const struct vka_attention_options *options);

/* Counts visible keys among first .. end - 1, summed over queries `query` to query + n - 1 of one
 * head. An upper bound where positions are known to the device alone. */
double attention_count_keys(const struct attention *a, uint32_t query, uint32_t n, uint32_t first,
                            uint32_t end);

/* How a slice is cut into passes. Along rows: a pass has `tiles` tiles. Only tiles of a ragged
 * batch are cut here: with n passes, pass i has tiles i, i + n, i + 2n ..., so that no pass gets
 * all of a long sequence. Along keys: a pass has `splits` splits, or one of the n_span spans of a
 * split (of all keys where n_split is 1). A span leaves the state of the softmax to the next. */
struct attention_parts {
    uint32_t tiles, n_tile; /* of a pass and of the slice, along x of the grid */
    uint32_t splits;
    uint32_t n_span;    /* not 1: splits is 1 */
    uint32_t key, keys; /* span i begins at key + i * keys, counted from the split's first key */
};

struct key_range {
    uint32_t first, end;
};

/* A span's keys are a multiple of this. */
uint32_t attention_span_unit(const struct attention_choice *c);

/* The keys of a chain of sums: of a split, or all keys that some query of the slice may see. */
struct key_range attention_chain_keys(const struct attention *a,
                                      const struct attention_parts *parts, uint32_t split);

/* The keys of the pass for splits from `split` on and a span; {0, 0} where it has nothing to do. */
struct key_range attention_pass_keys(const struct attention *a, const struct attention_parts *parts,
                                     uint32_t split, uint32_t span);

/* The keys that some query of a slice may see: bounds[0] .. bounds[1] - 1. */
void attention_find_bounds(const struct attention *a, const struct slice *s, uint32_t bounds[2]);

/* The work of a pass with `tiles` tiles of rows of a slice, and those keys. */
struct work attention_work(const struct attention *a, const struct slice *s, uint32_t tiles,
                           struct key_range keys);

/* Cuts a slice into parts. Returns false where some part exceeds the device or the budget and a
 * smaller slice might fit. last: there is no smaller slice. */
bool attention_cut(const struct vka_plan *plan, const struct attention *a, const struct slice *s,
                   bool last, struct attention_parts *parts);

/* Whether what grows with the queries of a slice that has no smaller one of whole tiles (queries,
 * output, log-sum-exp, records, mask) fits a binding. */
bool attention_rows_fit(const struct vka_plan *plan, const struct attention *a,
                        const struct slice *s);

/* Tiles of rows of a slice. */
uint32_t attention_tiles(const struct attention *a, const struct slice *s);

/* Workgroups of a slice along y of the grid, for each split. */
uint32_t attention_groups(const struct attention *a, const struct slice *s);

/* Adds the passes of a slice that attention_cut has cut. */
enum vka_status attention_add_parts(struct vka_plan *plan, const struct attention *a,
                                    const struct slice *s, const struct attention_parts *parts);

/* Adds the whole problem, in slices that fit. Its operands are as the kernel wants them. */
enum vka_status attention_add_slices(struct vka_plan *plan, const struct attention *a);

/* Binds keys, values and mask of a pass over some keys: only that part of them, as all might exceed
 * a binding. */

/* Whether a pass binds only the keys that it reads. It binds all where the device alone knows where
 * keys lie: in pages of a cache, and in a ragged batch. */
bool attention_binds_some_keys(const struct attention *a);

/* Binds slots 1 and 2 and, where there is a mask, `mask_slot` of a pass over these keys of a slice.
 * Sets the offsets in *p to where key 0 would lie. */
void attention_bind_keys(const struct vka_plan *plan, const struct attention *a,
                         const struct slice *s, struct key_range keys, struct pass *pass,
                         uint32_t mask_slot, struct attention_params *p);

/* The map of a mask: which tiles of attention_tile and attention_coop it hides, found by a pass
 * before theirs. */

/* Whether the pass for a slice's map fits the budget; true where there is no map. */
bool attention_map_fits(const struct vka_plan *plan, const struct attention *a,
                        const struct slice *s);

/* Adds the pass that makes the map, in scratch, and completes parameters and bindings of the passes
 * of the slice, which follow. */
enum vka_status attention_bind_map(struct vka_plan *plan, const struct attention *a,
                                   const struct slice *s, struct pass *pass,
                                   struct attention_params *p, struct vka_tensor *map);

/* Merges splits of the keys: each leaves a record of a row, its softmax state and context, in
 * scratch. */

/* Sets the tiles of the passes that begin with tile `tile`. */
void attention_set_tiles(const struct attention_parts *parts, uint32_t tile,
                         struct attention_params *p);

/* Bytes of the records of a slice's tiles; 0 where the keys are not split. */
uint64_t attention_record_bytes(const struct attention *a, const struct slice *s,
                                const struct attention_parts *parts);

/* Takes scratch for the records. */
enum vka_status attention_make_records(struct vka_plan *plan, const struct attention *a,
                                       const struct slice *s, const struct attention_parts *parts,
                                       struct vka_tensor *records);

/* Whether the merging pass fits the budget; true where the keys are not split. */
bool attention_merge_fits(const struct vka_plan *plan, const struct attention *a,
                          const struct slice *s, const struct attention_parts *parts);

/* Adds the merging pass of tiles from `tile` on; p: parameters of the passes before. */
enum vka_status attention_add_merge(struct vka_plan *plan, const struct attention *a,
                                    const struct slice *s, const struct attention_parts *parts,
                                    uint32_t tile, const struct vka_tensor *records,
                                    struct attention_params p);

/* Floats of a->state, which a key chunk leaves to the next: state of the unfinished chain, then
 * records. */
uint64_t attention_count_state(const struct attention *a, const struct slice *all);

/* Views of these two parts of a->state. */
void attention_state_parts(const struct attention *a, const struct slice *all,
                           struct vka_tensor *state, struct vka_tensor *records);

#endif
