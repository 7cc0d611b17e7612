#include "plan/cache.h"
#include "core/dtype.h"

#include <stdlib.h>
#include <string.h>

static enum vka_status check_info(struct log *log, const char *caller,
                                  const struct vka_cache_info *info)
{
    enum vka_status status = VKA_OK;
    CHECK_ARG(info->batch >= 1 && info->n_kv_head >= 1 && info->head_dim >= 1 &&
                  info->capacity >= 1,
              "%s: batch, n_kv_head, head_dim or capacity is 0", caller);
    CHECK_ARG(info->capacity <= 1u << 30 && info->batch <= 1u << 24,
              "%s: capacity passes 2^30 or batch 2^24", caller);
    CHECK_ARG(dtype_is_float(info->dtype), "%s: dtype is %s, not f32, f16 or bf16", caller,
              vka_dtype_name(info->dtype));
    uint32_t block = info->block_size;
    CHECK_ARG(block == 0 || (block % 16 == 0 && block >= 16 && block <= 256),
              "%s: block_size is %u, not 0 or a multiple of 16 from 16 to 256", caller, block);
    CHECK_ARG(block != 0 || info->n_block == 0, "%s: n_block is given, but block_size is 0",
              caller);
    CHECK_ARG(info->n_block <= 1u << 30, "%s: n_block passes 2^30", caller);
fail:
    return status;
}

static enum vka_status create_tensor(struct vka_cache *cache, enum memory_kind kind,
                                     enum vka_dtype dtype, const uint32_t size[4],
                                     struct vka_tensor *tensor)
{
    struct log *log = &cache->device->log;
    enum vka_status status = VKA_OK;
    tensor->dtype = dtype;
    if (!shape_dense(4, size, &tensor->shape))
        return log_error(log, VKA_UNSUPPORTED, "vka_cache_create: more than 2^48 elements");
    TRY(storage_create(cache->device, kind, vka_tensor_size(tensor), &tensor->storage));
fail:
    return status;
}

static uint32_t *host_words(const struct vka_tensor *tensor)
{
    return memory_mapped(&tensor->storage->range);
}

static enum vka_status create_tensors(struct vka_cache *cache)
{
    enum vka_status status = VKA_OK;
    const struct vka_cache_info *i = &cache->info;
    bool paged = i->block_size != 0;
    uint32_t outer = paged ? i->n_block : i->batch;
    /* Rows in fours, so that a sequence's bytes are whole words whatever the type. */
    uint32_t rows = paged ? i->block_size : (i->capacity + 3) / 4 * 4;
    TRY(create_tensor(cache, MEMORY_DEVICE, i->dtype,
                      (const uint32_t[]){outer, i->n_kv_head, rows, i->head_dim}, &cache->k));
    TRY(create_tensor(cache, MEMORY_DEVICE, i->dtype,
                      (const uint32_t[]){outer, i->n_kv_head, rows, i->value_dim}, &cache->v));
    TRY(create_tensor(cache, MEMORY_STAGING, VKA_I32, (const uint32_t[]){1, 1, 2, i->batch},
                      &cache->state));
    memset(host_words(&cache->state), 0, 8 * (size_t)i->batch);
    TRY(storage_keep(cache->state.storage, host_words(&cache->state)));
    if (!paged) {
        cache->k.shape.size[2] = cache->v.shape.size[2] = i->capacity;
        return VKA_OK;
    }
    TRY(create_tensor(cache, MEMORY_STAGING, VKA_I32,
                      (const uint32_t[]){1, 1, i->batch, cache->n_page}, &cache->table));
    for (uint64_t b = 0; b < (uint64_t)i->batch * cache->n_page; b++)
        host_words(&cache->table)[b] = b < i->n_block ? (uint32_t)b : UINT32_MAX;
    TRY(storage_keep(cache->table.storage, host_words(&cache->table)));
    cache_count_uses(cache);
fail:
    return status;
}

static void release_nothing(struct recorded *self)
{
    (void)self;
}

/* After a loss the table is what it was at first. */
static enum vka_status restore_uses(struct recorded *self)
{
    struct vka_cache *cache =
        (struct vka_cache *)((char *)self - offsetof(struct vka_cache, recorded));
    if (cache->n_page)
        cache_count_uses(cache);
    return VKA_OK;
}

