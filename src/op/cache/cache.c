#include "op/cache/cache.h"
#include "op/cache/pages.h"
#include "core/dtype.h"
#include "params/params.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_HADAMARD 16u /* features */

static enum vka_status check_type(struct log *log, const char *caller,
                                  const struct vka_cache_info *info, const char *name,
                                  enum vka_dtype dtype, uint32_t dim)
{
    ENSURE_ARG(dtype_word_values(dtype) != 0, "%s: %s is %s, not one of %s", caller, name,
               vka_dtype_name(dtype), dtype_cached_names());
    ENSURE_ARG(!dtype_has_hadamard(dtype) || info->no_hadamard || dim % LEAST_HADAMARD == 0,
               "%s: %s is %s, whose Hadamard matrix needs a head that is a multiple of %u, "
               "not %u; set no_hadamard to do without",
               caller, name, vka_dtype_name(dtype), LEAST_HADAMARD, dim);
    return VKA_OK;
}

/* 1 / scale is neither 0 nor subnormal. */
static enum vka_status check_scales(struct log *log, const char *caller, const char *name,
                                    enum vka_dtype dtype, const float *scales, uint32_t n_head)
{
    ENSURE_ARG(!scales || dtype_is_head_scaled(dtype),
               "%s: %s is given, but the type is %s, whose heads take no scales: leave it NULL",
               caller, name, vka_dtype_name(dtype));
    for (uint32_t h = 0; scales && h < n_head; h++)
        ENSURE_ARG(scales[h] >= 0x1p-126f && scales[h] <= 0x1p126f,
                   "%s: %s[%u] is %g, not a number from 2^-126 to 2^126", caller, name, h,
                   (double)scales[h]);
    return VKA_OK;
}

static enum vka_status check_info(struct log *log, const char *caller,
                                  const struct vka_cache_info *info)
{
    enum vka_status status = VKA_OK;
    CHECK_ARG(info->batch >= 1 && info->n_kv_head >= 1 && info->head_dim >= 1 &&
                  info->capacity >= 1,
              "%s: batch, n_kv_head, head_dim or capacity is 0", caller);
    CHECK_ARG(info->capacity <= 1u << 30 && info->batch <= 1u << 24,
              "%s: capacity exceeds 2^30 or batch exceeds 2^24", caller);
    CHECK_ARG(info->n_layer <= 4096, "%s: n_layer exceeds 4096", caller);
    TRY(check_type(log, caller, info, "key_dtype", info->key_dtype, info->head_dim));
    TRY(check_type(log, caller, info, "value_dtype", info->value_dtype,
                   info->value_dim ? info->value_dim : info->head_dim));
    TRY(check_scales(log, caller, "key_scales", info->key_dtype, info->key_scales,
                     info->n_kv_head));
    TRY(check_scales(log, caller, "value_scales", info->value_dtype, info->value_scales,
                     info->n_kv_head));
    uint32_t size = info->page_size;
    CHECK_ARG(size == 0 || (size % 16 == 0 && size >= 16 && size <= 256),
              "%s: page_size is %u, not 0 or a multiple of 16 from 16 to 256", caller, size);
    CHECK_ARG(size != 0 || info->n_page == 0, "%s: n_page is given, but page_size is 0", caller);
    CHECK_ARG(info->n_page <= 1u << 30, "%s: n_page exceeds 2^30", caller);
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
    return (uint32_t *)memory_mapped(&tensor->storage->range) + tensor->shape.offset;
}

/* Writes the scales of heads behind the rows. */
static enum vka_status write_scales(const struct vka_cache *cache, const struct cached_rows *cached,
                                    const float *scales)
{
    struct memory_range *range = &cached->rows.storage->range;
    const size_t size = 2 * sizeof *scales * cache->info.n_kv_head;
    char *mapped = memory_mapped(range);
    if (!mapped)
        return queue_write(cache->device, range, 4 * cached->scales, scales, size);
    memcpy(mapped + 4 * cached->scales, scales, size);
    return VKA_OK;
}

