/* Reports runs that found no room in a cache. The device stores the ticket of the first one for
 * each sequence. Later runs append nothing to it until the host changes it, so that
 * nothing is stored per run. */
#include "op/cache/room.h"
#include "op/cache/cache.h"
#include "gpu/receipt.h"
#include "op/cache/passes.h"

#include <stdlib.h>
#include <string.h>

/* A cache to which operations of a plan append. */
struct kept_cache {
    struct attached attached;
    struct vka_cache *cache; /* referenced */
    struct storage *full;    /* see plan_keep_cache */
    uint64_t n_change;       /* cache->n_change when the plan was last submitted */
    /* The last step that was added, see vkattn_cache.h. */
    uint32_t n_new;
    struct vka_tensor n_append, q_start; /* storage NULL: none */
    /* [n_layer], a bit for each enum cache_held: what of the layer the step has had. */
    uint8_t *had;
};

static uint32_t *words_of(const struct kept_cache *kept, uint32_t sequence)
{
    return (uint32_t *)memory_mapped(&kept->full->range) + 2 * (size_t)sequence;
}

/* Ticket and layer of the first run that left a state of a sequence which is not finite; 0: none. */
static uint32_t *broken_words(const struct vka_cache *cache, uint32_t sequence)
{
    return cache_length_words(cache) + 5 * (size_t)cache->info.batch + 3 + 3 * (size_t)sequence;
}

/* No run is in flight. One that the driver dropped, or that found no room, has runs append nothing until
 * here; so do states that are not known, until they are zeros. */
void cache_change(struct vka_cache *cache, uint32_t sequence)
{
    cache->changed[sequence] = ++cache->n_change;
    cache_length_words(cache)[2 * cache->info.batch + sequence] = cache->unknown[sequence];
    memset(broken_words(cache, sequence), 0, 3 * sizeof(uint32_t));
}

static void begin_run(struct attached *self)
{
    struct kept_cache *kept = (struct kept_cache *)self;
    const struct vka_cache *cache = kept->cache;
    if (kept->n_change == cache->n_change)
        return;
    for (uint32_t b = 0; b < cache->info.batch; b++)
        if (cache->changed[b] > kept->n_change)
            words_of(kept, b)[0] = words_of(kept, b)[1] = 0;
    kept->n_change = cache->n_change;
}

/* INVALID if a sequence had no room in the run of the ticket, or a state that is not finite. */
static enum vka_status check_room(struct attached *self, uint64_t ticket, bool last)
{
    const struct kept_cache *kept = (const struct kept_cache *)self;
    const struct vka_cache *cache = kept->cache;
    (void)last;
    for (uint32_t b = 0; b < cache->info.batch; b++) {
        uint64_t first = ticket_of_words(words_of(kept, b));
        if (first && first <= ticket && cache->unknown[b])
            return log_error(&cache->device->log, VKA_INVALID,
                             "sequence %u: its states are not known, as making them zeros failed: "
                             "truncate the sequence to 0",
                             b);
        if (first && first <= ticket && cache->changed[b] <= kept->n_change)
            return log_error(
                &cache->device->log, VKA_INVALID,
                "the cache is full: sequence %u holds %u of %u positions and has no room", b,
                cache_length_words(cache)[b], cache->info.capacity);
        const uint32_t *broken = broken_words(cache, b);
        first = ticket_of_words(broken);
        if (first && first <= ticket)
            return log_error(&cache->device->log, VKA_INVALID,
                             "sequence %u: the state of layer %u of the cache is no longer finite: "
                             "truncate the sequence to 0",
                             b, broken[2]);
    }
    return VKA_OK;
}

static void release(struct attached *self)
{
    struct kept_cache *kept = (struct kept_cache *)self;
    cache_unref(kept->cache);
    free(kept->had);
    free(kept);
}

/* NULL: no operation of the plan has used the cache. */
static struct kept_cache *find(const struct vka_plan *plan, const struct vka_cache *cache)
{
    for (size_t i = 0; i < plan->n_attached; i++) {
        struct kept_cache *kept = (struct kept_cache *)plan->attached[i];
        if (kept->attached.release == release && kept->cache == cache)
            return kept;
    }
    return NULL;
}

static enum vka_status keep(struct vka_plan *plan, struct vka_cache *cache, struct kept_cache **out)
{
    struct log *log = &plan->device->log;
    struct storage *full;
    uint64_t bytes = 8 * (uint64_t)cache->info.batch;
    ENSURE(plan_host_words(plan, bytes, &full));
    memset(memory_mapped(&full->range), 0, bytes);
    ENSURE(storage_keep(full, memory_mapped(&full->range)));
    struct kept_cache *kept = calloc(1, sizeof *kept);
    ENSURE_ALLOC(kept);
    *kept = (struct kept_cache){{begin_run, check_room, release, true},
                                cache,
                                full,
                                cache->n_change,
                                .had = calloc(cache->info.n_layer, 1)};
    cache->references++;
    if (!kept->had) {
        release(&kept->attached);
        return log_error(log, VKA_OUT_OF_HOST_MEMORY, "out of host memory");
    }
    *out = kept;
    return plan_attach(plan, &kept->attached);
}

/* Whether the use belongs to the step that has begun. */
static bool continues(const struct kept_cache *kept, const struct cache_use *use)
{
    uint32_t had = 0;
    for (uint32_t i = 0; kept && i < kept->cache->info.n_layer; i++)
        had |= kept->had[i];
    return had && !(kept->had[use->layer] & 1u << use->held);
}

/* Whether two I32 tensors are one, or both are absent. */
static bool same(const struct vka_tensor *given, const struct vka_tensor *kept)
{
    if (!given)
        return !kept->storage;
    return given->storage == kept->storage && given->shape.offset == kept->shape.offset &&
           given->shape.size[0] == kept->shape.size[0] &&
           given->shape.stride[0] == kept->shape.stride[0];
}

enum vka_status plan_check_step(struct vka_plan *plan, const char *caller,
                                const struct cache_use *use)
{
    struct log *log = &plan->device->log;
    const struct kept_cache *kept = find(plan, use->cache);
    if (!continues(kept, use))
        return VKA_OK;
    ENSURE_ARG(use->n_new == kept->n_new,
               "%s: %u new keys, but the operation that began the step of the cache has %u", caller,
               use->n_new, kept->n_new);
    ENSURE_ARG(same(use->n_append, &kept->n_append),
               "%s: n_append is not that of the operation that began the step of the cache",
               caller);
    ENSURE_ARG(same(use->q_start, &kept->q_start),
               "%s: q_start is not that of the operation that began the step of the cache", caller);
    return VKA_OK;
}

enum vka_status plan_begin_step(struct vka_plan *plan, const struct cache_use *use)
{
    struct kept_cache *kept = find(plan, use->cache);
    if (continues(kept, use))
        return VKA_OK;
    if (!kept)
        ENSURE(keep(plan, use->cache, &kept));
    return plan_cache_advance(plan, use, kept->full);
}

void plan_end_step(struct vka_plan *plan, const struct cache_use *use)
{
    struct kept_cache *kept = find(plan, use->cache);
    if (!continues(kept, use)) {
        memset(kept->had, 0, use->cache->info.n_layer * sizeof *kept->had);
        kept->n_new = use->n_new;
        kept->n_append = use->n_append ? *use->n_append : (struct vka_tensor){0};
        kept->q_start = use->q_start ? *use->q_start : (struct vka_tensor){0};
    }
    kept->had[use->layer] |= (uint8_t)(1u << use->held);
}
