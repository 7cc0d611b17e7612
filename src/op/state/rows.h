/* Which rows each sequence of an operation with a state has. */
#ifndef VKA_OP_STATE_ROWS_H
#define VKA_OP_STATE_ROWS_H

#include "op/cache/cache.h"
#include "op/cache/room.h"
#include "op/common/axes.h"
#include "params/state.h"

/* lengths, q_start: of the op, of which at most one is given without a cache. */
struct state_rows {
    const struct vka_tensor *lengths, *q_start;
    uint32_t n_sequence;           /* packed ones, or the batch */
    const struct vka_cache *cache; /* has their starts and lengths; NULL: none */
    uint32_t layer;
};

/* Checks lengths I32 [batch] or [1] and q_start I32 [n + 1], with which batch is 1, and sets *rows. */
enum vka_status state_check_rows(struct vka_plan *plan, const char *caller,
                                 const struct vka_tensor *lengths, const struct vka_tensor *q_start,
                                 const struct cache_use *use, uint32_t batch,
                                 struct state_rows *rows);

/* Checks that the layer of use->cache has a state of use->held and of this shape [batch][...] for
 * operations of n rows with lengths or q_start, as use says. */
enum vka_status state_check_cache(struct vka_plan *plan, const char *caller,
                                  const struct cache_use *use, uint32_t rank,
                                  const uint32_t *shape);

/* The state that the use has. */
const struct vka_tensor *state_cached(const struct cache_use *use);

/* ROWS_DENSE, ROWS_LENGTHS, ROWS_RAGGED or ROWS_KEPT. */
uint32_t state_rows_kind(const struct state_rows *rows);

/* Binds the starts of sequences first .. first + n - 1, or `other` where there are none; of a cache its
 * state, to which operations write too. */
void state_bind_rows(const struct vka_plan *plan, struct pass *pass, uint32_t slot,
                     const struct state_rows *rows, const struct vka_tensor *other, uint32_t first,
                     uint32_t n, uint32_t *offset, uint32_t *step);

#endif
