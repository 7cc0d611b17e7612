/* Merges splits of the keys: each leaves a record of a row, its softmax state and context, in
 * scratch. A key chunk keeps them in a->state. */
#ifndef VKA_OP_ATTENTION_RECORDS_H
#define VKA_OP_ATTENTION_RECORDS_H

#include "op/attention/budget.h"

/* Bytes of the records of a slice's tiles; 0 where the keys are not split. */
uint64_t attention_record_bytes(const struct attention *a, const struct head_slice *s,
                                const struct attention_cuts *cuts);

/* Takes scratch for the records. */
enum vka_status attention_make_records(struct vka_plan *plan, const struct attention *a,
                                       const struct head_slice *s,
                                       const struct attention_cuts *cuts,
                                       struct vka_tensor *records);

/* Whether the merging pass fits the budget; true where the keys are not split. */
bool attention_merge_fits(const struct vka_plan *plan, const struct attention *a,
                          const struct head_slice *s, const struct attention_cuts *cuts);

/* Adds the merging pass of tiles from `tile` on; p: parameters of the passes before. */
enum vka_status attention_add_merge(struct vka_plan *plan, const struct attention *a,
                                    const struct head_slice *s, const struct attention_cuts *cuts,
                                    uint32_t tile, const struct vka_tensor *records,
                                    struct attention_params p);

/* Floats of a->state, which a key chunk leaves to the next: state of the unfinished chain, then
 * records. */
uint64_t attention_count_state(const struct attention *a, const struct head_slice *all);

/* Views of these two cuts of a->state. */
void attention_state_cuts(const struct attention *a, const struct head_slice *all,
                          struct vka_tensor *state, struct vka_tensor *records);

#endif
