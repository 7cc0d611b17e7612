/* Appends new rows to a cache. */
#ifndef VKA_OP_CACHE_APPEND_H
#define VKA_OP_CACHE_APPEND_H

#include "op/cache/state.h"

/* New keys and values [batch][n_kv_head][n_new][dim], or packed ones [1][n_kv_head][n_new][dim]. */
struct new_rows {
    struct vka_tensor k, v;
    /* Rotated by `rope` beside the keys, [batch][n_head][n_new][head_dim]; storage NULL: the keys are
     * appended as they are, and rope is not read. */
    struct vka_tensor q;
    enum vka_dtype q_type; /* in which rotated queries are written */
    const struct vka_rope *rope;
};

/* Whether plan_cache_append can rotate on the way: quantised rows, rows too far apart for a binding
 * and on CPU drivers many rows take passes of their own. */
bool cache_append_rotates(const struct vka_plan *plan, const struct cache_use *use,
                          const struct new_rows *rows);

/* Writes rows at the old lengths, rounded to the types of the cache, and replaces rows->q by
 * scratch of q_type. One pass, unless the budget or quantised rows ask for more. */
enum vka_status plan_cache_append(struct vka_plan *plan, const struct cache_use *use,
                                  struct new_rows *rows);

#endif
