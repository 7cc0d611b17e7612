#include "op/cache/cache.h"
#include "op/cache/pages.h"
#include "op/cache/layers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All layers, where the info lists none. */
static struct vka_cache_layer_info common_layer(const struct vka_cache_info *info)
{
    return (struct vka_cache_layer_info){
        .struct_size = sizeof(struct vka_cache_layer_info),
        .n_kv_head = info->n_kv_head,
        .head_dim = info->head_dim,
        .value_dim = info->value_dim,
        .key_dtype = info->key_dtype,
        .value_dtype = info->value_dtype,
        .key_scales = info->key_scales,
        .value_scales = info->value_scales,
        .no_hadamard = info->no_hadamard,
    };
}

static enum vka_status check_layers(struct log *log, const char *caller,
                                    const struct vka_cache_info *info)
{
    const struct vka_cache_layer_info common = common_layer(info);
    if (!info->layers) {
        ENSURE_ARG(info->n_kv_head && info->head_dim, "%s: n_kv_head or head_dim is 0", caller);
        return cache_check_layer(log, caller, "", &common);
    }
    ENSURE_ARG(!common.n_kv_head && !common.head_dim && !common.value_dim && !common.key_dtype &&
                   !common.value_dtype && !common.key_scales && !common.value_scales &&
                   !common.no_hadamard,
               "%s: layers is given, and a field of what all layers hold, from n_kv_head to "
               "no_hadamard, too",
               caller);
    ENSURE_ARG(info->n_layer, "%s: layers is given, but n_layer is 0", caller);
    for (uint32_t i = 0; i < info->n_layer; i++) {
        char where[32];
        snprintf(where, sizeof where, "layers[%u].", i);
        ENSURE(cache_check_layer(log, caller, where, &info->layers[i]));
    }
    return VKA_OK;
}

static enum vka_status check_info(struct log *log, const char *caller,
                                  const struct vka_cache_info *info)
{
    enum vka_status status = VKA_OK;
    CHECK_ARG(info->batch >= 1 && info->capacity >= 1, "%s: batch or capacity is 0", caller);
    CHECK_ARG(info->capacity <= 1u << 30 && info->batch <= 1u << 24,
              "%s: capacity exceeds 2^30 or batch exceeds 2^24", caller);
    CHECK_ARG(info->n_layer <= 4096, "%s: n_layer exceeds 4096", caller);
    TRY(check_layers(log, caller, info));
    uint32_t size = info->page_size;
    CHECK_ARG(size == 0 || (size % 16 == 0 && size >= 16 && size <= 256),
              "%s: page_size is %u, not 0 or a multiple of 16 from 16 to 256", caller, size);
    CHECK_ARG(size != 0 || info->n_page == 0, "%s: n_page is given, but page_size is 0", caller);
    CHECK_ARG(info->n_page <= 1u << 30, "%s: n_page exceeds 2^30", caller);
fail:
    return status;
}

static uint32_t *host_words(const struct vka_tensor *tensor)
{
    return (uint32_t *)memory_mapped(&tensor->storage->range) + tensor->shape.offset;
}

/* State and page table in one storage: kernels bind both at once. */
static enum vka_status create_words(struct vka_cache *cache)
{
    const struct vka_cache_info *i = &cache->info;
    const uint32_t n_state = 8 * i->batch + 3;
    const uint64_t n_entry = (uint64_t)i->batch * cache->table_row, all = n_state + n_entry;
    if (all > UINT32_MAX)
        return log_error(&cache->device->log, VKA_UNSUPPORTED,
                         "vka_cache_create: a page table of more than 2^32 entries");
    ENSURE(cache_create_tensor(cache, MEMORY_STAGING, VKA_I32,
                               (const uint32_t[]){1, 1, 1, (uint32_t)all}, &cache->words));
    cache->state = tensor_slice_along(&cache->words, 3, 0, n_state);
    memset(host_words(&cache->state), 0, 4 * (size_t)n_state);
    if (n_entry)
        cache->table = tensor_slice_along(&cache->words, 3, n_state, (uint32_t)n_entry);
    for (uint64_t b = 0; b < n_entry; b++)
        host_words(&cache->table)[b] = b < i->n_page ? (uint32_t)b : UINT32_MAX;
    ENSURE(storage_keep(cache->words.storage, host_words(&cache->words)));
    if (n_entry)
        cache_count_uses(cache);
    return VKA_OK;
}

/* Scales of heads, and states of zeros. */
static enum vka_status write_floats(const struct vka_cache *cache)
{
    ENSURE(cache_write_scales(cache));
    for (uint32_t b = 0; cache->has_state && b < cache->info.batch; b++) {
        ENSURE(cache_zero_states(cache, b));
        cache->unknown[b] = false;
    }
    return VKA_OK;
}

static enum vka_status create_tensors(struct vka_cache *cache)
{
    enum vka_status status = VKA_OK;
    const struct vka_cache_layer_info common = common_layer(&cache->info);
    const struct vka_cache_layer_info *layers = cache->info.layers;
    for (uint32_t l = 0; l < cache->info.n_layer; l++) {
        TRY(cache_create_layer(cache, layers ? &layers[l] : &common, &cache->layers[l]));
        cache->has_state |= cache_is_state(&cache->layers[l]);
    }
    TRY(write_floats(cache));
    TRY(create_words(cache));
fail:
    return status;
}

static void release_nothing(struct recorded *self)
{
    (void)self;
}

/* Counts uses again after a loss, which resets the table, and writes scales and states. */
static enum vka_status restore_uses(struct recorded *self)
{
    struct vka_cache *cache =
        (struct vka_cache *)((char *)self - offsetof(struct vka_cache, recorded));
    if (cache->table_row)
        cache_count_uses(cache);
    return write_floats(cache);
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
    cache->recorded = (struct recorded){device->recorded, release_nothing, restore_uses, NULL};
    device->recorded = &cache->recorded;
    cache->references = 1;
    cache->info = *info;
    if (!cache->info.n_layer)
        cache->info.n_layer = 1;
    if (info->page_size) {
        cache->table_row = (info->capacity + info->page_size - 1) / info->page_size;
        uint64_t all = (uint64_t)cache->table_row * info->batch;
        CHECK_ARG(info->n_page || all <= 1u << 30, "%s: the sequences need more than 2^30 pages",
                  __func__);
        if (!info->n_page)
            cache->info.n_page = (uint32_t)all;
    }
    cache->layers = calloc(cache->info.n_layer, sizeof *cache->layers);
    CHECK_ALLOC(cache->layers);
    cache->changed = calloc(info->batch, sizeof *cache->changed);
    CHECK_ALLOC(cache->changed);
    cache->unknown = calloc(info->batch, sizeof *cache->unknown);
    CHECK_ALLOC(cache->unknown);
    cache->uses = calloc(cache->table_row ? cache->info.n_page : 1, sizeof *cache->uses);
    CHECK_ALLOC(cache->uses);
    TRY(create_tensors(cache));
    cache->info.key_scales = cache->info.value_scales = NULL; /* the caller's, as layers are */
    cache->info.layers = NULL;
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
    for (uint32_t i = 0; cache->layers && i < cache->info.n_layer; i++)
        cache_free_layer(&cache->layers[i]);
    storage_unref(&cache->words.storage);
    free(cache->layers);
    free(cache->changed);
    free(cache->unknown);
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

struct vka_tensor cache_kept(const struct vka_cache *cache)
{
    struct vka_tensor t = state_row(cache, 4);
    t.shape.offset++;
    return t;
}

uint32_t *cache_length_words(const struct vka_cache *cache)
{
    return host_words(&cache->state);
}