enum vka_status vka_cache_create(struct vka_device *device, const struct vka_cache_info *info,
                                 struct vka_cache **out)
{
    if (out)
        *out = NULL;
    if (!device)
        return VKA_INVALID;
    struct log *log = &device->log;
    enum vka_status status = VKA_OK;
    struct vka_cache *cache = NULL;
    CHECK_ARG(out, "%s: cache is NULL", __func__);
    CHECK_ARG(info, "%s: info is NULL", __func__);
    CHECK_ARG(info->struct_size == sizeof *info, "%s: struct_size is %zu, not %zu", __func__,
              info->struct_size, sizeof *info);
    TRY(check_info(log, __func__, info));
    cache = calloc(1, sizeof *cache);
    CHECK_ALLOC(cache);
    cache->device = device;
    cache->recorded = (struct recorded){device->recorded, release_nothing, restore_uses};
    device->recorded = &cache->recorded;
    cache->references = 1;
    cache->info = *info;
    if (!cache->info.value_dim)
        cache->info.value_dim = info->head_dim;
    if (info->block_size) {
        cache->n_page = (info->capacity + info->block_size - 1) / info->block_size;
        uint64_t all = (uint64_t)cache->n_page * info->batch;
        CHECK_ARG(info->n_block || all <= 1u << 30, "%s: the blocks of all sequences pass 2^30",
                  __func__);
        if (!info->n_block)
            cache->info.n_block = (uint32_t)all;
    }
    cache->changed = calloc(info->batch, sizeof *cache->changed);
    CHECK_ALLOC(cache->changed);
    cache->uses = calloc(cache->n_page ? cache->info.n_block : 1, sizeof *cache->uses);
    CHECK_ALLOC(cache->uses);
    TRY(create_tensors(cache));
    *out = cache;
    return VKA_OK;

fail:
    vka_cache_destroy(&cache);
    return status;
}

void cache_unref(struct vka_cache *cache)
{
    if (!cache || --cache->references > 0)
        return;
    struct recorded **link = &cache->device->recorded;
    while (*link != &cache->recorded)
        link = &(*link)->next;
    *link = cache->recorded.next;
    storage_unref(&cache->k.storage);
    storage_unref(&cache->v.storage);
    storage_unref(&cache->state.storage);
    storage_unref(&cache->table.storage);
    free(cache->changed);
    free(cache->uses);
    free(cache);
}

void vka_cache_destroy(struct vka_cache **cache)
{
    if (!cache)
        return;
    cache_unref(*cache);
    *cache = NULL;
}

static struct vka_tensor state_row(const struct vka_cache *cache, uint32_t row)
{
    struct vka_tensor t = cache->state;
    t.shape = (struct shape){.rank = 1,
                             .size = {cache->info.batch},
                             .stride = {1},
                             .offset = (uint64_t)row * cache->info.batch};
    return t;
}

struct vka_tensor cache_lengths(const struct vka_cache *cache)
{
    return state_row(cache, 0);
}

struct vka_tensor cache_positions(const struct vka_cache *cache)
{
    return state_row(cache, 1);
}

uint32_t *cache_length_words(const struct vka_cache *cache)
{
    return host_words(&cache->state);
}

/* Opens a host operation: arguments checked, nothing in flight. */
static enum vka_status begin_host(struct vka_cache *cache, const char *caller, uint32_t sequence)
{
    if (!cache)
        return VKA_INVALID;
    struct vka_device *device = cache->device;
    struct log *log = &device->log;
    enum vka_status status = VKA_OK;
    CHECK_ARG(sequence < cache->info.batch, "%s: sequence %u is past the last of %u", caller,
              sequence, cache->info.batch);
    TRY(queue_wait(device, device->queue.submitted, VKA_TIMEOUT_DEFAULT));
fail:
    return status;
}

