/* Which sequences share the blocks of a paged cache, and what must be copied before one writes. */
#include "plan/cache.h"

#include <stdlib.h>
#include <string.h>

static uint32_t *table_of(const struct vka_cache *cache)
{
    return memory_mapped(&cache->table.storage->range);
}

/* Whether any other entry of the table names the block of entry `at`. */
static bool is_shared(const struct vka_cache *cache, size_t at)
{
    const uint32_t *table = table_of(cache);
    size_t n = (size_t)cache->info.batch * cache->n_page;
    for (size_t i = 0; i < n; i++)
        if (i != at && table[i] == table[at])
            return true;
    return false;
}

/* A block that no entry names; UINT32_MAX where all are taken. */
static enum vka_status find_free(const struct vka_cache *cache, uint32_t *block)
{
    struct log *log = &cache->device->log;
    enum vka_status status = VKA_OK;
    const uint32_t *table = table_of(cache);
    size_t n = (size_t)cache->info.batch * cache->n_page;
    bool *taken = calloc(cache->info.n_block, sizeof *taken);
    CHECK_ALLOC(taken);
    for (size_t i = 0; i < n; i++)
        if (table[i] < cache->info.n_block)
            taken[table[i]] = true;
    *block = 0;
    while (*block < cache->info.n_block && taken[*block])
        ++*block;
    if (*block == cache->info.n_block)
        *block = UINT32_MAX;
fail:
    free(taken);
    return status;
}

enum vka_status cache_own_block(struct vka_cache *cache, uint32_t sequence, uint32_t page,
                                bool keep_contents)
{
    struct log *log = &cache->device->log;
    enum vka_status status = VKA_OK;
    uint32_t *table = table_of(cache), block = UINT32_MAX;
    size_t at = (size_t)sequence * cache->n_page + page;
    if (table[at] >= cache->info.n_block || !is_shared(cache, at))
        return VKA_OK;
    TRY(find_free(cache, &block));
    CHECK_ARG(block != UINT32_MAX || !keep_contents,
              "the cache has no free block for sequence %u to have position %u for itself",
              sequence, page * cache->info.block_size);
    if (keep_contents) {
        TRY(cache_copy_outer(cache, &cache->k, table[at], block));
        TRY(cache_copy_outer(cache, &cache->v, table[at], block));
    }
    table[at] = block;
fail:
    return status;
}
