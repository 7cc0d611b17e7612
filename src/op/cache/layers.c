/* What the layers of a cache hold: keys and values, or states. */
#include "op/cache/layers.h"
#include "core/dtype.h"
#include "params/params.h"

#include <stdlib.h>
#include <string.h>

#define LEAST_HADAMARD 16u /* features */
#define ZEROS (1u << 20)   /* bytes that are written at once */

static enum vka_status check_type(struct log *log, const char *caller, const char *where,
                                  bool no_hadamard, const char *name, enum vka_dtype dtype,
                                  uint32_t dim)
{
    ENSURE_ARG(dtype_word_values(dtype) != 0, "%s: %s%s is %s, not one of %s", caller, where, name,
               vka_dtype_name(dtype), dtype_cached_names());
    ENSURE_ARG(!dtype_has_hadamard(dtype) || no_hadamard || dim % LEAST_HADAMARD == 0,
               "%s: %s%s is %s, whose Hadamard matrix needs a head that is a multiple of %u, "
               "not %u; set no_hadamard to do without",
               caller, where, name, vka_dtype_name(dtype), LEAST_HADAMARD, dim);
    return VKA_OK;
}

/* 1 / scale is neither 0 nor subnormal. */
static enum vka_status check_scales(struct log *log, const char *caller, const char *where,
                                    const char *name, enum vka_dtype dtype, const float *scales,
                                    uint32_t n_head)
{
    ENSURE_ARG(!scales || dtype_is_head_scaled(dtype),
               "%s: %s%s is given, but the type is %s, whose heads take no scales: leave it NULL",
               caller, where, name, vka_dtype_name(dtype));
    for (uint32_t h = 0; scales && h < n_head; h++)
        ENSURE_ARG(scales[h] >= 0x1p-126f && scales[h] <= 0x1p126f,
                   "%s: %s%s[%u] is %g, not a number from 2^-126 to 2^126", caller, where, name, h,
                   (double)scales[h]);
    return VKA_OK;
}

/* Sizes of keys and values, or of a state. */
static enum vka_status check_sizes(struct log *log, const char *caller, const char *where,
                                   const struct vka_cache_layer_info *i)
{
    const bool state = i->n_state || i->channels || i->conv_rows;
    ENSURE_ARG(i->n_kv_head || state, "%s: %sn_kv_head, n_state and channels are 0", caller, where);
    ENSURE_ARG(
        !i->n_kv_head || !state,
        "%s: %sn_kv_head is %u, but n_state, channels or conv_rows is given: a layer holds keys "
        "and values, or a state",
        caller, where, i->n_kv_head);
    ENSURE_ARG(!i->channels == !i->conv_rows,
               "%s: %schannels is %u and conv_rows %u: a convolution has both", caller, where,
               i->channels, i->conv_rows);
    const bool heads = i->n_kv_head || i->n_state;
    ENSURE_ARG(!heads == !i->head_dim, "%s: %shead_dim is %u, but n_kv_head %u and n_state %u",
               caller, where, i->head_dim, i->n_kv_head, i->n_state);
    ENSURE_ARG(heads || !i->value_dim, "%s: %svalue_dim is given, but the layer has no heads",
               caller, where);
    ENSURE_ARG(
        !state || (!i->key_dtype && !i->value_dtype && !i->key_scales && !i->value_scales &&
                   !i->no_hadamard),
        "%s: %skey_dtype, value_dtype, key_scales, value_scales or no_hadamard is given, but a "
        "state is F32",
        caller, where);
    return VKA_OK;
}

enum vka_status cache_check_layer(struct log *log, const char *caller, const char *where,
                                  const struct vka_cache_layer_info *i)
{
    ENSURE_ARG(i->struct_size == sizeof *i, "%s: %sstruct_size is %zu, not %zu", caller, where,
               i->struct_size, sizeof *i);
    ENSURE(check_sizes(log, caller, where, i));
    if (!i->n_kv_head)
        return VKA_OK;
    ENSURE(check_type(log, caller, where, i->no_hadamard, "key_dtype", i->key_dtype, i->head_dim));
    ENSURE(check_type(log, caller, where, i->no_hadamard, "value_dtype", i->value_dtype,
                      i->value_dim ? i->value_dim : i->head_dim));
    ENSURE(
        check_scales(log, caller, where, "key_scales", i->key_dtype, i->key_scales, i->n_kv_head));
    return check_scales(log, caller, where, "value_scales", i->value_dtype, i->value_scales,
                        i->n_kv_head);
}

