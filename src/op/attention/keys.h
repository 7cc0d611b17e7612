/* Keys, values and the mask of a pass that sees some keys only: bound in part, where all of them
 * would pass a binding. */
#ifndef VKA_OP_ATTENTION_KEYS_H
#define VKA_OP_ATTENTION_KEYS_H

#include "op/attention/budget.h"

/* Whether a pass binds the keys that it reads alone. Pages of a cache lie anywhere, and the device
 * alone knows where the keys of a sequence do. */
bool attention_binds_some_keys(const struct attention *a);

/* Binds slots 1, 2 and, where there is a mask, `mask_slot` of a pass over these keys of a slice; *p
 * says where all keys would lie. */
void attention_bind_keys(const struct vka_plan *plan, const struct attention *a,
                         const struct slice *s, struct key_range keys, struct pass *pass,
                         uint32_t mask_slot, struct attention_params *p);

/* Whether keys and values, and the mask, of a pass over these keys fit a binding. */
bool attention_keys_fit(const struct vka_plan *plan, const struct attention *a,
                        const struct slice *s, struct key_range keys, bool with_mask);

#endif
