#include "op/state/rows.h"

#include "op/cache/cache.h"
#include "op/common/check.h"

#include <stdio.h>

static enum vka_status check_lengths(struct vka_plan *plan, const char *caller,
                                     const struct vka_tensor *lengths, uint32_t n_sequence)
{
    if (!lengths)
        return VKA_OK;
    const uint32_t *all = lengths->shape.size; /* one of all sequences */
    const bool one = lengths->shape.rank == 1 && all[0] == 1;
    ENSURE(check_tensor(plan->device, caller, "lengths", lengths, CHECK_I32));
    return check_shape(plan->device, caller, "lengths", lengths, 1, one ? all : &n_sequence);
}

enum vka_status state_check_rows(struct vka_plan *plan, const char *caller,
                                 const struct vka_tensor *lengths, const struct vka_tensor *q_start,
                                 const struct cache_use *use, uint32_t batch,
                                 struct state_rows *rows)
{
    struct log *log = &plan->device->log;
    *rows = (struct state_rows){lengths, q_start, batch, use->cache, use->layer};
    ENSURE_ARG(!lengths || !q_start || use->cache, "%s: both lengths and q_start are given",
               caller);
    if (!q_start)
        return check_lengths(plan, caller, lengths, batch);
    ENSURE(check_tensor(plan->device, caller, "q_start", q_start, CHECK_I32));
    const struct shape *s = &q_start->shape;
    ENSURE_ARG(s->rank == 1 && s->size[0] >= 2 && s->stride[0] == 1,
               "%s: q_start must be contiguous, of rank 1 and a length n + 1 for n sequences",
               caller);
    ENSURE_ARG(batch == 1, "%s: the batch is %u, but with q_start it must be 1", caller, batch);
    rows->n_sequence = s->size[0] - 1;
    return check_lengths(plan, caller, lengths, rows->n_sequence);
}

const struct vka_tensor *state_cached(const struct cache_use *use)
{
    const struct cached_layer *layer = &use->cache->layers[use->layer];
    return use->held == HELD_CONV ? &layer->conv : &layer->linear;
}

enum vka_status state_check_cache(struct vka_plan *plan, const char *caller,
                                  const struct cache_use *use, uint32_t rank, const uint32_t *shape)
{
    struct log *log = &plan->device->log;
    const struct vka_cache_info *info = &use->cache->info;
    ENSURE_ARG(use->cache->device == plan->device, "%s: cache belongs to another device", caller);
    ENSURE_ARG(use->layer < info->n_layer, "%s: cache_layer is %u, but the cache has %u layers",
               caller, use->layer, info->n_layer);
    const struct vka_tensor *state = state_cached(use);
    ENSURE_ARG(state->storage, "%s: cache_layer is %u, which holds no state of this operation: %s",
               caller, use->layer, use->held == HELD_CONV ? "channels is 0" : "n_state is 0");
    char name[48];
    snprintf(name, sizeof name, "the state of cache_layer %u", use->layer);
    ENSURE(check_shape(plan->device, caller, name, state, rank, shape));
    ENSURE_ARG(use->q_start || use->n_new <= info->capacity,
               "%s: %u rows exceed the cache's capacity of %u", caller, use->n_new, info->capacity);
    return plan_check_step(plan, caller, use);
}

uint32_t state_rows_kind(const struct state_rows *rows)
{
    if (rows->cache)
        return rows->q_start ? ROWS_KEPT : ROWS_LENGTHS;
    return rows->q_start ? ROWS_RAGGED : rows->lengths ? ROWS_LENGTHS : ROWS_DENSE;
}

void state_bind_rows(const struct vka_plan *plan, struct pass *pass, uint32_t slot,
                     const struct state_rows *rows, const struct vka_tensor *other, uint32_t first,
                     uint32_t n, uint32_t *offset, uint32_t *step)
{
    if (rows->cache) {
        plan_bind(plan, pass, slot, &rows->cache->state, true, offset);
        *offset += (uint32_t)cache_kept(rows->cache).shape.offset + first;
        *step = 1;
        return;
    }
    const struct vka_tensor *starts = rows->q_start ? rows->q_start : rows->lengths;
    const bool one = starts && starts->shape.size[0] == 1; /* length of all sequences */
    const struct vka_tensor t =
        !starts ? *other
        : one   ? *starts
                : tensor_slice_along(starts, 0, first, rows->q_start ? n + 1 : n);
    *step = one ? 0 : (uint32_t)t.shape.stride[0];
    plan_bind(plan, pass, slot, &t, false, offset);
}