/* ---- Creation --------------------------------------------------------------------------------- */

enum vka_status cache_create_tensor(struct vka_cache *cache, enum memory_kind kind,
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

/* Writes the scales of heads behind the rows. */
static enum vka_status write_scales(const struct vka_cache *cache, const struct cached_rows *cached,
                                    const float *scales)
{
    struct memory_range *range = &cached->rows.storage->range;
    const size_t size = 2 * sizeof *scales * cached->rows.shape.size[1];
    char *mapped = memory_mapped(range);
    if (!mapped)
        return queue_write(cache->device, range, 4 * cached->scales, scales, size);
    memcpy(mapped + 4 * cached->scales, scales, size);
    return VKA_OK;
}

enum vka_status cache_write_scales(const struct vka_cache *cache)
{
    for (uint32_t l = 0; l < cache->info.n_layer; l++) {
        const struct cached_layer *layer = &cache->layers[l];
        if (layer->key_scales)
            ENSURE(write_scales(cache, &layer->k, layer->key_scales));
        if (layer->value_scales)
            ENSURE(write_scales(cache, &layer->v, layer->value_scales));
    }
    return VKA_OK;
}

/* Bytes of rows, then two float32 for each head. */
static enum vka_status create_head_scaled(struct vka_cache *cache, struct cached_rows *cached)
{
    const uint64_t bytes = shape_count(&cached->rows.shape);
    const uint64_t all = bytes + 8 * (uint64_t)cached->rows.shape.size[1];
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
    const uint32_t values = size[3] + (CACHE_BLOCK - size[3] % CACHE_BLOCK) % CACHE_BLOCK;
    struct log *log = &cache->device->log;
    struct shape *shape = &cached->rows.shape;
    if (values < size[3])
        return log_error(
            log, VKA_UNSUPPORTED,
            "vka_cache_create: head_dim or value_dim is %u, whose whole blocks are 2^32 values",
            size[3]);
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

static enum vka_status create_rows(struct vka_cache *cache, const struct cached_layer *layer,
                                   enum vka_dtype dtype, uint32_t dim, struct cached_rows *cached)
{
    const struct vka_cache_info *i = &cache->info;
    bool paged = i->page_size != 0;
    /* A multiple of 16 rows, so that the bytes of a sequence are whole words for every type. */
    const uint32_t size[4] = {paged ? i->n_page : i->batch, layer->info.n_kv_head,
                              paged ? i->page_size : divide_up(i->capacity, 16) * 16, dim};
    *cached = (struct cached_rows){.dtype = dtype, .byte_values = 1};
    if (dtype_has_hadamard(dtype) && !layer->info.no_hadamard)
        cached->hadamard = hadamard_block(dim);
    if (dtype_is_scaled(dtype))
        ENSURE(create_blocks(cache, size, cached));
    else
        ENSURE(cache_create_tensor(cache, MEMORY_DEVICE, dtype, size, &cached->rows));
    if (!paged)
        cached->rows.shape.size[2] = i->capacity;
    return VKA_OK;
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

static enum vka_status create_states(struct vka_cache *cache, struct cached_layer *layer)
{
    const struct vka_cache_layer_info *i = &layer->info;
    const uint32_t batch = cache->info.batch;
    if (i->n_state)
        ENSURE(cache_create_tensor(cache, MEMORY_DEVICE, VKA_F32,
                                   (const uint32_t[]){batch, i->n_state, i->head_dim, i->value_dim},
                                   &layer->linear));
    if (!i->channels)
        return VKA_OK;
    ENSURE(cache_create_tensor(cache, MEMORY_DEVICE, VKA_F32,
                               (const uint32_t[]){1, batch, i->channels, i->conv_rows},
                               &layer->conv));
    if (!shape_dense(3, (const uint32_t[]){batch, i->channels, i->conv_rows}, &layer->conv.shape))
        return log_error(&cache->device->log, VKA_INTERNAL, "vka_cache_create: a shape");
    return VKA_OK;
}

enum vka_status cache_create_layer(struct vka_cache *cache, const struct vka_cache_layer_info *info,
                                   struct cached_layer *layer)
{
    struct log *log = &cache->device->log;
    struct vka_cache_layer_info *i = &layer->info;
    *i = *info;
    if (!i->value_dim)
        i->value_dim = i->head_dim;
    i->key_scales = i->value_scales = NULL; /* the caller's */
    if (!i->n_kv_head)
        return create_states(cache, layer);
    /* Rows that the device has no room for are refused before their scales are kept. */
    ENSURE(create_rows(cache, layer, i->key_dtype, i->head_dim, &layer->k));
    ENSURE(create_rows(cache, layer, i->value_dtype, i->value_dim, &layer->v));
    ENSURE(keep_scales(log, i->key_dtype, info->key_scales, i->n_kv_head, &layer->key_scales));
    return keep_scales(log, i->value_dtype, info->value_scales, i->n_kv_head, &layer->value_scales);
}

void cache_free_layer(struct cached_layer *layer)
{
    storage_unref(&layer->k.rows.storage);
    storage_unref(&layer->v.rows.storage);
    storage_unref(&layer->linear.storage);
    storage_unref(&layer->conv.storage);
    free(layer->key_scales);
    free(layer->value_scales);
}

/* ---- States ----------------------------------------------------------------------------------- */

/* Bytes of a sequence; 0: the layer has no such state. */
static uint64_t sequence_bytes(const struct vka_tensor *state)
{
    return state->storage ? 4 * state->shape.stride[0] : 0;
}

static enum vka_status zero_state(const struct vka_cache *cache, const struct vka_tensor *state,
                                  uint32_t sequence, const void *zeros)
{
    const uint64_t bytes = sequence_bytes(state), first = sequence * bytes;
    char *mapped = bytes ? memory_mapped(&state->storage->range) : NULL;
    if (mapped)
        memset(mapped + first, 0, bytes);
    if (mapped)
        return VKA_OK;
    for (uint64_t at = 0; at < bytes; at += ZEROS)
        ENSURE(queue_write(cache->device, &state->storage->range, first + at, zeros,
                           bytes - at < ZEROS ? bytes - at : ZEROS));
    return VKA_OK;
}

enum vka_status cache_zero_states(const struct vka_cache *cache, uint32_t sequence)
{
    struct log *log = &cache->device->log;
    enum vka_status status = VKA_OK;
    if (!cache->has_state)
        return VKA_OK;
    void *zeros = calloc(1, ZEROS);
    CHECK_ALLOC(zeros);
    for (uint32_t l = 0; l < cache->info.n_layer; l++) {
        TRY(zero_state(cache, &cache->layers[l].linear, sequence, zeros));
        TRY(zero_state(cache, &cache->layers[l].conv, sequence, zeros));
    }
fail:
    free(zeros);
    return status;
}

static enum vka_status copy_state(const struct vka_cache *cache, const struct vka_tensor *state,
                                  uint32_t from, uint32_t to)
{
    const uint64_t bytes = sequence_bytes(state);
    if (!bytes)
        return VKA_OK;
    const struct memory_range *range = &state->storage->range;
    return queue_copy(cache->device, range, from * bytes, range, to * bytes, bytes);
}

enum vka_status cache_copy_states(const struct vka_cache *cache, uint32_t from, uint32_t to)
{
    for (uint32_t l = 0; l < cache->info.n_layer; l++) {
        ENSURE(copy_state(cache, &cache->layers[l].linear, from, to));
        ENSURE(copy_state(cache, &cache->layers[l].conv, from, to));
    }
    return VKA_OK;
}