static enum vka_status write_all_scales(const struct vka_cache *cache)
{
    for (uint32_t l = 0; l < cache->info.n_layer; l++) {
        if (cache->key_scales)
            ENSURE(write_scales(cache, &cache->layers[l].k, cache->key_scales));
        if (cache->value_scales)
            ENSURE(write_scales(cache, &cache->layers[l].v, cache->value_scales));
    }
    return VKA_OK;
}

/* Bytes of rows, then two float32 for each head. */
static enum vka_status create_head_scaled(struct vka_cache *cache, struct cached_rows *cached)
{
    const uint64_t bytes = shape_count(&cached->rows.shape);
    const uint64_t all = bytes + 8 * (uint64_t)cache->info.n_kv_head;
    cached->scales = bytes / 4;
    if (all > UINT32_MAX)
        return log_error(&cache->device->log, VKA_UNSUPPORTED,
                         "vka_cache_create: a quantised layer has more than 2^32 values");
    return storage_create(cache->device, MEMORY_DEVICE, all, &cached->rows.storage);
}

uint32_t cache_scales_from(const struct cached_rows *cached, uint32_t head)
{
    return (uint32_t)cached->scales + (dtype_is_head_scaled(cached->dtype) ? head : 0);
}

/* Rows are padded to whole blocks. */
static enum vka_status create_blocks(struct vka_cache *cache, const uint32_t size[4],
                                     struct cached_rows *cached)
{
    const uint32_t values = divide_up(size[3], CACHE_BLOCK) * CACHE_BLOCK;
    struct log *log = &cache->device->log;
    struct shape *shape = &cached->rows.shape;
    cached->rows.dtype = VKA_I8;
    cached->byte_values = dtype_word_values(cached->dtype) / 4;
    if (!shape_dense(4, (const uint32_t[]){size[0], size[1], size[2], values / cached->byte_values},
                     shape))
        return log_error(log, VKA_UNSUPPORTED, "vka_cache_create: more than 2^48 elements");
    if (dtype_is_head_scaled(cached->dtype))
        return create_head_scaled(cache, cached);
    uint64_t bytes = shape_count(shape), n_scale = bytes * cached->byte_values / CACHE_BLOCK;
    cached->scales = bytes / 2;
    if (bytes * cached->byte_values > UINT32_MAX - 2 * n_scale)
        return log_error(log, VKA_UNSUPPORTED,
                         "vka_cache_create: a quantised layer has more than 2^32 values");
    return storage_create(cache->device, MEMORY_DEVICE, bytes + 2 * n_scale, &cached->rows.storage);
}

struct vka_tensor cache_bytes(const struct cached_rows *cached)
{
    struct vka_tensor bytes = {.storage = cached->rows.storage, .dtype = VKA_I8};
    bytes.shape =
        (struct shape){.rank = 1, .size = {(uint32_t)bytes.storage->bytes}, .stride = {1}};
    return bytes;
}

/* The largest power of two that divides a head. */
static uint32_t hadamard_block(uint32_t dim)
{
    return dim & (~dim + 1);
}

static enum vka_status create_rows(struct vka_cache *cache, enum vka_dtype dtype, uint32_t dim,
                                   struct cached_rows *cached)
{
    const struct vka_cache_info *i = &cache->info;
    bool paged = i->page_size != 0;
    /* A multiple of 16 rows, so that the bytes of a sequence are whole words for every type. */
    const uint32_t size[4] = {paged ? i->n_page : i->batch, i->n_kv_head,
                              paged ? i->page_size : divide_up(i->capacity, 16) * 16, dim};
    *cached = (struct cached_rows){.dtype = dtype, .byte_values = 1};
    if (dtype_has_hadamard(dtype) && !i->no_hadamard)
        cached->hadamard = hadamard_block(dim);
    if (dtype_is_scaled(dtype))
        ENSURE(create_blocks(cache, size, cached));
    else
        ENSURE(create_tensor(cache, MEMORY_DEVICE, dtype, size, &cached->rows));
    if (!paged)
        cached->rows.shape.size[2] = i->capacity;
    return VKA_OK;
}

