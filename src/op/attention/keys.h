/* Keys, values and the mask of a pass that sees some keys only: bound in part, where all of them
 * would pass a binding. */
#ifndef VKA_OP_ATTENTION_KEYS_H
#define VKA_OP_ATTENTION_KEYS_H

#include "op/attention/budget.h"

/* Binds slots 1, 2 and, where there is a mask, `mask_slot` of a pass for the slice to what its span
 * and its pieces from `piece` on read; *p says where all keys would lie. */
void attention_bind_keys(const struct vka_plan *plan, const struct attention *a,
                         const struct slice *s, const struct attention_parts *parts, uint32_t span,
                         uint32_t piece, struct pass *pass, uint32_t mask_slot,
                         struct attention_params *p);

/* Whether what attention_bind_keys binds fits, for each pass of the slice. */
bool attention_keys_fit(const struct vka_plan *plan, const struct attention *a,
                        const struct slice *s, const struct attention_parts *parts);

/* Cuts the parts further along the keys until that is so. Not where the slice can be halved along
 * what is too large: batch, heads, or the mask's rows, unless `last`. */
void attention_cut_for_limits(const struct vka_plan *plan, const struct attention *a,
                              const struct slice *s, bool last, struct attention_parts *parts);

#endif
