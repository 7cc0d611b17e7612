/* Cuts a slice of fused attention into passes that fit the device and the budget of a submit, along
 * its keys and, in a ragged batch, its tiles; binds their keys. */
#ifndef VKA_OP_ATTENTION_CUTS_H
#define VKA_OP_ATTENTION_CUTS_H

#include "op/attention/budget.h"

/* A span's keys are a multiple of this. */
uint32_t attention_span_multiple(const struct attention_choice *c);

/* The keys of a chain of sums: of a split, or all keys that some query of the slice may see. */
struct key_range attention_chain_keys(const struct attention *a, const struct attention_cuts *cuts,
                                      uint32_t split);

/* The keys of the pass for splits from `split` on and a span; {0, 0} where it has nothing to do. */
struct key_range attention_pass_keys(const struct attention *a, const struct attention_cuts *cuts,
                                     uint32_t split, uint32_t span);

/* Cuts a slice into passes. Returns false where some pass exceeds the device or the budget and a
 * smaller slice might fit. last: there is no smaller slice. */
bool attention_cut(const struct vka_plan *plan, const struct attention *a,
                   const struct head_slice *s, bool last, struct attention_cuts *cuts);

/* Whether what grows with the queries of a slice that has no smaller one of whole tiles (queries,
 * output, log-sum-exp, records, mask) fits a binding. */
bool attention_rows_fit(const struct vka_plan *plan, const struct attention *a,
                        const struct head_slice *s);

/* Binds keys, values and mask of a pass over some keys: only those, as all might exceed
 * a binding. To slots 1 and 2 and, where there is a mask, to `mask_slot`. Sets the offsets in *p to
 * where key 0 would lie. */
void attention_bind_keys(const struct vka_plan *plan, const struct attention *a,
                         const struct head_slice *s, struct key_range keys, struct pass *pass,
                         uint32_t mask_slot, struct attention_params *p);

#endif
