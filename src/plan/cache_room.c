/* Which runs of a plan found no room in a cache. The device notes the first for each sequence; as
 * lengths only grow until the host changes one, those that follow found none either. So nothing is
 * kept for a run, however many are in flight. */
#include "plan/cache.h"

static uint32_t *words_of(const struct kept_cache *kept, uint32_t sequence)
{
    return (uint32_t *)memory_mapped(&kept->full->range) + 2 * (size_t)sequence;
}

void cache_change(struct vka_cache *cache, uint32_t sequence)
{
    cache->changed[sequence] = ++cache->n_change;
}

void cache_begin_run(struct kept_cache *kept)
{
    const struct vka_cache *cache = kept->cache;
    if (kept->n_change == cache->n_change)
        return;
    for (uint32_t b = 0; b < cache->info.batch; b++)
        if (cache->changed[b] > kept->n_change)
            words_of(kept, b)[0] = words_of(kept, b)[1] = 0;
    kept->n_change = cache->n_change;
}

enum vka_status cache_check_room(const struct kept_cache *kept, uint64_t ticket)
{
    const struct vka_cache *cache = kept->cache;
    for (uint32_t b = 0; b < cache->info.batch; b++) {
        uint64_t first = ticket_of_words(words_of(kept, b));
        if (first && first <= ticket && cache->changed[b] <= kept->n_change)
            return log_error(&cache->device->log, VKA_INVALID,
                             "the cache is full: sequence %u holds %u of %u positions and took no "
                             "more",
                             b, cache_length_words(cache)[b], cache->info.capacity);
    }
    return VKA_OK;
}
