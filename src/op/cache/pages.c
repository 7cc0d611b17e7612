/* Pages that several sequences of a paged cache share, and copies before a sequence writes. The
 * uses of each page are counted as the table changes, so that nothing searches for them. */
#include "core/dtype.h"
#include "params/params.h"
#include "op/cache/pages.h"

#include <string.h>

uint32_t *cache_table_words(const struct vka_cache *cache)
{
    const struct vka_tensor *table = &cache->table;
    return (uint32_t *)memory_mapped(&table->storage->range) + table->shape.offset;
}

static enum vka_status copy_outer(struct vka_cache *cache, const struct cached_rows *cached,
                                  uint32_t from, uint32_t to)
{
    const struct vka_tensor *t = &cached->rows;
    uint64_t bytes = t->shape.stride[0] * vka_dtype_size(t->dtype);
    const struct memory_range *range = &t->storage->range;
    ENSURE(queue_copy(cache->device, range, from * bytes, range, to * bytes, bytes));
    if (!cached->scales || dtype_is_head_scaled(cached->dtype)) /* whose scales are the heads' */
        return VKA_OK;
    uint64_t scales = bytes * cached->byte_values / CACHE_BLOCK * 2;
    return queue_copy(cache->device, range, 2 * cached->scales + from * scales, range,
                      2 * cached->scales + to * scales, scales);
}

enum vka_status cache_copy_outer(struct vka_cache *cache, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < cache->info.n_layer; i++) {
        if (cache_is_state(&cache->layers[i]))
            continue;
        ENSURE(copy_outer(cache, &cache->layers[i].k, from, to));
        ENSURE(copy_outer(cache, &cache->layers[i].v, from, to));
    }
    return VKA_OK;
}

void cache_count_uses(struct vka_cache *cache)
{
    const uint32_t *table = cache_table_words(cache);
    size_t n = (size_t)cache->info.batch * cache->table_row;
    memset(cache->uses, 0, cache->info.n_page * sizeof *cache->uses);
    cache->n_free = cache->info.n_page;
    cache->first_free = 0;
    for (size_t i = 0; i < n; i++)
        if (table[i] < cache->info.n_page && cache->uses[table[i]]++ == 0)
            cache->n_free--;
}

/* Sets an entry of the table; page UINT32_MAX: none. */
static void set_entry(struct vka_cache *cache, size_t at, uint32_t page)
{
    const uint32_t before = cache_table_words(cache)[at], n_page = cache->info.n_page;
    if (page < n_page && cache->uses[page]++ == 0)
        cache->n_free--;
    if (before < n_page && --cache->uses[before] == 0) {
        cache->n_free++;
        if (before < cache->first_free)
            cache->first_free = before;
    }
    cache_table_words(cache)[at] = page;
}

void cache_set_pages(struct vka_cache *cache, uint32_t sequence, uint32_t first, uint32_t count,
                     const uint32_t *pages)
{
    size_t at = (size_t)sequence * cache->table_row + first;
    for (uint32_t i = 0; i < count; i++)
        set_entry(cache, at + i, pages[i]);
}

static bool is_shared(const struct vka_cache *cache, size_t at)
{
    const uint32_t page = cache_table_words(cache)[at];
    return page < cache->info.n_page && cache->uses[page] > 1;
}

/* The first free page; UINT32_MAX: none. */
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
    const uint32_t entry = length / cache->info.page_size;
    const size_t first = (size_t)sequence * cache->table_row, end = first + cache->table_row;
    size_t at = first + entry;
    if (length % cache->info.page_size != 0) {
        if (is_shared(cache, at)) {
            const uint32_t from = cache_table_words(cache)[at], to = find_free(cache);
            CHECK_ARG(
                to != UINT32_MAX,
                "the cache has no free page to copy the shared page of sequence %u at position %u",
                sequence, entry * cache->info.page_size);
            TRY(cache_copy_outer(cache, from, to));
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
