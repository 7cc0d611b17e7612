/* Which entries of a paged cache's table share blocks, and what must be copied before a sequence
 * writes. The uses of each block are counted as the table changes, so that nothing looks for
 * them. */
#include "plan/cache.h"

#include <string.h>

static uint32_t *table_of(const struct vka_cache *cache)
{
    return memory_mapped(&cache->table.storage->range);
}

void cache_count_uses(struct vka_cache *cache)
{
    const uint32_t *table = table_of(cache);
    size_t n = (size_t)cache->info.batch * cache->n_page;
    memset(cache->uses, 0, cache->info.n_block * sizeof *cache->uses);
    cache->n_free = cache->info.n_block;
    cache->first_free = 0;
    for (size_t i = 0; i < n; i++)
        if (table[i] < cache->info.n_block && cache->uses[table[i]]++ == 0)
            cache->n_free--;
}

/* block UINT32_MAX: none. */
static void set_entry(struct vka_cache *cache, size_t at, uint32_t block)
{
    const uint32_t before = table_of(cache)[at], n_block = cache->info.n_block;
    if (block < n_block && cache->uses[block]++ == 0)
        cache->n_free--;
    if (before < n_block && --cache->uses[before] == 0) {
        cache->n_free++;
        if (before < cache->first_free)
            cache->first_free = before;
    }
    table_of(cache)[at] = block;
}

void cache_set_pages(struct vka_cache *cache, uint32_t sequence, uint32_t first, uint32_t count,
                     const uint32_t *blocks)
{
    size_t at = (size_t)sequence * cache->n_page + first;
    for (uint32_t i = 0; i < count; i++)
        set_entry(cache, at + i, blocks[i]);
}

static bool is_shared(const struct vka_cache *cache, size_t at)
{
    const uint32_t block = table_of(cache)[at];
    return block < cache->info.n_block && cache->uses[block] > 1;
}

/* The first block without uses; UINT32_MAX where all have some. */
static uint32_t find_free(struct vka_cache *cache)
{
    if (cache->n_free == 0)
        return UINT32_MAX;
    while (cache->uses[cache->first_free] > 0)
        cache->first_free++;
    return cache->first_free;
}

enum vka_status cache_own_pages(struct vka_cache *cache, uint32_t sequence, uint32_t length)
{
    struct log *log = &cache->device->log;
    enum vka_status status = VKA_OK;
    const uint32_t page = length / cache->info.block_size;
    const size_t first = (size_t)sequence * cache->n_page, end = first + cache->n_page;
    size_t at = first + page;
    if (length % cache->info.block_size != 0) {
        if (is_shared(cache, at)) {
            const uint32_t from = table_of(cache)[at], to = find_free(cache);
            CHECK_ARG(to != UINT32_MAX,
                      "the cache has no free block for sequence %u to have position %u for itself",
                      sequence, page * cache->info.block_size);
            TRY(cache_copy_outer(cache, &cache->k, from, to));
            TRY(cache_copy_outer(cache, &cache->v, from, to));
            set_entry(cache, at, to);
        }
        at++;
    }
    for (; at < end; at++)
        if (is_shared(cache, at))
            set_entry(cache, at, find_free(cache));
fail:
    return status;
}
