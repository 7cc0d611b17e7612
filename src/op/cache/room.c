/* Reports runs that found no room in a cache. The device stores the ticket of the first one for
 * each sequence. Lengths only grow until the host changes one, so that all later runs found no room
 * either, and nothing is stored per run. */
#include "op/cache/cache.h"

#include <stdlib.h>
#include <string.h>

/* A cache to which operations of a plan append. */
struct kept_cache {
    struct attached attached;
    struct vka_cache *cache; /* referenced */
    struct storage *full;    /* see plan_keep_cache */
    uint64_t n_change;       /* cache->n_change when the plan was last submitted */
};

static uint32_t *words_of(const struct kept_cache *kept, uint32_t sequence)
{
    return (uint32_t *)memory_mapped(&kept->full->range) + 2 * (size_t)sequence;
}

void cache_change(struct vka_cache *cache, uint32_t sequence)
{
    cache->changed[sequence] = ++cache->n_change;
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

/* INVALID if a sequence had no room in the run of the ticket. */
static enum vka_status check_room(struct attached *self, uint64_t ticket, bool last)
{
    const struct kept_cache *kept = (const struct kept_cache *)self;
    const struct vka_cache *cache = kept->cache;
    (void)last;
    for (uint32_t b = 0; b < cache->info.batch; b++) {
        uint64_t first = ticket_of_words(words_of(kept, b));
        if (first && first <= ticket && cache->changed[b] <= kept->n_change)
            return log_error(
                &cache->device->log, VKA_INVALID,
                "the cache is full: sequence %u holds %u of %u positions and has no room", b,
                cache_length_words(cache)[b], cache->info.capacity);
    }
    return VKA_OK;
}

static void release(struct attached *self)
{
    cache_unref(((struct kept_cache *)self)->cache);
    free(self); /* the first member of a struct kept_cache */
}

enum vka_status plan_keep_cache(struct vka_plan *plan, struct vka_cache *cache,
                                struct storage **full)
{
    enum vka_status status = VKA_OK;
    struct log *log = &plan->device->log;
    struct kept_cache *kept;
    uint64_t bytes = 8 * (uint64_t)cache->info.batch;
    for (size_t i = 0; i < plan->n_attached; i++) {
        kept = (struct kept_cache *)plan->attached[i];
        *full = kept->attached.release == release && kept->cache == cache ? kept->full : NULL;
        if (*full)
            return VKA_OK;
    }
    TRY(plan_host_words(plan, bytes, full));
    memset(memory_mapped(&(*full)->range), 0, bytes);
    TRY(storage_keep(*full, memory_mapped(&(*full)->range)));
    kept = calloc(1, sizeof *kept);
    CHECK_ALLOC(kept);
    *kept =
        (struct kept_cache){{begin_run, check_room, release, true}, cache, *full, cache->n_change};
    cache->references++;
    TRY(plan_attach(plan, &kept->attached));
fail:
    return status;
}
