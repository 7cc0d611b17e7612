/* Keys in pieces: the records that the passes of a slice leave, and their merging. */
#ifndef VKA_OP_ATTENTION_PIECES_H
#define VKA_OP_ATTENTION_PIECES_H

#include "op/attention/budget.h"

/* The tiles of the pass, or the passes for pieces and spans, that begins with tile `tile`. */
void attention_set_tiles(const struct attention_parts *parts, uint32_t tile,
                         struct attention_params *p);

/* Bytes of the records of a pass of a slice; 0 where the keys are in no pieces. */
uint64_t attention_record_bytes(const struct attention *a, const struct slice *s,
                                const struct attention_parts *parts);

/* Scratch for them. */
enum vka_status attention_make_records(struct vka_plan *plan, const struct attention *a,
                                       const struct slice *s, const struct attention_parts *parts,
                                       struct vka_tensor *records);

/* Whether their merging fits the budget. */
bool attention_merge_fits(const struct vka_plan *plan, const struct attention *a,
                          const struct slice *s, const struct attention_parts *parts);

/* Adds the merging of tiles from `tile` on; p is what their passes had. */
enum vka_status attention_add_merge(struct vka_plan *plan, const struct attention *a,
                                    const struct slice *s, const struct attention_parts *parts,
                                    uint32_t tile, const struct vka_tensor *records,
                                    struct attention_params p);

/* Floats of the state between blocks of keys: of the chain that a block ends in, then records. */
uint64_t attention_count_state(const struct attention *a, const struct slice *all);

/* Those two parts of a->state. */
void attention_split_state(const struct attention *a, const struct slice *all,
                           struct vka_tensor *state, struct vka_tensor *records);

#endif
