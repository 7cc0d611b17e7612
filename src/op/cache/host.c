/* Changes of a cache by the host between runs: lengths, truncation, forks, pages. */
#include "op/cache/cache.h"
#include "op/cache/layers.h"
#include "op/cache/pages.h"
#include "op/cache/room.h"

#include <stdlib.h>
#include <string.h>

/* Begins a host operation: checks arguments and waits for all runs. */
static enum vka_status begin_host(struct vka_cache *cache, const char *caller, uint32_t sequence)
{
    if (!cache)
        return VKA_INVALID;
    struct vka_device *device = cache->device;
    struct log *log = &device->log;
    enum vka_status status = VKA_OK;
    CHECK_ARG(sequence < cache->info.batch, "%s: sequence is %u, but the cache has %u", caller,
              sequence, cache->info.batch);
    TRY(queue_wait(device, device->queue.submitted, VKA_TIMEOUT_DEFAULT));
fail:
    return status;
}

/* Refuses a length that no kernel writes: a driver that is out of memory may lose commands in silence,
 * and what those bind. Truncating sets it right. */
static enum vka_status check_length(struct vka_cache *cache, const char *caller, uint32_t sequence)
{
    const uint32_t length = cache_length_words(cache)[sequence];
    if (length <= cache->info.capacity)
        return VKA_OK;
    return log_error(&cache->device->log, VKA_INTERNAL,
                     "%s: the driver left a length of %u in sequence %u, whose capacity is %u",
                     caller, length, sequence, cache->info.capacity);
}

enum vka_status vka_cache_length(struct vka_cache *cache, uint32_t sequence, uint32_t *length)
{
    enum vka_status status = VKA_OK;
    TRY(begin_host(cache, __func__, sequence));
    struct log *log = &cache->device->log;
    CHECK_ARG(length, "%s: length is NULL", __func__);
    TRY(check_length(cache, __func__, sequence));
    *length = cache_length_words(cache)[sequence];
fail:
    return status;
}

/* Makes the states of a sequence zeros. Where that fails, and until it succeeds, they are not known, and
 * runs append nothing to the sequence. */
static enum vka_status zero_states(struct vka_cache *cache, uint32_t sequence)
{
    const enum vka_status status = cache_zero_states(cache, sequence);
    cache->unknown[sequence] = status != VKA_OK;
    if (status != VKA_OK)
        cache_change(cache, sequence);
    return status;
}

/* Leaves a sequence empty after a failure. */
static void empty(struct vka_cache *cache, uint32_t sequence)
{
    cache_length_words(cache)[sequence] = 0;
    if (cache->table_row)
        (void)cache_own_pages(cache, sequence, 0); /* copies no page, and so does not fail */
    (void)zero_states(cache, sequence);
    cache_change(cache, sequence);
}

enum vka_status vka_cache_truncate(struct vka_cache *cache, uint32_t sequence, uint32_t length)
{
    enum vka_status status = VKA_OK;
    TRY(begin_host(cache, __func__, sequence));
    struct log *log = &cache->device->log;
    uint32_t *words = cache_length_words(cache);
    CHECK_ARG(length <= words[sequence] && length <= cache->info.capacity,
              "%s: length is %u, but sequence %u holds only %u", __func__, length, sequence,
              words[sequence]);
    CHECK_ARG(
        !cache->has_state || !length || length == words[sequence],
        "%s: length is %u, but sequence %u holds %u, and a layer has a state, which cannot go "
        "back: expected 0 or %u",
        __func__, length, sequence, words[sequence], words[sequence]);
    if (!length && cache->has_state)
        TRY(zero_states(cache, sequence));
    if (cache->table_row)
        TRY(cache_own_pages(cache, sequence, length));
    words[sequence] = length;
    cache_change(cache, sequence);
fail:
    return status;
}

/* Shares all pages in use with `to`, and copies the last one if it is partly filled. */
static enum vka_status fork_pages(struct vka_cache *cache, uint32_t from, uint32_t to,
                                  uint32_t length)
{
    enum vka_status status = VKA_OK;
    struct log *log = &cache->device->log;
    uint32_t *table = cache_table_words(cache), page_size = cache->info.page_size;
    size_t n = cache->table_row;
    uint32_t used = (length + page_size - 1) / page_size;
    uint32_t *before = malloc(n * sizeof *before);
    CHECK_ALLOC(before);
    memcpy(before, table + to * n, n * sizeof *before);
    cache_set_pages(cache, to, 0, used, table + from * n);
    status = cache_own_pages(cache, to, length);
    if (status != VKA_OK)
        cache_set_pages(cache, to, 0, used, before);
    free(before);
fail:
    return status;
}

enum vka_status vka_cache_fork(struct vka_cache *cache, uint32_t from, uint32_t to)
{
    enum vka_status status = VKA_OK;
    TRY(begin_host(cache, __func__, from));
    TRY(begin_host(cache, __func__, to));
    struct log *log = &cache->device->log;
    CHECK_ARG(from != to, "%s: from and to are the same sequence", __func__);
    TRY(check_length(cache, __func__, from));
    uint32_t *words = cache_length_words(cache);
    if (cache->table_row)
        status = fork_pages(cache, from, to, words[from]);
    else if (words[from] > 0)
        status = cache_copy_outer(cache, from, to);
    if (status == VKA_OK)
        status = cache_copy_states(cache, from, to);
    if (status != VKA_OK && status != VKA_INVALID) /* some of it may have been copied */
        empty(cache, to);
    TRY(status);
    words[to] = words[from];
    cache->unknown[to] = cache->unknown[from];
    cache_change(cache, to);
fail:
    return status;
}

enum vka_status vka_cache_set_pages(struct vka_cache *cache, uint32_t sequence, uint32_t first,
                                    uint32_t count, const uint32_t *pages)
{
    enum vka_status status = VKA_OK;
    TRY(begin_host(cache, __func__, sequence));
    struct log *log = &cache->device->log;
    CHECK_ARG(cache->table_row, "%s: the cache is not paged: page_size is 0", __func__);
    CHECK_ARG(first <= cache->table_row && count <= cache->table_row - first,
              "%s: first %u and count %u do not fit %u pages a sequence", __func__, first, count,
              cache->table_row);
    CHECK_ARG(pages || !count, "%s: pages is NULL", __func__);
    for (uint32_t i = 0; i < count; i++)
        CHECK_ARG(pages[i] < cache->info.n_page, "%s: pages[%u] is %u, but the pool has %u pages",
                  __func__, i, pages[i], cache->info.n_page);
    const uint32_t length = cache_length_words(cache)[sequence];
    CHECK_ARG(
        !cache->has_state || !count || first >= divide_up(length, cache->info.page_size),
        "%s: first is %u, but pages below sequence %u's length of %u stay, as a layer has a state",
        __func__, first, sequence, length);
    cache_set_pages(cache, sequence, first, count, pages);
    if (count)
        cache_change(cache, sequence);
fail:
    return status;
}