enum vka_status vka_cache_length(struct vka_cache *cache, uint32_t sequence, uint32_t *length)
{
    enum vka_status status = VKA_OK;
    TRY(begin_host(cache, __func__, sequence));
    struct log *log = &cache->device->log;
    CHECK_ARG(length, "%s: length is NULL", __func__);
    *length = host_words(&cache->state)[sequence];
fail:
    return status;
}

enum vka_status vka_cache_truncate(struct vka_cache *cache, uint32_t sequence, uint32_t length)
{
    enum vka_status status = VKA_OK;
    TRY(begin_host(cache, __func__, sequence));
    struct log *log = &cache->device->log;
    uint32_t *words = host_words(&cache->state);
    CHECK_ARG(length <= words[sequence], "%s: length is %u, sequence %u holds %u", __func__, length,
              sequence, words[sequence]);
    if (cache->n_page)
        TRY(cache_own_pages(cache, sequence, length));
    words[sequence] = length;
    cache_change(cache, sequence);
fail:
    return status;
}

enum vka_status cache_copy_outer(struct vka_cache *cache, const struct vka_tensor *t, uint32_t from,
                                 uint32_t to)
{
    uint64_t bytes = t->shape.stride[0] * vka_dtype_size(t->dtype);
    const struct memory_range *range = &t->storage->range;
    return queue_copy(cache->device, range, from * bytes, range, to * bytes, bytes);
}

/* Takes over all blocks that hold something; the last, where partial, is then made to's own. Where
 * the copy fails midway, it may have been into a block that was to's, which is empty then. */
static enum vka_status fork_blocks(struct vka_cache *cache, uint32_t from, uint32_t to,
                                   uint32_t length)
{
    enum vka_status status = VKA_OK;
    struct log *log = &cache->device->log;
    uint32_t *table = host_words(&cache->table), block = cache->info.block_size;
    size_t n = cache->n_page;
    uint32_t used = (length + block - 1) / block;
    uint32_t *before = malloc(n * sizeof *before);
    CHECK_ALLOC(before);
    memcpy(before, table + to * n, n * sizeof *before);
    cache_set_pages(cache, to, 0, used, table + from * n);
    status = cache_own_pages(cache, to, length);
    if (status != VKA_OK)
        cache_set_pages(cache, to, 0, used, before);
    if (status != VKA_OK && status != VKA_INVALID) {
        host_words(&cache->state)[to] = 0;
        cache_change(cache, to);
    }
    free(before);
fail:
    return status;
}

/* Copies all of a stretch; `to` is empty until both parts are there. */
static enum vka_status fork_stretch(struct vka_cache *cache, uint32_t from, uint32_t to)
{
    enum vka_status status = VKA_OK;
    host_words(&cache->state)[to] = 0;
    cache_change(cache, to);
    TRY(cache_copy_outer(cache, &cache->k, from, to));
    TRY(cache_copy_outer(cache, &cache->v, from, to));
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
    uint32_t *words = host_words(&cache->state);
    if (cache->n_page)
        TRY(fork_blocks(cache, from, to, words[from]));
    else if (words[from] > 0)
        TRY(fork_stretch(cache, from, to));
    words[to] = words[from];
    cache_change(cache, to);
fail:
    return status;
}

enum vka_status vka_cache_set_blocks(struct vka_cache *cache, uint32_t sequence, uint32_t first,
                                     uint32_t count, const uint32_t *blocks)
{
    enum vka_status status = VKA_OK;
    TRY(begin_host(cache, __func__, sequence));
    struct log *log = &cache->device->log;
    CHECK_ARG(cache->n_page, "%s: the cache is not paged: block_size is 0", __func__);
    CHECK_ARG(first <= cache->n_page && count <= cache->n_page - first,
              "%s: first %u and count %u do not fit %u blocks a sequence", __func__, first, count,
              cache->n_page);
    CHECK_ARG(blocks || !count, "%s: blocks is NULL", __func__);
    for (uint32_t i = 0; i < count; i++)
        CHECK_ARG(blocks[i] < cache->info.n_block, "%s: blocks[%u] is %u, the pool has %u",
                  __func__, i, blocks[i], cache->info.n_block);
    cache_set_pages(cache, sequence, first, count, blocks);
    if (count)
        cache_change(cache, sequence);
fail:
    return status;
}
