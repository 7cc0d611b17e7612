/* Binds keys, values and mask of a pass over some keys: only that part of them, as all might exceed
 * a binding. */
#ifndef VKA_OP_ATTENTION_KEYS_H
#define VKA_OP_ATTENTION_KEYS_H

#include "op/attention/budget.h"

/* Whether a pass binds only the keys that it reads. It binds all where the device alone knows where
 * keys lie: in pages of a cache, and in a ragged batch. */
bool attention_binds_some_keys(const struct attention *a);

/* Binds slots 1 and 2 and, where there is a mask, `mask_slot` of a pass over these keys of a slice.
 * Sets the offsets in *p to where key 0 would lie. */
void attention_bind_keys(const struct vka_plan *plan, const struct attention *a,
                         const struct slice *s, struct key_range keys, struct pass *pass,
                         uint32_t mask_slot, struct attention_params *p);

/* Whether keys and values, and the mask, of a pass over these keys fit a binding. */
bool attention_keys_fit(const struct vka_plan *plan, const struct attention *a,
                        const struct slice *s, struct key_range keys, bool with_mask);

#endif