static enum vka_status create_layer(struct vka_cache *cache, struct cached_layer *layer)
{
    const struct vka_cache_info *i = &cache->info;
    ENSURE(create_rows(cache, i->key_dtype, i->head_dim, &layer->k));
    return create_rows(cache, i->value_dtype, i->value_dim, &layer->v);
}

/* State and page table in one storage: kernels bind both at once. */
static enum vka_status create_words(struct vka_cache *cache)
{
    const struct vka_cache_info *i = &cache->info;
    const uint32_t n_state = 4 * i->batch + 1;
    const uint64_t n_entry = (uint64_t)i->batch * cache->table_row, all = n_state + n_entry;
    if (all > UINT32_MAX)
        return log_error(&cache->device->log, VKA_UNSUPPORTED,
                         "vka_cache_create: a page table of more than 2^32 entries");
    ENSURE(create_tensor(cache, MEMORY_STAGING, VKA_I32, (const uint32_t[]){1, 1, 1, (uint32_t)all},
                         &cache->words));
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

static enum vka_status create_tensors(struct vka_cache *cache)
{
    enum vka_status status = VKA_OK;
    const struct vka_cache_info *i = &cache->info;
    for (uint32_t l = 0; l < i->n_layer; l++)
        TRY(create_layer(cache, &cache->layers[l]));
    TRY(write_all_scales(cache));
    TRY(create_words(cache));
fail:
    return status;
}

static void release_nothing(struct recorded *self)
{
    (void)self;
}

/* Counts uses again after a loss, which resets the table, and writes the scales. */
static enum vka_status restore_uses(struct recorded *self)
{
    struct vka_cache *cache =
        (struct vka_cache *)((char *)self - offsetof(struct vka_cache, recorded));
    if (cache->table_row)
        cache_count_uses(cache);
    return write_all_scales(cache);
}

/* *to: scales of heads and their inverses, or NULL where the type makes its own. */
static enum vka_status keep_scales(struct log *log, enum vka_dtype dtype, const float *scales,
                                   uint32_t n_head, float **to)
{
    if (!dtype_is_head_scaled(dtype))
        return VKA_OK;
    *to = malloc(2 * sizeof **to * n_head);
    ENSURE_ALLOC(*to);
    for (uint32_t h = 0; h < n_head; h++) {
        (*to)[h] = scales ? scales[h] : 1;
        (*to)[n_head + h] = 1 / (*to)[h];
    }
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
    cache->recorded = (struct recorded){device->recorded, release_nothing, restore_uses, NULL};
    device->recorded = &cache->recorded;
    cache->references = 1;
    cache->info = *info;
    cache->info.key_scales = cache->info.value_scales = NULL; /* the caller's */
    if (!cache->info.value_dim)
        cache->info.value_dim = info->head_dim;
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
    cache->uses = calloc(cache->table_row ? cache->info.n_page : 1, sizeof *cache->uses);
    CHECK_ALLOC(cache->uses);
    TRY(keep_scales(log, info->key_dtype, info->key_scales, info->n_kv_head, &cache->key_scales));
    TRY(keep_scales(log, info->value_dtype, info->value_scales, info->n_kv_head,
                    &cache->value_scales));
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
    for (uint32_t i = 0; cache->layers && i < cache->info.n_layer; i++) {
        storage_unref(&cache->layers[i].k.rows.storage);
        storage_unref(&cache->layers[i].v.rows.storage);
    }
    storage_unref(&cache->words.storage);
    free(cache->layers);
    free(cache->key_scales);
    free(cache->value_scales);
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
